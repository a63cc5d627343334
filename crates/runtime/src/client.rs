//! Reads from the cache, writes to the server.

mod api;
mod error;

use std::{fmt, sync::Arc};

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube_client::client::Body;
use parking_lot::Mutex;
use setpoint_informer::Cacheable;
use setpoint_object::{ApiError, Reason, Status};

pub use self::{
    api::Api,
    error::{Call, ClientError},
};
use crate::{cache::Cache, context::ReconcileId};

/// The largest answer to a single request that is read, in bytes.
///
/// 64 MiB: an object is at most 3 MiB as a request, and a live list of ten thousand Pods is 45 MB.
pub const BODY_BYTES_MAX: usize = 64 << 20;

/// A client over the manager's cache and a `kube_client::Client`. Cheap to clone.
///
/// Reads come from the cache unless they say `live`; so after a write, a cached read may still give the state before it. Writes go to
/// the server, and carry the client's field manager: the controller's name.
#[derive(Clone)]
pub struct Client {
    kube: kube_client::Client,
    cache: Cache,
    field_manager: Arc<str>,
    origin: Option<Arc<Origin>>,
    /// What a pass has written; nobody asks outside of one.
    written: Option<Arc<Mutex<Written>>>,
}

/// The newest resourceVersion written of each resource.
#[derive(Debug, Clone, Default)]
pub(crate) struct Written(pub(crate) Vec<(Arc<str>, u64)>);

/// Who sends a request: an extension of every `http::Request` that a reconciler's client sends, for a layer of that client or a server
/// in the same process to see.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Origin {
    /// The controller's name.
    pub controller: Arc<str>,
    /// The key that is reconciled, as it displays.
    pub request: Arc<str>,
    /// The pass.
    pub reconcile_id: ReconcileId,
}

impl Client {
    pub(crate) fn new(kube: kube_client::Client, cache: Cache, field_manager: Arc<str>) -> Self {
        Self { kube, cache, field_manager, origin: None, written: None }
    }

    /// The same client as one pass of a controller uses it.
    pub(crate) fn for_pass(
        &self,
        controller: &Arc<str>,
        request: String,
        reconcile_id: ReconcileId,
    ) -> Self {
        let origin =
            Origin { controller: controller.clone(), request: request.into(), reconcile_id };
        Self {
            origin: Some(Arc::new(origin)),
            field_manager: controller.clone(),
            written: Some(Arc::default()),
            ..self.clone()
        }
    }

    /// The same client with another field manager: the name under which `managedFields` records its writes.
    #[must_use]
    pub fn field_manager(&self, name: impl Into<Arc<str>>) -> Self {
        Self { field_manager: name.into(), ..self.clone() }
    }

    /// The calls on one type known at compile time.
    pub fn api<K: Cacheable>(&self) -> Api<K>
    where
        K::DynamicType: Default,
    {
        self.api_with(K::DynamicType::default())
    }

    /// The calls on one type known at run time.
    pub fn api_with<K: Cacheable>(&self, dynamic_type: K::DynamicType) -> Api<K> {
        Api::new(self.clone(), dynamic_type)
    }

    /// The cache under it.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// The client under it, for what this one does not offer. Its requests carry no origin and no field manager.
    pub fn kube(&self) -> &kube_client::Client {
        &self.kube
    }

    /// Notes that the server holds an object in this version because of a write.
    fn note_written(&self, resource: &Arc<str>, resource_version: Option<&str>) {
        let Some(written) = &self.written else { return };
        // Versions are opaque where they are no numbers; then there is nothing to wait for.
        let Some(version) = resource_version.and_then(|version| version.parse::<u64>().ok()) else {
            return;
        };
        let mut written = written.lock();
        match written.0.iter_mut().find(|(of, _)| of == resource) {
            Some((_, newest)) => *newest = version.max(*newest),
            None => written.0.push((resource.clone(), version)),
        }
    }

    /// What was written through this client and its clones.
    pub(crate) fn written(&self) -> Written {
        self.written.as_ref().map(|written| written.lock().clone()).unwrap_or_default()
    }

    /// Sends one request and reads its answer to the end.
    pub(crate) async fn send(
        &self,
        call: Call,
        mut request: http::Request<Vec<u8>>,
    ) -> Result<Bytes, ClientError> {
        if let Some(origin) = &self.origin {
            request.extensions_mut().insert(Origin::clone(origin));
        }
        request
            .headers_mut()
            .entry(http::header::ACCEPT)
            .or_insert(http::HeaderValue::from_static("application/json"));
        let transport = |call: Call, source: BoxErr| ClientError::Transport { call, source };
        let response = match self.kube.send(request.map(Body::from)).await {
            Ok(response) => response,
            Err(error) => return Err(transport(call, error.into())),
        };
        let (parts, body) = response.into_parts();
        let body = match Limited::new(body, BODY_BYTES_MAX).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => {
                return Err(ClientError::TooLarge { call, bytes_max: BODY_BYTES_MAX });
            }
            Err(error) => return Err(transport(call, error)),
        };
        if parts.status.is_success() {
            return Ok(body);
        }
        Err(ClientError::Api { call, source: failure(parts.status.as_u16(), &body) })
    }
}

type BoxErr = crate::reconciler::BoxError;

/// The failure that an answer means: its `Status`, or one made of the code when the body is something else.
fn failure(code: u16, body: &[u8]) -> ApiError {
    match serde_json::from_slice::<Status>(body) {
        Ok(mut status) if !status.message.is_empty() || !status.reason.is_empty() => {
            status.code.get_or_insert(code);
            ApiError(Box::new(status))
        }
        _ if code == 404 => ApiError::no_route(),
        _ => {
            let text = String::from_utf8_lossy(&body[..body.len().min(512)]).trim().to_owned();
            ApiError::new(code, Reason::Unknown, text)
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("cache", &self.cache)
            .field("field_manager", &self.field_manager)
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}
