//! The scheduler of priority and fairness: which request runs when. A pure state machine: time is
//! passed in, nothing is random, and nothing waits.
//!
//! # Theory
//!
//! *Seats.* A request occupies a number of seats while it runs. The server has a fixed total, which
//! levels divide by their shares; a level's part is its *nominal* number. It may lend some of them,
//! so it has a *minimum* that is always its own, and it may borrow up to its *maximum*. What all
//! levels may lend is one pool. A level takes seats beyond its minimum from the pool:
//!
//! ```text
//! Σ max(0, in use − minimum) ≤ Σ (nominal − minimum)      so   Σ in use ≤ Σ nominal
//! ```
//!
//! A level that waits with less than its nominal number has a claim on the pool: until it is
//! served, no level beyond its own nominal number takes seats from the pool. So seats that are lent
//! come back as soon as requests end.
//!
//! A level whose nominal number is zero has one seat besides, which is in no pool: it runs one
//! request at a time, as in kube-apiserver, and more with borrowed seats.
//!
//! *Queues.* A flow (a schema and a distinguisher) is dealt a few of its level's queues, always the
//! same, and a request waits in the one with the least work. A flood fills the queues of its flow
//! only; most other flows have a queue without it.
//!
//! *Fairness.* Queues take turns by start-time fair queueing. A level has a virtual time `v`, in
//! seat-nanoseconds of one queue. The head of a queue has the virtual start
//! `max(v, end of the request before it)`; the lowest start runs next, and `v` becomes that start.
//! A request is charged an estimate when it starts, and the difference when it ends, so a queue
//! with long or wide requests waits longer for its next turn. A queue that was idle gets no credit.
//!
//! The head of the chosen queue is never passed by another queue of its level, so a wide request
//! gets its seats in the end.

use super::utilization::{REQUESTS, SEATS, Utilization, UtilizationFigures};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What a request is charged until it ends: 3 ms, as kube-apiserver.
pub(crate) const ESTIMATE: Duration = Duration::from_millis(3);
/// Maximum requests that wait in all levels.
///
/// 100,000: the suggested levels have room for some 20,000. The limit bounds the memory of levels
/// with very long queues.
pub(crate) const WAITING_MAX: usize = 100_000;
/// Maximum queues that one flow is dealt. A valid level deals fewer, because queues and hand must
/// not need more than 60 bits.
const HAND_MAX: usize = 64;

/// The number of queues of a level at which idle ones are looked for.
const SWEEP_MIN: usize = 1024;

/// The position of a level.
pub(crate) type LevelId = usize;
/// A request that waits or has waited.
pub(crate) type Ticket = u64;

/// What a level does with requests that cannot run at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Response {
    /// Refuses them.
    Reject,
    /// Queues them.
    Queue {
        /// The number of queues; at least one.
        queues: u32,
        /// How many of them a flow is dealt; at least one.
        hand: u32,
        /// Maximum requests in a queue.
        length: usize,
    },
}

/// The seats and queues of a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Its part of all seats.
    pub(crate) nominal: u32,
    /// Seats that it never lends; at most `nominal`.
    pub(crate) min: u32,
    /// Seats including borrowed ones; at least `nominal`.
    pub(crate) max: u32,
    /// What happens to other requests.
    pub(crate) response: Response,
}

/// A request that runs. Given back with [`Scheduler::finish`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Running {
    pub(crate) level: LevelId,
    /// The queue that is charged; `None`: its level had none.
    queue: Option<u32>,
    pub(crate) width: u32,
    started: Duration,
}

impl Running {
    /// Whether its level has queues.
    pub(crate) fn has_queue(&self) -> bool {
        self.queue.is_some()
    }
}

/// A request that waits. Given back with [`Scheduler::cancel`], unless it was dispatched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) level: LevelId,
    queue: u32,
    pub(crate) ticket: Ticket,
    /// The requests that wait in its queue, with it.
    pub(crate) length: usize,
}

/// What happens to a new request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It runs.
    Runs(Running),
    /// It waits, until a later call dispatches it.
    Waits(Waiting),
    /// Its queue is full.
    QueueFull,
    /// There is no seat, and its level has no queues.
    NoSeat,
}

