//! The order in which the parts of a control plane run and end.

use super::{ControlPlane, ControlPlaneError};
use crate::identity::identify;
use futures::future::OptionFuture;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

impl ControlPlane {
    /// Runs until `stop`, then ends watches gracefully. Dropping it stops everything at once.
    ///
    /// # Errors
    ///
    /// If a part fails before `stop`.
    pub async fn run(self, stop: CancellationToken) -> Result<(), ControlPlaneError> {
        self.run_in_steps(stop.clone(), stop, CancellationToken::new()).await
    }

    /// The same, with controllers that end at `stop_controllers`, before the rest. Listeners end
    /// the watches of the whole server, so they stop after the controllers, which would watch
    /// again. Cancels `controllers_ended` when the controllers have ended.
    pub(crate) async fn run_in_steps(
        self,
        stop_controllers: CancellationToken,
        stop: CancellationToken,
        controllers_ended: CancellationToken,
    ) -> Result<(), ControlPlaneError> {
        let controllers_ended = controllers_ended.drop_guard();
        let answers = self.answers();
        let mut parts = JoinSet::new();
        // The registry stops last, because it serves the parts above it while they finish.
        let registry_stop = CancellationToken::new();
        let (server, worker, controllers) = (self.server, self.worker, self.controllers);
        let (published, aggregation) = (self.published, self.aggregation);
        // Without a name in the store there are no peers.
        let peers = self.peers.filter(|_| published.is_some());
        let own_name = self.own_name;
        // Webhooks call it until everything has ended.
        let _own = self.own.serve(server.clone());
        parts.spawn({
            let registry_stop = registry_stop.clone();
            async move { worker.run(registry_stop).await }
        });
        for task in self.tasks.0 {
            // They serve requests, so they end with the registry.
            let task = task(server.registry().clone(), registry_stop.clone());
            parts.spawn(async move {
                task.await;
                Ok(())
            });
        }
        if let Some(rbac) = self.rbac {
            let (registry, registry_stop) = (server.registry().clone(), registry_stop.clone());
            parts.spawn(async move {
                tokio::select! {
                    biased;
                    () = registry_stop.cancelled() => Ok(()),
                    // Cancel safe: an object of the start that is missing is created next time.
                    () = rbac.run(&registry) => Ok(()),
                }
            });
        }
        parts.spawn(async move {
            // Stops the registry however this part ends, so that joining it always returns.
            let _registry_stop = registry_stop.drop_guard();
            let aggregate = async {
                if let Some(aggregation) = aggregation {
                    aggregation.run(stop_controllers.clone()).await;
                }
            };
            // Boxed, so that a control plane holds space only for what it runs.
            let identify = published
                .map(|published| Box::pin(identify(&server, answers, &stop, published, own_name)));
            // Before listeners, as controllers: what has been found stays known until the end.
            let peers = peers.map(|worker| Box::pin(worker.run(stop_controllers.clone())));
            let controllers = controllers.run(&server, &stop_controllers);
            let beside = (OptionFuture::from(identify), OptionFuture::from(peers));
            tokio::join!(controllers, beside.0, beside.1, aggregate);
            drop(controllers_ended);
            stop.cancelled().await;
            server.drain();
            Ok(())
        });
        while let Some(ended) = parts.join_next().await {
            ended.map_err(ControlPlaneError::Part)?.map_err(ControlPlaneError::Registry)?;
        }
        Ok(())
    }
}
