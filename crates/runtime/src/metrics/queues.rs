//! Metrics of queues: `workqueue_*`.

use std::{fmt, sync::Arc, time::Duration};

use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};
use setpoint_workqueue::{
    LevelStats, Stats,
    metrics::{Distribution, Recorder},
};

use super::family::{counter, gauge, histogram};

/// The metrics of one queue at one moment.
#[derive(Debug, Clone)]
pub struct QueueMetrics {
    /// The queue's name, for the labels `name` and `controller`.
    pub name: Arc<str>,
    /// Its counters and histograms.
    pub recorder: Arc<Recorder>,
    /// Its gauges: [`WorkQueue::stats`](setpoint_workqueue::WorkQueue::stats).
    pub stats: Stats,
    /// Its levels: [`WorkQueue::levels`](setpoint_workqueue::WorkQueue::levels); empty without
    /// priorities.
    pub levels: Vec<LevelStats>,
}

/// Writes the metrics of queues. A manager registers one for the queues of its controllers; a
/// program registers another for queues of its own, in [`Metrics::update`](super::Metrics::update).
///
/// Has the seven families of client-go and controller-runtime (`workqueue_depth`, `…_adds_total`,
/// `…_queue_duration_seconds`, `…_work_duration_seconds`, `…_unfinished_work_seconds`,
/// `…_longest_running_processor_seconds`, `…_retries_total`), and four more: `workqueue_waiting`,
/// `workqueue_resting`, `workqueue_rate_limited_keys` and `workqueue_oldest_ready_seconds`. Ages
/// are current, while client-go refreshes them twice a second. If a queue has more than
/// [`PRIORITY_LABELS_MAX`](setpoint_workqueue::metrics::PRIORITY_LABELS_MAX) priorities, its depth
/// is one sum with the label `exceeded_cardinality_limit`.
pub struct QueueCollector(Box<dyn Fn() -> Vec<QueueMetrics> + Send + Sync>);

impl QueueCollector {
    /// A collector of the queues that `queues` returns. It is called for each scrape.
    pub fn new(queues: impl Fn() -> Vec<QueueMetrics> + Send + Sync + 'static) -> Self {
        Self(Box::new(queues))
    }
}

/// A queue, and whether its priorities are labels.
struct Queue {
    metrics: QueueMetrics,
    has_priorities: bool,
}

impl Queue {
    fn labels(&self) -> [(&'static str, &str); 2] {
        [("name", &self.metrics.name), ("controller", &self.metrics.name)]
    }

    fn labels_of<'a>(&'a self, priority: &'a str) -> [(&'static str, &'a str); 3] {
        [("name", &self.metrics.name), ("controller", &self.metrics.name), ("priority", priority)]
    }
}

type Gauge = (&'static str, &'static str, fn(&Stats) -> f64);

const GAUGES: [Gauge; 5] = [
    ("workqueue_unfinished_work_seconds", "Sum of the ages of keys in flight", |stats| {
        stats.unfinished.as_secs_f64()
    }),
    ("workqueue_longest_running_processor_seconds", "Age of the oldest key in flight", |stats| {
        stats.longest_running.as_secs_f64()
    }),
    ("workqueue_waiting", "Keys that wait for their due time", |stats| stats.waiting as f64),
    (
        "workqueue_resting",
        "Keys held back until the caches show the writes of their pass",
        |stats| stats.resting as f64,
    ),
    ("workqueue_rate_limited_keys", "Keys for which the rate limiter keeps state", |stats| {
        stats.limited as f64
    }),
];

impl Collector for QueueCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let with_priorities = |metrics: QueueMetrics| {
            let priorities = metrics.levels.iter().map(|level| level.priority);
            let has_priorities = metrics.recorder.may_label(priorities);
            Queue { metrics, has_priorities }
        };
        let queues: Vec<Queue> = (self.0)().into_iter().map(with_priorities).collect();
        let encoder = &mut encoder;

        let mut depth =
            gauge(encoder, "workqueue_depth", "Keys that are ready or in flight and added again")?;
        for queue in &queues {
            let total = queue.metrics.stats.queued + queue.metrics.stats.dirty;
            if !queue.has_priorities {
                depth.value(&queue.labels_of("exceeded_cardinality_limit"), &total)?;
            } else if queue.metrics.levels.is_empty() {
                depth.value(&queue.labels_of(""), &total)?;
            } else {
                for level in &queue.metrics.levels {
                    let priority = level.priority.to_string();
                    depth.value(&queue.labels_of(&priority), &level.ready)?;
                }
            }
        }
        let mut adds = counter(encoder, "workqueue_adds", "Adds of keys that were not queued yet")?;
        for queue in &queues {
            adds.count(&queue.labels(), queue.metrics.recorder.adds())?;
        }
        type Of = fn(&Recorder) -> Distribution;
        for (name, help, of) in [
            (
                "workqueue_queue_duration_seconds",
                "Time between the add of a key and its processing",
                Recorder::queue_durations as Of,
            ),
            (
                "workqueue_work_duration_seconds",
                "Duration of processing a key",
                Recorder::work_durations,
            ),
        ] {
            let mut family = histogram(encoder, name, help)?;
            for queue in &queues {
                let Distribution { buckets, sum, .. } = of(&queue.metrics.recorder);
                let buckets: Vec<(f64, u64)> = buckets
                    .into_iter()
                    .map(|(bound, count)| {
                        (bound.map_or(f64::INFINITY, |bound| bound.as_secs_f64()), count)
                    })
                    .collect();
                family.distribution(&queue.labels(), sum.as_secs_f64(), &buckets)?;
            }
        }
        let mut retries = counter(encoder, "workqueue_retries", "Adds with a delay")?;
        for queue in &queues {
            retries.count(&queue.labels(), queue.metrics.recorder.retries())?;
        }
        for (name, help, of) in GAUGES {
            let mut family = gauge(encoder, name, help)?;
            for queue in &queues {
                family.value(&queue.labels(), &of(&queue.metrics.stats))?;
            }
        }
        let help = "Age of the oldest ready key of a priority";
        let mut oldest = gauge(encoder, "workqueue_oldest_ready_seconds", help)?;
        for queue in &queues {
            let seconds = |age: Duration| age.as_secs_f64();
            if queue.metrics.levels.is_empty() || !queue.has_priorities {
                oldest.value(&queue.labels_of(""), &seconds(queue.metrics.stats.oldest_queued))?;
                continue;
            }
            for level in &queue.metrics.levels {
                let Some(age) = level.oldest else { continue };
                let priority = level.priority.to_string();
                oldest.value(&queue.labels_of(&priority), &seconds(age))?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for QueueCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QueueCollector")
    }
}
