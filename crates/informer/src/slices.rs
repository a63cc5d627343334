//! Divides long work into slices, so that other tasks run meanwhile.
use std::future::poll_fn;
use std::task::Poll;

/// The largest number of objects that one poll of a relist handles, and of index functions that one
/// poll calls.
///
/// 64, as events of a watch. An object takes about a microsecond, or fifty if an index function
/// decodes a Pod: 3 ms.
pub const OBJECTS_PER_POLL_MAX: usize = 64;

/// Counts steps, and yields to other tasks after each slice of [`OBJECTS_PER_POLL_MAX`].
#[derive(Debug, Default)]
pub struct Slices(usize);

impl Slices {
    /// To be called after each step. Cancel safe.
    pub async fn next(&mut self) {
        self.0 += 1;
        if self.0.is_multiple_of(OBJECTS_PER_POLL_MAX) {
            turn().await;
        }
    }
}

/// Moves this task to the end of the queue of ready tasks. (tokio's `yield_now` waits until all
/// other tasks are idle, or until the runtime next checks its timers. On a busy runtime, a long
/// relist would starve.)
pub(crate) async fn turn() {
    let mut has_waited = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn a_slice_has_a_bounded_number_of_steps() {
        let mut work = Box::pin(async {
            let mut slices = Slices::default();
            for _ in 0..3 * OBJECTS_PER_POLL_MAX {
                slices.next().await;
            }
        });
        let n_polls = (1..).find(|_| work.as_mut().now_or_never().is_some());
        assert_eq!(n_polls, Some(4));
    }
}
