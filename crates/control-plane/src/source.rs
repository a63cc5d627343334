//! The source of an informer over a control plane in the same process.
//!
//! # Theory
//!
//! [`InProcessSource`] calls the API server ([`ApiServer::list`], [`ApiServer::watch`]) without
//! HTTP. Each request of a reflector is one call, and the results are the objects in the watch
//! cache, shared and not copied. No request is parsed, and no frame is written and split again. The
//! request passes the same stages as over HTTP: start-up, routing, refusals and flow control. So
//! the answer equals that of [`ClientSource`] over
//! [`ControlPlane::client`](crate::ControlPlane::client), with one difference: items of a built-in
//! list include their type, which they omit over HTTP. Informers add it in any case.
//!
//! A resource that a [`Backend`](setpoint_apiserver::Backend) serves has no objects in the watch
//! cache, and a backend speaks HTTP. While such a backend exists, the source sends the in-process
//! requests of a `ClientSource`.
//!
//! The source acts as the server itself, as the in-process client does. Warnings of deprecated
//! types are discarded.

use futures::future::BoxFuture;
use futures::stream;
use futures::{FutureExt, Stream, StreamExt};
use kube_client::Resource;
use kube_client::core::{ApiResource, DynamicObject};
use setpoint_apiserver::{ApiServer, Attributes, Events, Identity, Requested, ResourcePath, Verb};
use setpoint_informer::factory::SourceRequest;
use setpoint_informer::source::{
    ListHead, ListItem, ListPage, ListPart, ListRequest, ListStream, Selection, WatchFrame,
    WatchRequest, WatchStream,
};
use setpoint_informer::{ClientSource, ListWatch, ResourceType, SourceError};
use setpoint_object::{GroupVersion, GroupVersionResource};
use setpoint_registry::{Event, EventKind, List, ListOptions, Listed, ShardSelector, VersionMatch};
use std::fmt;

/// Maximum number of list items passed on at once, so that a long list does not block other tasks.
const PART_ITEMS_MAX: usize = 1000;

/// Lists and watches one resource of a control plane in this process. Cheap to clone.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use k8s_openapi::api::core::v1::Namespace;
/// use setpoint_control_plane::ControlPlane;
/// use setpoint_informer::SharedInformer;
/// use tokio_util::sync::CancellationToken;
///
/// let plane = ControlPlane::builder().build();
/// let (informer, worker) = SharedInformer::<Namespace>::builder(plane.source::<Namespace>()).build();
/// let stop = CancellationToken::new();
/// let client = async {
///     informer.synced().await?;
///     stop.cancel();
///     Ok::<_, Box<dyn std::error::Error>>(informer.lister().len())
/// };
/// let (result, (), n_namespaces) = tokio::join!(plane.run(stop.clone()), worker.run(stop.clone()), client);
/// result?;
/// assert_eq!(n_namespaces?, 4);
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct InProcessSource {
    server: ApiServer,
    resource: GroupVersionResource,
    selection: Selection,
    can_stream_list: bool,
}

