//! Random interleavings of the priority queue, compared with the simplest model.

use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;
use setpoint_workqueue::{AddOptions, Exponential, Item, Priorities, Tag, WorkQueue};

#[derive(Debug, Clone)]
enum Step {
    Add(u8, u64, i32),
    Cancel(u8),
    Get,
    Done(u8),
    Sleep(u64),
    ShutDown,
}

/// A wanted key: its priority, its number, its due time if it waits.
#[derive(Debug, Clone, Copy)]
struct Want {
    priority: i32,
    seq: u64,
    due: Option<u64>,
    /// The tag of the deciding add, and the number of adds.
    note: (Tag, u32),
}

/// Section 5 of the rules: entries, held keys, a clock.
#[derive(Debug, Default)]
struct Model {
    wants: BTreeMap<u8, Want>,
    locked: BTreeMap<u8, ()>,
    seq: u64,
    now: u64,
    shut: bool,
}

impl Model {
    fn add(&mut self, key: u8, delay: u64, priority: i32, tag: Tag) {
        let due = (delay > 0).then_some(self.now + delay);
        self.seq += 1;
        let new = Want { priority, seq: self.seq, due, note: (tag, 0) };
        let want = self.wants.entry(key).or_insert(new);
        // PQ-5 and PQ-6: the maximum, the minimum; a new number for a raise and for becoming ready.
        let is_raised = priority > want.priority;
        let is_ready_now = want.due.is_some() && due.is_none();
        let is_earlier = want.due.is_some_and(|old| due.is_none_or(|due| due < old));
        if is_earlier || want.note.0.is_none() {
            want.note.0 = tag;
        }
        want.note.1 += 1;
        want.due = want.due.zip(due).map(|(old, new)| old.min(new));
        want.priority = want.priority.max(priority);
        if is_raised || is_ready_now {
            want.seq = self.seq;
        }
    }

    fn sleep(&mut self, ms: u64) {
        self.now += ms;
        let mut due: Vec<(u64, u8)> =
            self.wants.iter().filter_map(|(key, want)| Some((want.due?, *key))).collect();
        due.retain(|(at, _)| *at <= self.now);
        due.sort_unstable();
        for (_, key) in due {
            self.seq += 1;
            let want = self.wants.get_mut(&key).unwrap();
            (want.due, want.seq) = (None, self.seq);
        }
    }

    fn get(&mut self) -> Option<(u8, i32, (Tag, u32))> {
        let ready = self
            .wants
            .iter()
            .filter(|(key, want)| want.due.is_none() && !self.locked.contains_key(key));
        let (key, want) = ready.min_by_key(|(_, want)| (-want.priority, want.seq))?;
        let (key, priority, note) = (*key, want.priority, want.note);
        self.wants.remove(&key);
        self.locked.insert(key, ());
        Some((key, priority, note))
    }

    fn apply(&mut self, step: &Step, tag: Tag) -> Option<(u8, i32, (Tag, u32))> {
        match *step {
            Step::Add(key, delay, priority) if !self.shut => self.add(key, delay, priority, tag),
            Step::Cancel(key) => self.wants.retain(|k, want| *k != key || want.due.is_none()),
            Step::Get => return self.get(),
            Step::Done(key) => _ = self.locked.remove(&key),
            Step::Sleep(ms) => self.sleep(ms),
            Step::ShutDown => {
                self.shut = true;
                self.wants.clear();
            }
            Step::Add(..) => {}
        }
        None
    }

    fn n(&self, is_ready: bool) -> usize {
        self.wants.values().filter(|want| want.due.is_none() == is_ready).count()
    }
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..6_u8;
    // One due time per key, because the order of equal due times is unspecified.
    let delay = |key: u8, eighths: u64| eighths * 8 + u64::from(key) * u64::from(eighths > 0);
    prop_oneof![
        10 => (key.clone(), prop_oneof![Just(0), 0..6_u64], -2..3_i32)
            .prop_map(move |(key, eighths, priority)| Step::Add(key, delay(key, eighths), priority)),
        1 => key.clone().prop_map(Step::Cancel),
        7 => Just(Step::Get),
        6 => key.prop_map(Step::Done),
        3 => (1..4_u64).prop_map(|eighths| Step::Sleep(eighths * 8)),
        1 => Just(Step::ShutDown),
    ]
}

proptest! {
    /// Properties 1, 5, 6, 7 (one hand-out), 11, 14, 15 and 16 of section 10.
    #[test]
    fn priority_queue_agrees_with_the_model(steps in proptest::collection::vec(step(), 0..150)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let limiter = Exponential::new(Duration::from_millis(1), Duration::from_millis(1)).unwrap();
            let queue = WorkQueue::builder().rate_limiter(limiter).priorities(Priorities::Strict).build();
            let mut model = Model::default();
            let mut held: BTreeMap<u8, Item<'_, u8>> = BTreeMap::new();
            for (step, n) in steps.iter().zip(1..) {
                let tag = if n % 3 == 0 { Tag::NONE } else { Tag(n, 7) };
                let expected = model.apply(step, tag);
                match *step {
                    Step::Add(key, delay, priority) => {
                        let options = AddOptions::default().after(Duration::from_millis(delay)).tag(tag);
                        queue.add_with(key, options.priority(priority));
                    }
                    Step::Cancel(key) => _ = queue.cancel_delayed(&key),
                    Step::Get => {
                        let item = queue.try_get();
                        prop_assert_eq!(item.as_ref().map(|item| (*item.key(), item.priority(), (item.tag(), item.n_adds()))), expected);
                        if let Some(item) = item {
                            prop_assert!(held.insert(*item.key(), item).is_none(), "held twice");
                        }
                    }
                    Step::Done(key) => drop(held.remove(&key)),
                    Step::Sleep(ms) => tokio::time::advance(Duration::from_millis(ms)).await,
                    Step::ShutDown => queue.shut_down(),
                }
                prop_assert_eq!(queue.len(), model.n(true));
                prop_assert_eq!(queue.waiting(), model.n(false));
                prop_assert_eq!(queue.stats().in_flight, held.len());
                let levels = queue.levels();
                prop_assert_eq!(levels.iter().map(|level| level.ready).sum::<usize>(), queue.len());
                prop_assert!(levels.iter().all(|level| level.ready > 0));
            }
            drop(held);
            prop_assert_eq!(queue.stats().in_flight, 0);
            Ok(())
        })?;
    }
}