/// A waiting request that runs now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dispatched {
    pub(crate) ticket: Ticket,
    pub(crate) running: Running,
}

/// All levels.
#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    levels: Vec<Level>,
    /// Σ (nominal − min).
    pool: u64,
    /// Σ max(0, in use − own seats).
    borrowed: u64,
    /// Levels with waiting requests.
    waiting: BTreeSet<LevelId>,
    n_waiting: usize,
    last_ticket: Ticket,
}

#[derive(Debug)]
struct Level {
    limits: Limits,
    in_use: u32,
    executing: usize,
    n_waiting: usize,
    /// Queues with waiting or running requests, or with a debt.
    queues: BTreeMap<u32, Queue>,
    /// Queues with waiting requests, by the virtual start of their heads.
    heads: BTreeSet<(u64, u32)>,
    /// The virtual time.
    v: u64,
    /// The number of queues at which those without requests and debt are dropped.
    sweep_at: usize,
    used: Used,
}

/// What a level used of its limits until now.
#[derive(Debug)]
struct Used {
    seats: Utilization,
    executing: Utilization,
    waiting: Utilization,
}

impl Used {
    fn new(now: Duration) -> Self {
        let of = |bounds| Utilization::new(bounds, now);
        Self { seats: of(SEATS), executing: of(REQUESTS), waiting: of(REQUESTS) }
    }
}

#[derive(Debug, Default)]
struct Queue {
    /// By ticket, which is the order of arrival.
    waiting: BTreeMap<Ticket, u32>,
    /// The seats of its running requests.
    in_use: u32,
    executing: u32,
    /// The seats of its waiting requests.
    wanted: u64,
    /// The virtual start of its head; without waiting requests, the end of the last one.
    start: u64,
}

/// The figures of a level, for metrics and dumps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LevelState {
    pub(crate) limits: Limits,
    pub(crate) in_use: u32,
    pub(crate) executing: usize,
    pub(crate) waiting: usize,
    /// Queues with waiting requests.
    pub(crate) waiting_queues: usize,
    /// Seats that it may use now, given what others use.
    pub(crate) current: u32,
}

/// The figures of a queue.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct QueueState {
    pub(crate) index: u32,
    pub(crate) waiting: Vec<(Ticket, u32)>,
    pub(crate) executing: u32,
    pub(crate) in_use: u32,
    /// The virtual start of its head, relative to the level's virtual time, in seat-seconds.
    pub(crate) start: f64,
}

impl Scheduler {
    /// Sets the limits of all levels. A level keeps its position. Positions may be added; a level
    /// that is gone gets limits without seats, and its waiting requests run as others end. Returns
    /// the requests that run now.
    pub(crate) fn configure(&mut self, limits: &[Limits], now: Duration) -> Vec<Dispatched> {
        for (id, limits) in limits.iter().enumerate() {
            match self.levels.get_mut(id) {
                Some(level) => level.limits = *limits,
                None => self.levels.push(Level::new(*limits, now)),
            }
        }
        let lent = |level: &Level| u64::from(level.limits.nominal - level.limits.min);
        self.pool = self.levels.iter().map(lent).sum();
        self.borrowed = self.levels.iter().map(Level::borrowed).sum();
        let dispatched = self.dispatch(now);
        (0..limits.len()).for_each(|id| self.observe(id, now));
        dispatched
    }

    /// The position has another level now: what the former one used is forgotten.
    pub(crate) fn begin_level(&mut self, id: LevelId, now: Duration) {
        if let Some(level) = self.levels.get_mut(id) {
            level.used = Used::new(now);
        }
    }

