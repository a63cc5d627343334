use super::*;
use proptest::prelude::*;

const QUEUE: Response = Response::Queue { queues: 16, hand: 4, length: 50 };

fn limits(nominal: u32, min: u32, max: u32, response: Response) -> Limits {
    Limits { nominal, min, max, response }
}
fn scheduler(levels: &[Limits]) -> Scheduler {
    let mut scheduler = Scheduler::default();
    scheduler.configure(levels, Duration::ZERO);
    scheduler
}
fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Requests and their state, and what happened to them.
struct Simulation {
    scheduler: Scheduler,
    limits: Vec<Limits>,
    now: Duration,
    waiting: BTreeMap<Ticket, (Waiting, usize)>,
    /// By the time of their end.
    running: BTreeSet<(Duration, usize)>,
    seats: BTreeMap<usize, Running>,
    /// How long each request runs, by its number, and when it arrived and began.
    times: Vec<(Duration, Duration, Option<Duration>)>,
    rejected: usize,
}

impl Simulation {
    fn new(limits: &[Limits]) -> Self {
        Self {
            scheduler: scheduler(limits),
            limits: limits.to_vec(),
            now: Duration::ZERO,
            waiting: BTreeMap::new(),
            running: BTreeSet::new(),
            seats: BTreeMap::new(),
            times: Vec::new(),
            rejected: 0,
        }
    }

    /// A request arrives; returns its number.
    fn arrive(&mut self, level: LevelId, flow: u64, width: u32, takes: Duration) -> usize {
        let n = self.times.len();
        self.times.push((takes, self.now, None));
        let (arrival, dispatched) = self.scheduler.arrive(level, flow, width, self.now);
        match arrival {
            Arrival::Runs(running) => self.begin(n, running),
            Arrival::Waits(waiting) => _ = self.waiting.insert(waiting.ticket, (waiting, n)),
            Arrival::QueueFull | Arrival::NoSeat => self.rejected += 1,
        }
        self.dispatched(dispatched);
        n
    }
    fn begin(&mut self, n: usize, running: Running) {
        self.running.insert((self.now + self.times[n].0, n));
        self.times[n].2 = Some(self.now);
        self.seats.insert(n, running);
    }
    fn dispatched(&mut self, dispatched: Vec<Dispatched>) {
        for Dispatched { ticket, running } in dispatched {
            let (_, n) = self.waiting.remove(&ticket).expect("it waited");
            self.begin(n, running);
        }
        self.check();
    }
    /// Ends all requests up to a time.
    fn run_until(&mut self, until: Duration) {
        while let Some((end, n)) = self.running.first().copied().filter(|(end, _)| *end <= until) {
            self.running.remove(&(end, n));
            self.now = self.now.max(end);
            let running = self.seats.remove(&n).expect("it ran");
            let dispatched = self.scheduler.finish(running, self.now);
            self.dispatched(dispatched);
        }
        self.now = self.now.max(until);
    }
    fn cancel(&mut self, nth: usize) {
        let Some(ticket) = self.waiting.keys().nth(nth).copied() else { return };
        let (waiting, _) = self.waiting.remove(&ticket).expect("it waits");
        let dispatched = self.scheduler.cancel(waiting, self.now);
        self.dispatched(dispatched);
    }
    fn configure(&mut self, limits: &[Limits]) {
        self.limits = limits.to_vec();
        let dispatched = self.scheduler.configure(limits, self.now);
        self.dispatched(dispatched);
    }
    fn wait_of(&self, n: usize) -> Duration {
        self.times[n].2.expect("it ran") - self.times[n].1
    }

