//! A value that many wait for.
//!
//! As `tokio::sync::watch`, but who waits is woken in the order in which they came. A `watch` draws
//! that order by lot, and with it the order in which requests go on: two runs from one seed would
//! differ.
use parking_lot::Mutex;
use std::pin::pin;
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Followed<T> {
    value: Mutex<T>,
    changed: Notify,
}
impl<T: Copy> Followed<T> {
    /// What it is now.
    pub(crate) fn get(&self) -> T {
        *self.value.lock()
    }
    /// Changes it, and wakes everyone who waits.
    pub(crate) fn change(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.value.lock());
        self.changed.notify_waiters();
    }
    /// Waits until it is so. Dropping it loses nothing.
    pub(crate) async fn wait_for(&self, is_so: impl Fn(&T) -> bool) {
        while !is_so(&self.get()) {
            let mut changed = pin!(self.changed.notified());
            // From here on a change wakes this call, also one that comes before the await.
            changed.as_mut().enable();
            if is_so(&self.get()) {
                return;
            }
            changed.await;
        }
    }
}
#[cfg(test)]
mod tests {
    use super::Followed;
    use parking_lot::Mutex;
    use std::sync::Arc;
    use tokio::task::JoinSet;

    #[tokio::test]
    async fn waiters_go_on_in_the_order_in_which_they_came() {
        let followed = Arc::new(Followed::<u32>::default());
        let woken = Arc::new(Mutex::new(Vec::new()));
        let mut waiting = JoinSet::new();
        // Few enough that all of them get their turn while this task yields.
        for n in 0..20 {
            let (followed, woken) = (followed.clone(), woken.clone());
            waiting.spawn(async move {
                followed.wait_for(|value| *value == 2).await;
                woken.lock().push(n);
            });
        }
        tokio::task::yield_now().await;
        for _ in 0..2 {
            followed.change(|value| *value += 1);
            tokio::task::yield_now().await;
        }
        while waiting.join_next().await.is_some() {}
        assert_eq!(*woken.lock(), (0..20).collect::<Vec<_>>());
        followed.wait_for(|value| *value == 2).await;
    }
}
