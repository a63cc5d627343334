//! Retries writes whose row is replaced in the meantime, with the row that is served now.
//!
//! # Theory
//!
//! Every commit of a custom object compares its row's fence ([`Fence`]). A commit that is refused
//! because the fence has moved has changed nothing. The write then waits until the catalog serves a
//! row for the new fence, and starts over from its body: it is decoded, defaulted and validated
//! under the new schema. Warnings of the earlier attempt are dropped.
//!
//! Only the last commit of an attempt counts. A commit with an unknown outcome is not a refusal, so
//! it is never retried.
use super::Write;
use super::execute::WriteRequest;
use super::other_versions::Conversions;
use crate::catalog::{Catalog, Fence, Resource};
use crate::request::WriteOptions;
use crate::routed::{Attributes, Target};
use crate::shared::Registry;
use crate::threads::ServingThread;
use parking_lot::Mutex;
use setpoint_object::ApiError;
use setpoint_store::Revision;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a write follows its definition after the first refusal, before its client gets an error
/// that asks it to retry.
///
/// Ten seconds: a new row follows its fence within milliseconds, on another server of the same
/// store within the delay of its feed. Well within the minute that a request may take.
pub(super) const FOLLOW_MAX: Duration = Duration::from_secs(10);

/// The fence result of a write's last commit.
#[derive(Debug, Default)]
pub(super) struct AtFence(Mutex<Option<Moved>>);
/// A fence that has moved: its present revision, `None` if it was removed.
#[derive(Debug, Clone, Copy)]
struct Moved(Option<Revision>);

impl AtFence {
    /// A commit is sent: its outcome is unknown.
    pub(super) fn commit(&self) {
        *self.0.lock() = None;
    }
    /// The commit was refused and wrote nothing: the fence has moved.
    pub(super) fn moved(&self, to: Option<Revision>) {
        *self.0.lock() = Some(Moved(to));
    }
    fn take(&self) -> Option<Moved> {
        self.0.lock().take()
    }
}

/// One write and its attempts.
#[derive(Debug)]
pub(super) struct Attempts<'a> {
    registry: &'a Registry,
    attributes: &'a Attributes,
    options: &'a WriteOptions,
    thread: &'a ServingThread,
    /// With the row of the present attempt.
    target: Cow<'a, Target>,
    at_fence: AtFence,
    conversions: Conversions,
    /// When its row was first replaced.
    first_moved: Option<Instant>,
    /// Number of warnings before the first attempt.
    n_warnings: usize,
}
impl<'a> Attempts<'a> {
    pub(super) fn new(
        registry: &'a Registry,
        attributes: &'a Attributes,
        target: &'a Target,
        options: &'a WriteOptions,
        thread: &'a ServingThread,
    ) -> Self {
        Self {
            registry,
            attributes,
            options,
            thread,
            target: Cow::Borrowed(target),
            at_fence: AtFence::default(),
            conversions: Conversions::default(),
            first_moved: None,
            n_warnings: attributes.n_warnings(),
        }
    }
    /// The present attempt.
    fn write(&self, body_bytes: usize) -> Write<'_> {
        Write {
            inner: &self.registry.inner,
            attributes: self.attributes,
            target: &self.target,
            resource: &self.target.resource,
            options: self.options,
            at_fence: &self.at_fence,
            conversions: &self.conversions,
            body_bytes,
            thread: self.thread,
            is_reviewed: true,
            now: self.registry.inner.clock.now(),
        }
    }
    /// Retries until an attempt is final.
    pub(super) async fn run<R: WriteRequest>(mut self, request: &R) -> Result<R::Output, ApiError> {
        loop {
            let outcome = request.attempt(self.write(request.n_bytes())).await;
            if let Some(outcome) = self.settle(outcome).await {
                return outcome;
            }
        }
    }
    /// The outcome of the present attempt, or `None` once the next one can start.
    ///
    /// Dropping the future has no effect: nothing was written.
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
        let follows = self.registry.inner.catalog.wait_for(|catalog| {
            let stored = row(catalog, &self.target).and_then(|row| row.stored.as_ref());
            stored.is_none_or(|stored| is_at_or_after(&stored.fence, fence, moved))
        });
        // Cancel safe: waiting takes nothing.
        if tokio::time::timeout_at(until, follows).await.is_err() {
            return Some(outcome);
        }
        let found = row(&self.registry.catalog(), &self.target).cloned();
        // The resource is no longer served.
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
fn is_at_or_after(fence: &Fence, met: &Fence, moved: Moved) -> bool {
    match moved.0 {
        Some(revision) => fence.revision >= revision,
        None => fence.revision != met.revision,
    }
}
