//! Metrics of controllers.

#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc};

use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};

use super::{ControllerHandle, ControllerStats};
use crate::metrics::{
    QueueMetrics,
    family::{counter, gauge, histogram},
};

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
    ("controller_runtime_reconcile_timeouts", "Passes that timed out", |stats| stats.timeouts),
    (
        "setpoint_reconcile_given_up",
        "Keys given up after the maximum number of failures",
        |stats| stats.given_up,
    ),
    (
        "setpoint_reconcile_deferred",
        "Keys requeued until their minimum interval has passed",
        |stats| stats.deferred,
    ),
    (
        "setpoint_reconcile_catch_up_timeouts",
        "Keys held back for the whole catch-up time, because the caches did not show the writes of their pass",
        |stats| stats.catch_up_timeouts,
    ),
    ("setpoint_reconcile_not_ours", "Keys skipped because another replica owns them", |stats| {
        stats.not_ours
    }),
];

impl Collector for ControllerCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let controllers: Vec<(ControllerHandle, ControllerStats)> =
            (self.0)().into_iter().map(|handle| (handle.clone(), handle.stats())).collect();
        let encoder = &mut encoder;

        let mut total = counter(encoder, "controller_runtime_reconcile", "Passes by result")?;
        for (handle, stats) in &controllers {
            // All four results exist from the start, with the value zero.
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
        let help = "Duration of passes, without the time their keys were queued";
        let mut took = histogram(encoder, "controller_runtime_reconcile_time_seconds", help)?;
        for (handle, _) in &controllers {
            let durations = handle.durations();
            let labels = [("controller", handle.name())];
            took.distribution(&labels, durations.sum(), &durations.buckets())?;
        }
        let help = "Maximum number of concurrent passes";
        let mut max = gauge(encoder, "controller_runtime_max_concurrent_reconciles", help)?;
        for (handle, _) in &controllers {
            max.value(&[("controller", handle.name())], &handle.n_workers())?;
        }
        let mut active = gauge(encoder, "controller_runtime_active_workers", "Running passes")?;
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

/// The metrics of the controllers' queues.
pub(crate) fn queues(controllers: &Controllers) -> Vec<QueueMetrics> {
    let queue = |handle: ControllerHandle| QueueMetrics {
        name: handle.name().into(),
        recorder: handle.queue_recorder(),
        stats: handle.queue(),
        levels: handle.queue_levels(),
    };
    controllers().into_iter().map(queue).collect()
}
