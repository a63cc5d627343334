//! Write requests, and the thread that each runs on.
//!
//! Most writes run on the serving thread. A write that may compute for more than a few milliseconds
//! runs on a thread that may block ([`crate::threads`]): a large body or one of many values, a type
//! that is costly to validate or not compiled yet. Others leave the serving thread when they meet
//! what is large, before any work on it: a stored object, what a webhook, a policy, a conversion or
//! defaults have made of a small one.
use super::Write;
use super::order::Place;
use super::retry::Attempts;
use crate::catalog::Resource;
use crate::kind::Action;
use crate::request::{Body, DeleteOptions, Deleted, Format, PatchType, WriteOptions, Written};
use crate::routed::{Attributes, Target};
use crate::shared::Registry;
use crate::threads::ServingThread;
use serde_json::Value;
use setpoint_object::ApiError;
use setpoint_schema::INLINE_BYTES_MAX;
use std::sync::Arc;

/// Maximum number of values in a body that is worked on on the serving thread. Each takes up to
/// five microseconds, most of it for defaults and errors of empty ones.
const INLINE_VALUES_MAX: usize = 1024;
/// Bytes of a value in a binary encoding, as few as are usual.
const BINARY_VALUE_BYTES: usize = 8;

/// One write request.
pub(super) trait WriteRequest: Clone + Send + Sync + 'static {
    /// Its result.
    type Output: Send + 'static;
    /// Its body.
    fn body(&self) -> Option<&Body>;
    /// The size of its body in bytes.
    fn n_bytes(&self) -> usize {
        self.body().map_or(0, |body| body.bytes.len())
    }
    /// One attempt.
    fn attempt(
        &self,
        write: Write<'_>,
    ) -> impl Future<Output = Result<Self::Output, ApiError>> + Send;
}

/// POST to a collection, or to a connect-like subresource.
#[derive(Debug, Clone)]
pub(super) struct Create(pub(super) Body);
/// PUT.
#[derive(Debug, Clone)]
pub(super) struct Update(pub(super) Body);
/// PATCH.
#[derive(Debug, Clone)]
pub(super) struct Patch(pub(super) PatchType, pub(super) Body);
/// DELETE of one object.
#[derive(Debug, Clone)]
pub(super) struct Delete {
    pub(super) options: DeleteOptions,
    /// Of an object of a collection that is deleted.
    pub(super) place: Option<Place>,
}

/// A stream to another server, with its options. Nothing is written.
#[derive(Debug, Clone)]
pub(super) struct Connect(pub(super) Value);

impl WriteRequest for Connect {
    type Output = Value;
    fn body(&self) -> Option<&Body> {
        None
    }
    async fn attempt(&self, write: Write<'_>) -> Result<Value, ApiError> {
        write.connected(&self.0).await
    }
}
impl WriteRequest for Create {
    type Output = Written;
    fn body(&self) -> Option<&Body> {
        Some(&self.0)
    }
    async fn attempt(&self, write: Write<'_>) -> Result<Written, ApiError> {
        let target = write.target;
        let action = write.resource.kind.action(target.subresource_name());
        match (action, &target.subresource) {
            // Long futures are boxed, so that a create's future stays small.
            (Some(Action::Bind), _) => Box::pin(write.bind(&self.0)).await,
            (Some(Action::Evict), _) => Box::pin(write.evict(&self.0)).await,
            (Some(Action::IssueToken), _) => write.issue_token(&self.0).await,
            (Some(Action::Review(reviewed)), _) => write.answer_review(reviewed, &self.0).await,
            (None, None) => write.create(&self.0).await,
            (None, Some(_)) => write.connect().await,
        }
    }
}
impl WriteRequest for Update {
    type Output = Written;
    fn body(&self) -> Option<&Body> {
        Some(&self.0)
    }
    async fn attempt(&self, write: Write<'_>) -> Result<Written, ApiError> {
        match write.is_connect() {
            true => write.connect().await,
            false => write.replace(&self.0).await,
        }
    }
}
impl WriteRequest for Patch {
    type Output = Written;
    fn body(&self) -> Option<&Body> {
        Some(&self.1)
    }
    async fn attempt(&self, write: Write<'_>) -> Result<Written, ApiError> {
        match write.is_connect() {
            true => write.connect().await,
            false => write.patch(self.0, &self.1).await,
        }
    }
}
impl WriteRequest for Delete {
    type Output = Deleted;
    fn body(&self) -> Option<&Body> {
        None
    }
    async fn attempt(&self, write: Write<'_>) -> Result<Deleted, ApiError> {
        if write.is_connect() {
            let written = write.connect().await?;
            return Ok(Deleted::Object { object: written.object, remains: true });
        }
        write.delete(&self.options, self.place.as_ref()).await
    }
}

impl Write<'_> {
    /// Leaves the serving thread if work on the body and `n_bytes` more would hold it.
    pub(super) async fn leave_if_large(&self, n_bytes: usize) {
        if self.body_bytes + n_bytes > INLINE_BYTES_MAX {
            self.thread.leave().await;
        }
    }
    /// The same for a tree that may be much larger than what it was made of.
    pub(super) async fn leave_if_grown(&self, tree: &Value) {
        self.thread.leave_if_large(tree).await;
    }
}

/// Runs the request.
///
/// # Errors
///
/// Those of the request.
pub(super) async fn run<R: WriteRequest>(
    registry: &Registry,
    attributes: &Attributes,
    target: &Target,
    options: &WriteOptions,
    request: R,
) -> Result<R::Output, ApiError> {
    let threads = &registry.inner.threads;
    if !threads.are_used() {
        let thread = ServingThread::left();
        return Attempts::new(registry, attributes, target, options, &thread).run(&request).await;
    }
    let is_costly = request.body().is_some_and(is_large) || is_costly(&target.resource);
    let thread = if is_costly { ServingThread::left() } else { ServingThread::new() };
    let thread = Arc::new(thread);
    let write = {
        let (registry, attributes, thread) =
            (registry.clone(), attributes.to_owned(), thread.clone());
        let (target, options) = (target.clone(), options.clone());
        async move {
            Attempts::new(&registry, &attributes, &target, &options, &thread).run(&request).await
        }
    };
    threads.run_from_here(&thread, Box::pin(write)).await?
}
/// Whether work on a body would hold the serving thread: it is long, or has many values. Each `{}`
/// of a list may get a dozen defaults and errors.
fn is_large(Body { bytes, format }: &Body) -> bool {
    let n_values = || match format {
        Format::Json | Format::Yaml => n_beginnings(bytes),
        Format::Protobuf | Format::Cbor => bytes.len() / BINARY_VALUE_BYTES,
    };
    bytes.len() > INLINE_BYTES_MAX
        || bytes.len() > INLINE_VALUES_MAX && n_values() > INLINE_VALUES_MAX
}
/// The number of bytes after which a value of a text begins.
fn n_beginnings(text: &[u8]) -> usize {
    // Counts of a chunk fit in a byte, so that the compiler can look at many bytes at once.
    let of_chunk = |chunk: &[u8]| {
        let begins = |byte: &u8| matches!(byte, b'{' | b'[' | b',' | b'\n');
        chunk.iter().fold(0_u8, |n, byte| n + u8::from(begins(byte)))
    };
    text.chunks(usize::from(u8::MAX)).map(of_chunk).map(usize::from).sum()
}
/// Whether any write of a row's objects may be costly.
fn is_costly(row: &Resource) -> bool {
    row.kind.validates_slowly
        || row.schema.is_costly()
        || row.schemas().any(|schema| schema.compiles_slowly())
}
