//! The figures of a schema at its level.

use setpoint_registry::figures::{Distribution, Histogram};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Its level had no seat and has no queues.
    ConcurrencyLimit,
    /// Its queue was full.
    QueueFull,
    /// It waited for too long.
    TimeOut,
    /// Its client went away while it waited.
    Cancelled,
}

impl Reason {
    const ALL: [Self; 4] =
        [Self::ConcurrencyLimit, Self::QueueFull, Self::TimeOut, Self::Cancelled];

    /// The name in metrics.
    fn as_str(self) -> &'static str {
        match self {
            Self::ConcurrencyLimit => "concurrency-limit",
            Self::QueueFull => "queue-full",
            Self::TimeOut => "time-out",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Counters and gauges. Changed without a lock.
#[derive(Debug)]
pub(crate) struct Stats {
    dispatched: AtomicU64,
    rejected: [AtomicU64; 4],
    waiting: AtomicI64,
    executing: AtomicI64,
    seats: AtomicI64,
    /// Of refused requests, and of others.
    waited: [Histogram; 2],
    executed: Histogram,
}

/// Upper bounds of buckets, in seconds, as kube-apiserver's.
const BOUNDS: [f64; 13] = [0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0];

impl Default for Stats {
    fn default() -> Self {
        let times = || Histogram::new(&BOUNDS);
        Self {
            dispatched: AtomicU64::default(),
            rejected: <[AtomicU64; 4]>::default(),
            waiting: AtomicI64::default(),
            executing: AtomicI64::default(),
            seats: AtomicI64::default(),
            waited: [times(), times()],
            executed: times(),
        }
    }
}

impl Stats {
    pub(super) fn begin(&self, width: u32) {
        self.dispatched.fetch_add(1, Relaxed);
        self.executing.fetch_add(1, Relaxed);
        self.seats.fetch_add(width.into(), Relaxed);
    }

    pub(super) fn end(&self, width: u32, took: Duration) {
        self.executed.time(took);
        self.executing.fetch_sub(1, Relaxed);
        self.seats.fetch_sub(width.into(), Relaxed);
    }

    pub(super) fn wait(&self, more: i64) {
        self.waiting.fetch_add(more, Relaxed);
    }

    pub(super) fn waited(&self, is_executed: bool, waited: Duration) {
        self.waited[usize::from(is_executed)].time(waited);
    }

    pub(super) fn reject(&self, reason: Reason) {
        self.rejected[reason as usize].fetch_add(1, Relaxed);
    }

    pub(super) fn rejected(&self, reason: Reason) -> u64 {
        self.rejected[reason as usize].load(Relaxed)
    }

    /// The figures now.
    pub(super) fn read(&self, level: &str, schema: &str) -> FlowFigures {
        let gauge = |value: &AtomicI64| u64::try_from(value.load(Relaxed)).unwrap_or_default();
        FlowFigures {
            priority_level: level.to_owned(),
            flow_schema: schema.to_owned(),
            dispatched: self.dispatched.load(Relaxed),
            rejected: Reason::ALL.map(|reason| (reason.as_str(), self.rejected(reason))),
            waiting: gauge(&self.waiting),
            executing: gauge(&self.executing),
            seats: gauge(&self.seats),
            waited: self.waited.each_ref().map(Histogram::times),
            executed: self.executed.times(),
        }
    }
}

/// The requests of a FlowSchema, as metrics show them.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct FlowFigures {
    /// The level of the schema.
    pub priority_level: String,
    /// The schema.
    pub flow_schema: String,
    /// Requests that began to run, since the server started.
    pub dispatched: u64,
    /// Requests that were refused, by reason.
    pub rejected: [(&'static str, u64); 4],
    /// Requests that wait now.
    pub waiting: u64,
    /// Requests that run now.
    pub executing: u64,
    /// Their seats.
    pub seats: u64,
    /// How long refused requests waited, and others. Exempt requests are in neither.
    pub waited: [Distribution; 2],
    /// How long requests ran.
    pub executed: Distribution,
}

/// The seats of a level, as metrics show them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LevelFigures {
    /// The level.
    pub priority_level: String,
    /// Its part of all seats.
    pub nominal: u32,
    /// Seats that it never lends.
    pub min: u32,
    /// Its seats including borrowed ones.
    pub max: u32,
    /// Seats that it may use now, given what others use.
    pub current: u32,
    /// Seats in use.
    pub in_use: u32,
}

/// The figures of priority and fairness.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct FlowControl {
    /// The levels, without those whose requests always run at once.
    pub levels: Vec<LevelFigures>,
    /// The schemas.
    pub flows: Vec<FlowFigures>,
}
