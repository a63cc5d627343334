//! A replica that stands still while time passes: stopped by a signal, starved by its host, or
//! blocked by its own code.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use futures::{FutureExt, future::BoxFuture};
use tokio::sync::watch;

/// Stops and resumes the future that was created with it. A clone is the same switch.
#[derive(Clone)]
pub(crate) struct Stall(watch::Sender<bool>);

impl Stall {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    /// While true, the future is not polled, whatever wakes it.
    pub(crate) fn set(&self, is_stalled: bool) {
        self.0.send_replace(is_stalled);
    }

    /// The same future, polled only while it is not stalled.
    pub(crate) fn wrap<T: 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> + Send + 'static {
        Stalled { inner: future.boxed(), switch: self.0.clone(), resumed: None }
    }
}

struct Stalled<T> {
    inner: BoxFuture<'static, T>,
    switch: watch::Sender<bool>,
    resumed: Option<BoxFuture<'static, ()>>,
}

impl<T> Future for Stalled<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        // A waiter for the end of a stall is polled at that end, and so waits for the next one.
        while *self.switch.borrow() {
            let mut stalled = self.switch.subscribe();
            let resumed = self.resumed.get_or_insert_with(|| {
                async move { _ = stalled.wait_for(|is_stalled| !is_stalled).await }.boxed()
            });
            std::task::ready!(resumed.poll_unpin(cx));
            self.resumed = None;
        }
        self.inner.poll_unpin(cx)
    }
}
