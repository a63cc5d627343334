//! Write requests, and the thread that each runs on.
//!
//! Most writes run on the serving thread. A write that may compute for more than a few milliseconds
//! runs on a thread that may block ([`crate::threads`]): a large body, a type that is costly to
//! validate or not compiled yet, a large stored object. A large stored object is detected when it
//! has been read, before any work on it; the write then starts over on the other thread.
use super::Write;
use super::retry::Attempts;
use crate::catalog::Resource;
use crate::kind::Action;
use crate::request::{Body, DeleteOptions, Deleted, PatchType, WriteOptions, Written};
use crate::routed::{Attributes, Target};
use crate::shared::Registry;
use serde_json::Value;
use setpoint_object::ApiError;
use setpoint_schema::INLINE_BYTES_MAX;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// One write request.
pub(super) trait WriteRequest: Clone + Send + Sync + 'static {
    /// Its result.
    type Output: Send + 'static;
    /// The size of its body in bytes.
    fn n_bytes(&self) -> usize;
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
pub(super) struct Delete(pub(super) DeleteOptions);

/// A stream to another server, with its options. Nothing is written.
#[derive(Debug, Clone)]
pub(super) struct Connect(pub(super) Value);

impl WriteRequest for Connect {
    type Output = Value;
    fn n_bytes(&self) -> usize {
        0
    }
    async fn attempt(&self, write: Write<'_>) -> Result<Value, ApiError> {
        // Admission may call webhooks, so it runs once, on this thread.
        let acting = Write { inline: None, ..write };
        acting.connected(&self.0).await
    }
}
impl WriteRequest for Create {
    type Output = Written;
    fn n_bytes(&self) -> usize {
        self.0.bytes.len()
    }
    async fn attempt(&self, write: Write<'_>) -> Result<Written, ApiError> {
        let target = write.target;
        let action = write.resource.kind.action(target.subresource_name());
        // What acts, or asks webhooks, must not run twice, so the write stays on this thread.
        let acting = Write { inline: None, ..write };
        match (action, &target.subresource) {
            (Some(Action::Bind), _) => acting.bind(&self.0).await,
            (Some(Action::Evict), _) => acting.evict(&self.0).await,
            (Some(Action::IssueToken), _) => acting.issue_token(&self.0).await,
            (Some(Action::Review(reviewed)), _) => acting.answer_review(reviewed, &self.0).await,
            (None, None) => write.create(&self.0).await,
            (None, Some(_)) => write.connect().await,
        }
    }
}
impl WriteRequest for Update {
    type Output = Written;
    fn n_bytes(&self) -> usize {
        self.0.bytes.len()
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
    fn n_bytes(&self) -> usize {
        self.1.bytes.len()
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
    fn n_bytes(&self) -> usize {
        0
    }
    async fn attempt(&self, write: Write<'_>) -> Result<Deleted, ApiError> {
        if write.is_connect() {
            let written = write.connect().await?;
            return Ok(Deleted::Object { object: written.object, remains: true });
        }
        write.delete(&self.0).await
    }
}

/// The limits of a write on the serving thread.
#[derive(Debug)]
pub(super) struct Inline {
    /// Size of its body.
    n_bytes: usize,
    is_passed: AtomicBool,
}
impl Write<'_> {
    /// Ends an attempt before any work on a stored object that is too large for this thread.
    pub(super) fn check_inline(&self, stored: &[u8]) -> Result<(), ApiError> {
        let Some(inline) = self.inline else { return Ok(()) };
        if inline.n_bytes + stored.len() <= INLINE_BYTES_MAX {
            return Ok(());
        }
        inline.is_passed.store(true, Ordering::Relaxed);
        Err(ApiError::internal(
            "the stored object is large: the write starts over on another thread",
        ))
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
    let n_bytes = request.n_bytes();
    let threads = &registry.inner.threads;
    if !threads.are_used() {
        return Attempts::new(registry, attributes, target, options, None).run(&request).await;
    }
    if n_bytes <= INLINE_BYTES_MAX && !is_costly(&target.resource) {
        let n_warnings = attributes.n_warnings();
        let inline = Inline { n_bytes, is_passed: AtomicBool::new(false) };
        let attempts = Attempts::new(registry, attributes, target, options, Some(&inline));
        let outcome = attempts.run(&request).await;
        if !inline.is_passed.load(Ordering::Relaxed) {
            return outcome;
        }
        attributes.forget_warnings(n_warnings);
    }
    let noted = Arc::new(attributes.to_owned());
    let there = {
        let (registry, attributes) = (registry.clone(), noted.clone());
        let (target, options) = (target.clone(), options.clone());
        async move { Attempts::new(&registry, &attributes, &target, &options, None).run(&request).await }
    };
    let outcome = threads.run(there).await;
    attributes.take_notes(&noted);
    outcome?
}
/// Whether any write of a row's objects may be costly.
fn is_costly(row: &Resource) -> bool {
    row.kind.validates_slowly
        || row.schema.is_costly()
        || row.schemas().any(|schema| schema.compiles_slowly())
}
