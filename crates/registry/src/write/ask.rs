//! What is asked of a write, and where it is done.
//!
//! Most writes are done where they are asked for. One that may take more than a few milliseconds of
//! computing is done on a thread that may be held up ([`crate::threads`]): a large body, a type
//! whose validation is costly or that is yet to be compiled, a large stored object. The last is
//! seen once the object is there, before anything is made of it; the write then begins anew there.
use super::Write;
use super::repeat::Turns;
use crate::attributes::{Attributes, Target};
use crate::catalog::Resource;
use crate::kind::Action;
use crate::request::{Body, DeleteOptions, Deleted, PatchType, WriteOptions, Written};
use crate::shared::Registry;
use setpoint_object::ApiError;
use setpoint_schema::INLINE_BYTES_MAX;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// One request to write.
pub(super) trait Ask: Clone + Send + Sync + 'static {
    /// What it is answered with.
    type Answer: Send + 'static;
    /// The bytes of its body.
    fn n_bytes(&self) -> usize;
    /// One turn of it.
    fn turn(&self, write: Write<'_>)
    -> impl Future<Output = Result<Self::Answer, ApiError>> + Send;
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

impl Ask for Create {
    type Answer = Written;
    fn n_bytes(&self) -> usize {
        self.0.bytes.len()
    }
    async fn turn(&self, write: Write<'_>) -> Result<Written, ApiError> {
        let target = write.target;
        let action = write.resource.kind.action(target.subresource_name());
        // What an action has done by then must not be done again: it goes on where it is.
        let acting = Write { inline: None, ..write };
        match (action, &target.subresource) {
            (Some(Action::Bind), _) => acting.bind(&self.0).await,
            (Some(Action::Evict), _) => acting.evict(&self.0).await,
            (None, None) => write.create(&self.0).await,
            (None, Some(_)) => write.connect().await,
        }
    }
}
impl Ask for Update {
    type Answer = Written;
    fn n_bytes(&self) -> usize {
        self.0.bytes.len()
    }
    async fn turn(&self, write: Write<'_>) -> Result<Written, ApiError> {
        match write.is_connect() {
            true => write.connect().await,
            false => write.replace(&self.0).await,
        }
    }
}
impl Ask for Patch {
    type Answer = Written;
    fn n_bytes(&self) -> usize {
        self.1.bytes.len()
    }
    async fn turn(&self, write: Write<'_>) -> Result<Written, ApiError> {
        match write.is_connect() {
            true => write.connect().await,
            false => write.patch(self.0, &self.1).await,
        }
    }
}
impl Ask for Delete {
    type Answer = Deleted;
    fn n_bytes(&self) -> usize {
        0
    }
    async fn turn(&self, write: Write<'_>) -> Result<Deleted, ApiError> {
        if write.is_connect() {
            let written = write.connect().await?;
            return Ok(Deleted::Object { object: written.object, remains: true });
        }
        write.delete(&self.0).await
    }
}

/// How far a write may go where it is asked for.
#[derive(Debug)]
pub(super) struct Inline {
    /// Of its body.
    n_bytes: usize,
    is_passed: AtomicBool,
}
impl Write<'_> {
    /// Ends a turn before anything is made of a stored object that is too large for it.
    pub(super) fn check_inline(&self, stored: &[u8]) -> Result<(), ApiError> {
        let Some(inline) = self.inline else { return Ok(()) };
        if inline.n_bytes + stored.len() <= INLINE_BYTES_MAX {
            return Ok(());
        }
        inline.is_passed.store(true, Ordering::Relaxed);
        Err(ApiError::internal("the stored object is large: the write begins anew"))
    }
}

/// Does what is asked.
///
/// # Errors
///
/// Those of the request.
pub(super) async fn run<A: Ask>(
    registry: &Registry,
    attributes: &Attributes,
    target: &Target,
    options: &WriteOptions,
    ask: A,
) -> Result<A::Answer, ApiError> {
    let n_bytes = ask.n_bytes();
    let threads = &registry.inner.threads;
    if !threads.are_used() {
        return Turns::new(registry, attributes, target, options, None).run(&ask).await;
    }
    if n_bytes <= INLINE_BYTES_MAX && !is_costly(&target.resource) {
        let n_warnings = attributes.n_warnings();
        let inline = Inline { n_bytes, is_passed: AtomicBool::new(false) };
        let turns = Turns::new(registry, attributes, target, options, Some(&inline));
        let outcome = turns.run(&ask).await;
        if !inline.is_passed.load(Ordering::Relaxed) {
            return outcome;
        }
        attributes.forget_warnings(n_warnings);
    }
    let noted = Arc::new(attributes.to_owned());
    let there = {
        let (registry, attributes) = (registry.clone(), noted.clone());
        let (target, options) = (target.clone(), options.clone());
        async move { Turns::new(&registry, &attributes, &target, &options, None).run(&ask).await }
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
