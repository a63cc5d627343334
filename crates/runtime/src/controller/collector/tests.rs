//! The exposition's families, by name.

use std::collections::BTreeSet;

use super::*;
use crate::metrics::{Metrics, QueueCollector};

/// Families of `controller_runtime_*` and `workqueue_*` by their spec (runtime 11, workqueue 6),
/// with their types.
const FIELDS: [(&str, &str); 18] = [
    ("controller_runtime_active_workers", "gauge"),
    ("controller_runtime_max_concurrent_reconciles", "gauge"),
    ("controller_runtime_reconcile_errors_total", "counter"),
    ("controller_runtime_reconcile_panics_total", "counter"),
    ("controller_runtime_reconcile_time_seconds", "histogram"),
    ("controller_runtime_reconcile_timeouts_total", "counter"),
    ("controller_runtime_reconcile_total", "counter"),
    ("controller_runtime_terminal_reconcile_errors_total", "counter"),
    ("workqueue_adds_total", "counter"),
    ("workqueue_depth", "gauge"),
    ("workqueue_longest_running_processor_seconds", "gauge"),
    ("workqueue_queue_duration_seconds", "histogram"),
    ("workqueue_retries_total", "counter"),
    ("workqueue_unfinished_work_seconds", "gauge"),
    ("workqueue_work_duration_seconds", "histogram"),
    // Not in client-go.
    ("workqueue_rate_limited_keys", "gauge"),
    ("workqueue_waiting", "gauge"),
    ("workqueue_resting", "gauge"),
];

fn over(controllers: Vec<crate::ControllerHandle>) -> Metrics {
    let metrics = Metrics::new();
    let all: Controllers = Arc::new(move || controllers.clone());
    metrics.update(|registry| {
        registry.register_collector(Box::new(ControllerCollector(all.clone())));
        registry.register_collector(Box::new(QueueCollector::new(move || queues(&all))));
    });
    metrics
}

fn controller(name: &str) -> crate::Controller {
    let (_, keys) = tokio::sync::mpsc::channel(1);
    let idle = async |_, _| Ok::<_, crate::BoxError>(crate::Action::await_change());
    crate::Controller::builder(name).channel(keys).build(idle).unwrap()
}

#[tokio::test(start_paused = true)]
async fn spec_11_every_family_is_exported_once_with_its_type() {
    let controllers = [controller("one"), controller("two")];
    let text = over(controllers.iter().map(crate::Controller::handle).collect()).prometheus();
    let mut seen = BTreeSet::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        assert!(seen.insert(line), "{line} twice");
    }
    for (name, kind) in FIELDS {
        assert!(seen.contains(&*format!("{name} {kind}")), "{name} {kind} in {seen:?}");
    }
    // Pre-created at zero, per controller and result.
    for controller in ["one", "two"] {
        for result in ["success", "error", "requeue", "requeue_after"] {
            let sample = format!(
                "controller_runtime_reconcile_total{{controller=\"{controller}\",result=\"{result}\"}} 0"
            );
            assert!(text.lines().any(|line| line == sample), "{sample}");
        }
    }
    let buckets = text.lines().filter(|line| {
        line.starts_with("controller_runtime_reconcile_time_seconds_bucket{")
            && line.contains("controller=\"one\"")
    });
    let buckets: Vec<&str> = buckets.collect();
    assert_eq!(buckets.len(), 41, "40 and the unbounded one");
    assert!(buckets[0].contains("le=\"0.005\""), "{}", buckets[0]);
    assert!(buckets[39].contains("le=\"60.0\"") && buckets[40].contains("le=\"+Inf\""));
}
