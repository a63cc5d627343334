//! Reads from the server.

use bytes::Bytes;
use http::{HeaderValue, header};
use kube_core::{
    Resource,
    params::{GetParams, ListParams},
};
use serde_json::value::RawValue;
use setpoint_informer::{Cacheable, ResourceType, from_json};
use setpoint_object::head::Head;

use super::{Api, Call, ClientError, ReadFrom, api::decode};
use crate::request::Request;

const METADATA: HeaderValue = HeaderValue::from_static(
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
);
const METADATA_LIST: HeaderValue = HeaderValue::from_static(
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
);

/// A page of a list, at one resourceVersion.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Page<K> {
    /// The objects, in the server's order.
    pub items: Vec<K>,
    /// The version of the list, to start a watch from.
    pub resource_version: String,
    /// The continue token of the next page, for [`ListParams::continue_token`]; empty on the last
    /// page.
    pub continue_token: String,
    /// How many objects remain on later pages, if the server says.
    pub remaining: Option<i64>,
}

impl<K: Cacheable> Api<K> {
    /// The object on the server; `None` if there is none.
    ///
    /// # Errors
    ///
    /// Any failure except that the object is absent. If the resource itself is not served, that is
    /// an error too.
    pub async fn get_live(&self, key: &Request) -> Result<Option<K>, ClientError> {
        match self.ask_live(key).await {
            Err(error) if is_absent(&error) => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// [`get_live`](Self::get_live), with the server's 404 for an absent object.
    pub(super) async fn ask_live(&self, key: &Request) -> Result<K, ClientError> {
        let call = self.call("get", key.to_string());
        self.note_read(key, ReadFrom::Server);
        let request = self.path_of(&call, key)?.get(&key.name, &GetParams::default());
        let request = request.map(|request| accept::<K, _>(request, METADATA));
        let body = self.send(call.clone(), request).await?;
        decode(call, &body)
    }

    /// The objects on the server that `params` select. Without a namespace: of all namespaces. With
    /// a limit: the first ones.
    ///
    /// # Errors
    ///
    /// The server refuses, or cannot be reached.
    pub async fn list_live(
        &self,
        namespace: Option<&str>,
        params: &ListParams,
    ) -> Result<Vec<K>, ClientError> {
        Ok(self.page_live(namespace, params).await?.items)
    }

    /// [`list_live`](Self::list_live), with the version of the list and the continue token.
    ///
    /// # Errors
    ///
    /// As [`list_live`](Self::list_live); also 410 if the continue token has expired: start again.
    pub async fn page_live(
        &self,
        namespace: Option<&str>,
        params: &ListParams,
    ) -> Result<Page<K>, ClientError> {
        let call = self.call("list", namespace.unwrap_or_default());
        self.note_list(namespace, ReadFrom::Server);
        let request = self.path(&call, namespace)?.list(params);
        let request = request.map(|request| accept::<K, _>(request, METADATA_LIST));
        let body = self.send(call.clone(), request).await?;
        self.page(call, &body)
    }

    fn page(&self, call: Call, body: &Bytes) -> Result<Page<K>, ClientError> {
        #[derive(serde::Deserialize)]
        struct List<'a> {
            #[serde(default)]
            metadata: Meta,
            #[serde(default, borrow)]
            items: Option<Vec<&'a RawValue>>,
        }
        #[derive(serde::Deserialize, Default)]
        #[serde(rename_all = "camelCase", default)]
        struct Meta {
            resource_version: String,
            #[serde(rename = "continue")]
            continue_token: String,
            remaining_item_count: Option<i64>,
        }
        let list: List<'_> = serde_json::from_slice(body)
            .map_err(|source| ClientError::Decode { call: call.clone(), source })?;
        let kind = ResourceType::of::<K>(&self.dynamic_type);
        let items = list
            .items
            .unwrap_or_default()
            .into_iter()
            .map(|item| match typed(item.get(), &kind) {
                Some(item) => from_json(item.as_bytes()),
                None => from_json(item.get().as_bytes()),
            })
            .collect::<Result<_, _>>()
            .map_err(|source| ClientError::Decode { call, source })?;
        Ok(Page {
            items,
            resource_version: list.metadata.resource_version,
            continue_token: list.metadata.continue_token,
            remaining: list.metadata.remaining_item_count,
        })
    }
}

/// Adds the kind to an item of a list, since servers leave it out for built-in types. `None` if the
/// item has one (CCH-7).
fn typed(item: &str, kind: &ResourceType) -> Option<String> {
    let head = Head::of(item.as_bytes()).ok()?;
    if !head.kind(item.as_bytes()).is_empty() {
        return None;
    }
    let members = item.trim_start().strip_prefix('{')?;
    let comma = if members.trim_start().starts_with('}') { "" } else { "," };
    let (api_version, kind) = (&kind.api_version, &kind.kind.kind);
    Some(format!(r#"{{"apiVersion":"{api_version}","kind":"{kind}"{comma}{members}"#))
}

/// Requests metadata only, for a metadata-only type.
pub(super) fn accept<K: Resource, B>(
    mut request: http::Request<B>,
    metadata: HeaderValue,
) -> http::Request<B> {
    if K::metadata_api() {
        request.headers_mut().insert(header::ACCEPT, metadata);
    }
    request
}

/// Requests metadata only in the answer to a write.
pub(super) fn accept_one<K: Resource, B>(request: http::Request<B>) -> http::Request<B> {
    accept::<K, B>(request, METADATA)
}

/// Whether a 404 is about the object, not the resource: it names the object.
pub(super) fn is_absent(error: &ClientError) -> bool {
    error.is_not_found()
        && error
            .api()
            .and_then(|error| error.0.details.as_ref())
            .is_some_and(|details| !details.name.is_empty())
}