impl fmt::Debug for InProcessSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcessSource")
            .field("resource", &self.resource)
            .field("selection", &self.selection)
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
        let mut selection = Selection::default();
        selection.namespace = namespace.map(str::to_owned);
        let resource = ResourceType::of::<K>(dynamic_type).resource;
        Self { server: server.clone(), resource, selection, can_stream_list: true }
    }

    /// What a cache of a manager lists and watches: for
    /// `CacheOptions::source`, so that caches are filled without
    /// HTTP. Shard selectors are ignored: it has the whole selection.
    pub fn of_request(server: &ApiServer, request: &SourceRequest) -> Self {
        Self {
            server: server.clone(),
            resource: request.resource_type.resource.clone(),
            selection: request.selection.clone(),
            can_stream_list: true,
        }
    }

    /// Only the objects of one namespace.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.selection.namespace = Some(namespace.into());
        self
    }

    /// Only objects whose labels match, in query form: `app=web,tier in (a,b)`.
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.selection.labels = selector.into();
        self
    }

    /// Only objects whose fields match, in query form: `spec.nodeName=n1`.
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.selection.fields = selector.into();
        self
    }

    /// Only the objects of one shard, in query form: [`ShardSelector`]. A wrong one is the error of
    /// each request.
    pub fn shard(mut self, selector: impl Into<String>) -> Self {
        self.selection.shard = selector.into();
        self
    }

    /// Whether lists are requested as streams. Default: yes.
    pub fn stream_list(mut self, enabled: bool) -> Self {
        self.can_stream_list = enabled;
        self
    }

    /// A request for all selected objects, as the server itself.
    fn request(&self, verb: Verb) -> Attributes {
        let GroupVersionResource { group, version, resource } = &self.resource;
        let path = ResourcePath {
            group: group.to_string(),
            version: version.to_string(),
            resource: resource.to_string(),
            namespace: self.selection.namespace.clone().unwrap_or_default(),
            ..ResourcePath::default()
        };
        Attributes {
            label_selector: self.selection.labels.clone(),
            field_selector: self.selection.fields.clone(),
            ..Attributes::new(Identity::loopback(), verb, Requested::Unrouted(path))
        }
    }

    /// The source of a resource that a backend serves; `None` if no backend serves it.
    fn backend_source(&self) -> Option<ClientSource> {
        let GroupVersionResource { group, version, resource } = &self.resource;
        let group_version = GroupVersion::new(group.clone(), version.clone());
        self.server.backends().get(&group_version)?;
        let resource = ApiResource {
            group: group.to_string(),
            version: version.to_string(),
            api_version: group_version.to_string(),
            // Request paths contain no kind.
            kind: String::new(),
            plural: resource.to_string(),
        };
        let Selection { namespace, labels, fields, shard, .. } = &self.selection;
        let namespace = namespace.as_deref();
        let source =
            ClientSource::dynamic::<DynamicObject>(self.server.client(), &resource, namespace);
        Some(source.labels(labels).fields(fields).shard(shard))
    }

    fn shard_selector(&self) -> Result<Option<ShardSelector>, SourceError> {
        let text = Some(&*self.selection.shard).filter(|text| !text.is_empty());
        Ok(text.map(ShardSelector::parse).transpose()?)
    }

    async fn page(&self, request: ListRequest) -> Result<List, SourceError> {
        let options = ListOptions {
            limit: request.limit.unwrap_or_default().into(),
            continue_token: request.continue_token.unwrap_or_default(),
            resource_version: request.resource_version,
            resource_version_match: request.exact.then_some(VersionMatch::Exact),
            shard: self.shard_selector()?,
            ..ListOptions::default()
        };
        Ok(self.server.list(self.request(Verb::List), options).await?)
    }
}

impl ListWatch for InProcessSource {
    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<ListPage, SourceError>> {
        async move {
            if let Some(source) = self.backend_source() {
                return source.list(request).await;
            }
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
            if let Some(source) = self.backend_source() {
                return source.list_in_parts(request).await;
            }
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
            if let Some(source) = self.backend_source() {
                return source.watch(request).await;
            }
            let initial = request.send_initial_events;
            let options = ListOptions {
                resource_version: request.resource_version,
                resource_version_match: initial.then_some(VersionMatch::NotOlderThan),
                allow_bookmarks: true,
                send_initial_events: initial.then_some(true),
                shard: self.shard_selector()?,
                timeout: Some(request.timeout).filter(|timeout| timeout.as_secs() > 0),
                ..ListOptions::default()
            };
            let events = self.server.watch(self.request(Verb::Watch), options).await?;
            Ok(frames(events).boxed())
        }
        .boxed()
    }

    fn can_stream_list(&self) -> bool {
        self.can_stream_list
    }

    fn selection(&self) -> Selection {
        self.selection.clone()
    }
}

/// The frames of a watch. An error is the last one.
fn frames(events: Events) -> impl Stream<Item = Result<WatchFrame, SourceError>> + Send {
    events.map(|event| {
        Ok(match event {
            Ok(event) => frame(&event),
            Err(error) => WatchFrame::Error(error),
        })
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
