//! The client of reconcilers: reads from the cache, writes to the server.

mod api;
mod apply;
mod delete;
mod error;
pub mod layer;
mod live;
mod live_watch;
mod merge_from;
mod options;
mod own_writes;
mod retry;
mod select;
mod subresource;
mod warnings;
mod write;

use std::{fmt, sync::Arc};

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube_client::client::Body;
use kube_core::metadata::PartialObjectMeta;
use setpoint_informer::Cacheable;
use setpoint_object::{ApiError, Reason, Status};
use tokio::time::{Instant, timeout_at};

pub use self::{
    api::Api,
    apply::{Apply, ApplyError},
    error::{Call, ClientError, ignore_already_exists, ignore_not_found},
    live::Page,
    live_watch::{LiveEvent, LiveWatch, LiveWatchError},
    merge_from::MergeFrom,
    options::FieldValidation,
    own_writes::{OWN_WRITE_WAIT_MAX, OWN_WRITES_MAX},
    retry::Retry,
    select::Select,
    subresource::Subresource,
    warnings::{WARNING_TEXTS_MAX, WarningPolicy},
};
use self::{
    layer::{DefaultOwner, LayerError, WasDryRun},
    options::WriteOptions,
    own_writes::OwnWrites,
    warnings::Warnings,
};
pub(crate) use self::{
    merge_from::difference,
    own_writes::{gone as shown_gone, holds},
};
pub use crate::pass::{NOTES_MAX, Note, NoteKind, ReadFrom, WriteOutcome};
use crate::{
    answer::{ANSWER_MAX, AnswerError},
    cache::Cache,
    fence::{Both, Fence, Fenced},
    pass::{AnyPass, Pass},
};
/// Which reconcile sent a request: an extension and a header of every request of a reconciler's
/// client, for layers and for the server.
pub use setpoint_object::Origin;

/// The largest answer to a single request, in bytes.
///
/// 64 MiB: an object is at most 3 MiB as a request, and a live list of ten thousand Pods is 45 MB.
pub const BODY_BYTES_MAX: usize = 64 << 20;

/// A client over the manager's cache and a `kube_client::Client`. Cheap to clone.
///
/// Reads come from the cache, except those named `live`. So after a write, a cached read may still
/// return the older state. Writes go to the server with the client's field manager: the
/// controller's name.
#[derive(Clone)]
pub struct Client {
    /// Shared: cloning the client itself copies text.
    kube: Arc<kube_client::Client>,
    cache: Cache,
    /// The name of the cluster, if it is not the manager's own.
    cluster: Option<Arc<str>>,
    options: WriteOptions,
    warnings: Arc<Warnings>,
    /// The last writes through this client and its clones.
    own: Arc<OwnWrites>,
    /// Records a pass's reads and writes; `None` outside of a pass.
    pass: Option<Arc<dyn AnyPass>>,
    /// Refuses writes when the lease is lost; `None` without a lease.
    fence: Option<Arc<dyn Fence>>,
}

impl Client {
    pub(crate) fn new(kube: kube_client::Client, cache: Cache, field_manager: Arc<str>) -> Self {
        let options = WriteOptions::of(field_manager);
        let (kube, warnings, own) = (Arc::new(kube), Arc::default(), Arc::default());
        Self { kube, cache, cluster: None, options, warnings, own, pass: None, fence: None }
    }

    /// The manager of the fields that it writes.
    pub(crate) fn manager_of_fields(&self) -> Option<&str> {
        self.options.field_manager.as_deref()
    }

    /// A clone for a controller.
    pub(crate) fn for_controller(&self, controller: &Arc<str>) -> Self {
        let options = WriteOptions {
            is_named: false,
            field_manager: Some(controller.clone()),
            ..self.options.clone()
        };
        Self { options, ..self.clone() }
    }

    /// A clone of another cluster's client, with this client's field manager and behind its fence.
    pub(crate) fn for_cluster(&self, name: Arc<str>, of_cluster: &Self) -> Self {
        let options = WriteOptions {
            is_named: self.options.is_named,
            field_manager: self.options.field_manager.clone(),
            ..of_cluster.options.clone()
        };
        let client = Self { cluster: Some(name), options, ..of_cluster.clone() };
        match &self.fence {
            Some(fence) => client.fenced(fence.clone()),
            None => client,
        }
    }

    /// A clone for one pass of a controller.
    pub(crate) fn for_pass(&self, pass: Arc<dyn AnyPass>) -> Self {
        Self { pass: Some(pass), ..self.clone() }
    }

