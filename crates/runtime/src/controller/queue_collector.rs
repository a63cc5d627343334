//! The queues of controllers.

use std::{fmt, sync::Arc, time::Duration};

use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};
use setpoint_workqueue::{
    LevelStats, Stats,
    metrics::{Distribution, Recorder},
};

use super::collector::Controllers;
use crate::metrics::family::{counter, gauge, histogram};

/// Writes the families of queues: `workqueue_*`, the same that
/// [`exposition`](setpoint_workqueue::metrics::exposition()) gives for a queue without a manager.
pub(crate) struct QueueCollector(pub(crate) Controllers);

struct Queue {
    name: Box<str>,
    recorder: Arc<Recorder>,
    stats: Stats,
    levels: Vec<LevelStats>,
    /// Its priorities may be labels.
    tells_priorities: bool,
}

impl Queue {
    fn labels(&self) -> [(&'static str, &str); 2] {
        [("name", &self.name), ("controller", &self.name)]
    }

    fn labels_of<'a>(&'a self, priority: &'a str) -> [(&'static str, &'a str); 3] {
        [("name", &self.name), ("controller", &self.name), ("priority", priority)]
    }
}

type Gauge = (&'static str, &'static str, fn(&Stats) -> f64);

const GAUGES: [Gauge; 5] = [
    ("workqueue_unfinished_work_seconds", "Sum of the ages of keys in flight", |stats| {
        stats.unfinished.as_secs_f64()
    }),
    (
        "workqueue_longest_running_processor_seconds",
        "Age of the key in flight for longest",
        |stats| stats.longest_running.as_secs_f64(),
    ),
    ("workqueue_waiting", "Keys that wait for their due time", |stats| stats.waiting as f64),
    ("workqueue_resting", "Keys that rest until the caches show what their pass wrote", |stats| {
        stats.resting as f64
    }),
    ("workqueue_rate_limited_keys", "Keys for which the rate limiter keeps state", |stats| {
        stats.limited as f64
    }),
];

impl Collector for QueueCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let queues: Vec<Queue> = (self.0)()
            .into_iter()
            .map(|handle| {
                let (recorder, levels) = (handle.queue_recorder(), handle.queue_levels());
                let tells_priorities =
                    recorder.may_label(levels.iter().map(|level| level.priority));
                let (name, stats) = (handle.name().into(), handle.queue());
                Queue { name, recorder, stats, levels, tells_priorities }
            })
            .collect();
        let encoder = &mut encoder;

        let mut depth = gauge(encoder, "workqueue_depth", "Keys that are wanted")?;
        for queue in &queues {
            let total = queue.stats.queued + queue.stats.dirty;
            if !queue.tells_priorities {
                depth.value(&queue.labels_of("exceeded_cardinality_limit"), &total)?;
            } else if queue.levels.is_empty() {
                depth.value(&queue.labels_of(""), &total)?;
            } else {
                for level in &queue.levels {
                    let priority = level.priority.to_string();
                    depth.value(&queue.labels_of(&priority), &level.ready)?;
                }
            }
        }
        let mut adds = counter(encoder, "workqueue_adds", "Keys that became wanted")?;
        for queue in &queues {
            adds.count(&queue.labels(), queue.recorder.adds())?;
        }
        type Of = fn(&Recorder) -> Distribution;
        for (name, help, of) in [
            (
                "workqueue_queue_duration_seconds",
                "How long keys were queued",
                Recorder::queue_durations as Of,
            ),
            (
                "workqueue_work_duration_seconds",
                "How long keys were worked on",
                Recorder::work_durations,
            ),
        ] {
            let mut family = histogram(encoder, name, help)?;
            for queue in &queues {
                let Distribution { buckets, sum, .. } = of(&queue.recorder);
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
            retries.count(&queue.labels(), queue.recorder.retries())?;
        }
        for (name, help, of) in GAUGES {
            let mut family = gauge(encoder, name, help)?;
            for queue in &queues {
                family.value(&queue.labels(), &of(&queue.stats))?;
            }
        }
        let help = "How long the first key of a priority has been ready";
        let mut oldest = gauge(encoder, "workqueue_oldest_ready_seconds", help)?;
        for queue in &queues {
            let seconds = |age: Duration| age.as_secs_f64();
            if queue.levels.is_empty() || !queue.tells_priorities {
                oldest.value(&queue.labels_of(""), &seconds(queue.stats.oldest_queued))?;
                continue;
            }
            for level in &queue.levels {
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