    /// A new request of a flow, which the hash identifies. `width`: its seats, at least one. Also
    /// returns the requests that run now: perhaps this one, if it comes before a wide request that
    /// was the next one.
    pub(crate) fn arrive(
        &mut self,
        id: LevelId,
        flow: u64,
        width: u32,
        now: Duration,
    ) -> (Arrival, Vec<Dispatched>) {
        let width = self.levels[id].effective(width);
        let fits = self.fits(id, width, self.claimed());
        let (has_room, level) = (self.n_waiting < WAITING_MAX, &mut self.levels[id]);
        let Response::Queue { queues, hand, length } = level.limits.response else {
            return match fits {
                true => (Arrival::Runs(self.start(id, None, width, now)), Vec::new()),
                false => (Arrival::NoSeat, Vec::new()),
            };
        };
        let mut dealt = [0; HAND_MAX];
        let dealt = deal(flow, queues, hand, &mut dealt);
        // The first of several with the same work, so that a quiet flow stays in one queue.
        let work = |index: &u32| {
            level.queues.get(index).map_or(0, |queue| queue.wanted + u64::from(queue.in_use))
        };
        let index = dealt.iter().copied().min_by_key(work).unwrap_or_default();
        if fits && level.n_waiting == 0 {
            return (Arrival::Runs(self.start(id, Some(index), width, now)), Vec::new());
        }
        let v = level.v;
        let queue = level.queues.entry(index).or_default();
        if queue.waiting.len() >= length || !has_room {
            return (Arrival::QueueFull, Vec::new());
        }
        if queue.waiting.is_empty() {
            queue.start = queue.start.max(v);
            level.heads.insert((queue.start, index));
        }
        self.last_ticket += 1;
        let ticket = self.last_ticket;
        queue.waiting.insert(ticket, width);
        queue.wanted += u64::from(width);
        let waiting = Waiting { level: id, queue: index, ticket, length: queue.waiting.len() };
        level.n_waiting += 1;
        self.n_waiting += 1;
        self.waiting.insert(id);
        self.observe(id, now);
        (Arrival::Waits(waiting), self.dispatch(now))
    }

    /// A request has ended. Returns the requests that run now.
    pub(crate) fn finish(&mut self, running: Running, now: Duration) -> Vec<Dispatched> {
        let Running { level: id, queue: index, width, started } = running;
        let level = &mut self.levels[id];
        self.borrowed -= level.borrowed();
        level.in_use -= width;
        level.executing -= 1;
        self.borrowed += level.borrowed();
        if let Some(index) = index
            && let Some(queue) = level.queues.get_mut(&index)
        {
            queue.in_use -= width;
            queue.executing -= 1;
            let estimated = charge(ESTIMATE, width);
            let actual = charge(now.saturating_sub(started), width);
            let is_waiting = !queue.waiting.is_empty();
            if is_waiting {
                level.heads.remove(&(queue.start, index));
            }
            queue.start = queue.start.saturating_add(actual).saturating_sub(estimated);
            if is_waiting {
                level.heads.insert((queue.start, index));
            }
        }
        level.forget(index);
        self.observe(id, now);
        self.dispatch(now)
    }

    /// A request no longer waits; has no effect if it was dispatched. Returns the requests that run
    /// now.
    pub(crate) fn cancel(&mut self, waiting: Waiting, now: Duration) -> Vec<Dispatched> {
        let Waiting { level: id, queue: index, ticket, .. } = waiting;
        let level = &mut self.levels[id];
        let Some(queue) = level.queues.get_mut(&index) else { return Vec::new() };
        let Some(width) = queue.waiting.remove(&ticket) else { return Vec::new() };
        queue.wanted -= u64::from(width);
        if queue.waiting.is_empty() {
            level.heads.remove(&(queue.start, index));
        }
        level.n_waiting -= 1;
        level.forget(Some(index));
        self.n_waiting -= 1;
        if self.levels[id].n_waiting == 0 {
            self.waiting.remove(&id);
        }
        self.observe(id, now);
        // A wide request may have held the others up.
        self.dispatch(now)
    }

    /// The figures of a level.
    pub(crate) fn level(&self, id: LevelId) -> Option<LevelState> {
        let level = self.levels.get(id)?;
        let others = self.borrowed - level.borrowed();
        let of_pool = u32::try_from(self.pool.saturating_sub(others)).unwrap_or(u32::MAX);
        Some(LevelState {
            limits: level.limits,
            in_use: level.in_use,
            executing: level.executing,
            waiting: level.n_waiting,
            waiting_queues: level.heads.len(),
            current: level.limits.max.min(level.limits.min.saturating_add(of_pool)),
        })
    }

