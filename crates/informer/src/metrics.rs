//! Metrics of informers, with a bounded number of labels.
//!
//! # Theory
//!
//! Metrics are labelled by *informer name and resource*, both of which the program chooses, never
//! by object, request or start. The program owns a [`MetricsRegistry`]; there is no global one. It
//! hands out the metrics of a pair to one informer at a time. A second informer with the same pair
//! gets none, which is logged once per pair. The pair is free again when the informer has ended or
//! was dropped.
//!
//! | hook                                     | usual name                                                              |
//! |------------------------------------------|-------------------------------------------------------------------------|
//! | [`Metrics::listed`]                      | `reflector_lists_total`, `reflector_list_duration_seconds`, `reflector_items_per_list` |
//! | [`Metrics::watched`]                     | `reflector_watches_total`, `reflector_short_watches_total`, `reflector_watch_duration_seconds`, `reflector_items_per_watch` |
//! | [`Metrics::last_resource_version`]       | `reflector_last_resource_version`                                       |
//! | [`Metrics::processed`]                   | `informer_queued_items`, `informer_processing_latency_seconds`          |
//! | [`Metrics::store`]                       | `informer_store_resource_version`; objects: none                        |
//! | [`Metrics::handlers`]                    | none                                                                    |
//! | [`Metrics::handler_panicked`]            | none                                                                    |
use parking_lot::Mutex;
use setpoint_object::GroupVersionResource;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Receives the metrics of one informer. Called by its tasks, in part under its distribution lock,
/// so it must be fast and must not block.
pub trait Metrics: Send + Sync + 'static {
    /// A complete list, in pages or streamed, was queued.
    fn listed(&self, took: Duration, n_items: usize) {
        let _ = (took, n_items);
    }
    /// A watch was closed or broke after `n_events`. A short one ended within a second without any.
    fn watched(&self, took: Duration, n_events: u64, is_short: bool) {
        let _ = (took, n_events, is_short);
    }
    /// The reflector has reached this resourceVersion, as a number by [`gauge`].
    fn last_resource_version(&self, resource_version: u64) {
        let _ = resource_version;
    }
    /// A batch of deltas was processed; `n_queued` wait.
    fn processed(&self, took: Duration, n_deltas: usize, n_queued: usize) {
        let _ = (took, n_deltas, n_queued);
    }
    /// The cache has reached this resourceVersion, as a number by [`gauge`], and holds `n_objects`.
    fn store(&self, resource_version: Option<u64>, n_objects: usize) {
        let _ = (resource_version, n_objects);
    }
    /// The number of notifications that wait for all handlers, and for the one that is furthest
    /// behind.
    fn handlers(&self, pending: usize, pending_most: usize) {
        let _ = (pending, pending_most);
    }
    /// A call to a handler panicked.
    fn handler_panicked(&self) {}
}

/// Makes the metrics of one informer, when a pair of name and resource is reserved.
pub type MetricsProvider =
    Arc<dyn Fn(&str, &GroupVersionResource) -> Arc<dyn Metrics> + Send + Sync>;

/// Hands out metrics: those of each pair of informer name and resource to one informer at a time.
/// Cheap to clone.
#[derive(Clone)]
pub struct MetricsRegistry(Arc<Inner>);

struct Inner {
    provider: MetricsProvider,
    /// The reserved pairs, and whether a second reservation was logged.
    taken: Mutex<HashMap<Pair, bool>>,
}

type Pair = (Arc<str>, GroupVersionResource);

impl fmt::Debug for MetricsRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricsRegistry").field("n_taken", &self.0.taken.lock().len()).finish()
    }
}

impl MetricsRegistry {
    /// A registry of metrics that `provider` makes.
    pub fn new(
        provider: impl Fn(&str, &GroupVersionResource) -> Arc<dyn Metrics> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Inner { provider: Arc::new(provider), taken: Mutex::default() }))
    }

    /// Reserves the metrics of a pair until the result is dropped; `None` if they are reserved.
    pub fn reserve(
        &self,
        informer: impl Into<Arc<str>>,
        resource: &GroupVersionResource,
    ) -> Option<ReservedMetrics> {
        let pair: Pair = (informer.into(), resource.clone());
        let mut taken = self.0.taken.lock();
        if let Some(was_logged) = taken.get_mut(&pair) {
            let was_logged = std::mem::replace(was_logged, true);
            drop(taken);
            if !was_logged {
                let (informer, resource) = (&pair.0, &pair.1.resource);
                tracing::warn!(%informer, %resource, "a second informer of this name has no metrics");
            }
            return None;
        }
        taken.insert(pair.clone(), false);
        drop(taken);
        let metrics = (self.0.provider)(&pair.0, &pair.1);
        Some(ReservedMetrics { registry: self.clone(), pair, metrics })
    }
}

/// The metrics of one pair. Dropping this frees the pair.
pub struct ReservedMetrics {
    registry: MetricsRegistry,
    pair: Pair,
    metrics: Arc<dyn Metrics>,
}

impl ReservedMetrics {
    /// The metrics.
    pub fn metrics(&self) -> &Arc<dyn Metrics> {
        &self.metrics
    }
}

impl fmt::Debug for ReservedMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReservedMetrics").field(&self.pair).finish()
    }
}

impl Drop for ReservedMetrics {
    fn drop(&mut self) {
        self.registry.0.taken.lock().remove(&self.pair);
    }
}

/// A resourceVersion for a gauge: its last 15 decimal digits, which a float represents exactly.
/// `None` if it is not a number.
pub fn gauge(resource_version: &str) -> Option<u64> {
    let digits = &resource_version.as_bytes()[resource_version.len().saturating_sub(15)..];
    let is_number =
        !digits.is_empty() && resource_version.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.iter().fold(0, |sum, digit| 10 * sum + u64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spec_2_7_a_gauge_shows_the_last_fifteen_digits() {
        assert_eq!(gauge("1234567890123456789"), Some(567_890_123_456_789));
        assert_eq!((gauge("0"), gauge("42")), (Some(0), Some(42)));
        assert_eq!((gauge(""), gauge("v7"), gauge("x123456789012345")), (None, None, None));
    }

    #[test]
    fn spec_2_7_a_pair_is_handed_out_once_at_a_time() {
        struct Nothing;
        impl Metrics for Nothing {}
        let registry = MetricsRegistry::new(|_, _| Arc::new(Nothing));
        let pods = GroupVersionResource::new("", "v1", "pods");
        let nodes = GroupVersionResource::new("", "v1", "nodes");
        let first = registry.reserve("main", &pods);
        assert!(first.is_some() && registry.reserve("main", &pods).is_none());
        assert!(registry.reserve("main", &nodes).is_some(), "another resource");
        assert!(registry.reserve("other", &pods).is_some(), "another name");
        drop(first);
        assert!(registry.reserve("main", &pods).is_some(), "free again");
    }
}
