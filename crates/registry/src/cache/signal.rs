//! The changes of a resource as a signal, for readers that look at its objects themselves.
use super::{Interest, ResourceCache, Taken, Term, Watcher};
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Says that objects of a resource have changed. Made by
/// [`Registry::change_signal`](crate::Registry::change_signal). Costs a position in the window of
/// changes.
pub struct ChangeSignal {
    cache: Arc<ResourceCache>,
    interest: Interest,
    watcher: Watcher,
}
impl ChangeSignal {
    /// A signal of the changes from now on; only of objects with this name, if there is one.
    pub(crate) fn new(cache: Arc<ResourceCache>, name: Option<&str>) -> Self {
        let terms = name.into_iter().map(|name| Term::Name(name.into())).collect();
        let interest = Interest { terms, ..Interest::default() };
        let watcher = cache.begin(&interest).watcher;
        Self { cache, interest, watcher }
    }
    /// Waits until an object has changed since the last call, or the watch cache was filled again.
    /// May also return when a similar object has changed. Never returns once the server has
    /// stopped. Dropping the future loses nothing.
    pub async fn changed(&mut self) {
        poll_fn(|cx| self.poll_changed(cx)).await;
    }
    /// As [`Self::changed`].
    pub fn poll_changed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut taken = VecDeque::new();
        let mut has_changed = false;
        loop {
            match self.cache.take(&mut self.watcher, &mut taken, cx.waker()) {
                // Not kept: the reader looks at the objects.
                Taken::Some => {
                    taken.clear();
                    has_changed = true;
                }
                Taken::Nothing if has_changed => return Poll::Ready(()),
                Taken::Nothing => return Poll::Pending,
                Taken::Ended | Taken::Failed(_) if self.cache.is_stopped() => {
                    return Poll::Pending;
                }
                Taken::Ended | Taken::Failed(_) => {
                    self.cache.end(&self.watcher);
                    self.watcher = self.cache.begin(&self.interest).watcher;
                    return Poll::Ready(());
                }
            }
        }
    }
}
impl Drop for ChangeSignal {
    fn drop(&mut self) {
        self.cache.end(&self.watcher);
    }
}
impl fmt::Debug for ChangeSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangeSignal").field("interest", &self.interest).finish_non_exhaustive()
    }
}
