//! Waits for conditions.
use super::{Change, RetryWatcher, RetryWatcherError};
use crate::event::Event;
use crate::failure::Stopped;
use crate::handler::HandlerOptions;
use crate::indexer::Lister;
use crate::informer::{Cacheable, SharedInformerBuilder};
use std::ops::ControlFlow;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// Waits for the change at which `condition` returns `Break`, and returns its value. The watcher
/// continues after that change.
///
/// # Errors
/// If the watcher ends first, or had ended before.
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

/// Runs an informer until a condition returns `Break`, and returns its value. The informer has
/// stopped then.
///
/// `precondition` is called once the first list is in the cache, for conditions that no event
/// shows, such as a missing object. `condition` is called with every object of the first list as an
/// addition, and then with every change. If the version expires, the informer lists again, and
/// several changes of an object are one event (FAC-8).
///
/// # Errors
/// If the informer's worker ends by itself, as when the runtime shuts down.
///
/// # Panics
/// If the informer's worker panics.
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
                // The receiver is gone if the precondition broke.
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
            // Cancel safe: a sent value stays.
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