    /// The invariants that hold after every step, unless a level was made smaller.
    fn check(&self) {
        let states: Vec<LevelState> =
            (0..self.limits.len()).map(|id| self.scheduler.level(id).unwrap()).collect();
        let mut seats = vec![0; states.len()];
        self.seats.values().for_each(|running| seats[running.level] += running.width);
        for (state, seats) in states.iter().zip(seats) {
            assert_eq!(state.in_use, seats, "every seat belongs to a running request");
        }
        let waiting: usize = states.iter().map(|state| state.waiting).sum();
        assert_eq!(waiting, self.waiting.len());
        // Work conserving: nothing waits that could run.
        let claimed = self.scheduler.claimed();
        for id in 0..states.len() {
            if let Some((_, width)) = self.scheduler.levels[id].head() {
                assert!(!self.scheduler.fits(id, width, claimed), "level {id} waits for nothing");
            }
        }
    }
    /// The limits, which hold if no level was ever made smaller.
    fn check_limits(&self) {
        let mut borrowed = 0;
        for (id, limits) in self.limits.iter().enumerate() {
            let state = self.scheduler.level(id).unwrap();
            // A level without shares runs one request at a time.
            let extra = u32::from(limits.nominal == 0);
            assert!(state.in_use <= limits.max.max(extra), "{state:?}");
            borrowed += state.in_use.saturating_sub(limits.min.max(extra));
        }
        let lendable: u32 = self.limits.iter().map(|limits| limits.nominal - limits.min).sum();
        assert!(borrowed <= lendable, "{borrowed} of {lendable}");
        let total: u32 = self.limits.iter().map(|limits| limits.nominal).sum();
        let in_use: u32 = self.seats.values().map(|running| running.width).sum();
        let extra = self.limits.iter().filter(|limits| limits.nominal == 0).count();
        assert!(in_use as usize <= total as usize + extra, "{in_use} of {total} and {extra}");
    }
}

#[test]
fn hands_are_dealt_evenly_and_without_repeats() {
    let mut counts = [0_u32; 16];
    for flow in 0..16 * 15 * 14 * 13 {
        let mut dealt = [0; HAND_MAX];
        let hand = deal(flow, 16, 4, &mut dealt);
        assert!(hand.is_sorted_by(|a, b| a < b), "{hand:?}");
        hand.iter().for_each(|card| counts[*card as usize] += 1);
    }
    // Every hand was dealt equally often.
    assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
    let mut dealt = [0; HAND_MAX];
    assert_eq!(deal(u64::MAX, 1, 1, &mut dealt), [0]);
    let mut dealt = [0; HAND_MAX];
    assert_eq!(deal(7, 3, 3, &mut dealt), [0, 1, 2]);
}

#[test]
fn a_level_borrows_what_others_lend_and_gives_it_back() {
    // Ten seats each; the second lends half of its seats.
    let levels = [limits(10, 10, 20, QUEUE), limits(10, 5, 20, QUEUE)];
    let mut sim = Simulation::new(&levels);
    for _ in 0..20 {
        sim.arrive(0, 1, 1, ms(10));
    }
    assert_eq!(sim.scheduler.level(0).unwrap().in_use, 15);
    for _ in 0..10 {
        sim.arrive(1, 1, 1, ms(100));
    }
    // Its minimum is free; for the rest it waits.
    assert_eq!(sim.scheduler.level(1).unwrap().in_use, 5);
    sim.check_limits();
    sim.run_until(ms(11));
    // It has got its seats back although the first level still had requests.
    assert_eq!(sim.scheduler.level(1).unwrap().in_use, 10);
    assert_eq!(sim.scheduler.level(0).unwrap().waiting, 0);
}

#[test]
fn a_level_without_queues_refuses_and_a_full_queue_too() {
    let mut sim = Simulation::new(&[limits(1, 1, 1, Response::Reject)]);
    sim.arrive(0, 1, 1, ms(1));
    assert_eq!(sim.scheduler.arrive(0, 1, 1, ms(0)).0, Arrival::NoSeat);
    let one = Response::Queue { queues: 1, hand: 1, length: 1 };
    sim.configure(&[limits(1, 1, 1, one)]);
    sim.arrive(0, 1, 1, ms(1));
    assert_eq!(sim.scheduler.arrive(0, 1, 1, ms(0)).0, Arrival::QueueFull);
    // The first request was charged to no queue.
    sim.run_until(ms(5));
    assert!(sim.seats.is_empty() && sim.waiting.is_empty());
}

