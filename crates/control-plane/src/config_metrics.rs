//! Metrics of configuration files that are read again, under kube-apiserver's names.

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use setpoint_object::time::Clock;
use setpoint_runtime::metrics::Metrics;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Counts how often a configuration was taken or refused:
/// `apiserver_<subject>_config_controller_automatic_reloads_total` by status,
/// `…_automatic_reload_last_timestamp_seconds` by status, and `…_last_config_info` with the digest.
/// Each also has `apiserver_id_hash`, and those of manifests have the plugin. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ConfigMetrics {
    inner: Arc<Inner>,
    /// The admission plugin whose configuration it is; empty: of none.
    plugin: &'static str,
}

#[derive(Debug)]
struct Inner {
    subject: &'static str,
    clock: Clock,
    server_hash: String,
    /// By plugin.
    states: Mutex<BTreeMap<&'static str, State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Successes, then failures: how often, and when last in seconds since 1970.
    reloads: [(u64, f64); 2],
    /// The digest of what is in use, as it is shown.
    hash: Option<String>,
}

impl ConfigMetrics {
    /// Registers the metrics of `authentication`, `authorization`, `encryption`, or, for
    /// [`ManifestsWorker`](crate::ManifestsWorker), of `manifest_admission`. `server_hash`: as
    /// [`server_hash`] makes it.
    pub fn register(
        metrics: &Metrics,
        subject: &'static str,
        clock: Clock,
        server_hash: &str,
    ) -> Self {
        let (server_hash, states) = (server_hash.to_owned(), Mutex::default());
        let inner = Arc::new(Inner { subject, clock, server_hash, states });
        let new = Self { inner, plugin: "" };
        metrics.update(|registry| registry.register_collector(Box::new(new.clone())));
        new
    }

    /// The same metrics, for the configuration of an admission plugin.
    pub(crate) fn of_plugin(&self, plugin: &'static str) -> Self {
        Self { inner: self.inner.clone(), plugin }
    }

    /// The SHA-256 of the file with which the program starts: of the bytes that were read for the
    /// configuration.
    pub fn loaded(&self, hash: &[u8; 32]) {
        self.inner.states.lock().entry(self.plugin).or_default().hash = Some(sha256(hash));
    }

    /// Counts a reload: the SHA-256 of the file that was taken; `None`: it was refused.
    pub fn reloaded(&self, hash: Option<&[u8; 32]>) {
        self.reloaded_as(hash.map(sha256).as_deref());
    }

    /// The same, with the digest as it is shown.
    pub(crate) fn reloaded_as(&self, hash: Option<&str>) {
        let now = self.inner.clock.now().0.as_secs_f64();
        let mut states = self.inner.states.lock();
        let state = states.entry(self.plugin).or_default();
        let (n, last) = &mut state.reloads[usize::from(hash.is_none())];
        (*n, *last) = (*n + 1, now);
        if let Some(hash) = hash {
            state.hash = Some(hash.to_owned());
        }
    }

    /// The labels of a plugin's metrics, with one more.
    fn labels<'a>(
        &'a self,
        plugin: &'a str,
        (name, value): (&'a str, &'a str),
    ) -> Vec<(&'a str, &'a str)> {
        let of_plugin = Some(("plugin", plugin)).filter(|_| !plugin.is_empty());
        let labels =
            [Some((SERVER_HASH, &*self.inner.server_hash)), of_plugin, Some((name, value))];
        labels.into_iter().flatten().collect()
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
        let states = self.inner.states.lock();
        let name = |end: &str| format!("apiserver_{}_config_controller_{end}", self.inner.subject);
        let rows = || {
            let rows = states.iter().flat_map(|(plugin, state)| {
                let statuses = ["success", "failure"].into_iter().zip(state.reloads);
                statuses.map(|(status, reloads)| (*plugin, status, reloads))
            });
            rows.filter(|(_, _, (n, _))| *n > 0)
        };
        let (total, help) = (name("automatic_reloads"), "Reloads of the configuration by status");
        let mut family = encoder.encode_descriptor(&total, help, None, MetricType::Counter)?;
        for (plugin, status, (n, _)) in rows() {
            family
                .encode_family(&self.labels(plugin, ("status", status)))?
                .encode_counter::<NoLabelSet, _, u64>(&n, None)?;
        }
        let last = name("automatic_reload_last_timestamp_seconds");
        let help = "Time of the last reload of the configuration by status";
        let mut family = encoder.encode_descriptor(&last, help, None, MetricType::Gauge)?;
        for (plugin, status, (_, at)) in rows() {
            family.encode_family(&self.labels(plugin, ("status", status)))?.encode_gauge(&at)?;
        }
        if states.values().all(|state| state.hash.is_none()) {
            return Ok(());
        }
        let (info, help) = (name("last_config_info"), "The digest of the configuration in use");
        let mut family = encoder.encode_descriptor(&info, help, None, MetricType::Gauge)?;
        for (plugin, state) in states.iter() {
            if let Some(hash) = &state.hash {
                let labels = self.labels(plugin, ("hash", hash));
                family.encode_family(&labels)?.encode_gauge(&1_i64)?;
            }
        }
        Ok(())
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
