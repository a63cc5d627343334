//! A source over a Kubernetes client: a real cluster, a `setpoint` process, or an API server in this process.
use super::query::Query;
use super::{
    LIST_BODY_BYTES_MAX, ListPage, ListRequest, ListWatch, SourceError, WatchRequest, WatchStream,
    frame,
};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube_client::Client;
use kube_client::client::Body;
use kube_core::Resource;
use std::fmt;

/// The largest body of a failure that is read, bytes: a `Status` is a few hundred.
const STATUS_BODY_BYTES_MAX: usize = 1 << 20;

/// Lists and watches one resource through a [`kube_client::Client`], by plain requests: objects stay the bytes they came as.
#[derive(Clone)]
pub struct ClientSource {
    client: Client,
    path: String,
    label_selector: String,
    field_selector: String,
    can_stream_list: bool,
}

impl fmt::Debug for ClientSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientSource")
            .field("path", &self.path)
            .field("labels", &self.label_selector)
            .field("fields", &self.field_selector)
            .finish_non_exhaustive()
    }
}

impl ClientSource {
    /// All objects of `K`, in every namespace.
    pub fn all<K: Resource>(client: Client) -> Self
    where
        K::DynamicType: Default,
    {
        Self::with(client, K::url_path(&K::DynamicType::default(), None))
    }

    /// The objects of `K` in one namespace.
    pub fn namespaced<K: Resource>(client: Client, namespace: &str) -> Self
    where
        K::DynamicType: Default,
    {
        Self::with(client, K::url_path(&K::DynamicType::default(), Some(namespace)))
    }

    /// The objects of a type known only at run time; `None` means every namespace.
    pub fn dynamic<K: Resource>(
        client: Client,
        dynamic_type: &K::DynamicType,
        namespace: Option<&str>,
    ) -> Self {
        Self::with(client, K::url_path(dynamic_type, namespace))
    }

    fn with(client: Client, path: String) -> Self {
        Self {
            client,
            path,
            label_selector: String::new(),
            field_selector: String::new(),
            can_stream_list: true,
        }
    }

    /// Only objects whose labels match, in the query form: `app=web,tier in (a,b)`.
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.label_selector = selector.into();
        self
    }

    /// Only objects whose fields match, in the query form: `spec.nodeName=n1`.
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.field_selector = selector.into();
        self
    }

    /// Whether to try lists as streams (default: yes). A server that refuses is asked for pages anyway; say no for one that
    /// ignores `sendInitialEvents` and never ends the initial events (REF-13).
    pub fn stream_list(mut self, enabled: bool) -> Self {
        self.can_stream_list = enabled;
        self
    }

    fn query(&self) -> Query {
        Query::default()
            .add("labelSelector", &self.label_selector)
            .add("fieldSelector", &self.field_selector)
    }

    /// Sends a GET; an answer that is not a success becomes the failure it means.
    async fn get(&self, query: Query) -> Result<Body, SourceError> {
        let request = http::Request::get(format!("{}{}", self.path, query.finish()))
            .header(http::header::ACCEPT, "application/json")
            // Compressed watches come in one member per event, which clients fail to decode after the first.
            .header(http::header::ACCEPT_ENCODING, "identity")
            .body(Body::empty())
            .map_err(SourceError::transport)?;
        let response = self.client.send(request).await.map_err(SourceError::transport)?;
        let (parts, body) = response.into_parts();
        if parts.status.is_success() {
            return Ok(body);
        }
        let body = collect(body, STATUS_BODY_BYTES_MAX, "body of a failure").await?;
        let retry_after = parts.headers.get(http::header::RETRY_AFTER);
        let retry_after = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
        Err(SourceError::from_answer(parts.status.as_u16(), retry_after, &body))
    }
}

async fn collect(body: Body, bytes_max: usize, what: &'static str) -> Result<Bytes, SourceError> {
    match Limited::new(body, bytes_max).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(SourceError::TooLarge { what, bytes_max })
        }
        Err(error) => Err(SourceError::transport(error)),
    }
}

impl ListWatch for ClientSource {
    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<ListPage, SourceError>> {
        async move {
            let limit = request.limit.map(|limit| limit.to_string()).unwrap_or_default();
            let query = self
                .query()
                .add("limit", &limit)
                .add("continue", request.continue_token.as_deref().unwrap_or_default())
                .add("resourceVersion", &request.resource_version)
                .add("resourceVersionMatch", if request.exact { "Exact" } else { "" });
            let body = self.get(query).await?;
            ListPage::parse(&collect(body, LIST_BODY_BYTES_MAX, "list").await?)
        }
        .boxed()
    }

    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<WatchStream, SourceError>> {
        async move {
            let mut query = self
                .query()
                .add("watch", "true")
                .add("allowWatchBookmarks", "true")
                .add("resourceVersion", &request.resource_version)
                .add("timeoutSeconds", &request.timeout.as_secs().to_string());
            if request.send_initial_events {
                query = query
                    .add("sendInitialEvents", "true")
                    .add("resourceVersionMatch", "NotOlderThan");
            }
            Ok(frame::frames(self.get(query).await?.into_data_stream()))
        }
        .boxed()
    }

    fn can_stream_list(&self) -> bool {
        self.can_stream_list
    }
}
