//! A source over a Kubernetes client: a real cluster, a `setpoint` process, or an API server in
//! this process.
//!
//! The client chooses between HTTP/1.1 and HTTP/2.
mod list;

pub use list::LIST_STREAM_BYTES_MAX;

use super::query::Query;
use super::{
    LIST_BODY_BYTES_MAX, ListPage, ListPart, ListRequest, ListStream, ListWatch, Selection,
    SourceError, WatchRequest, WatchStream, frame,
};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use http::{Response, header};
use http_body_util::BodyExt;
use kube_client::Client;
use kube_client::client::Body;
use kube_core::Resource;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The largest body of a failure, bytes. A `Status` has a few hundred.
const STATUS_BODY_BYTES_MAX: usize = 1 << 20;

/// Whole objects.
const JSON: &str = "application/json";

/// Lists of metadata only; whole objects from a server that does not support it.
const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// Watches of metadata only.
const METADATA: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// Lists and watches one resource through a [`kube_client::Client`], by plain requests that leave
/// objects encoded.
#[derive(Clone)]
pub struct ClientSource {
    client: Client,
    path: String,
    selection: Selection,
    metadata_only: Arc<AtomicBool>,
    gzip: bool,
    can_stream_list: bool,
}

impl fmt::Debug for ClientSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientSource")
            .field("path", &self.path)
            .field("selection", &self.selection)
            .field("metadata_only", &self.metadata_only)
            .field("gzip", &self.gzip)
            .finish_non_exhaustive()
    }
}

impl ClientSource {
    /// All objects of `K`, in every namespace.
    pub fn all<K: Resource>(client: Client) -> Self
    where
        K::DynamicType: Default,
    {
        Self::dynamic::<K>(client, &K::DynamicType::default(), None)
    }

    /// The objects of `K` in one namespace.
    pub fn namespaced<K: Resource>(client: Client, namespace: &str) -> Self
    where
        K::DynamicType: Default,
    {
        Self::dynamic::<K>(client, &K::DynamicType::default(), Some(namespace))
    }

    /// The objects of a type known only at run time; `None` means every namespace.
    pub fn dynamic<K: Resource>(
        client: Client,
        dynamic_type: &K::DynamicType,
        namespace: Option<&str>,
    ) -> Self {
        Self {
            client,
            path: K::url_path(dynamic_type, namespace),
            selection: Selection {
                namespace: namespace.map(str::to_owned),
                ..Selection::default()
            },
            metadata_only: Arc::default(),
            gzip: false,
            can_stream_list: true,
        }
    }

