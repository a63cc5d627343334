//! The figures of a schema at its level.

use super::utilization::UtilizationFigures;
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
    pub(super) const ALL: [Self; 4] =
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
    waiting_seats: AtomicI64,
    /// The lengths of queues, with each request that came to one.
    lengths: Histogram,
    /// The seats of requests.
    widths: Histogram,
    /// Of refused requests, and of others.
    waited: [Histogram; 2],
    /// Of watches, until they are established, and of others.
    executed: [Histogram; 2],
}

/// Upper bounds of buckets, in seconds, as kube-apiserver's.
const BOUNDS: [f64; 13] = [0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0];
/// Upper bounds of lengths of queues.
const LENGTHS: [f64; 8] = [0.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0];
/// Upper bounds of seats.
const WIDTHS: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 100.0];

impl Default for Stats {
    fn default() -> Self {
        let times = || Histogram::new(&BOUNDS);
        Self {
            dispatched: AtomicU64::default(),
            rejected: <[AtomicU64; 4]>::default(),
            waiting: AtomicI64::default(),
            executing: AtomicI64::default(),
            seats: AtomicI64::default(),
            waiting_seats: AtomicI64::default(),
            lengths: Histogram::new(&LENGTHS),
            widths: Histogram::new(&WIDTHS),
            waited: [times(), times()],
            executed: [times(), times()],
        }
    }
}

impl Stats {
    pub(super) fn begin(&self, width: u32) {
        self.dispatched.fetch_add(1, Relaxed);
        self.executing.fetch_add(1, Relaxed);
        self.seats.fetch_add(width.into(), Relaxed);
    }

    pub(super) fn end(&self, width: u32, took: Duration, is_watch: bool) {
        self.executed[usize::from(!is_watch)].time(took);
        self.executing.fetch_sub(1, Relaxed);
        self.seats.fetch_sub(width.into(), Relaxed);
    }

    /// A request begins to wait.
    pub(super) fn begin_wait(&self, width: u32) {
        self.waiting.fetch_add(1, Relaxed);
        self.waiting_seats.fetch_add(width.into(), Relaxed);
    }

    /// A request waits no longer.
    pub(super) fn end_wait(&self, width: u32) {
        self.waiting.fetch_sub(1, Relaxed);
        self.waiting_seats.fetch_sub(width.into(), Relaxed);
    }

    /// The seats that a new request needs.
    pub(super) fn needs(&self, width: u32) {
        self.widths.size(width.into());
    }

    /// A request came to a queue that has this many requests now.
    pub(super) fn queued(&self, length: usize) {
        self.lengths.size(length as u64);
    }

    pub(super) fn waited(&self, is_executed: bool, waited: Duration) {
        self.waited[usize::from(is_executed)].time(waited);
    }

    pub(super) fn reject(&self, reason: Reason) {
        self.rejected[reason as usize].fetch_add(1, Relaxed);
    }

    pub(super) fn dispatched(&self) -> u64 {
        self.dispatched.load(Relaxed)
    }

    pub(super) fn executing(&self) -> u64 {
        u64::try_from(self.executing.load(Relaxed)).unwrap_or_default()
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
            dispatched: self.dispatched(),
            rejected: Reason::ALL.map(|reason| (reason.as_str(), self.rejected(reason))),
            waiting: gauge(&self.waiting),
            executing: self.executing(),
            seats: gauge(&self.seats),
            waiting_seats: gauge(&self.waiting_seats),
            queue_lengths: self.lengths.sizes(),
            needed_seats: self.widths.sizes(),
            waited: self.waited.each_ref().map(Histogram::times),
            executed: self.executed.each_ref().map(Histogram::times),
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
    /// The seats of the requests that wait.
    pub waiting_seats: u64,
    /// The lengths of queues, with each request that came to one.
    pub queue_lengths: Distribution,
    /// The seats that requests need.
    pub needed_seats: Distribution,
    /// How long refused requests waited, and others. Exempt requests are in neither.
    pub waited: [Distribution; 2],
    /// How long watches ran until they were established, and how long other requests ran.
    pub executed: [Distribution; 2],
}

/// The seats of a level, as metrics show them.
#[derive(Debug, Clone, PartialEq)]
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
    /// What it used over time; `None`: it is exempt.
    pub utilization: Option<UtilizationFigures>,
}

/// The figures of priority and fairness.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct FlowControl {
    /// The levels.
    pub levels: Vec<LevelFigures>,
    /// The schemas.
    pub flows: Vec<FlowFigures>,
}
