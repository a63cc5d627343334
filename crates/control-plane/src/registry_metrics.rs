//! Metrics of the registry: admission, webhooks, authorization, rules in CEL, numbers of objects.

use crate::families::Families;
use setpoint_registry::{Registry, WeakRegistry};
use setpoint_runtime::metrics::Metrics;
use std::sync::{Arc, OnceLock};

/// Writes what the registry counts, at each scrape. Nothing until it is built.
#[derive(Debug, Clone, Default)]
pub(crate) struct RegistryMetrics(Arc<OnceLock<WeakRegistry>>);

impl RegistryMetrics {
    /// Registers the metrics.
    pub(crate) fn register(metrics: &Metrics) -> Self {
        let new = Self::default();
        let registry = new.clone();
        Families::register(metrics, move || {
            let registry = registry.0.get().and_then(WeakRegistry::upgrade);
            registry.map(|registry| registry.figures()).unwrap_or_default()
        });
        new
    }

    /// Sets the registry, once.
    pub(crate) fn follow(&self, registry: &Registry) {
        // A second one does not take the first one's place: builders are used once.
        _ = self.0.set(registry.downgrade());
    }
}
