//! The future of `get`.

use std::{
    fmt,
    future::Future,
    hash::Hash,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::task::coop::poll_proceed;

use super::{
    item::Item,
    shared::Shared,
    state::{Handed, Taken},
};

/// The future of [`Shared::wait`].
type Wait<'q, K> = Pin<Box<dyn Future<Output = Option<Handed<K>>> + Send + 'q>>;

/// The future of [`WorkQueue::get`](crate::WorkQueue::get): the next key, or `None` once the queue
/// is shut down and empty.
///
/// Does not allocate if a key is ready at once; a wait is allocated.
#[must_use = "a future does nothing unless it is awaited"]
pub struct Get<'q, K> {
    shared: &'q Arc<Shared<K>>,
    wait: Option<Wait<'q, K>>,
}

impl<'q, K> Get<'q, K> {
    #[inline]
    pub(super) fn new(shared: &'q Arc<Shared<K>>) -> Self {
        Self { shared, wait: None }
    }
}

impl<'q, K: Clone + Eq + Hash + Send + 'static> Future for Get<'q, K> {
    type Output = Option<Item<'q, K>>;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let shared = self.shared;
        if self.wait.is_none() {
            // A worker that always finds a key yields when its budget is used up. No key is taken
            // yet.
            let budget = if shared.is_turn() { Some(ready!(poll_proceed(cx))) } else { None };
            match shared.take() {
                Taken::Key(handed) => {
                    if let Some(budget) = budget {
                        budget.made_progress();
                    }
                    return Poll::Ready(Some(Item::new(shared, handed)));
                }
                Taken::ShutDown => return Poll::Ready(None),
                Taken::Nothing { .. } => {}
            }
        }
        match ready!(self.poll_wait(cx)) {
            Some(handed) => Poll::Ready(Some(Item::new(shared, handed))),
            None => Poll::Ready(None),
        }
    }
}

impl<K: Clone + Eq + Hash + Send + 'static> Get<'_, K> {
    #[cold]
    #[inline(never)]
    fn poll_wait(&mut self, cx: &mut Context<'_>) -> Poll<Option<Handed<K>>> {
        let shared = self.shared;
        let wait = self.wait.get_or_insert_with(|| Box::pin(shared.wait()));
        let handed = ready!(wait.as_mut().poll(cx));
        self.wait = None;
        Poll::Ready(handed)
    }
}

impl<K> fmt::Debug for Get<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Get").field("is_waiting", &self.wait.is_some()).finish_non_exhaustive()
    }
}
