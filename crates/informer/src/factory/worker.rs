//! Runs the informers of a factory.
use super::InformerFactory;
use crate::failure::pass_on_panic;
use std::fmt;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Runs the informers of a factory when they are started; the caller spawns it. Dropping it ends
/// them.
#[must_use = "informers do nothing until their worker is run"]
pub struct FactoryWorker(End);

/// Refuses new starts when the worker ends or is dropped.
struct End(InformerFactory);

impl Drop for End {
    fn drop(&mut self) {
        let (requested, starting) = {
            let mut state = self.0.0.state.lock();
            state.is_shut_down = true;
            (std::mem::take(&mut state.requested), std::mem::take(&mut state.starting))
        };
        drop((requested, starting));
        self.0.0.ended.cancel();
    }
}

impl fmt::Debug for FactoryWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FactoryWorker").field(&self.0.0).finish()
    }
}

impl FactoryWorker {
    pub(super) fn new(factory: InformerFactory) -> Self {
        Self(End(factory))
    }

    /// Runs until `stop` or [`InformerFactory::shutdown`], and then until all informers have ended.
    ///
    /// # Panics
    /// If the worker of an informer panics.
    pub async fn run(self, stop: CancellationToken) {
        let inner = &self.0.0.0;
        let mut informers = JoinSet::new();
        let all = stop.child_token();
        loop {
            let starting = std::mem::take(&mut inner.state.lock().starting);
            for start in starting {
                informers.spawn((start.run)(all.clone()));
            }
            tokio::select! {
                biased;
                () = all.cancelled() => break,
                () = inner.stop.cancelled() => break,
                () = inner.wake.notified() => {}
                Some(ended) = informers.join_next() => pass_on_panic(ended),
            }
        }
        all.cancel();
        while let Some(ended) = informers.join_next().await {
            pass_on_panic(ended);
        }
    }
}
