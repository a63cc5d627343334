//! A future that is polled again at once when it wakes itself.
//!
//! Parts of a connection's task wake each other: a request that is answered wakes the connection
//! that sends the response. The runtime would queue the task again, and perhaps wake another thread
//! for it. Here the same poll runs another round instead.

use futures::task::AtomicWaker;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Maximum number of rounds before other tasks run.
const ROUNDS_MAX: usize = 8;

const IDLE: u8 = 0;
const POLLING: u8 = 1;
/// Woken since the last poll began, and the task has been notified.
const WOKEN: u8 = 2;

/// The waker of the parts of a future.
#[derive(Debug, Default)]
struct SelfWaker {
    state: AtomicU8,
    task: AtomicWaker,
}

impl Wake for SelfWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // During a poll, the poll itself checks again.
        if self.state.swap(WOKEN, Ordering::AcqRel) == IDLE {
            self.task.wake();
        }
    }
}

/// Runs a future to its end.
pub(crate) async fn repoll<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let self_waker = Arc::<SelfWaker>::default();
    let waker = Waker::from(self_waker.clone());
    std::future::poll_fn(|cx| poll(future.as_mut(), &self_waker, &waker, cx)).await
}

fn poll<F: Future>(
    mut future: Pin<&mut F>,
    self_waker: &SelfWaker,
    waker: &Waker,
    cx: &mut Context<'_>,
) -> Poll<F::Output> {
    self_waker.task.register(cx.waker());
    for _ in 0..ROUNDS_MAX {
        self_waker.state.store(POLLING, Ordering::Release);
        let polled = future.as_mut().poll(&mut Context::from_waker(waker));
        if polled.is_ready() {
            return polled;
        }
        let now =
            self_waker.state.compare_exchange(POLLING, IDLE, Ordering::AcqRel, Ordering::Acquire);
        if now.is_ok() {
            return Poll::Pending;
        }
    }
    cx.waker().wake_by_ref();
    Poll::Pending
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::sync::atomic::AtomicUsize;

    #[derive(Debug, Default)]
    struct Counted(AtomicUsize);

    impl Wake for Counted {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn self_wake_is_another_round_and_wakes_no_task() {
        let task = Arc::<Counted>::default();
        let mut n_polls = 0;
        let mut future = pin!(repoll(poll_fn(|cx| {
            n_polls += 1;
            if n_polls < 4 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(n_polls)
        })));
        let waker = Waker::from(task.clone());
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        assert_eq!(polled, Poll::Ready(4));
        assert_eq!(task.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn outside_wake_wakes_the_task_once_and_endless_self_wakes_yield() {
        let task = Arc::<Counted>::default();
        let waker = Waker::from(task.clone());
        let outside = Arc::<AtomicWaker>::default();
        let (theirs, mut is_over) = (outside.clone(), false);
        let mut future = pin!(repoll(poll_fn(|cx| {
            theirs.register(cx.waker());
            if !std::mem::replace(&mut is_over, true) {
                return Poll::Pending;
            }
            // Wakes itself forever.
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        })));
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!(task.0.load(Ordering::Relaxed), 0);
        let known = outside.take().unwrap();
        known.wake_by_ref();
        known.wake_by_ref();
        assert_eq!(task.0.load(Ordering::Relaxed), 1);
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!(task.0.load(Ordering::Relaxed), 2, "it is to be polled again");
    }

    #[test]
    fn moved_task_is_woken_in_its_new_place() {
        let (first, second) = (Arc::<Counted>::default(), Arc::<Counted>::default());
        let outside = Arc::<AtomicWaker>::default();
        let theirs = outside.clone();
        let mut future = pin!(repoll(poll_fn(|cx| {
            theirs.register(cx.waker());
            Poll::<()>::Pending
        })));
        for task in [&first, &second] {
            let waker = Waker::from(task.clone());
            assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        outside.wake();
        assert_eq!(first.0.load(Ordering::Relaxed), 0);
        assert_eq!(second.0.load(Ordering::Relaxed), 1);
    }
}
