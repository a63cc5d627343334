//! Metrics of OpenID Connect issuers, under kube-apiserver's names.

use crate::config_metrics::{SERVER_HASH, sha256};
use crate::families::Families;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use setpoint_object::time::Clock;
use setpoint_oidc::Observer;
use setpoint_registry::figures::{Family, Histogram, Labelled, Series};
use setpoint_runtime::metrics::Metrics;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Buckets of checks of tokens, in seconds.
const CHECK_SECONDS: [f64; 12] =
    [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// The label with the hash of an issuer's URL.
const ISSUER_HASH: &str = "jwt_issuer_hash";

/// What was done about issuers and their tokens. Cheap to clone; clones count together.
///
/// | family | labels |
/// |---|---|
/// | `apiserver_authentication_jwt_authenticator_latency_seconds` | `jwt_issuer_hash`, `result` |
/// | `apiserver_authentication_jwt_authenticator_jwks_fetch_last_timestamp_seconds` | `apiserver_id_hash`, `jwt_issuer_hash`, `result` |
/// | `apiserver_authentication_jwt_authenticator_jwks_fetch_last_key_set_info` | `apiserver_id_hash`, `hash`, `jwt_issuer_hash` |
///
/// Hashes are SHA-256: of the server's name, the issuer's URL, the document of its keys. The second
/// and third family have no series of issuers that a new configuration leaves out.
#[derive(Debug, Clone)]
pub struct IssuerMetrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    clock: Clock,
    server_hash: String,
    checks: Labelled<Histogram>,
    /// By the hashes of issuers.
    reads: Mutex<BTreeMap<String, Reads>>,
}

/// How the keys of an issuer were read.
#[derive(Debug, Default)]
struct Reads {
    /// Seconds since 1970 of the last success and the last failure.
    last: [Option<f64>; 2],
    /// Hash of the last document.
    hash: Option<String>,
}

const RESULTS: [&str; 2] = ["success", "failure"];

impl IssuerMetrics {
    /// Shows them on a page of metrics. `server_hash`: as [`server_hash`](crate::server_hash)
    /// makes it.
    pub fn register(metrics: &Metrics, clock: Clock, server_hash: &str) -> Self {
        let checks = Labelled::new(&[ISSUER_HASH, "result"], 1, || Histogram::new(&CHECK_SECONDS));
        let (server_hash, reads) = (server_hash.to_owned(), Mutex::default());
        let new = Self(Arc::new(Inner { clock, server_hash, checks, reads }));
        let inner = new.0.clone();
        Families::register(metrics, move || vec![inner.latency()]);
        metrics.update(|registry| registry.register_collector(Box::new(new.clone())));
        new
    }
}

impl Observer for IssuerMetrics {
    fn checked(&self, issuer: &str, took: Duration, is_accepted: bool) {
        let result = RESULTS[usize::from(!is_accepted)];
        self.0.checks.time(&[&hash_of(issuer), result], took);
    }

    fn keys_read(&self, issuer: &str, hash: Option<&[u8; 32]>) {
        let now = self.0.clock.now().0.as_secs_f64();
        let mut reads = self.0.reads.lock();
        let reads = reads.entry(hash_of(issuer)).or_default();
        reads.last[usize::from(hash.is_none())] = Some(now);
        if let Some(hash) = hash {
            reads.hash = Some(sha256(hash));
        }
    }

    fn left(&self, issuer: &str) {
        self.0.reads.lock().remove(&hash_of(issuer));
    }
}

fn hash_of(issuer: &str) -> String {
    sha256(&Sha256::digest(issuer).into())
}

impl Inner {
    fn latency(&self) -> Family {
        Family {
            name: "apiserver_authentication_jwt_authenticator_latency_seconds",
            help: "How long checks of tokens took, without those that are remembered",
            series: Series::Histograms(self.checks.times()),
        }
    }
}

/// How keys were read: times are no whole numbers.
impl Collector for IssuerMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let server = (SERVER_HASH, self.0.server_hash.as_str());
        let reads = self.0.reads.lock();
        let name = "apiserver_authentication_jwt_authenticator_jwks_fetch_last_timestamp_seconds";
        let help = "Time of the last attempt to read the keys of an issuer by result";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (issuer, reads) in &*reads {
            for (result, at) in RESULTS.into_iter().zip(reads.last) {
                let Some(at) = at else { continue };
                let labels = [server, (ISSUER_HASH, issuer), ("result", result)];
                family.encode_family(&labels)?.encode_gauge(&at)?;
            }
        }
        let name = "apiserver_authentication_jwt_authenticator_jwks_fetch_last_key_set_info";
        let help = "The digest of the keys of an issuer";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (issuer, reads) in &*reads {
            let Some(hash) = &reads.hash else { continue };
            let labels = [server, ("hash", hash), (ISSUER_HASH, issuer)];
            family.encode_family(&labels)?.encode_gauge(&1_i64)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use setpoint_object::time::Timestamp;

    #[test]
    fn issuers_are_told_apart_and_leave() {
        let metrics = Metrics::new();
        let clock = Clock::starting_at(Timestamp::from_secs(7));
        let counted = IssuerMetrics::register(&metrics, clock, "sha256:5e");
        counted.checked("https://a", Duration::from_millis(2), true);
        counted.keys_read("https://a", Some(&[0x0a; 32]));
        counted.keys_read("https://b", None);
        let [a, b] = ["https://a", "https://b"].map(hash_of);
        let fetch = "apiserver_authentication_jwt_authenticator_jwks_fetch_last";
        let of_a = [
            format!(
                r#"{fetch}_key_set_info{{apiserver_id_hash="sha256:5e",hash="sha256:{}",jwt_issuer_hash="{a}"}} 1"#,
                "0a".repeat(32)
            ),
            format!(
                r#"{fetch}_timestamp_seconds{{apiserver_id_hash="sha256:5e",jwt_issuer_hash="{a}",result="success"}} 7.0"#
            ),
        ];
        let others = [
            format!(
                r#"{fetch}_timestamp_seconds{{apiserver_id_hash="sha256:5e",jwt_issuer_hash="{b}",result="failure"}} 7.0"#
            ),
            format!(
                r#"apiserver_authentication_jwt_authenticator_latency_seconds_bucket{{le="0.005",jwt_issuer_hash="{a}",result="success"}} 1"#
            ),
        ];
        let text = metrics.prometheus();
        for line in of_a.iter().chain(&others) {
            assert!(text.contains(line), "{line}\n{text}");
        }
        counted.left("https://a");
        let text = metrics.prometheus();
        assert!(!of_a.iter().any(|line| text.contains(line)), "{text}");
        assert!(text.contains(&others[0]), "{text}");
    }
}
