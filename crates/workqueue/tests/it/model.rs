//! Random interleavings, against a model of ten lines.

use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;
use setpoint_workqueue::{Exponential, Item, WorkQueue};

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

/// What the table says, with no cleverness: per key whether it is wanted, held, and due.
#[derive(Debug, Default)]
struct Model {
    keys: BTreeMap<u8, (bool, bool, Option<u64>)>,
    order: Vec<u8>,
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

    fn fire(&mut self) {
        let mut due: Vec<(u64, u8)> =
            self.keys.iter().filter_map(|(key, (.., due))| Some(((*due)?, *key))).collect();
        due.retain(|(at, _)| *at <= self.now);
        due.sort();
        for (_, key) in due {
            self.want(key);
        }
    }

    fn apply(&mut self, step: &Step) -> Option<u8> {
        match *step {
            Step::Add(key) if !self.shut => self.want(key),
            Step::After(key, 0) if !self.shut => self.want(key),
            Step::After(key, delay) if !self.shut => {
                let (wanted, _, due) = self.keys.entry(key).or_default();
                if !*wanted {
                    *due = Some(due.unwrap_or(u64::MAX).min(self.now + delay));
                }
            }
            Step::Cancel(key) => self.keys.entry(key).or_default().2 = None,
            Step::Get if !self.order.is_empty() => {
                let key = self.order.remove(0);
                self.keys.insert(key, (false, true, None));
                return Some(key);
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
        // One due time per key, so that the order of equal due times, which nobody promises, does not matter.
        4 => (key.clone(), 0..8_u64).prop_map(|(key, eighths)| Step::After(key, eighths * 8 + u64::from(key) * u64::from(eighths > 0))),
        1 => key.clone().prop_map(Step::Cancel),
        6 => Just(Step::Get),
        5 => key.prop_map(Step::Done),
        3 => (1..4_u64).prop_map(|eighths| Step::Sleep(eighths * 8)),
        1 => Just(Step::ShutDown),
    ]
}

proptest! {
    /// Properties 1 to 7 and 11 of the rules; the invariants at rest of section 2 (property 4).
    #[test]
    fn queue_does_what_the_model_does(steps in proptest::collection::vec(step(), 0..120)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let limiter = Exponential::new(Duration::from_millis(1), Duration::from_millis(1)).unwrap();
            let queue = WorkQueue::builder().rate_limiter(limiter).build();
            let mut model = Model::default();
            let mut held: BTreeMap<u8, Item<'_, u8>> = BTreeMap::new();
            for step in &steps {
                let expected = model.apply(step);
                match *step {
                    Step::Add(key) => queue.add(key),
                    Step::After(key, delay) => queue.add_after(key, Duration::from_millis(delay)),
                    Step::Cancel(key) => _ = queue.cancel_delayed(&key),
                    Step::Get => {
                        let item = queue.try_get();
                        prop_assert_eq!(item.as_ref().map(|item| *item.key()), expected);
                        if let Some(item) = item {
                            prop_assert!(held.insert(*item.key(), item).is_none(), "held twice");
                        }
                    }
                    Step::Done(key) => drop(held.remove(&key)),
                    Step::Sleep(ms) => tokio::time::advance(Duration::from_millis(ms)).await,
                    Step::ShutDown => queue.shut_down(),
                }
                prop_assert_eq!(queue.len(), model.order.len());
                prop_assert_eq!(queue.waiting(), model.keys.values().filter(|(.., due)| due.is_some()).count());
                prop_assert_eq!(queue.stats().in_flight, held.len());
            }
            Ok(())
        })?;
    }
}
