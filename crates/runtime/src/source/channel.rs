//! Keys from outside the cluster.

use tokio::sync::mpsc;

use super::{KeySink, Source, SourceRun};
use crate::{error::BoxError, request::RequestKey};

/// Adds what `map` makes of everything that a channel receives.
pub(crate) struct Channel<T, F> {
    pub(crate) receiver: mpsc::Receiver<T>,
    pub(crate) map: F,
}

impl<T, R, F> Source<R> for Channel<T, F>
where
    T: Send + 'static,
    R: RequestKey,
    F: Fn(T) -> Vec<R> + Send + 'static,
{
    fn name(&self) -> String {
        "a channel".to_owned()
    }

    async fn start(self, keys: KeySink<R>) -> Result<SourceRun, BoxError> {
        let Self { mut receiver, map } = self;
        Ok(SourceRun::new(async move {
            while let Some(received) = receiver.recv().await {
                map(received).into_iter().for_each(|key| keys.add(key));
            }
            Ok(())
        }))
    }
}
