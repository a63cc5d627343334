//! Metrics of queues in Prometheus' text format, with the names that dashboards expect.

use std::{
    fmt::{self, Write},
    time::Duration,
};

use super::{Recorder, Stats, recorder::Histogram};
use crate::LevelStats;

/// The metrics of a queue, for [`exposition`].
#[derive(Debug, Clone)]
pub struct Exposed<'a> {
    /// The queue's name, for the labels `name` and `controller`.
    pub name: &'a str,
    /// Its counters and histograms.
    pub recorder: &'a Recorder,
    /// Its gauges: [`WorkQueue::stats`](crate::WorkQueue::stats).
    pub stats: Stats,
    /// Its levels: [`WorkQueue::levels`](crate::WorkQueue::levels); empty without priorities.
    pub levels: Vec<LevelStats>,
}

/// Writes the metrics of queues in Prometheus' text format.
///
/// Has the seven families of client-go and controller-runtime (`workqueue_depth`, `…_adds_total`,
/// `…_queue_duration_seconds`, `…_work_duration_seconds`, `…_unfinished_work_seconds`,
/// `…_longest_running_processor_seconds`, `…_retries_total`), and four more: `workqueue_waiting`,
/// `workqueue_resting`, `workqueue_rate_limited_keys` and `workqueue_oldest_ready_seconds`. Ages
/// are current, while client-go refreshes them twice a second. If a queue has more than
/// [`PRIORITY_LABELS_MAX`](super::PRIORITY_LABELS_MAX) priorities, its depth is one sum with the
/// label `exceeded_cardinality_limit`.
pub fn exposition(queues: &[Exposed<'_>]) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = Exposition(queues).write(&mut text);
    text
}

struct Exposition<'a>(&'a [Exposed<'a>]);

impl Exposition<'_> {
    fn write(&self, to: &mut String) -> fmt::Result {
        self.depth(to)?;
        self.family(
            to,
            "adds_total",
            "counter",
            "Times a key became queued or dirty",
            |to, queue| writeln!(to, " {}", queue.recorder.adds()),
        )?;
        self.histogram(to, "queue_duration_seconds", "How long keys were queued", |recorder| {
            &recorder.queued
        })?;
        self.histogram(to, "work_duration_seconds", "How long workers held keys", |recorder| {
            &recorder.worked
        })?;
        let about = "Sum of the ages of keys in flight";
        self.gauge(to, "unfinished_work_seconds", about, |stats| seconds(stats.unfinished))?;
        let about = "Age of the key in flight for longest";
        self.gauge(to, "longest_running_processor_seconds", about, |stats| {
            seconds(stats.longest_running)
        })?;
        self.family(to, "retries_total", "counter", "Adds with a delay", |to, queue| {
            writeln!(to, " {}", queue.recorder.retries())
        })?;
        self.gauge(to, "waiting", "Keys that wait for their due time", |stats| stats.waiting)?;
        let about = "Keys that rest until the caches show what their pass wrote";
        self.gauge(to, "resting", about, |stats| stats.resting)?;
        let about = "Keys for which the rate limiter keeps state";
        self.gauge(to, "rate_limited_keys", about, |stats| stats.limited)?;
        self.oldest(to)
    }

    fn head(to: &mut String, family: &str, kind: &str, about: &str) -> fmt::Result {
        writeln!(to, "# HELP workqueue_{family} {about}\n# TYPE workqueue_{family} {kind}")
    }

    /// Writes a family with a sample per queue. `value` writes the part after the labels.
    fn family(
        &self,
        to: &mut String,
        family: &str,
        kind: &str,
        about: &str,
        value: impl Fn(&mut String, &Exposed<'_>) -> fmt::Result,
    ) -> fmt::Result {
        Self::head(to, family, kind, about)?;
        for queue in self.0 {
            write!(to, "workqueue_{family}{{{}}}", Labels(queue.name))?;
            value(to, queue)?;
        }
        Ok(())
    }

    fn gauge<V: fmt::Display>(
        &self,
        to: &mut String,
        family: &str,
        about: &str,
        value: impl Fn(&Stats) -> V,
    ) -> fmt::Result {
        self.family(to, family, "gauge", about, |to, queue| {
            writeln!(to, " {}", value(&queue.stats))
        })
    }

    fn depth(&self, to: &mut String) -> fmt::Result {
        Self::head(to, "depth", "gauge", "Keys that are queued or dirty")?;
        for queue in self.0 {
            let labels = Labels(queue.name);
            let total = queue.stats.queued + queue.stats.dirty;
            let may_label =
                queue.recorder.may_label(queue.levels.iter().map(|level| level.priority));
            if !may_label {
                writeln!(
                    to,
                    "workqueue_depth{{{labels},priority=\"exceeded_cardinality_limit\"}} {total}"
                )?;
                continue;
            }
            if queue.levels.is_empty() {
                writeln!(to, "workqueue_depth{{{labels},priority=\"\"}} {total}")?;
            }
            for level in &queue.levels {
                let (priority, ready) = (level.priority, level.ready);
                writeln!(to, "workqueue_depth{{{labels},priority=\"{priority}\"}} {ready}")?;
            }
        }
        Ok(())
    }

    fn oldest(&self, to: &mut String) -> fmt::Result {
        let about = "How long the first key of a priority has been ready";
        Self::head(to, "oldest_ready_seconds", "gauge", about)?;
        for queue in self.0 {
            let labels = Labels(queue.name);
            let may_label =
                queue.recorder.may_label(queue.levels.iter().map(|level| level.priority));
            let levels = queue.levels.iter().filter(|_| may_label);
            for (level, oldest) in levels.filter_map(|level| Some((level, level.oldest?))) {
                let (priority, oldest) = (level.priority, seconds(oldest));
                writeln!(
                    to,
                    "workqueue_oldest_ready_seconds{{{labels},priority=\"{priority}\"}} {oldest}"
                )?;
            }
            if queue.levels.is_empty() || !may_label {
                let oldest = seconds(queue.stats.oldest_queued);
                writeln!(to, "workqueue_oldest_ready_seconds{{{labels},priority=\"\"}} {oldest}")?;
            }
        }
        Ok(())
    }

    fn histogram(
        &self,
        to: &mut String,
        family: &str,
        about: &str,
        of: impl Fn(&Recorder) -> &Histogram,
    ) -> fmt::Result {
        Self::head(to, family, "histogram", about)?;
        for queue in self.0 {
            let labels = Labels(queue.name);
            let histogram = of(queue.recorder);
            let mut count = 0;
            for (bound, at_most) in histogram.cumulated() {
                let bound = bound.map_or("+Inf".to_owned(), |bound| seconds(bound).to_string());
                writeln!(to, "workqueue_{family}_bucket{{{labels},le=\"{bound}\"}} {at_most}")?;
                count = at_most;
            }
            writeln!(to, "workqueue_{family}_sum{{{labels}}} {}", seconds(histogram.sum()))?;
            writeln!(to, "workqueue_{family}_count{{{labels}}} {count}")?;
        }
        Ok(())
    }
}

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

/// The two labels of every sample.
struct Labels<'a>(&'a str);

impl fmt::Display for Labels<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Escaped(self.0);
        write!(f, "name=\"{name}\",controller=\"{name}\"")
    }
}

/// A label's value, escaped for the text format.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|char| match char {
            '\\' => f.write_str("\\\\"),
            '"' => f.write_str("\\\""),
            '\n' => f.write_str("\\n"),
            char => f.write_char(char),
        })
    }
}
