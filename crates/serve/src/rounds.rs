//! A future that is polled again at once when it wakes itself.
//!
//! A connection's task holds parts that wake each other: a request that is answered wakes the
//! connection that sends the answer. To the runtime this is a task that must be queued again, and
//! perhaps another thread that must be woken to take it. Here it is another round of the same poll.

use futures::task::AtomicWaker;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// After so many rounds others have their turn.
const ROUNDS_MAX: usize = 8;

const IDLE: u8 = 0;
const POLLING: u8 = 1;
/// A wake came since the last poll began, and the task knows it.
const WOKEN: u8 = 2;

/// What the parts of a future wake.
#[derive(Debug, Default)]
struct Bell {
    state: AtomicU8,
    task: AtomicWaker,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // While it is being polled, whoever polls looks again.
        if self.state.swap(WOKEN, Ordering::AcqRel) == IDLE {
            self.task.wake();
        }
    }
}

/// Runs a future to its end.
pub(crate) async fn in_rounds<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let bell = Arc::<Bell>::default();
    let waker = Waker::from(bell.clone());
    std::future::poll_fn(|cx| poll(future.as_mut(), &bell, &waker, cx)).await
}

fn poll<F: Future>(
    mut future: Pin<&mut F>,
    bell: &Bell,
    waker: &Waker,
    cx: &mut Context<'_>,
) -> Poll<F::Output> {
    bell.task.register(cx.waker());
    for _ in 0..ROUNDS_MAX {
        bell.state.store(POLLING, Ordering::Release);
        let polled = future.as_mut().poll(&mut Context::from_waker(waker));
        if polled.is_ready() {
            return polled;
        }
        let now = bell.state.compare_exchange(POLLING, IDLE, Ordering::AcqRel, Ordering::Acquire);
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
    fn wake_of_its_own_is_another_round_and_wakes_nobody() {
        let task = Arc::<Counted>::default();
        let mut n_polls = 0;
        let mut future = pin!(in_rounds(poll_fn(|cx| {
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
    fn wake_from_outside_wakes_the_task_once_and_one_without_end_lets_others_in() {
        let task = Arc::<Counted>::default();
        let waker = Waker::from(task.clone());
        let outside = Arc::<AtomicWaker>::default();
        let (theirs, mut is_over) = (outside.clone(), false);
        let mut future = pin!(in_rounds(poll_fn(|cx| {
            theirs.register(cx.waker());
            if !std::mem::replace(&mut is_over, true) {
                return Poll::Pending;
            }
            // Never content.
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
    fn task_that_moves_is_woken_where_it_is() {
        let (first, second) = (Arc::<Counted>::default(), Arc::<Counted>::default());
        let outside = Arc::<AtomicWaker>::default();
        let theirs = outside.clone();
        let mut future = pin!(in_rounds(poll_fn(|cx| {
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
