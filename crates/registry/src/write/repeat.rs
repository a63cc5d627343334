//! Writes whose row is replaced under them: made again with the row that is served now.
//!
//! # Theory
//!
//! Every commit of a custom object compares its row's fence ([`Fence`]). A commit that is refused
//! because the fence has moved has changed nothing. The write then waits until the catalog serves a
//! row for the new fence, and is made again from its body on: decoded, defaulted and validated
//! under the new schema. What the first turn warned of is forgotten.
//!
//! Only the last commit of a turn counts. A commit whose outcome is unknown is no refusal, so it is
//! never made again.
use super::Write;
use super::ask::{Ask, Inline};
use crate::attributes::{Attributes, Target};
use crate::catalog::{Catalog, Fence, Resource};
use crate::request::WriteOptions;
use crate::shared::Registry;
use parking_lot::Mutex;
use setpoint_object::ApiError;
use setpoint_store::Revision;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a write follows its definition from the first refusal on, before its client is told to
/// try again.
///
/// Ten seconds: a new row follows its fence within milliseconds, on another server of the same
/// store within the delay of its feed. Well inside the minute that a request may take.
pub(super) const FOLLOW_MAX: Duration = Duration::from_secs(10);

/// What the last commit of a write met at its fence.
#[derive(Debug, Default)]
pub(super) struct AtFence(Mutex<Option<Moved>>);
/// A fence that had moved: where it stands now, `None` when it is gone.
#[derive(Debug, Clone, Copy)]
struct Moved(Option<Revision>);

impl AtFence {
    /// A commit is sent: nothing is known of it.
    pub(super) fn commit(&self) {
        *self.0.lock() = None;
    }
    /// The commit was refused, and nothing was written: the fence stands elsewhere.
    pub(super) fn moved(&self, to: Option<Revision>) {
        *self.0.lock() = Some(Moved(to));
    }
    fn take(&self) -> Option<Moved> {
        self.0.lock().take()
    }
}

/// One write and its turns.
#[derive(Debug)]
pub(super) struct Turns<'a> {
    registry: &'a Registry,
    attributes: &'a Attributes,
    options: &'a WriteOptions,
    inline: Option<&'a Inline>,
    /// With the row that the present turn is made with.
    target: Cow<'a, Target>,
    at_fence: AtFence,
    /// Since when rows are replaced under it.
    first_moved: Option<Instant>,
    /// Warnings of those before.
    n_warnings: usize,
}
impl<'a> Turns<'a> {
    pub(super) fn new(
        registry: &'a Registry,
        attributes: &'a Attributes,
        target: &'a Target,
        options: &'a WriteOptions,
        inline: Option<&'a Inline>,
    ) -> Self {
        Self {
            registry,
            attributes,
            options,
            inline,
            target: Cow::Borrowed(target),
            at_fence: AtFence::default(),
            first_moved: None,
            n_warnings: attributes.n_warnings(),
        }
    }
    /// The present turn.
    fn write(&self) -> Write<'_> {
        Write {
            inner: &self.registry.inner,
            attributes: self.attributes,
            target: &self.target,
            resource: &self.target.resource,
            options: self.options,
            at_fence: &self.at_fence,
            inline: self.inline,
            now: self.registry.inner.clock.now(),
        }
    }
    /// Takes turns until one counts.
    pub(super) async fn run<A: Ask>(mut self, ask: &A) -> Result<A::Answer, ApiError> {
        loop {
            let outcome = ask.turn(self.write()).await;
            if let Some(outcome) = self.settle(outcome).await {
                return outcome;
            }
        }
    }
    /// The outcome of the present turn, or `None` once the next one can be made.
    ///
    /// Dropping it loses nothing: nothing was written.
    async fn settle<T>(&mut self, outcome: Result<T, ApiError>) -> Option<Result<T, ApiError>> {
        let Some(moved) = self.at_fence.take().filter(|_| outcome.is_err()) else {
            return Some(outcome);
        };
        let Some(fence) = self.target.resource.stored.as_ref().map(|stored| &stored.fence) else {
            return Some(outcome);
        };
        let until = *self.first_moved.get_or_insert_with(Instant::now) + FOLLOW_MAX;
        if Instant::now() >= until {
            return Some(outcome);
        }
        let mut catalogs = self.registry.catalog_changes();
        let follows = catalogs.wait_for(|catalog| {
            let stored = row(catalog, &self.target).and_then(|row| row.stored.as_ref());
            stored.is_none_or(|stored| is_behind(&stored.fence, fence, moved))
        });
        // Cancel safe: waiting takes nothing.
        let found = match tokio::time::timeout_at(until, follows).await {
            Ok(Ok(catalog)) => row(&catalog, &self.target).cloned(),
            Ok(Err(_)) | Err(_) => return Some(outcome),
        };
        // It is served no more.
        let Some(resource) = found else { return Some(Err(ApiError::no_route())) };
        self.target.to_mut().resource = resource;
        self.attributes.forget_warnings(self.n_warnings);
        None
    }
}
/// The row of a target in a catalog.
fn row<'c>(catalog: &'c Catalog, target: &Target) -> Option<&'c Arc<Resource>> {
    let row = &target.resource;
    catalog.get(&row.gvk.group, &row.gvk.version, &row.resource)
}
/// Whether a row's fence is the one that a write met, or a later one.
fn is_behind(fence: &Fence, met: &Fence, moved: Moved) -> bool {
    match moved.0 {
        Some(revision) => fence.revision >= revision,
        None => fence.revision != met.revision,
    }
}
