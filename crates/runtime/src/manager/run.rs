//! A manager's life.

use std::{collections::BTreeMap, future::Future, sync::Arc};

use tokio::{
    task::{Id, JoinError, JoinSet},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{Grace, Manager, ManagerError};
use crate::{
    controller::panic_message,
    reconciler::{BoxError, chain},
};

/// The tasks of one stage, with their names, and what stops them.
struct Stage {
    tasks: JoinSet<Result<(), BoxError>>,
    names: BTreeMap<Id, Arc<str>>,
    stop: CancellationToken,
}

impl Stage {
    fn new() -> Self {
        Self { tasks: JoinSet::new(), names: BTreeMap::new(), stop: CancellationToken::new() }
    }

    fn spawn(
        &mut self,
        name: Arc<str>,
        task: impl Future<Output = Result<(), BoxError>> + Send + 'static,
    ) {
        let id = self.tasks.spawn(task).id();
        self.names.insert(id, name);
    }

    /// The next task's end; for ever if there is none left. Cancel safe.
    async fn next(&mut self) -> Result<(), ManagerError> {
        match self.tasks.join_next_with_id().await {
            Some(ended) => self.settle(ended),
            None => std::future::pending().await,
        }
    }

    fn settle(
        &mut self,
        ended: Result<(Id, Result<(), BoxError>), JoinError>,
    ) -> Result<(), ManagerError> {
        let id = ended.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let name = self.names.remove(&id).unwrap_or_else(|| "a task".into());
        match ended {
            Ok((_, Ok(()))) => Ok(()),
            Ok((_, Err(source))) => Err(ManagerError::Member { name, source }),
            Err(error) if error.is_panic() => {
                Err(ManagerError::Panic { name, message: panic_message(&*error.into_panic()) })
            }
            Err(_cancelled) => Ok(()),
        }
    }

    /// Stops the stage and waits for it. Its failures are logged: they come after the first.
    async fn end(&mut self, failure: &mut Option<ManagerError>) {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next_with_id().await {
            if let Err(error) = self.settle(ended) {
                match failure {
                    Some(_) => tracing::error!(error = chain(&error), "failed while stopping"),
                    None => *failure = Some(error),
                }
            }
        }
    }
}

impl Manager {
    /// Runs everything until `stop`, or until something fails; then stops everything in order.
    ///
    /// Dropping the future ends all tasks where they wait.
    ///
    /// # Errors
    ///
    /// The first failure of a member; and that the grace period was too short, with that failure as its cause.
    pub async fn run(self, stop: CancellationToken) -> Result<(), ManagerError> {
        let Self { environment, grace, cache_worker, event_worker, members, handles: _ } = self;

        let mut events = Stage::new();
        let token = events.stop.clone();
        events.spawn("the event recorder".into(), async move {
            event_worker.run(token).await;
            Ok(())
        });
        let mut caches = Stage::new();
        let token = caches.stop.clone();
        caches.spawn("the cache".into(), async move {
            cache_worker.run(token).await;
            Ok(())
        });
        let mut work = Stage::new();
        for member in members {
            let task = (member.run)(work.stop.child_token());
            work.spawn(member.name, task);
        }

        let mut failure = None;
        while failure.is_none() && !stop.is_cancelled() {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                // Cancel safe: a dropped `join_next` has taken nothing.
                ended = work.next() => failure = ended.err(),
                // Cancel safe: as above.
                ended = caches.next() => failure = ended.err(),
                // Cancel safe: as above.
                ended = events.next() => failure = ended.err(),
            }
        }
        match &failure {
            Some(error) => tracing::error!(error = chain(error), "stopping"),
            None => tracing::info!("stopping"),
        }

        let period = match grace {
            Grace::None => return failure.map_or(Ok(()), Err),
            Grace::Period(period) => Some(period),
            Grace::Unlimited => None,
        };
        let expired = async {
            match period {
                Some(period) => {
                    tokio::time::sleep_until(Instant::now() + period).await;
                    period
                }
                None => std::future::pending().await,
            }
        };
        let in_order = async {
            work.end(&mut failure).await;
            caches.end(&mut failure).await;
            events.end(&mut failure).await;
        };
        let expired = tokio::select! {
            biased;
            () = in_order => None,
            period = expired => Some(period),
        };
        drop(environment);
        let Some(period) = expired else { return failure.map_or(Ok(()), Err) };
        let mut running: Vec<String> = [&work, &caches, &events]
            .iter()
            .flat_map(|stage| stage.names.values())
            .map(ToString::to_string)
            .collect();
        running.sort();
        Err(ManagerError::GraceExpired { period, running, source: failure.map(Box::new) })
    }
}
