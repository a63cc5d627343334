//! When the built-in controllers of a control plane run.
//!
//! Several servers over one store may each have them; then one of them runs them, the holder of a
//! Lease. They would do no harm together: what they write carries preconditions, and they do twice
//! what is done. But half of it would be conflicts.

use futures::future::BoxFuture;
use setpoint_apiserver::ApiServer;
use setpoint_controllers::gc::{ObjectFeed, Told};
use setpoint_controllers::{GarbageCollector, NamespaceController, ProtectionController};
use setpoint_registry::{ObjectChange, ObjectChanges};
use setpoint_runtime::election::{ElectionOptions, LeaderElector};
use tokio_util::sync::CancellationToken;

/// The Lease that says who runs them.
const LEASE: (&str, &str) = ("kube-system", "setpoint-controllers");

/// Whether they run.
#[derive(Debug)]
pub(crate) enum Controllers {
    /// Never.
    None,
    /// For as long as the server does.
    Always {
        /// Seed of all their chance.
        seed: u64,
    },
    /// While this server holds the Lease.
    Elected {
        /// Whom the Lease names.
        identity: String,
        /// Seed of a candidate's waits and of all their chance.
        seed: u64,
    },
}

impl Controllers {
    /// Runs them from the moment the server serves until `stop`.
    pub(crate) async fn run(self, server: &ApiServer, stop: &CancellationToken) {
        if matches!(self, Self::None) {
            return;
        }
        let mut ready = server.registry().ready();
        tokio::select! {
            biased;
            // An error says that the registry has ended, which its own part reports.
            served = ready.wait_for(|ready| *ready) => if served.is_err() { return },
            () = stop.cancelled() => return,
        }
        drop(ready);
        match self {
            Self::None => {}
            // Boxed: a control plane holds room for what it runs only.
            Self::Always { seed } => Box::pin(run(server, stop, seed)).await,
            Self::Elected { identity, seed } => {
                Box::pin(run_elected(server, stop, &identity, seed)).await;
            }
        }
    }
}

async fn run(server: &ApiServer, stop: &CancellationToken, seed: u64) {
    // One client for all of them: each has a queue and a task.
    let (client, clock) = (server.client(), server.registry().clock());
    let namespaces = NamespaceController::new(client.clone(), clock.clone()).seed(seed);
    let protection = ProtectionController::new(client.clone(), clock.clone()).seed(seed);
    let feed = Feed(server.registry().object_changes());
    let garbage = GarbageCollector::new(client).seed(seed).feed(feed);
    let (namespaces, protection, ()) = tokio::join!(
        namespaces.run(stop.clone()),
        protection.run(stop.clone()),
        garbage.run(stop.clone())
    );
    for (controller, ended) in [("namespace", namespaces), ("storage protection", protection)] {
        if let Err(error) = ended {
            tracing::error!(%error, controller, "a built-in controller has failed");
        }
    }
}

/// The registry's own changes, as the garbage collector is told them.
#[derive(Debug)]
struct Feed(ObjectChanges);

impl ObjectFeed for Feed {
    fn next(&mut self) -> BoxFuture<'_, Option<Told>> {
        Box::pin(async {
            loop {
                return Some(match self.0.next().await? {
                    ObjectChange::Resync => Told::Restarted,
                    ObjectChange::Synced(_) => Told::Synced,
                    ObjectChange::Put(object) => Told::Present(object.value),
                    ObjectChange::Deleted(object) => Told::Gone(object.value),
                    // A kind of change that does not concern objects.
                    _ => continue,
                });
            }
        })
    }
}

/// Stands for election, runs them while it leads, and stands again when it has lost.
async fn run_elected(server: &ApiServer, stop: &CancellationToken, identity: &str, seed: u64) {
    for term in 0.. {
        let (namespace, name) = LEASE;
        let options = ElectionOptions::new(name)
            .identity(identity)
            .namespace(namespace)
            // They have ended by then: the next server need not wait.
            .release_on_stop(true)
            .seed(seed.wrapping_add(term));
        let clock = server.registry().clock().clone();
        let elector = match LeaderElector::new(server.client(), clock, options) {
            Ok(elector) => elector,
            Err(error) => {
                tracing::error!(%error, "stand for election");
                return;
            }
        };
        let leadership = elector.leadership();
        let (end_term, end_election) = (stop.child_token(), CancellationToken::new());
        let lead = async {
            let ended = elector.run(end_election.clone()).await;
            end_term.cancel();
            ended
        };
        let work = async {
            let elected = tokio::select! {
                biased;
                () = end_term.cancelled() => false,
                // Cancel safe: it only looks.
                elected = leadership.elected() => elected,
            };
            if elected {
                run(server, &end_term, seed.wrapping_add(term)).await;
            }
            end_term.cancelled().await;
            end_election.cancel();
        };
        if let (Err(error), ()) = tokio::join!(lead, work) {
            tracing::warn!(%error, "the built-in controllers have stopped");
        }
        if stop.is_cancelled() {
            return;
        }
    }
}
