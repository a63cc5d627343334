//! Metrics of configuration files that are read again, under kube-apiserver's names.

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use setpoint_object::time::Clock;
use setpoint_runtime::metrics::Metrics;
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::sync::Arc;

/// Counts how often a configuration was taken or refused:
/// `apiserver_<subject>_config_controller_automatic_reloads_total` by status,
/// `…_automatic_reload_last_timestamp_seconds` by status, and `…_last_config_info` with the digest.
/// Each also has `apiserver_id_hash`. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ConfigMetrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    subject: &'static str,
    clock: Clock,
    server_hash: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Successes, then failures: how often, and when last in seconds since 1970.
    reloads: [(u64, f64); 2],
    /// SHA-256 of the file in use.
    hash: Option<[u8; 32]>,
}

impl ConfigMetrics {
    /// Registers the metrics of `authentication`, `authorization` or `encryption`. `server_hash`:
    /// as [`server_hash`] makes it.
    pub fn register(
        metrics: &Metrics,
        subject: &'static str,
        clock: Clock,
        server_hash: &str,
    ) -> Self {
        let (server_hash, state) = (server_hash.to_owned(), Mutex::default());
        let new = Self(Arc::new(Inner { subject, clock, server_hash, state }));
        metrics.update(|registry| registry.register_collector(Box::new(new.clone())));
        new
    }

    /// The SHA-256 of the file with which the program starts: of the bytes that were read for the
    /// configuration.
    pub fn loaded(&self, hash: &[u8; 32]) {
        self.0.state.lock().hash = Some(*hash);
    }

    /// Counts a reload: the SHA-256 of the file that was taken; `None`: it was refused.
    pub fn reloaded(&self, hash: Option<&[u8; 32]>) {
        let now = self.0.clock.now().0.as_secs_f64();
        let mut state = self.0.state.lock();
        let (n, last) = &mut state.reloads[usize::from(hash.is_none())];
        (*n, *last) = (*n + 1, now);
        state.hash = hash.copied().or(state.hash);
    }
}

/// The label with the hash of the server's name.
pub(crate) const SERVER_HASH: &str = "apiserver_id_hash";

/// The hash in metrics of the server on a host: of the name of its Lease. Empty: no host.
pub fn server_hash(host: &str) -> String {
    match host {
        "" => String::new(),
        host => sha256(&Sha256::digest(setpoint_controllers::identity::name_on(host)).into()),
    }
}

/// A digest as labels show it.
pub(crate) fn sha256(digest: &[u8; 32]) -> String {
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

impl Collector for ConfigMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (reloads, hash) = {
            let state = self.0.state.lock();
            (state.reloads, state.hash)
        };
        let name = |end: &str| format!("apiserver_{}_config_controller_{end}", self.0.subject);
        let rows = || ["success", "failure"].into_iter().zip(reloads).filter(|(_, (n, _))| *n > 0);
        let (total, help) = (name("automatic_reloads"), "Reloads of the configuration by status");
        let mut family = encoder.encode_descriptor(&total, help, None, MetricType::Counter)?;
        let server = self.0.server_hash.as_str();
        for (status, (n, _)) in rows() {
            family
                .encode_family(&[(SERVER_HASH, server), ("status", status)])?
                .encode_counter::<NoLabelSet, _, u64>(&n, None)?;
        }
        let last = name("automatic_reload_last_timestamp_seconds");
        let help = "Time of the last reload of the configuration by status";
        let mut family = encoder.encode_descriptor(&last, help, None, MetricType::Gauge)?;
        for (status, (_, at)) in rows() {
            family
                .encode_family(&[(SERVER_HASH, server), ("status", status)])?
                .encode_gauge(&at)?;
        }
        let Some(hash) = hash else { return Ok(()) };
        let (info, help) = (name("last_config_info"), "The digest of the configuration in use");
        let mut family = encoder.encode_descriptor(&info, help, None, MetricType::Gauge)?;
        let labels = [(SERVER_HASH, server), ("hash", &sha256(&hash))];
        family.encode_family(&labels)?.encode_gauge(&1_i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use setpoint_object::time::Timestamp;

    #[test]
    fn reloads_are_counted_by_status() {
        let metrics = Metrics::new();
        let clock = Clock::starting_at(Timestamp::from_secs(7));
        let counted = ConfigMetrics::register(&metrics, "authorization", clock, "sha256:5e");
        counted.loaded(&[0x0a; 32]);
        let text = metrics.prometheus();
        let info = |byte: &str| {
            let hash = format!("sha256:{}", byte.repeat(32));
            format!(
                r#"apiserver_authorization_config_controller_last_config_info{{apiserver_id_hash="sha256:5e",hash="{hash}"}} 1"#
            )
        };
        assert!(text.contains(&info("0a")), "{text}");
        assert!(!text.contains("status="), "{text}");
        counted.reloaded(None);
        counted.reloaded(Some(&[0xab; 32]));
        counted.reloaded(Some(&[0xcd; 32]));
        counted.reloaded(None);
        let text = metrics.prometheus();
        for line in [
            r#"apiserver_authorization_config_controller_automatic_reloads_total{apiserver_id_hash="sha256:5e",status="success"} 2"#,
            r#"apiserver_authorization_config_controller_automatic_reloads_total{apiserver_id_hash="sha256:5e",status="failure"} 2"#,
            &info("cd"),
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }
}