#[test]
fn a_level_without_shares_runs_one_request_at_a_time() {
    for response in [Response::Reject, QUEUE] {
        // The other level uses and lends all of its seats.
        let levels = [limits(0, 0, 0, response), limits(2, 0, 2, QUEUE)];
        let mut sim = Simulation::new(&levels);
        sim.arrive(1, 1, 1, ms(100));
        sim.arrive(1, 1, 1, ms(100));
        sim.arrive(0, 1, 1, ms(10));
        sim.arrive(0, 2, 3, ms(10));
        assert_eq!(sim.scheduler.level(0).unwrap().in_use, 1, "{response:?}");
        sim.run_until(ms(10));
        let queued = usize::from(response == QUEUE);
        assert_eq!((sim.rejected, sim.scheduler.level(0).unwrap().executing), (1 - queued, queued));
        // Its seat is not one of the pool: the other level never waits for it.
        sim.run_until(ms(100));
        sim.arrive(0, 1, 1, ms(10));
        sim.arrive(1, 1, 1, ms(10));
        sim.arrive(1, 1, 1, ms(10));
        assert_eq!(sim.scheduler.level(1).unwrap().in_use, 2);
        sim.check_limits();
        sim.run_until(ms(1000));
        assert!(sim.seats.is_empty() && sim.waiting.is_empty());
    }
    // It may also borrow.
    let mut sim = Simulation::new(&[limits(0, 0, 5, QUEUE), limits(2, 0, 2, QUEUE)]);
    (0..5).for_each(|_| _ = sim.arrive(0, 1, 1, ms(10)));
    assert_eq!(sim.scheduler.level(0).unwrap().in_use, 3);
    sim.check_limits();
}

#[test]
fn a_flood_of_one_flow_does_not_delay_others_for_long() {
    let queues = Response::Queue { queues: 64, hand: 6, length: 50 };
    let mut sim = Simulation::new(&[limits(10, 10, 10, queues)]);
    let (flood, quiet) = (0x1234_5678_9abc, 0xfeed_beef_0123_4567);
    let mut quiet_waits = Vec::new();
    let mut quiet_requests = Vec::new();
    for step in 0..2000 {
        sim.run_until(ms(step));
        for _ in 0..5 {
            sim.arrive(0, flood, 1, ms(10));
        }
        if step % 20 == 0 {
            quiet_requests.push(sim.arrive(0, quiet, 1, ms(10)));
        }
    }
    assert!(sim.rejected > 1000, "the flood is more than the level can do");
    sim.run_until(ms(100_000));
    for n in quiet_requests {
        quiet_waits.push(sim.wait_of(n));
    }
    // The flood has at most six queues, and a seat is free every millisecond: a quiet request waits
    // for a turn of each of them, and for the requests that run.
    let longest = quiet_waits.iter().max().unwrap();
    assert!(*longest <= ms(20), "{longest:?}");
    assert!(sim.waiting.is_empty() && sim.scheduler.levels[0].queues.is_empty());
}

#[test]
fn flows_share_by_seats_and_time_not_by_requests() {
    let queues = Response::Queue { queues: 2, hand: 1, length: 5000 };
    let mut sim = Simulation::new(&[limits(4, 4, 4, queues)]);
    // Long requests of one flow and short ones of the other, as many as ten seconds can do.
    for _ in 0..1000 {
        sim.arrive(0, 0, 1, ms(40));
        sim.arrive(0, 1, 1, ms(10));
    }
    sim.run_until(ms(4000));
    let done = |flow: usize| {
        let of_flow = sim.times.iter().skip(flow).step_by(2);
        of_flow.filter(|(_, _, begun)| begun.is_some()).map(|(takes, ..)| takes.as_millis()).sum()
    };
    let (long, short): (u128, u128) = (done(0), done(1));
    assert!(long.abs_diff(short) * 10 < long, "{long} and {short} seat-milliseconds");
}

