//! Waiting until something is so.
use super::{Change, RetryWatcher, RetryWatcherError};
use crate::event::Event;
use crate::handler::HandlerOptions;
use crate::indexer::Lister;
use crate::informer::{Cacheable, SharedInformerBuilder};
use crate::status::Stopped;
use std::ops::ControlFlow;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// Waits for the change at which `condition` breaks, and gives what it broke with. The watcher then
/// stands behind that change.
///
/// # Errors
/// When the watcher ends first, or had ended before.
pub async fn until<T>(
    watcher: &mut RetryWatcher,
    mut condition: impl FnMut(&Change) -> ControlFlow<T>,
) -> Result<T, RetryWatcherError> {
    while let Some(change) = watcher.next().await {
        if let ControlFlow::Break(found) = condition(&change?) {
            return Ok(found);
        }
    }
    Err(RetryWatcherError::Ended)
}

/// Runs an informer until a condition breaks, and gives what it broke with. The informer has then
/// stopped.
///
/// Once the first list is in the cache `precondition` looks at it, for what cannot be seen in a
/// change: that something is not there. `condition` is shown every object of the first list as an
/// addition, and then every change. A version that is gone makes the informer list again and is not
/// noticed here, except that changes in between are seen as one (FAC-8).
///
/// # Errors
/// When the informer's worker ends by itself, as it does when the runtime shuts down.
///
/// # Panics
/// When the informer's worker panics, which it passes on.
pub async fn until_with_sync<K: Cacheable, T: Send + 'static>(
    builder: SharedInformerBuilder<K>,
    precondition: impl FnOnce(&Lister<K>) -> ControlFlow<T>,
    mut condition: impl FnMut(&Event<K>) -> ControlFlow<T> + Send + 'static,
) -> Result<T, Stopped> {
    let (informer, worker) = builder.build();
    let (sender, found) = oneshot::channel();
    let mut sender = Some(sender);
    informer.add_handler(
        move |event: Event<K>| {
            if sender.is_some()
                && let ControlFlow::Break(found) = condition(&event)
                && let Some(sender) = sender.take()
            {
                // Nobody waits any more when the precondition was met.
                let _ = sender.send(found);
            }
        },
        HandlerOptions::default(),
    )?;
    let stop = CancellationToken::new();
    let story = async {
        let first = async {
            informer.synced().await?;
            Ok::<_, Stopped>(precondition(&informer.lister()))
        };
        let mut found = found;
        let answer = tokio::select! {
            biased;
            // Cancel safe: what was sent is returned here or stays.
            answer = &mut found => answer.map_err(|_| Stopped),
            first = first => match first {
                Ok(ControlFlow::Break(met)) => Ok(met),
                Ok(ControlFlow::Continue(())) => found.await.map_err(|_| Stopped),
                Err(stopped) => Err(stopped),
            },
        };
        stop.cancel();
        answer
    };
    let (answer, ()) = tokio::join!(story, worker.run(stop.clone()));
    answer
}