    /// Only objects whose labels match, in the query form: `app=web,tier in (a,b)`.
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.selection.labels = selector.into();
        self
    }

    /// Only objects whose fields match, in the query form: `spec.nodeName=n1`.
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.selection.fields = selector.into();
        self
    }

    /// Only the objects of one shard (KEP-5866), in the query form:
    /// `shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')`.
    ///
    /// A server without shards sends everything, and only the answer to a list shows that. So lists
    /// are not streamed, and a list that is not of this shard is a [`SourceError::NotSharded`].
    pub fn shard(mut self, selector: impl Into<String>) -> Self {
        self.selection.shard = selector.into();
        self
    }

    /// [`metadata_only`](Self::metadata_only), as long as the flag is true.
    pub(crate) fn metadata_while(mut self, flag: Arc<AtomicBool>) -> Self {
        self.metadata_only = flag;
        self
    }

    /// Requests only the metadata of objects (`PartialObjectMetadata`), a fraction of their bytes
    /// (default: no). A server that does not support it sends whole objects.
    pub fn metadata_only(mut self, enabled: bool) -> Self {
        self.metadata_only = Arc::new(AtomicBool::new(enabled));
        self
    }

    /// Requests lists compressed by gzip (default: no); never watches.
    ///
    /// Useful on slow links. In the network of a cluster it costs more time than it saves: decoding
    /// takes longer than reading and splitting the saved bytes, and the server must encode. A list
    /// that is larger than [`LIST_STREAM_BYTES_MAX`] once decoded is rejected while it arrives.
    pub fn gzip(mut self, enabled: bool) -> Self {
        self.gzip = enabled;
        self
    }

    /// Whether to try streamed lists (default: yes). If a server refuses them, the reflector lists
    /// in pages. Disable them for a server that ignores `sendInitialEvents` and never ends the
    /// initial events (REF-13).
    pub fn stream_list(mut self, enabled: bool) -> Self {
        self.can_stream_list = enabled;
        self
    }

    fn query(&self) -> Query {
        Query::default()
            .add("labelSelector", &self.selection.labels)
            .add("fieldSelector", &self.selection.fields)
            .add("shardSelector", &self.selection.shard)
    }

    /// Sends a GET. `gzip`: the answer may be compressed.
    ///
    /// # Errors
    /// If the answer is a failure.
    async fn get(
        &self,
        query: Query,
        accept: &'static str,
        gzip: bool,
    ) -> Result<Response<Body>, SourceError> {
        let request = http::Request::get(format!("{}{}", self.path, query.finish()))
            .header(header::ACCEPT, accept)
            // Compressed watches have one gzip member per event, of which clients decode only the
            // first.
            .header(header::ACCEPT_ENCODING, if gzip { "gzip" } else { "identity" })
            .body(Body::empty())
            .map_err(SourceError::transport)?;
        let response = self.client.send(request).await.map_err(SourceError::transport)?;
        if response.status().is_success() {
            return Ok(response);
        }
        let retry_after = response.headers().get(header::RETRY_AFTER);
        let retry_after = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
        let code = response.status().as_u16();
        let body = collect(list::body(response), STATUS_BODY_BYTES_MAX).await?;
        Err(SourceError::from_answer(code, retry_after, &body))
    }

    async fn parts(&self, request: ListRequest) -> Result<ListStream, SourceError> {
        let limit = request.limit.map(|limit| limit.to_string()).unwrap_or_default();
        let query = self
            .query()
            .add("limit", &limit)
            .add("continue", request.continue_token.as_deref().unwrap_or_default())
            .add("resourceVersion", &request.resource_version)
            .add("resourceVersionMatch", if request.exact { "Exact" } else { "" });
        let accept = if self.metadata_only.load(Relaxed) { METADATA_LIST } else { JSON };
        let response = self.get(query, accept, self.gzip).await?;
        Ok(list::parts(list::body(response), self.selection.shard.clone()))
    }

    /// Opens a watch, and returns the body of the answer.
    async fn open(&self, request: WatchRequest) -> Result<Body, SourceError> {
        let mut query = self
            .query()
            .add("watch", "true")
            .add("allowWatchBookmarks", "true")
            .add("resourceVersion", &request.resource_version)
            .add("timeoutSeconds", &request.timeout.as_secs().to_string());
        if request.send_initial_events {
            query =
                query.add("sendInitialEvents", "true").add("resourceVersionMatch", "NotOlderThan");
        }
        let accept = if self.metadata_only.load(Relaxed) { METADATA } else { JSON };
        let response = self.get(query, accept, false).await?;
        Ok(response.into_body())
    }
}

/// The body of a failure.
async fn collect(
    mut chunks: BoxStream<'static, Result<Bytes, SourceError>>,
    bytes_max: usize,
) -> Result<Vec<u8>, SourceError> {
    let mut body = Vec::new();
    while let Some(chunk) = chunks.next().await {
        body.extend_from_slice(&chunk?);
        if body.len() > bytes_max {
            return Err(SourceError::TooLarge { what: "body of a failure", bytes_max });
        }
    }
    Ok(body)
}

impl ListWatch for ClientSource {
    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<ListPage, SourceError>> {
        async move {
            let mut parts = self.parts(request).await?;
            let (mut items, mut n_bytes) = (Vec::new(), 0);
            loop {
                match parts.next().await {
                    Some(Ok(ListPart::Items(part))) => {
                        n_bytes += part.iter().map(|item| item.bytes.len()).sum::<usize>();
                        if n_bytes > LIST_BODY_BYTES_MAX {
                            let (what, bytes_max) = ("list", LIST_BODY_BYTES_MAX);
                            return Err(SourceError::TooLarge { what, bytes_max });
                        }
                        items.extend(part.into_iter().map(|item| item.bytes));
                    }
                    Some(Ok(ListPart::End(head))) => {
                        let page = ListPage::new(head.resource_version, items);
                        return Ok(match head.continue_token {
                            Some(token) => page.continued(token),
                            None => page,
                        });
                    }
                    Some(Err(error)) => return Err(error),
                    None => return Err(SourceError::protocol("a list without an end")),
                }
            }
        }
        .boxed()
    }

    fn list_in_parts(
        &self,
        request: ListRequest,
    ) -> BoxFuture<'_, Result<ListStream, SourceError>> {
        self.parts(request).boxed()
    }

    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<WatchStream, SourceError>> {
        async move { Ok(frame::frames(self.open(request).await?.into_data_stream())) }.boxed()
    }

    fn watch_unchecked(
        &self,
        request: WatchRequest,
    ) -> BoxFuture<'_, Result<WatchStream, SourceError>> {
        async move { Ok(frame::frames_unchecked(self.open(request).await?.into_data_stream())) }
            .boxed()
    }

    fn can_stream_list(&self) -> bool {
        self.can_stream_list && self.selection.shard.is_empty()
    }

    fn selection(&self) -> Selection {
        self.selection.clone()
    }
}