    /// What a level used of its limits until `now`.
    pub(crate) fn utilization(&self, id: LevelId, now: Duration) -> Option<UtilizationFigures> {
        let Used { seats, executing, waiting } = &self.levels.get(id)?.used;
        let (seats, executing, waiting) = (seats.read(now), executing.read(now), waiting.read(now));
        Some(UtilizationFigures { seats, executing, waiting })
    }

    /// Notes what a level uses from `now` on.
    fn observe(&mut self, id: LevelId, now: Duration) {
        let Some(LevelState { limits, in_use, executing, waiting, current, .. }) = self.level(id)
        else {
            return;
        };
        let seats = current.max(1).into();
        let room = match limits.response {
            Response::Queue { queues, length, .. } => {
                u64::from(queues).saturating_mul(length.max(1) as u64)
            }
            Response::Reject => 1,
        };
        let used = &mut self.levels[id].used;
        used.seats.set(in_use.into(), seats, now);
        used.executing.set(executing as u64, seats, now);
        used.waiting.set(waiting as u64, room, now);
    }

    /// The queues of a level with waiting or running requests.
    pub(crate) fn queues(&self, id: LevelId) -> Vec<QueueState> {
        let Some(level) = self.levels.get(id) else { return Vec::new() };
        let active = level.queues.iter().filter(|(_, queue)| queue.is_active());
        let state = |(index, queue): (&u32, &Queue)| QueueState {
            index: *index,
            waiting: queue.waiting.iter().map(|(ticket, width)| (*ticket, *width)).collect(),
            executing: queue.executing,
            in_use: queue.in_use,
            start: queue.start.saturating_sub(level.v) as f64 / 1e9,
        };
        active.map(state).collect()
    }

    /// Whether a level with less than its nominal number of seats waits for the pool.
    fn claimed(&self) -> bool {
        self.waiting.iter().any(|id| {
            let level = &self.levels[*id];
            level.head().is_some_and(|(_, width)| level.is_entitled(width))
        })
    }

    /// Whether a request may run. `claimed`: seats of the pool are only for levels that are
    /// entitled to them.
    fn fits(&self, id: LevelId, width: u32, claimed: bool) -> bool {
        let level = &self.levels[id];
        let in_use = level.in_use + width;
        if in_use > level.limits.max.max(level.own()) {
            return false;
        }
        let more = u64::from(in_use.saturating_sub(level.own())) - level.borrowed();
        let has_seats = self.borrowed + more <= self.pool;
        more == 0 || has_seats && (!claimed || level.is_entitled(width))
    }

    fn start(&mut self, id: LevelId, index: Option<u32>, width: u32, now: Duration) -> Running {
        let level = &mut self.levels[id];
        self.borrowed -= level.borrowed();
        level.in_use += width;
        level.executing += 1;
        self.borrowed += level.borrowed();
        if let Some(index) = index {
            let queue = level.queues.entry(index).or_default();
            let start = queue.start.max(level.v);
            level.v = start;
            queue.start = start + charge(ESTIMATE, width);
            queue.in_use += width;
            queue.executing += 1;
        }
        self.observe(id, now);
        Running { level: id, queue: index, width, started: now }
    }

    /// Starts all waiting requests that may run.
    fn dispatch(&mut self, now: Duration) -> Vec<Dispatched> {
        let mut dispatched = Vec::new();
        while !self.waiting.is_empty() {
            let claimed = self.claimed();
            let ready = self.waiting.iter().filter_map(|id| {
                let level = &self.levels[*id];
                let (index, width) = level.head()?;
                self.fits(*id, width, claimed).then(|| (level.load(), *id, index, width))
            });
            // The level that uses the smallest part of its seats comes first.
            let Some((_, id, index, width)) = ready.min() else { break };
            let level = &mut self.levels[id];
            let Some(queue) = level.queues.get_mut(&index) else { break };
            let Some((ticket, wanted)) = queue.waiting.pop_first() else { break };
            queue.wanted -= u64::from(wanted);
            level.heads.remove(&(queue.start, index));
            level.n_waiting -= 1;
            self.n_waiting -= 1;
            if level.n_waiting == 0 {
                self.waiting.remove(&id);
            }
            let running = self.start(id, Some(index), width, now);
            let level = &mut self.levels[id];
            if let Some(queue) = level.queues.get(&index)
                && !queue.waiting.is_empty()
            {
                level.heads.insert((queue.start, index));
            }
            dispatched.push(Dispatched { ticket, running });
        }
        dispatched
    }
}

