//! The exposition's families, by name.

use std::{collections::BTreeSet, time::Duration};

use super::*;
use crate::{controller::QueueCollector, metrics::Metrics};

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
    let all = Arc::new(move || controllers.clone());
    metrics.update(|registry| {
        registry.register_collector(Box::new(ControllerCollector(all.clone())));
        registry.register_collector(Box::new(QueueCollector(all)));
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

#[tokio::test(start_paused = true)]
async fn wq_6_a_queue_reads_the_same_as_without_a_manager() {
    use setpoint_workqueue::metrics::{Exposed, exposition};
    let controller = controller("one");
    let queue = controller.queue();
    for n in 0..3 {
        queue.add(crate::Request::new("ns", n.to_string().as_str()));
    }
    queue.add_after(crate::Request::new("ns", "late"), Duration::from_secs(5));
    tokio::time::advance(Duration::from_secs(2)).await;
    queue.get().await.unwrap().done();
    let handle = controller.handle();
    let recorder = handle.queue_recorder();
    let alone = exposition(&[Exposed {
        name: "one",
        recorder: &recorder,
        stats: handle.queue(),
        levels: handle.queue_levels(),
    }]);
    /// Samples by name and labels, sorted; bounds and values as numbers, since the two writers
    /// format those differently.
    fn samples(text: &str) -> Vec<(String, Vec<String>, f64)> {
        let lines = text.lines().filter(|line| line.starts_with("workqueue_"));
        let mut samples: Vec<_> = lines
            .map(|line| {
                let (sample, value) = line.rsplit_once(' ').unwrap();
                let (name, labels) = sample.split_once('{').unwrap();
                let mut labels: Vec<String> = labels
                    .trim_end_matches('}')
                    .split(',')
                    .map(|label| match label.strip_prefix("le=\"") {
                        Some(bound) => {
                            let bound: f64 = bound.trim_end_matches('"').parse().unwrap();
                            format!("le {bound:e}")
                        }
                        None => label.to_owned(),
                    })
                    .collect();
                labels.sort();
                (name.to_owned(), labels, value.parse().unwrap())
            })
            .collect();
        samples.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
        samples
    }
    assert_eq!(samples(&over(vec![handle]).prometheus()), samples(&alone));
}
