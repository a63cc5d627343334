//! What the server counts of health checks, of connections and of tokens, for metrics.

use crate::token_use::TokenUse;
use parking_lot::Mutex;
use setpoint_registry::figures::{Family, Histogram, Labels, Series};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Buckets of the times that client certificates have left, in seconds: from half an hour to a
/// year.
const LEFT_SECONDS: [f64; 14] = [
    0.0,
    1_800.0,
    3_600.0,
    7_200.0,
    21_600.0,
    43_200.0,
    86_400.0,
    172_800.0,
    345_600.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
];

/// Reads what a server counts of its health checks and connections. Cheap to clone, and does not
/// keep the server alive.
#[derive(Debug, Clone)]
pub struct ServerFigures(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    failed_handshakes: Arc<AtomicU64>,
    /// How long client certificates are still valid, at each request.
    left: Histogram,
    tokens: Tokens,
    /// By endpoint and check.
    checks: Mutex<BTreeMap<(&'static str, &'static str), Checked>>,
}

/// Uses of tokens of service accounts, by what they are.
#[derive(Debug, Default)]
struct Tokens {
    renewed: AtomicU64,
    stale: AtomicU64,
    generated: AtomicU64,
    manual: AtomicU64,
    invalidated: AtomicU64,
}

/// The results of a check.
#[derive(Debug, Clone, Copy, Default)]
struct Checked {
    has_passed: bool,
    n_passed: u64,
    n_failed: u64,
}

impl Default for ServerFigures {
    fn default() -> Self {
        Self(Arc::new(Counts {
            failed_handshakes: Arc::default(),
            left: Histogram::new(&LEFT_SECONDS),
            tokens: Tokens::default(),
            checks: Mutex::default(),
        }))
    }
}

impl ServerFigures {
    /// The counter of failed TLS handshakes.
    pub(crate) fn failed_handshakes(&self) -> Arc<AtomicU64> {
        self.0.failed_handshakes.clone()
    }

    /// A request has a client certificate that is valid for so long.
    pub(crate) fn certificate(&self, left: Duration) {
        self.0.left.time(left);
    }

    /// A request has a token of a service account.
    pub(crate) fn token_used(&self, token: &TokenUse) {
        let tokens = &self.0.tokens;
        let counter = match token {
            TokenUse::Renewed => &tokens.renewed,
            TokenUse::Stale(_) => &tokens.stale,
            TokenUse::Generated(_) => &tokens.generated,
            TokenUse::Manual(_) => &tokens.manual,
            TokenUse::Invalidated(_) => &tokens.invalidated,
        };
        counter.fetch_add(1, Relaxed);
    }

    /// Results of the checks of an endpoint.
    pub(crate) fn checked(
        &self,
        endpoint: &'static str,
        results: impl Iterator<Item = (&'static str, bool)>,
    ) {
        let mut checks = self.0.checks.lock();
        for (check, has_passed) in results {
            let checked = checks.entry((endpoint, check)).or_default();
            checked.has_passed = has_passed;
            *(if has_passed { &mut checked.n_passed } else { &mut checked.n_failed }) += 1;
        }
    }

    /// The families about connections.
    pub fn connections(&self) -> Vec<Family> {
        let failed = self.0.failed_handshakes.load(Relaxed);
        vec![
            Family {
                name: "apiserver_tls_handshake_errors_total",
                help: "TLS handshakes that have failed",
                series: Series::Counters(vec![(Vec::new(), failed)]),
            },
            Family {
                name: "apiserver_client_certificate_expiration_seconds",
                help: "How long the client certificates of requests are still valid",
                series: Series::Histograms(vec![(Vec::new(), self.0.left.times())]),
            },
        ]
    }

    /// The families about tokens of service accounts.
    pub fn tokens(&self) -> Vec<Family> {
        let tokens = &self.0.tokens;
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        let (generated, manual) = (read(&tokens.generated), read(&tokens.manual));
        let family = |name, help, count| Family {
            name,
            help,
            series: Series::Counters(vec![(Vec::new(), count)]),
        };
        vec![
            family(
                "serviceaccount_valid_tokens_total",
                "Requests with a token that its holder renews in time",
                read(&tokens.renewed),
            ),
            family(
                "serviceaccount_stale_tokens_total",
                "Requests with a token that its holder should have renewed",
                read(&tokens.stale),
            ),
            family(
                "serviceaccount_legacy_tokens_total",
                "Requests with a valid token of a Secret",
                generated + manual,
            ),
            family(
                "serviceaccount_legacy_auto_token_uses_total",
                "Requests with a token of a Secret that its account lists",
                generated,
            ),
            family(
                "serviceaccount_legacy_manual_token_uses_total",
                "Requests with a token of a Secret that its account does not list",
                manual,
            ),
            family(
                "serviceaccount_invalid_legacy_auto_token_uses_total",
                "Requests with a token of a Secret that is marked invalid",
                read(&tokens.invalidated),
            ),
        ]
    }

    /// The families about health checks, for `/metrics/slis`. A series begins with the first
    /// request of all checks of an endpoint.
    pub fn health(&self) -> Vec<Family> {
        let checks = self.0.checks.lock().clone();
        let labels = |(endpoint, check): &(&str, &str)| -> Labels {
            vec![("name", (*check).to_owned()), ("type", (*endpoint).to_owned())]
        };
        let (mut present, mut all) = (Vec::new(), Vec::new());
        for (of, checked) in &checks {
            present.push((labels(of), u64::from(checked.has_passed)));
            for (status, n) in [("error", checked.n_failed), ("success", checked.n_passed)] {
                if n > 0 {
                    let status = ("status", status.to_owned());
                    all.push((labels(of).into_iter().chain([status]).collect(), n));
                }
            }
        }
        vec![
            Family {
                name: "kubernetes_healthcheck",
                help: "Whether the last health check has passed",
                series: Series::Gauges(present),
            },
            Family {
                name: "kubernetes_healthchecks_total",
                help: "Results of health checks",
                series: Series::Counters(all),
            },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_counted_by_result() {
        let figures = ServerFigures::default();
        figures.checked("livez", [("ping", true), ("etcd", true)].into_iter());
        figures.checked("livez", [("ping", true), ("etcd", false)].into_iter());
        let [present, all] = &figures.health()[..] else { panic!("two families") };
        let text = |labels: &Labels| {
            labels.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(" ")
        };
        let shown = |series: &Series| match series {
            Series::Counters(all) | Series::Gauges(all) => {
                all.iter().map(|(labels, n)| format!("{}: {n}", text(labels))).collect::<Vec<_>>()
            }
            Series::Histograms(_) => Vec::new(),
        };
        assert_eq!(shown(&present.series), ["etcd livez: 0", "ping livez: 1"]);
        let counted = ["etcd livez error: 1", "etcd livez success: 1", "ping livez success: 2"];
        assert_eq!(shown(&all.series), counted);
    }
}
