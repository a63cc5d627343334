//! How long the layers of the server have taken for a request, for the audit log.

use setpoint_object::duration;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A layer of the server whose share of a request's time is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Layer {
    /// Who the user is.
    Authentication,
    /// Whether the user may act as another one.
    Impersonation,
    /// The wait for a seat.
    Queue,
    /// Whether the user may do it.
    Authorization,
    /// Calls of webhooks that change objects.
    MutatingWebhooks,
    /// Calls of webhooks that validate.
    ValidatingWebhooks,
    /// Commits.
    Store,
}

impl Layer {
    const ALL: [Self; 7] = [
        Self::Authentication,
        Self::Impersonation,
        Self::Queue,
        Self::Authorization,
        Self::MutatingWebhooks,
        Self::ValidatingWebhooks,
        Self::Store,
    ];

    /// The name that kube-apiserver's audit annotations have for it.
    fn name(self) -> &'static str {
        match self {
            Self::Authentication => "authentication",
            Self::Impersonation => "impersonation",
            Self::Queue => "apf-queue-wait",
            Self::Authorization => "authorization",
            Self::MutatingWebhooks => "mutating-webhook",
            Self::ValidatingWebhooks => "validating-webhook",
            Self::Store => "etcd",
        }
    }
}

/// The times of a request, in nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct Latencies([AtomicU64; Layer::ALL.len()]);

impl Latencies {
    pub(crate) fn add(&self, layer: Layer, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.0[layer as usize].fetch_add(nanos, Relaxed);
    }

    pub(crate) fn of(&self, layer: Layer) -> Duration {
        Duration::from_nanos(self.0[layer as usize].load(Relaxed))
    }

    /// Audit annotations: keys and values. A layer that took no time has none.
    pub(crate) fn annotations(&self, total: Duration) -> impl Iterator<Item = (String, String)> {
        let layers = Layer::ALL.iter().map(|layer| (layer.name(), self.of(*layer)));
        let known = layers.filter(|(_, took)| !took.is_zero());
        let all = known.chain([("total", total)]);
        all.map(|(name, took)| {
            (format!("apiserver.latency.k8s.io/{name}"), duration::Text(took).to_string())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_that_took_time_are_annotated() {
        let latencies = Latencies::default();
        latencies.add(Layer::Store, Duration::from_millis(20));
        latencies.add(Layer::Store, Duration::from_millis(5));
        let found: Vec<_> = latencies.annotations(Duration::from_millis(600)).collect();
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(
            found,
            [
                pair("apiserver.latency.k8s.io/etcd", "25ms"),
                pair("apiserver.latency.k8s.io/total", "600ms"),
            ]
        );
        for (place, layer) in Layer::ALL.iter().enumerate() {
            assert_eq!(*layer as usize, place, "{}", layer.name());
        }
    }
}
