//! A value that many tasks wait for.
//!
//! Like `tokio::sync::watch`, but wakes waiting tasks in the order in which they started to wait. A
//! `watch` wakes them in random order, so that two runs from one seed would differ.
use std::pin::pin;
use tokio::sync::{Notify, watch};

#[derive(Debug, Default)]
pub(crate) struct FifoWatch<T> {
    value: watch::Sender<T>,
    changed: Notify,
}
impl<T> FifoWatch<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: watch::Sender::new(value), changed: Notify::new() }
    }
    /// The present value. The guard blocks changes, so it must be dropped soon.
    pub(crate) fn borrow(&self) -> watch::Ref<'_, T> {
        self.value.borrow()
    }
    /// A receiver for tasks outside simulations, which may be woken in any order.
    pub(crate) fn subscribe(&self) -> watch::Receiver<T> {
        self.value.subscribe()
    }
    /// Changes the value and wakes all waiting tasks.
    pub(crate) fn change(&self, change: impl FnOnce(&mut T)) {
        self.value.send_modify(change);
        self.changed.notify_waiters();
    }
    /// Waits until `is_so` holds. Dropping the future has no effect.
    pub(crate) async fn wait_for(&self, is_so: impl Fn(&T) -> bool) {
        let holds = || is_so(&self.value.borrow());
        while !holds() {
            let mut changed = pin!(self.changed.notified());
            // From here on, a change wakes this call, even if the change comes before the await.
            changed.as_mut().enable();
            if holds() {
                return;
            }
            changed.await;
        }
    }
}
impl<T: Copy> FifoWatch<T> {
    /// The present value.
    pub(crate) fn get(&self) -> T {
        *self.value.borrow()
    }
}
#[cfg(test)]
mod tests {
    use super::FifoWatch;
    use parking_lot::Mutex;
    use std::sync::Arc;
    use tokio::task::JoinSet;

    #[tokio::test]
    async fn waiting_tasks_continue_in_order_of_arrival() {
        let watch = Arc::new(FifoWatch::<u32>::default());
        let woken = Arc::new(Mutex::new(Vec::new()));
        let mut waiting = JoinSet::new();
        // Few enough for all of them to run while this task yields.
        for n in 0..20 {
            let (watch, woken) = (watch.clone(), woken.clone());
            waiting.spawn(async move {
                watch.wait_for(|value| *value == 2).await;
                woken.lock().push(n);
            });
        }
        tokio::task::yield_now().await;
        for _ in 0..2 {
            watch.change(|value| *value += 1);
            tokio::task::yield_now().await;
        }
        while waiting.join_next().await.is_some() {}
        assert_eq!(*woken.lock(), (0..20).collect::<Vec<_>>());
        watch.wait_for(|value| *value == 2).await;
    }
}