    /// A clone behind a fence: its mutating requests, including those through [`kube`](Self::kube),
    /// are sent only while the fence permits.
    ///
    /// Each request is checked when it is sent, and again when the connection asks for its body. A
    /// refusal is [`ClientError::Fenced`]. The [`fence`](crate::fence) module lists what a fence
    /// cannot hold back. Call it within a tokio runtime.
    #[must_use]
    pub fn fenced(&self, fence: Arc<dyn Fence>) -> Self {
        let kube = Arc::new(crate::fence::fenced(&self.kube, fence.clone()));
        let fence = match self.fence.clone() {
            Some(before) => Arc::new(Both(before, fence)),
            None => fence,
        };
        Self { kube, fence: Some(fence), ..self.clone() }
    }

    /// Whether writes are permitted now; always without a fence.
    ///
    /// # Errors
    ///
    /// Writes are not permitted. The error gives the reason.
    pub fn check_fence(&self) -> Result<(), Fenced> {
        self.fence.as_ref().map_or(Ok(()), |fence| fence.check())
    }

    /// Calls on a type known at compile time.
    pub fn api<K: Cacheable>(&self) -> Api<K>
    where
        K::DynamicType: Default,
    {
        self.api_with(K::DynamicType::default())
    }

    /// Calls on the metadata of a type known at compile time. Objects come without spec and status,
    /// and are small on the wire.
    ///
    /// They can be read, patched and deleted. Creating or replacing them fails with
    /// [`ClientError::MetadataOnly`] (CLI-4).
    pub fn metadata<K: Cacheable>(&self) -> Api<PartialObjectMeta<K>>
    where
        K::DynamicType: Default,
    {
        self.api_with(K::DynamicType::default())
    }

    /// Calls on a type known at run time.
    pub fn api_with<K: Cacheable>(&self, dynamic_type: K::DynamicType) -> Api<K> {
        Api::new(self.clone(), dynamic_type)
    }

    /// The underlying cache.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// The underlying client, for requests that this one does not offer. They carry no origin and
    /// no field manager.
    pub fn kube(&self) -> &kube_client::Client {
        &self.kube
    }

    /// The pass that records reads and writes.
    fn pass(&self) -> Option<&Pass> {
        self.pass.as_deref().map(AnyPass::pass)
    }

    /// Sends a request and reads its answer to the end, for at most [`ANSWER_MAX`].
    pub(crate) async fn send(
        &self,
        call: Call,
        request: http::Request<Vec<u8>>,
    ) -> Result<Bytes, ClientError> {
        self.send_and_look(call, request).await.map(|(body, _)| body)
    }

    /// [`send`](Self::send), and whether a layer turned it into a dry run.
    pub(crate) async fn send_and_look(
        &self,
        call: Call,
        mut request: http::Request<Vec<u8>>,
    ) -> Result<(Bytes, bool), ClientError> {
        if self.options.is_default_manager(request.uri()) {
            request.extensions_mut().insert(DefaultOwner);
        }
        if let Some(pass) = &self.pass {
            let origin = pass.origin();
            let header = origin.to_header();
            if let Some(Ok(value)) = header.map(http::HeaderValue::try_from) {
                request.headers_mut().insert(Origin::HEADER, value);
            }
            request.extensions_mut().insert(origin);
        }
        request
            .headers_mut()
            .entry(http::header::ACCEPT)
            .or_insert(http::HeaderValue::from_static("application/json"));
        let transport = |call: Call, source: BoxErr| match Fenced::find(&*source) {
            Some(&source) => ClientError::Fenced { call, source },
            None => ClientError::Transport { call, source },
        };
        let deadline = Instant::now() + ANSWER_MAX;
        let late = || BoxErr::from(AnswerError::Slow { time_max: ANSWER_MAX });
        let sent = timeout_at(deadline, self.kube.send(request.map(Body::from))).await;
        let response = match sent.unwrap_or_else(|_| Err(kube_client::Error::Service(late()))) {
            Ok(response) => response,
            Err(kube_client::Error::Service(source)) => {
                return Err(match source.downcast::<LayerError>() {
                    Ok(source) => ClientError::Layer { call, source: *source },
                    Err(source) => transport(call, source),
                });
            }
            Err(error) => return Err(transport(call, error.into())),
        };
        self.warnings.log(&call, response.headers());
        let (parts, body) = response.into_parts();
        let read = timeout_at(deadline, Limited::new(body, BODY_BYTES_MAX).collect()).await;
        let body = match read.unwrap_or_else(|_| Err(late())) {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => {
                return Err(ClientError::TooLarge { call, bytes_max: BODY_BYTES_MAX });
            }
            Err(error) => return Err(transport(call, error)),
        };
        if parts.status.is_success() {
            return Ok((body, parts.extensions.get::<WasDryRun>().is_some()));
        }
        Err(ClientError::Api { call, source: failure(parts.status.as_u16(), &body) })
    }
}

type BoxErr = crate::error::BoxError;

/// The error in an answer: its `Status`, or one made from the code if the body is something else.
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
            .field("options", &self.options)
            .field("origin", &self.pass.as_deref().map(AnyPass::origin))
            .finish_non_exhaustive()
    }
}
