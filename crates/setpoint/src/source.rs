//! The source of an informer over a control plane in the same process.
//!
//! # Theory
//!
//! [`InProcessSource`] asks the registry itself: what a reflector asks becomes one call, and what comes back are the objects that
//! the watch cache holds, shared and not copied. There is no request to parse, no frame to write and to cut again. What it answers
//! is what [`ClientSource`](setpoint_informer::ClientSource) over [`ControlPlane::client`](crate::ControlPlane::client) answers:
//!
//! | over HTTP                                      | here                                                        |
//! |------------------------------------------------|-------------------------------------------------------------|
//! | a request before the server has started waits   | the same wait, and then the same 503                        |
//! | the path is routed in the catalog of the moment | the same lookup, and the same 404 and 405                   |
//! | selectors and versions are checked              | by the same code, with the same failures                    |
//! | an `ERROR` frame ends a watch                   | the same `Status`, never encoded                            |
//! | a server that drains ends its watches           | the same, behind the events that were there                 |
//! | items of a built-in list leave out their type   | they name it: an informer completes them anyway             |
//!
//! It asks as the server itself, as the in-process client does; warnings of a deprecated type go nowhere.

use futures::future::BoxFuture;
use futures::stream;
use futures::{FutureExt, Stream, StreamExt};
use kube_client::Resource;
use setpoint_apiserver::{ApiServer, Identity};
use setpoint_informer::source::{
    ListHead, ListItem, ListPage, ListPart, ListRequest, ListStream, WatchFrame, WatchRequest,
    WatchStream,
};
use setpoint_informer::{ListWatch, ResourceType, SourceError};
use setpoint_object::field_selector::FieldSelector;
use setpoint_object::label::Selector;
use setpoint_object::status::Details;
use setpoint_object::{ApiError, GroupVersionResource, Reason};
use setpoint_registry::{
    Caller, Event, EventKind, List, ListOptions, Listed, Target, VersionMatch,
};
use std::fmt;
use std::task::Poll;
use std::time::Duration;

/// How long a request waits for start-up before it is answered with 503: a second, as over HTTP.
const READY_WAIT_MAX: Duration = Duration::from_secs(1);

/// How many items of a list are handed on at once, so that a long list leaves others their turn.
const PART_ITEMS_MAX: usize = 1000;

/// Lists and watches one resource of a control plane in this process. Cheap to clone.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use k8s_openapi::api::core::v1::Namespace;
/// use setpoint::ControlPlane;
/// use setpoint::prelude::*;
///
/// let plane = ControlPlane::builder().build();
/// let (informer, worker) = SharedInformer::<Namespace>::builder(plane.source::<Namespace>()).build();
/// let stop = CancellationToken::new();
/// let story = async {
///     informer.synced().await?;
///     stop.cancel();
///     Ok::<_, Box<dyn std::error::Error>>(informer.lister().len())
/// };
/// let (ended, (), n_namespaces) = tokio::join!(plane.run(stop.clone()), worker.run(stop.clone()), story);
/// ended?;
/// assert_eq!(n_namespaces?, 4);
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct InProcessSource {
    server: ApiServer,
    resource: GroupVersionResource,
    namespace: Option<String>,
    label_selector: String,
    field_selector: String,
    can_stream_list: bool,
}

impl fmt::Debug for InProcessSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcessSource")
            .field("resource", &self.resource)
            .field("namespace", &self.namespace)
            .field("labels", &self.label_selector)
            .field("fields", &self.field_selector)
            .finish_non_exhaustive()
    }
}

impl InProcessSource {
    /// All objects of `K`, in every namespace.
    pub fn all<K: Resource>(server: &ApiServer) -> Self
    where
        K::DynamicType: Default,
    {
        Self::dynamic::<K>(server, &K::DynamicType::default(), None)
    }

    /// The objects of `K` in one namespace.
    pub fn namespaced<K: Resource>(server: &ApiServer, namespace: &str) -> Self
    where
        K::DynamicType: Default,
    {
        Self::dynamic::<K>(server, &K::DynamicType::default(), Some(namespace))
    }

    /// The objects of a type known only at run time; `None` means every namespace.
    pub fn dynamic<K: Resource>(
        server: &ApiServer,
        dynamic_type: &K::DynamicType,
        namespace: Option<&str>,
    ) -> Self {
        Self {
            server: server.clone(),
            resource: ResourceType::of::<K>(dynamic_type).resource,
            namespace: namespace.map(str::to_owned),
            label_selector: String::new(),
            field_selector: String::new(),
            can_stream_list: true,
        }
    }

    /// Only the objects of one namespace.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
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

    /// Whether lists are asked for as streams (default: yes).
    pub fn stream_list(mut self, enabled: bool) -> Self {
        self.can_stream_list = enabled;
        self
    }

