//! Model checking of every interleaving of a few threads at the queue's lock. Between two steps
//! under the lock, any other thread may run.
//!
//! All shared state is behind the one lock, or in a waker. So a step under the lock is one step of
//! the model. The scenarios are short, so that all their interleavings run: a bound on preemptions
//! was found to miss important ones.

#![allow(clippy::unwrap_used, reason = "an unwrap that fails is a failed test")]

use std::{
    future::Future,
    num::NonZeroU32,
    task::{Context, Poll, Waker},
};

use loom::{
    future::block_on,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

use super::{
    builder::Builder,
    options::{Group, Priorities},
    shared::Lock,
    shared::Shared,
    state::{State, Taken},
    tag::Tag,
};

type Queue = Shared<u8, Mutex<State<u8>>>;

impl<T> Lock<T> for Mutex<T> {
    fn new(value: T) -> Self {
        Self::new(value)
    }

    fn with<R>(&self, step: impl FnOnce(&mut T) -> R) -> R {
        step(&mut self.lock().unwrap())
    }
}

fn plain() -> Arc<Queue> {
    Arc::new(Builder::new().shared())
}

/// WQ-11, WQ-12, and properties 1 to 3 of the rules: one holder, nothing lost, no extra pass.
#[test]
fn two_workers_never_hold_one_key() {
    loom::model(|| {
        let queue = plain();
        let held = Arc::new(AtomicBool::new(false));
        let passes = Arc::new(AtomicUsize::new(0));
        queue.add(7, 0, Tag::NONE);
        let pass = {
            let (queue, held, passes) = (queue.clone(), held.clone(), passes.clone());
            move || {
                let Taken::Key(handed) = queue.take() else { return };
                assert!(!held.swap(true, SeqCst), "two workers hold one key");
                passes.fetch_add(1, SeqCst);
                held.store(false, SeqCst);
                queue.done(handed.idx);
            }
        };
        let worker = thread::spawn(pass.clone());
        queue.add(7, 0, Tag::NONE);
        pass();
        worker.join().unwrap();
        let n_before = passes.load(SeqCst);
        pass();
        let n_passes = passes.load(SeqCst);
        assert!((1..=2).contains(&n_passes), "{n_passes} passes of two adds");
        assert!(n_passes > n_before || n_before >= 1, "the last add was lost");
        assert_eq!(queue.step_when_fired(State::len), 0);
    });
}

/// A tag is neither lost nor returned twice: both adds come out, together or one after the other.
#[test]
fn tags_are_returned_with_their_adds() {
    loom::model(|| {
        let queue = plain();
        let producer = {
            let queue = queue.clone();
            thread::spawn(move || queue.add(7, 0, Tag(1, 0)))
        };
        queue.add(7, 0, Tag(2, 0));
        let mut seen = Vec::new();
        for _ in 0..2 {
            if let Taken::Key(handed) = queue.take() {
                seen.push((queue.step(|state| state.tag(handed.idx)).0, handed.n_adds));
                queue.done(handed.idx);
            }
        }
        producer.join().unwrap();
        if let Taken::Key(handed) = queue.take() {
            seen.push((queue.step(|state| state.tag(handed.idx)).0, handed.n_adds));
            queue.done(handed.idx);
        }
        assert!(matches!(seen[..], [(1 | 2, 2)] | [(2, 1), (1, 1)]), "{seen:?}");
    });
}

/// WQ-20: a waiter that is parked, or about to park, is notified of a shutdown.
#[test]
fn parked_waiters_see_a_shutdown() {
    loom::model(|| {
        let queue = plain();
        let worker = {
            let queue = queue.clone();
            thread::spawn(move || assert!(block_on(queue.wait()).is_none()))
        };
        queue.shut_down();
        worker.join().unwrap();
    });
}

/// WQ-12: no key is lost between a check and the wait after it.
#[test]
fn worker_misses_no_add() {
    loom::model(|| {
        let queue = plain();
        let producer = {
            let queue = queue.clone();
            thread::spawn(move || {
                queue.add(1, 0, Tag::NONE);
                queue.add(2, 0, Tag::NONE);
            })
        };
        for key in [1, 2] {
            let handed = block_on(queue.wait()).unwrap();
            assert_eq!(handed.key, key);
            queue.done(handed.idx);
        }
        producer.join().unwrap();
    });
}

/// WQ-14 and property 13: a dropped wait passes its notification on, and leaves no waiter behind.
#[test]
fn dropped_wait_loses_no_notification() {
    loom::model(|| {
        let queue = plain();
        let producer = {
            let queue = queue.clone();
            thread::spawn(move || queue.add(7, 0, Tag::NONE))
        };
        let mut cx = Context::from_waker(Waker::noop());
        let mut leaves = Box::pin(queue.wait());
        let got = leaves.as_mut().poll(&mut cx);
        let mut stays = Box::pin(queue.wait());
        let first = stays.as_mut().poll(&mut cx);
        drop(leaves);
        let handed = match (got, first) {
            (Poll::Ready(handed), _) | (_, Poll::Ready(handed)) => handed,
            (Poll::Pending, Poll::Pending) => block_on(stays),
        };
        assert_eq!(handed.unwrap().key, 7);
        producer.join().unwrap();
    });
}

/// WQ-22, WQ-23 and property 12: a drain ends when the last key is done, and at once at a shutdown.
#[test]
fn drain_ends_at_the_last_done_and_at_a_shutdown() {
    loom::model(|| {
        let queue = plain();
        queue.add(7, 0, Tag::NONE);
        let held = block_on(queue.wait()).unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let worker = {
            let (queue, done) = (queue.clone(), done.clone());
            thread::spawn(move || {
                done.store(true, SeqCst);
                queue.done(held.idx);
            })
        };
        block_on(queue.shut_down_with_drain());
        assert!(done.load(SeqCst), "the drain did not wait");
        worker.join().unwrap();
    });
    loom::model(|| {
        let queue = plain();
        queue.add(7, 0, Tag::NONE);
        let held = block_on(queue.wait()).unwrap();
        let other = {
            let queue = queue.clone();
            thread::spawn(move || queue.shut_down())
        };
        block_on(async {
            let mut drain = Box::pin(queue.shut_down_with_drain());
            // A drain from before the other shutdown returns; a later one waits for the key.
            let entered = std::future::poll_fn(|cx| Poll::Ready(drain.as_mut().poll(cx))).await;
            if entered.is_pending() {
                queue.shut_down();
                drain.await;
            }
        });
        queue.done(held.idx);
        other.join().unwrap();
    });
}

/// A full group is served again when one of its keys is done, whichever worker is parked.
#[test]
fn done_frees_a_full_group() {
    loom::model(|| {
        let builder = Builder::new()
            .priorities(Priorities::Strict)
            .groups(|_| Group::of("one"))
            .group_in_flight_max(NonZeroU32::MIN);
        let queue: Arc<Queue> = Arc::new(builder.shared());
        queue.add(1, 0, Tag::NONE);
        queue.add(2, 5, Tag::NONE);
        let first = block_on(queue.wait()).unwrap();
        assert_eq!((first.key, first.priority), (2, 5));
        let other = {
            let queue = queue.clone();
            thread::spawn(move || {
                let second = block_on(queue.wait()).unwrap();
                assert_eq!(second.key, 1);
                queue.done(second.idx);
            })
        };
        queue.done(first.idx);
        other.join().unwrap();
    });
}