impl Level {
    fn new(limits: Limits, now: Duration) -> Self {
        Self {
            limits,
            used: Used::new(now),
            in_use: 0,
            executing: 0,
            n_waiting: 0,
            queues: BTreeMap::new(),
            heads: BTreeSet::new(),
            v: 0,
            sweep_at: SWEEP_MIN,
        }
    }

    /// The seats that it never lends. One, if it has none by its shares: otherwise its requests
    /// could wait forever, or would all be refused.
    fn own(&self) -> u32 {
        if self.limits.nominal == 0 { 1 } else { self.limits.min }
    }

    /// Its seats from the pool.
    fn borrowed(&self) -> u64 {
        self.in_use.saturating_sub(self.own()).into()
    }

    /// Whether it stays within its nominal number with one more request.
    fn is_entitled(&self, width: u32) -> bool {
        self.in_use + width <= self.limits.nominal
    }

    /// The seats of a request: not more than the level is entitled to, otherwise it could wait
    /// forever.
    fn effective(&self, width: u32) -> u32 {
        width.min(self.limits.nominal).max(1)
    }

    /// The part of its seats that is in use, in thousandths.
    fn load(&self) -> u64 {
        u64::from(self.in_use) * 1000 / u64::from(self.limits.nominal.max(1))
    }

    /// The queue whose turn it is, and the seats of its head.
    fn head(&self) -> Option<(u32, u32)> {
        let (_, index) = *self.heads.first()?;
        let (_, width) = self.queues.get(&index)?.waiting.first_key_value()?;
        Some((index, self.effective(*width)))
    }

    /// Drops a queue that has no requests and no debt. Without any requests, virtual time starts
    /// over.
    fn forget(&mut self, index: Option<u32>) {
        if self.executing == 0 && self.n_waiting == 0 {
            self.queues.clear();
            self.sweep_at = SWEEP_MIN;
            self.v = 0;
            return;
        }
        let v = self.v;
        let is_done = |queue: &Queue| !queue.is_active() && queue.start <= v;
        if let Some(index) = index
            && self.queues.get(&index).is_some_and(is_done)
        {
            self.queues.remove(&index);
        }
        // Others that were in debt. Seldom, so that it costs little per request.
        if self.queues.len() > self.sweep_at {
            self.queues.retain(|_, queue| !is_done(queue));
            self.sweep_at = SWEEP_MIN.max(self.queues.len() * 2);
        }
    }
}

impl Queue {
    fn is_active(&self) -> bool {
        self.executing > 0 || !self.waiting.is_empty()
    }
}

/// Seat-nanoseconds.
fn charge(time: Duration, width: u32) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX >> 16).saturating_mul(width.into())
}

/// Deals `hand` different cards of a deck, determined by the hash.
fn deal(mut hash: u64, deck: u32, hand: u32, dealt: &mut [u32; HAND_MAX]) -> &[u32] {
    let deck = deck.max(1);
    let hand = hand.clamp(1, deck).min(HAND_MAX as u32);
    for n in 0..hand {
        let left = u64::from(deck - n);
        // The position among the cards that are left; the remainder is below `deck`.
        let mut card = (hash % left) as u32;
        hash /= left;
        let place = n as usize;
        // `dealt[..place]` is in ascending order while it is built.
        let mut at = 0;
        while at < place && dealt[at] <= card {
            card += 1;
            at += 1;
        }
        dealt.copy_within(at..place, at + 1);
        dealt[at] = card;
    }
    &dealt[..hand as usize]
}

#[cfg(test)]
mod tests;
