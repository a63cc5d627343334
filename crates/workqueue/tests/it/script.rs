//! Runs a queue from a line of text, and returns what happens as a line of text.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use expect_test::Expect;
use setpoint_workqueue::{
    AddOptions, Builder, Exponential, Item, OwnedItem, RestingItem, WorkQueue,
};

pub(crate) type Key = &'static str;
type Getting = Pin<Box<dyn Future<Output = Option<OwnedItem<Key>>>>>;

/// Runs `script` on a new plain queue with a paused clock and compares the output.
///
/// Steps are separated by `;`: `add k`, `add k PRIORITY`, `after k MS`, `after k MS PRIORITY`,
/// `retry k`, `retry k MS` (the shorter of both), `forget k`, `requeues k`, `cancel k`, `get`,
/// `try`, `rest k` (takes the next key, which must be `k`, and lets it rest), `done k`, `panic k`,
/// `sleep MS`, `len`, `waiting`, `stats`, `shut_down`, `drain`, and for waiters `wait NAME`, `poll
/// NAME`, `leave NAME`.
#[track_caller]
pub(crate) fn check(script: &'static str, expect: Expect) {
    check_on(|builder| builder, script, expect);
}

/// The same with another queue. A priority other than 0 is printed as `k@PRIORITY`.
#[track_caller]
pub(crate) fn check_on(
    choose: impl FnOnce(Builder<Key>) -> Builder<Key>,
    script: &'static str,
    expect: Expect,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    expect.assert_eq(&runtime.block_on(run(choose, script)));
}

async fn run(choose: impl FnOnce(Builder<Key>) -> Builder<Key>, script: &'static str) -> String {
    let limiter = Exponential::new(Duration::from_millis(5), Duration::from_millis(20)).unwrap();
    let queue = choose(WorkQueue::builder().rate_limiter(limiter)).build();
    let mut held: BTreeMap<Key, OwnedItem<Key>> = BTreeMap::new();
    let mut resting: BTreeMap<Key, RestingItem<Key>> = BTreeMap::new();
    let mut waiters: BTreeMap<&str, Getting> = BTreeMap::new();
    let mut drains: Vec<Pin<Box<dyn Future<Output = ()>>>> = Vec::new();
    let mut output: Vec<String> = Vec::new();

    for step in script.split(';') {
        let words: Vec<&'static str> = step.split_whitespace().collect();
        match words[..] {
            ["add", key] => queue.add(key),
            ["after", key, ms] => queue.add_after(key, millis(ms)),
            ["add", key, priority] => {
                queue.add_with(key, AddOptions::default().priority(priority.parse().unwrap()));
            }
            ["after", key, ms, priority] => {
                let options = AddOptions::default().after(millis(ms));
                queue.add_with(key, options.priority(priority.parse().unwrap()));
            }
            ["retry", key, ms] => {
                queue.add_with(key, AddOptions::default().rate_limited().after(millis(ms)));
            }
            ["levels"] => {
                let levels = queue.levels().into_iter();
                let levels: Vec<String> =
                    levels.map(|level| format!("{}: {}", level.priority, level.ready)).collect();
                output.push(format!("[{}]", levels.join(", ")));
            }
            ["retry", key] => queue.add_rate_limited(key),
            ["forget", key] => queue.forget(&key),
            ["requeues", key] => output.push(format!("requeues {}", queue.num_requeues(&key))),
            ["cancel", key] => output.push(format!("cancelled {}", queue.cancel_delayed(&key))),
            ["get"] => {
                let queue = queue.clone();
                let mut get: Getting =
                    Box::pin(async move { queue.get().await.map(Item::into_owned) });
                output.push(see(poll(&mut get), &mut held));
            }
            ["try"] => {
                output.push(see(Poll::Ready(queue.try_get().map(Item::into_owned)), &mut held))
            }
            ["rest", key] => {
                let item = queue.try_get().unwrap();
                assert_eq!(*item.key(), key);
                resting.insert(key, item.rest());
            }
            ["done", key] => match resting.remove(key) {
                Some(item) => item.done(),
                None => held.remove(key).unwrap().done(),
            },
            ["panic", key] => {
                let item = held.remove(key).unwrap();
                let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
                    let _item = item;
                    std::panic::resume_unwind(Box::new(()));
                }));
                assert!(unwound.is_err());
            }
            ["wait", name] => {
                let queue = queue.clone();
                let mut get: Getting =
                    Box::pin(async move { queue.get().await.map(Item::into_owned) });
                match poll(&mut get) {
                    Poll::Pending => _ = waiters.insert(name, get),
                    ready => output.push(format!("{name}: {}", see(ready, &mut held))),
                }
            }
            ["poll", name] => {
                let ready = poll(waiters.get_mut(name).unwrap());
                if ready.is_ready() {
                    waiters.remove(name);
                }
                output.push(format!("{name}: {}", see(ready, &mut held)));
            }
            ["leave", name] => drop(waiters.remove(name).unwrap()),
            ["sleep", ms] => tokio::time::advance(millis(ms)).await,
            ["len"] => output.push(format!("len {}", queue.len())),
            ["waiting"] => output.push(format!("waiting {}", queue.waiting())),
            ["stats"] => {
                let stats = queue.stats();
                output.push(format!(
                    "queued {} waiting {} in flight {} dirty {} limited {}",
                    stats.queued, stats.waiting, stats.in_flight, stats.dirty, stats.limited
                ));
            }
            ["shut_down"] => queue.shut_down(),
            ["drain"] => {
                let queue = queue.clone();
                let mut drain: Pin<Box<dyn Future<Output = ()>>> =
                    Box::pin(async move { queue.shut_down_with_drain().await });
                output.push(
                    if poll(&mut drain).is_ready() { "drained" } else { "draining" }.to_owned(),
                );
                drains.push(drain);
            }
            ["drained"] => {
                let drain = drains.last_mut().unwrap();
                output.push(if poll(drain).is_ready() { "drained" } else { "draining" }.to_owned());
            }
            _ => panic!("no such step: {step:?}"),
        }
    }
    output.join(" · ")
}

fn millis(text: &str) -> Duration {
    Duration::from_millis(text.parse().unwrap())
}

fn poll<T>(future: &mut Pin<Box<dyn Future<Output = T>>>) -> Poll<T> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

fn see(got: Poll<Option<OwnedItem<Key>>>, held: &mut BTreeMap<Key, OwnedItem<Key>>) -> String {
    match got {
        Poll::Pending => "nothing".to_owned(),
        Poll::Ready(None) => "none".to_owned(),
        Poll::Ready(Some(item)) => {
            let output = match item.priority() {
                0 => format!("got {}", item.key()),
                priority => format!("got {}@{priority}", item.key()),
            };
            assert!(held.insert(item.key(), item).is_none(), "a key is held twice");
            output
        }
    }
}
