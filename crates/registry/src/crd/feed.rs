//! The changes of definitions and of their fences from the watch cache. Changes of other objects do
//! not wake the reader.
use super::{PREFIX, fence};
use crate::cache::{Change, Interest, ResourceCache, Taken, Watcher};
use crate::shared::Inner;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A change of a definition or its fence.
#[derive(Debug)]
pub(super) enum CrdEvent {
    /// A definition.
    Definition(Arc<Change>),
    /// A fence.
    Fence(Arc<Change>),
}

/// A subscription that starts after the present contents of the cache. Ends when it is dropped.
#[derive(Debug)]
pub(super) struct Feed {
    definitions: Subscription,
    fences: Subscription,
}
#[derive(Debug)]
struct Subscription {
    cache: Arc<ResourceCache>,
    watcher: Watcher,
    taken: VecDeque<Arc<Change>>,
}

impl Feed {
    /// Starts with the next change.
    pub(super) fn begin(inner: &Inner) -> Self {
        Self {
            definitions: Subscription::new(inner, PREFIX),
            fences: Subscription::new(inner, fence::PREFIX),
        }
    }
    /// The next changes, those of one definition in order. `None`: the cache's feed broke, or it
    /// was stopped. Cancel safe: changes that a dropped call has taken come with the next call.
    pub(super) async fn next(&mut self) -> Option<Vec<CrdEvent>> {
        poll_fn(|cx| {
            if self.definitions.poll(cx).is_err() || self.fences.poll(cx).is_err() {
                return Poll::Ready(None);
            }
            let definitions = self.definitions.taken.drain(..).map(CrdEvent::Definition);
            let events: Vec<_> =
                definitions.chain(self.fences.taken.drain(..).map(CrdEvent::Fence)).collect();
            if events.is_empty() { Poll::Pending } else { Poll::Ready(Some(events)) }
        })
        .await
    }
}
impl Subscription {
    fn new(inner: &Inner, prefix: &str) -> Self {
        let cache = inner.cache.resource(prefix);
        let watcher = cache.begin(&Interest::default()).watcher;
        Self { cache, watcher, taken: VecDeque::new() }
    }
    /// Takes the present changes and registers the waker for later ones. `Err`: there will be no
    /// more.
    fn poll(&mut self, cx: &Context<'_>) -> Result<(), ()> {
        loop {
            match self.cache.take(&mut self.watcher, &mut self.taken, cx.waker()) {
                Taken::Some => {}
                Taken::Nothing => return Ok(()),
                Taken::Ended | Taken::Failed(_) => return Err(()),
            }
        }
    }
}
impl Drop for Subscription {
    fn drop(&mut self) {
        self.cache.end(&self.watcher);
    }
}