#[test]
fn a_wide_request_is_not_passed_for_ever() {
    let mut sim = Simulation::new(&[limits(10, 10, 10, QUEUE)]);
    for flow in 0..10 {
        sim.arrive(0, flow, 1, ms(10));
    }
    let wide = sim.arrive(0, 77, 10, ms(10));
    for step in 1..50 {
        sim.run_until(ms(step));
        sim.arrive(0, step, 1, ms(10));
    }
    sim.run_until(ms(10_000));
    assert!(sim.wait_of(wide) <= ms(40), "{:?}", sim.wait_of(wide));
}

#[derive(Debug, Clone)]
enum Step {
    Arrive { level: usize, flow: u64, width: u32, takes: u64 },
    Pass(u64),
    Cancel(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..3_usize, 0..8_u64, 1..5_u32, 1..200_u64).prop_map(|(level, flow, width, takes)| {
            // Flows of one number have different hashes in each level.
            let flow = flow.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            Step::Arrive { level, flow, width, takes }
        }),
        3 => (0..100_u64).prop_map(Step::Pass),
        1 => (0..20_usize).prop_map(Step::Cancel),
    ]
}
fn response() -> impl Strategy<Value = Response> {
    prop_oneof![
        1 => Just(Response::Reject),
        4 => (1..10_u32, 1..4_u32, 1..20_usize)
            .prop_map(|(queues, hand, length)| Response::Queue { queues, hand, length }),
    ]
}
fn level() -> impl Strategy<Value = Limits> {
    (0..20_u32, 0..=100_u32, 0..20_u32, response()).prop_map(|(nominal, lent, more, response)| {
        limits(nominal, nominal - nominal * lent / 100, nominal + more, response)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn seats_stay_within_limits_and_every_request_ends(
        levels in proptest::collection::vec(level(), 3),
        steps in proptest::collection::vec(step(), 1..200),
    ) {
        let mut sim = Simulation::new(&levels);
        let mut now = 0;
        for step in steps {
            match step {
                Step::Arrive { level, flow, width, takes } => {
                    sim.arrive(level, flow, width, ms(takes));
                }
                Step::Pass(time) => {
                    now += time;
                    sim.run_until(ms(now));
                }
                Step::Cancel(nth) => sim.cancel(nth),
            }
            sim.check_limits();
        }
        sim.run_until(ms(now + 1_000_000));
        prop_assert!(sim.waiting.is_empty() && sim.running.is_empty());
        for level in &sim.scheduler.levels {
            prop_assert!(level.queues.is_empty() && level.heads.is_empty() && level.v == 0);
        }
    }

    #[test]
    fn limits_may_change_while_requests_wait(
        rounds in proptest::collection::vec(
            (proptest::collection::vec(level(), 3), proptest::collection::vec(step(), 1..50)),
            1..5,
        ),
    ) {
        let mut sim = Simulation::new(&rounds[0].0);
        let mut now = 0;
        for (levels, steps) in rounds {
            sim.configure(&levels);
            for step in steps {
                match step {
                    Step::Arrive { level, flow, width, takes } => {
                        sim.arrive(level, flow, width, ms(takes));
                    }
                    Step::Pass(time) => {
                        now += time;
                        sim.run_until(ms(now));
                    }
                    Step::Cancel(nth) => sim.cancel(nth),
                }
            }
        }
        sim.run_until(ms(now + 1_000_000));
        prop_assert!(sim.waiting.is_empty() && sim.running.is_empty());
        sim.check_limits();
    }
}
