//! How long the layers of the server have taken for a request, for the audit log.

use std::fmt;
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
            (format!("apiserver.latency.k8s.io/{name}"), GoDuration(took).to_string())
        })
    }
}

/// A duration as Go writes it: `1.5s`, `2m0.25s`, `12.5ms`, `300ns`.
struct GoDuration(Duration);

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let seconds = self.0.as_secs();
        if seconds == 0 {
            return match nanos {
                0 => f.write_str("0s"),
                1..1_000 => write!(f, "{nanos}ns"),
                1_000..1_000_000 => write!(f, "{}µs", decimal(nanos, 3)),
                _ => write!(f, "{}ms", decimal(nanos, 6)),
            };
        }
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if seconds >= 60 {
            write!(f, "{minutes}m")?;
        }
        write!(f, "{}s", decimal(nanos % 60_000_000_000, 9))
    }
}

/// A number with so many places after its point, without zeros at the end.
fn decimal(number: u128, places: u32) -> String {
    let one = 10_u128.pow(places);
    let fraction = format!("{:0width$}", number % one, width = places as usize);
    match fraction.trim_end_matches('0') {
        "" => (number / one).to_string(),
        fraction => format!("{}.{fraction}", number / one),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_in_go() {
        let shown = |nanos| GoDuration(Duration::from_nanos(nanos)).to_string();
        assert_eq!(
            [0, 1, 1_500, 2_000_000, 1_234_567, 1_000_000_000, 61_250_000_000, 3_600_000_000_001]
                .map(shown),
            ["0s", "1ns", "1.5µs", "2ms", "1.234567ms", "1s", "1m1.25s", "1h0m0.000000001s"]
        );
    }

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
