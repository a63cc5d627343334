//! A layer that restricts a client to one namespace.

use std::sync::Arc;

use hashbrown::HashMap;
use http::{Request, Response};
use http_body_util::{BodyExt, Limited};
use kube_client::client::Body;
use parking_lot::Mutex;
use tower::Layer;

use super::{ApiCall, Each, LayerError, RequestService, Wrapped, pass_on, query};
use crate::{client::BODY_BYTES_MAX, error::BoxError};

/// The maximum number of groups and versions whose scopes a [`Namespaced`] layer caches. Beyond it,
/// the whole cache is cleared.
const GROUP_VERSIONS_MAX: usize = 256;

/// Restricts requests to one namespace. Requests without a namespace go there, requests to another
/// namespace are refused ([`LayerError::OtherNamespace`]), and requests for cluster-scoped objects
/// pass.
///
/// Whether a path without a namespace means all namespaces or a cluster-scoped object depends on
/// the type. The layer asks the server, once per group and version, and again for a resource it
/// does not find. As everywhere, the server checks that an object's `metadata.namespace` agrees
/// with the path.
#[derive(Debug, Clone)]
pub struct Namespaced {
    namespace: Arc<str>,
    /// Whether each resource has namespaces, by the path of group and version.
    scopes: Arc<Mutex<HashMap<String, Arc<Scopes>>>>,
}

type Scopes = HashMap<String, bool>;

impl Namespaced {
    /// The layer.
    pub fn new(namespace: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), scopes: Arc::default() }
    }

    /// Whether a resource has namespaces. Calls `inner` only if it is unknown.
    async fn has_namespaces<S: RequestService>(
        &self,
        inner: &mut S,
        call: &ApiCall,
    ) -> Result<bool, BoxError> {
        let path = match &*call.group {
            "" => format!("/api/{}", call.version),
            group => format!("/apis/{group}/{}", call.version),
        };
        let known = self.scopes.lock().get(&path).cloned();
        if let Some(has) = known.and_then(|scopes| scopes.get(&*call.resource).copied()) {
            return Ok(has);
        }
        let scopes = Arc::new(discover(inner, &path).await?);
        let has = scopes.get(&*call.resource).copied();
        let mut all = self.scopes.lock();
        if all.len() >= GROUP_VERSIONS_MAX {
            all.clear();
        }
        all.insert(path, scopes);
        has.ok_or_else(|| LayerError::UnknownScope { resource: call.group_resource() }.into())
    }
}

/// The scopes of a group and version, from the server's discovery.
async fn discover<S: RequestService>(inner: &mut S, path: &str) -> Result<Scopes, BoxError> {
    #[derive(serde::Deserialize, Default)]
    struct Resources {
        #[serde(default)]
        resources: Vec<Resource>,
    }
    #[derive(serde::Deserialize)]
    struct Resource {
        name: String,
        #[serde(default)]
        namespaced: bool,
    }
    // The ready service is needed for the request itself.
    let mut discovery = inner.clone();
    std::future::poll_fn(|context| discovery.poll_ready(context)).await.map_err(Into::into)?;
    let request = Request::get(path).body(Body::empty())?;
    let response = pass_on(&mut discovery, request).await?;
    if !response.status().is_success() {
        return Ok(Scopes::default());
    }
    let body = Limited::new(response.into_body(), BODY_BYTES_MAX).collect().await?.to_bytes();
    let resources: Resources = serde_json::from_slice(&body)?;
    Ok(resources
        .resources
        .into_iter()
        .map(|resource| (resource.name, resource.namespaced))
        .collect())
}

impl<S> Layer<S> for Namespaced {
    type Service = Wrapped<S, Self>;

    fn layer(&self, inner: S) -> Self::Service {
        Wrapped { inner, each: self.clone() }
    }
}

impl Each for Namespaced {
    async fn send<S: RequestService>(
        self,
        mut inner: S,
        mut request: Request<Body>,
    ) -> Result<Response<Body>, BoxError> {
        let Some(call) = ApiCall::of(&request) else { return pass_on(&mut inner, request).await };
        if call.namespace == self.namespace {
            return pass_on(&mut inner, request).await;
        }
        if !call.namespace.is_empty() {
            let asked = call.namespace.to_string();
            return Err(LayerError::OtherNamespace { allowed: self.namespace, asked }.into());
        }
        if self.has_namespaces(&mut inner, &call).await? {
            let (path, query) = (request.uri().path(), request.uri().query());
            let n_prefix = if call.group.is_empty() { 2 } else { 3 };
            let mut parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
            parts.splice(n_prefix..n_prefix, ["namespaces", &*self.namespace]);
            let query = query.map(|query| format!("?{query}")).unwrap_or_default();
            let path = format!("/{}{query}", parts.join("/"));
            query::replace(&mut request, &path);
        }
        pass_on(&mut inner, request).await
    }
}
