//! Metrics of connections, of tokens and of health checks.

use crate::families::Families;
use setpoint_apiserver::ServerFigures;
use setpoint_runtime::metrics::Metrics;
use std::sync::{Arc, OnceLock};

/// Writes what the server counts, at each scrape. Nothing until it is built.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerMetrics(Arc<OnceLock<ServerFigures>>);

impl ServerMetrics {
    /// Registers the metrics of connections and tokens in `metrics`, and those of health checks in
    /// `health`.
    pub(crate) fn register(metrics: &Metrics, health: &Metrics) -> Self {
        let new = Self::default();
        let of_connections = new.clone();
        Families::register(metrics, move || {
            let read = |figures: &ServerFigures| {
                let mut families = figures.connections();
                families.extend(figures.tokens());
                families
            };
            of_connections.0.get().map(read).unwrap_or_default()
        });
        let of_health = new.clone();
        Families::register(health, move || {
            of_health.0.get().map(ServerFigures::health).unwrap_or_default()
        });
        new
    }

    /// Sets the server, once.
    pub(crate) fn follow(&self, figures: ServerFigures) {
        // A second one does not take the first one's place: builders are used once.
        _ = self.0.set(figures);
    }
}
