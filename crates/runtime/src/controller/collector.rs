//! Metrics of controllers and their queues.

#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc, time::Duration};

use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};
use setpoint_workqueue::{
    LevelStats, Stats,
    metrics::{Distribution, Recorder},
};

use super::{ControllerHandle, ControllerStats};
use crate::metrics::family::{counter, gauge, histogram};

/// Returns the current controllers of a manager.
pub(crate) type Controllers = Arc<dyn Fn() -> Vec<ControllerHandle> + Send + Sync>;

/// Writes the metrics of controllers: `controller_runtime_*`.
pub(crate) struct ControllerCollector(pub(crate) Controllers);

/// A family of counters with a sample per controller.
type Count = (&'static str, &'static str, fn(&ControllerStats) -> u64);

/// Four of these have no counterpart in controller-runtime, and so another prefix.
const COUNTS: [Count; 8] = [
    ("controller_runtime_reconcile_errors", "Passes that failed", |stats| stats.error),
    (
        "controller_runtime_terminal_reconcile_errors",
        "Passes that failed with a terminal error",
        |stats| stats.terminal,
    ),
    ("controller_runtime_reconcile_panics", "Passes that panicked", |stats| stats.panics),
    ("controller_runtime_reconcile_timeouts", "Passes that took longer than they may", |stats| {
        stats.timeouts
    }),
    (
        "setpoint_reconcile_given_up",
        "Keys that were given up after as many failures as they may have",
        |stats| stats.given_up,
    ),
    (
        "setpoint_reconcile_deferred",
        "Keys that were left until they may have a pass again",
        |stats| stats.deferred,
    ),
    (
        "setpoint_reconcile_catch_up_timeouts",
        "Keys that rested until their time-out before the caches showed what their pass wrote",
        |stats| stats.catch_up_timeouts,
    ),
    ("setpoint_reconcile_not_ours", "Keys that were left to another replica", |stats| {
        stats.not_ours
    }),
];

impl Collector for ControllerCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let controllers: Vec<(ControllerHandle, ControllerStats)> =
            (self.0)().into_iter().map(|handle| (handle.clone(), handle.stats())).collect();
        let encoder = &mut encoder;

        let mut total =
            counter(encoder, "controller_runtime_reconcile", "Passes, by what they came to")?;
        for (handle, stats) in &controllers {
            // All four results from the start, at zero.
            for (result, count) in [
                ("success", stats.success),
                ("error", stats.error),
                ("requeue", stats.requeue),
                ("requeue_after", stats.requeue_after),
            ] {
                total.count(&[("controller", handle.name()), ("result", result)], count)?;
            }
        }
        for (name, help, of) in COUNTS {
            let mut family = counter(encoder, name, help)?;
            for (handle, stats) in &controllers {
                family.count(&[("controller", handle.name())], of(stats))?;
            }
        }
        let help = "Panics of predicates, filters and event handlers";
        let mut panics = counter(encoder, "setpoint_event_panics", help)?;
        for (handle, _) in &controllers {
            let count = handle.sources().iter().map(|source| source.panics).sum();
            panics.count(&[("controller", handle.name())], count)?;
        }
        let help = "How long passes took, without the time their keys were queued";
        let mut took = histogram(encoder, "controller_runtime_reconcile_time_seconds", help)?;
        for (handle, _) in &controllers {
            let durations = handle.durations();
            let labels = [("controller", handle.name())];
            took.distribution(&labels, durations.sum(), &durations.buckets())?;
        }
        let help = "How many passes may run at the same time";
        let mut max = gauge(encoder, "controller_runtime_max_concurrent_reconciles", help)?;
        for (handle, _) in &controllers {
            max.value(&[("controller", handle.name())], &handle.n_workers())?;
        }
        let mut active =
            gauge(encoder, "controller_runtime_active_workers", "Passes that run now")?;
        for (handle, stats) in &controllers {
            active.value(&[("controller", handle.name())], &stats.active)?;
        }
        Ok(())
    }
}

impl fmt::Debug for ControllerCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ControllerCollector")
    }
}

/// Writes the metrics of queues: `workqueue_*`, as
/// [`exposition`](setpoint_workqueue::metrics::exposition()) does for a queue without a manager.
pub(crate) struct QueueCollector(pub(crate) Controllers);

struct Queue {
    name: Box<str>,
    recorder: Arc<Recorder>,
    stats: Stats,
    levels: Vec<LevelStats>,
    /// Whether priorities are labels.
    has_priorities: bool,
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
                let has_priorities = recorder.may_label(levels.iter().map(|level| level.priority));
                let (name, stats) = (handle.name().into(), handle.queue());
                Queue { name, recorder, stats, levels, has_priorities }
            })
            .collect();
        let encoder = &mut encoder;

        let mut depth = gauge(encoder, "workqueue_depth", "Keys that are wanted")?;
        for queue in &queues {
            let total = queue.stats.queued + queue.stats.dirty;
            if !queue.has_priorities {
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
            if queue.levels.is_empty() || !queue.has_priorities {
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
