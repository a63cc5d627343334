//! Random interleavings, against a model of ten lines.

use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;
use setpoint_workqueue::{AddOptions, Exponential, Item, Tag, WorkQueue};

#[derive(Debug, Clone)]
enum Step {
    Add(u8),
    After(u8, u64),
    Cancel(u8),
    Get,
    Done(u8),
    Sleep(u64),
    ShutDown,
}

/// The simplest model of the table: per key whether it is wanted, held, and due.
#[derive(Debug, Default)]
struct Model {
    keys: BTreeMap<u8, (bool, bool, Option<u64>)>,
    order: Vec<u8>,
    /// The tag of a wanted or waiting key, and its number of adds.
    notes: BTreeMap<u8, (Tag, u32)>,
    now: u64,
    shut: bool,
}

impl Model {
    fn want(&mut self, key: u8) {
        let (wanted, held, due) = self.keys.entry(key).or_default();
        *due = None;
        if !*wanted {
            *wanted = true;
            if !*held {
                self.order.push(key);
            }
        }
    }

    /// An add with `tag`, which decides if it is the first, or plain, or earlier than the current
    /// one.
    fn note(&mut self, key: u8, tag: Tag, at: Option<u64>) {
        let (wanted, _, due) = *self.keys.entry(key).or_default();
        let (old, n_adds) = self.notes.entry(key).or_default();
        let is_first = !wanted && due.is_none();
        let is_earlier = !wanted && due.is_some_and(|due| at.is_none_or(|at| at < due));
        if is_first || is_earlier || old.is_none() {
            *old = tag;
        }
        *n_adds = if is_first { 1 } else { *n_adds + 1 };
    }

    fn fire(&mut self) {
        let mut due: Vec<(u64, u8)> =
            self.keys.iter().filter_map(|(key, (.., due))| Some(((*due)?, *key))).collect();
        due.retain(|(at, _)| *at <= self.now);
        due.sort();
        for (_, key) in due {
            self.want(key);
        }
    }

    fn apply(&mut self, step: &Step, tag: Tag) -> Option<(u8, (Tag, u32))> {
        match *step {
            Step::Add(key) | Step::After(key, 0) if !self.shut => {
                self.note(key, tag, None);
                self.want(key);
            }
            Step::After(key, delay) if !self.shut => {
                self.note(key, tag, Some(self.now + delay));
                let (wanted, _, due) = self.keys.entry(key).or_default();
                if !*wanted {
                    *due = Some(due.unwrap_or(u64::MAX).min(self.now + delay));
                }
            }
            Step::Cancel(key) => self.keys.entry(key).or_default().2 = None,
            Step::Get if !self.order.is_empty() => {
                let key = self.order.remove(0);
                self.keys.insert(key, (false, true, None));
                return Some((key, self.notes[&key]));
            }
            Step::Done(key) => {
                let (wanted, held, _) = self.keys.entry(key).or_default();
                if std::mem::take(held) && *wanted {
                    self.order.push(key);
                }
            }
            Step::Sleep(ms) => {
                self.now += ms;
                self.fire();
            }
            Step::ShutDown => {
                self.shut = true;
                self.keys.values_mut().for_each(|(.., due)| *due = None);
            }
            Step::Add(_) | Step::After(..) | Step::Get => {}
        }
        None
    }
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..5_u8;
    prop_oneof![
        4 => key.clone().prop_map(Step::Add),
        // One due time per key, because the order of equal due times is unspecified.
        4 => (key.clone(), 0..8_u64).prop_map(|(key, eighths)| Step::After(key, eighths * 8 + u64::from(key) * u64::from(eighths > 0))),
        1 => key.clone().prop_map(Step::Cancel),
        6 => Just(Step::Get),
        5 => key.prop_map(Step::Done),
        3 => (1..4_u64).prop_map(|eighths| Step::Sleep(eighths * 8)),
        1 => Just(Step::ShutDown),
    ]
}

/// More keys than fit in the caches, so that the queue defers adds.
const FAR: u32 = 17_000;

/// With `n_far` more keys in the queue, which wait for a day.
fn check(steps: &[Step], n_far: u32) -> Result<(), TestCaseError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let limiter = Exponential::new(Duration::from_millis(1), Duration::from_millis(1)).unwrap();
        let queue = WorkQueue::builder().rate_limiter(limiter).build();
        for far in 0..n_far {
            queue.add_after(1000 + far, Duration::from_secs(24 * 3600));
        }
        let mut model = Model::default();
        let mut held: BTreeMap<u8, Item<'_, u32>> = BTreeMap::new();
        for (step, n) in steps.iter().zip(1..) {
            let tag = if n % 3 == 0 { Tag::NONE } else { Tag(n, 7) };
            let options = AddOptions::default().tag(tag);
            let expected = model.apply(step, tag);
            match *step {
                Step::Add(key) => {
                    queue.add_with(key.into(), options);
                    // No check: the next step may be another add.
                    continue;
                }
                Step::After(key, delay) => {
                    queue.add_with(key.into(), options.after(Duration::from_millis(delay)));
                    continue;
                }
                Step::Cancel(key) => _ = queue.cancel_delayed(&key.into()),
                Step::Get => {
                    let item = queue.try_get();
                    let got = item.as_ref();
                    prop_assert_eq!(
                        got.map(|item| (*item.key() as u8, (item.tag(), item.n_adds()))),
                        expected
                    );
                    if let Some(item) = item {
                        let key = *item.key() as u8;
                        prop_assert!(held.insert(key, item).is_none(), "held twice");
                    }
                }
                Step::Done(key) => drop(held.remove(&key)),
                Step::Sleep(ms) => tokio::time::advance(Duration::from_millis(ms)).await,
                Step::ShutDown => queue.shut_down(),
            }
            let n_far = if model.shut { 0 } else { n_far as usize };
            let n_waiting = model.keys.values().filter(|(.., due)| due.is_some()).count();
            prop_assert_eq!(queue.len(), model.order.len());
            prop_assert_eq!(queue.waiting(), n_far + n_waiting);
            prop_assert_eq!(queue.stats().in_flight, held.len());
        }
        Ok(())
    })
}

proptest! {
    /// Properties 1 to 7 and 11 of the rules; the invariants of section 2 (property 4); tags and
    /// counts of adds.
    #[test]
    fn queue_agrees_with_the_model(steps in proptest::collection::vec(step(), 0..120)) {
        check(&steps, 0)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The same with so many keys that adds are deferred, which has no visible effect.
    #[test]
    fn far_queue_agrees_with_the_model(steps in proptest::collection::vec(step(), 0..300)) {
        check(&steps, FAR)?;
    }
}