    /// What the catalog of the moment says of the resource, once the server has started.
    async fn target(&self, verb: &str) -> Result<Target, ApiError> {
        let registry = self.server.registry();
        if tokio::time::timeout(READY_WAIT_MAX, registry.wait_ready()).await.is_err() {
            return Err(starting());
        }
        let GroupVersionResource { group, version, resource } = &self.resource;
        let catalog = registry.catalog();
        let row = catalog.get(group, version, resource).ok_or_else(ApiError::no_route)?;
        if self.namespace.is_some() && !row.scope.is_namespaced() {
            return Err(ApiError::no_route());
        }
        if !row.serves(verb) {
            return Err(ApiError::method_not_allowed());
        }
        Ok(Target {
            resource: row.clone(),
            namespace: self.namespace.clone().unwrap_or_default(),
            name: String::new(),
            subresource: String::new(),
        })
    }

    fn options(&self) -> Result<ListOptions, ApiError> {
        let labels = match &*self.label_selector {
            "" => Selector::everything(),
            text => Selector::parse(text).map_err(|error| ApiError::bad_request(error.0))?,
        };
        let fields = FieldSelector::parse(&self.field_selector)
            .map_err(|error| ApiError::bad_request(error.0))?;
        Ok(ListOptions { labels, fields, ..ListOptions::default() })
    }

    async fn page(&self, request: ListRequest) -> Result<List, SourceError> {
        let target = self.target("list").await?;
        let options = ListOptions {
            limit: request.limit.unwrap_or_default().into(),
            continue_token: request.continue_token.unwrap_or_default(),
            resource_version: request.resource_version,
            resource_version_match: request.exact.then_some(VersionMatch::Exact),
            ..self.options()?
        };
        Ok(self.server.registry().list(&caller(), &target, &options).await?)
    }
}

impl ListWatch for InProcessSource {
    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<ListPage, SourceError>> {
        async move {
            let list = self.page(request).await?;
            let items = list.items.iter().map(Listed::bytes).collect();
            let page = ListPage::new(list.revision.to_string(), items);
            Ok(match list.continue_token {
                token if token.is_empty() => page,
                token => page.continued(token),
            })
        }
        .boxed()
    }

    fn list_in_parts(
        &self,
        request: ListRequest,
    ) -> BoxFuture<'_, Result<ListStream, SourceError>> {
        async move {
            let list = self.page(request).await?;
            let mut head = ListHead::default();
            head.resource_version = list.revision.to_string();
            head.continue_token = Some(list.continue_token).filter(|token| !token.is_empty());
            let items = list.items.into_iter().map(|object| ListItem::from(object.bytes()));
            let parts = stream::iter(items).chunks(PART_ITEMS_MAX).map(ListPart::Items);
            let end = stream::iter([ListPart::End(head)]);
            Ok(parts.chain(end).map(Ok).boxed())
        }
        .boxed()
    }

    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<WatchStream, SourceError>> {
        async move {
            let target = self.target("watch").await?;
            let initial = request.send_initial_events;
            let options = ListOptions {
                resource_version: request.resource_version,
                resource_version_match: initial.then_some(VersionMatch::NotOlderThan),
                allow_bookmarks: true,
                send_initial_events: initial.then_some(true),
                timeout: Some(request.timeout).filter(|timeout| timeout.as_secs() > 0),
                ..self.options()?
            };
            let events = self.server.registry().watch(&caller(), &target, &options).await?;
            Ok(frames(events, self.server.drained()).boxed())
        }
        .boxed()
    }

    fn can_stream_list(&self) -> bool {
        self.can_stream_list
    }
}

/// The frames of a watch, which ends with its events, behind an error, or when the server drains and nothing is at hand.
fn frames(
    mut events: setpoint_registry::WatchStream,
    drained: impl Future<Output = ()> + Send + 'static,
) -> impl Stream<Item = Result<WatchFrame, SourceError>> + Send {
    let mut drained = Box::pin(drained.fuse());
    let mut is_over = false;
    stream::poll_fn(move |cx| {
        if is_over {
            return Poll::Ready(None);
        }
        let next = match events.poll_next_unpin(cx) {
            Poll::Ready(Some(Ok(event))) => return Poll::Ready(Some(Ok(frame(&event)))),
            Poll::Ready(Some(Err(error))) => Some(Ok(WatchFrame::Error(error))),
            Poll::Ready(None) => None,
            Poll::Pending => match drained.poll_unpin(cx) {
                Poll::Ready(()) => None,
                Poll::Pending => return Poll::Pending,
            },
        };
        is_over = true;
        Poll::Ready(next)
    })
}

fn frame(event: &Event) -> WatchFrame {
    let object = event.object();
    match event.kind {
        EventKind::Added => WatchFrame::Added(object),
        EventKind::Modified => WatchFrame::Modified(object),
        EventKind::Deleted => WatchFrame::Deleted(object),
        EventKind::Bookmark => WatchFrame::Bookmark(object),
    }
}

/// The server itself, as its in-process client is.
fn caller() -> Caller {
    let identity = Identity::loopback();
    Caller {
        user: identity.user.to_string(),
        groups: identity.groups.iter().map(|group| group.to_string()).collect(),
        ..Caller::default()
    }
}

/// 503: start-up is not done; come again in a second.
fn starting() -> ApiError {
    let text = "the request has been made before all known HTTP paths have been installed, please try again";
    let mut error = ApiError::new(503, Reason::ServiceUnavailable, text);
    error.0.details = Some(Details { retry_after_seconds: 1, ..Details::default() });
    error
}
