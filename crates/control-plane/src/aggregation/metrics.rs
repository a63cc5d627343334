//! Metrics of APIServices, under kube-aggregator's names.

use super::api_service::ApiService;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use setpoint_runtime::metrics::Metrics;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Maximum number of pairs of a name and a reason that are counted: users choose names. 4096.
const COUNTED_MAX: usize = 4096;

/// Which APIServices are unavailable, and how often each became so:
/// `aggregator_unavailable_apiservice` by name, `…_total` by name and reason. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct AggregatorMetrics(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    is_available: BTreeMap<String, bool>,
    n_lost: BTreeMap<(String, String), u64>,
}

impl AggregatorMetrics {
    /// Registers the metrics.
    pub(crate) fn register(metrics: &Metrics) -> Self {
        let new = Self::default();
        metrics.update(|registry| registry.register_collector(Box::new(new.clone())));
        new
    }

    /// An object is there, with this condition.
    pub(super) fn observe(&self, service: &ApiService) {
        let is_available = service.target.is_none() || service.is_available();
        let mut state = self.0.lock();
        let former = state.is_available.insert(service.name.clone(), is_available);
        // As the reference: one that was never available is not lost.
        if is_available || former != Some(true) {
            return;
        }
        let reason = service.available().and_then(|condition| condition["reason"].as_str());
        let reason = reason.unwrap_or("UnknownReason").to_owned();
        let pair = (service.name.clone(), reason);
        if state.n_lost.len() < COUNTED_MAX || state.n_lost.contains_key(&pair) {
            *state.n_lost.entry(pair).or_default() += 1;
        }
    }

    /// An object was deleted. Its counters stay.
    pub(super) fn forget(&self, name: &str) {
        self.0.lock().is_available.remove(name);
    }
}

impl Collector for AggregatorMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (is_available, n_lost) = {
            let state = self.0.lock();
            (state.is_available.clone(), state.n_lost.clone())
        };
        let name = "aggregator_unavailable_apiservice";
        let help = "APIServices that are unavailable";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (name, is_available) in &is_available {
            let labels = [("name", name.as_str())];
            family.encode_family(&labels)?.encode_gauge(&i64::from(!is_available))?;
        }
        let help = "How often an APIService became unavailable, by reason";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for ((name, reason), n) in &n_lost {
            let labels = [("name", name.as_str()), ("reason", reason.as_str())];
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(n, None)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_loss_is_counted_once_and_gone_objects_have_no_gauge() {
        let metrics = Metrics::new();
        let counted = AggregatorMetrics::register(&metrics);
        let put = |name: &str, is_remote: bool, condition: Option<(&str, &str)>| {
            let mut object = json!({
                "metadata": {"name": name}, "spec": {"group": "ex.io", "version": "v1"},
            });
            if is_remote {
                object["spec"]["service"] = json!({"namespace": "n", "name": "s"});
            }
            if let Some((status, reason)) = condition {
                let condition = json!({"type": "Available", "status": status, "reason": reason});
                object["status"] = json!({"conditions": [condition]});
            }
            counted.observe(&ApiService::parse(object.to_string().as_bytes()).unwrap());
        };
        put("local", false, None);
        put("a", true, None);
        put("a", true, Some(("True", "Passed")));
        put("a", true, Some(("False", "FailedDiscoveryCheck")));
        put("a", true, Some(("False", "FailedDiscoveryCheck")));
        // Never available.
        put("b", true, Some(("False", "ServiceNotFound")));
        counted.forget("b");
        let text = metrics.prometheus();
        for line in [
            r#"aggregator_unavailable_apiservice{name="local"} 0"#,
            r#"aggregator_unavailable_apiservice{name="a"} 1"#,
            r#"aggregator_unavailable_apiservice_total{name="a",reason="FailedDiscoveryCheck"} 1"#,
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(!text.contains(r#"name="b""#), "{text}");
    }
}
