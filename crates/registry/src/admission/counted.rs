//! Plugins whose runs are counted.

use super::{Admission, Review};
use crate::figures::{AdmissionCounts, Distribution, Labels};
use crate::latency::Layer;
use serde_json::Value;
use setpoint_object::ApiError;
use std::ops::Deref;
use tokio::time::Instant;

/// A plugin, and how long its halves took.
#[derive(Debug)]
pub(super) struct Counted<P> {
    plugin: P,
    counts: AdmissionCounts,
}

impl<P: Deref<Target: Admission>> Counted<P> {
    pub(super) fn new(plugin: P) -> Self {
        Self { plugin, counts: AdmissionCounts::default() }
    }
    pub(super) fn plugin(&self) -> &P::Target {
        &self.plugin
    }
    pub(super) fn name(&self) -> &str {
        self.plugin.name()
    }
    pub(super) fn reinvoked(&self) -> bool {
        self.plugin.reinvoked()
    }
    pub(super) fn handles(&self, review: &Review<'_>) -> bool {
        self.plugin.handles(review)
    }
    /// Whether its mutating half is called.
    pub(super) fn mutates(&self, review: &Review<'_>) -> bool {
        self.plugin.mutates(review.operation) && self.plugin.handles(review)
    }
    pub(super) async fn mutate(
        &self,
        review: &Review<'_>,
        object: &mut Value,
    ) -> Result<(), ApiError> {
        let begun = Instant::now();
        let outcome = self.plugin.mutate(review, object).await;
        self.counts.ran(review.operation as usize, false, &outcome, begun.elapsed());
        outcome
    }
    pub(super) async fn validate(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
    ) -> Result<(), ApiError> {
        let begun = Instant::now();
        let outcome = self.plugin.validate(review, object).await;
        self.counts.ran(review.operation as usize, true, &outcome, begun.elapsed());
        outcome
    }
    /// [`Counted::mutate`] of a plugin that asks other programs, for which the request waits.
    pub(super) async fn ask_to_mutate(
        &self,
        review: &Review<'_>,
        object: &mut Value,
    ) -> Result<(), ApiError> {
        let begun = Instant::now();
        let outcome = self.mutate(review, object).await;
        review.attributes.took(Layer::MutatingWebhooks, begun.elapsed());
        outcome
    }
    /// [`Counted::validate`] of a plugin that asks other programs, for which the request waits.
    pub(super) async fn ask_to_validate(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
    ) -> Result<(), ApiError> {
        let begun = Instant::now();
        let outcome = self.validate(review, object).await;
        review.attributes.took(Layer::ValidatingWebhooks, begun.elapsed());
        outcome
    }
    /// The series of its runs.
    pub(super) fn series(&self) -> impl Iterator<Item = (Labels, Distribution)> {
        self.counts.series(Some(self.plugin.name()))
    }
}
