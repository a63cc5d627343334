//! Runs the built-in controllers of a control plane.
//!
//! If several servers share a store, only the holder of a Lease runs them. Several sets would do no
//! harm, because their writes carry preconditions and are idempotent, but half of the writes would
//! be conflicts.

use futures::future::BoxFuture;
use setpoint_apiserver::ApiServer;
use setpoint_controllers::gc::{ObjectEvent, ObjectFeed};
use setpoint_controllers::{
    ApiServices, ClusterRoleAggregation, FlowSchemas, GarbageCollector, NamespaceController,
    NamespaceDefaults, ProtectionController, QuotaController, TokenCleaner, TokenSecrets,
};
use setpoint_registry::{ObjectChange, ObjectChanges};
use setpoint_runtime::election::{ElectionOptions, LeaderElector};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// The Lease that elects the server that runs them.
const LEASE: (&str, &str) = ("kube-system", "setpoint-controllers");

/// When the controllers run.
#[derive(Debug)]
pub(crate) enum Controllers {
    /// Never.
    None,
    /// As long as the server runs.
    Always(Settings),
    /// While this server holds the Lease.
    Elected {
        /// The holder identity in the Lease.
        identity: String,
        /// Settings of the controllers.
        settings: Settings,
    },
}

/// What the controllers do.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Seed of their randomness, and of the candidate's delays.
    pub(crate) seed: u64,
    /// ClusterRoles are aggregated.
    pub(crate) aggregates: bool,
    /// Namespaces get the ServiceAccount `default`.
    pub(crate) accounts: bool,
    /// Expired bootstrap tokens are deleted.
    pub(crate) bootstrap_tokens: bool,
    /// Group versions of custom resources get APIService objects.
    pub(crate) api_services: bool,
    /// The CA in PEM that namespaces get; `None`: no listener has one.
    pub(crate) root_ca: Option<Arc<str>>,
}

impl Controllers {
    /// Sets the CA that namespaces get.
    pub(crate) fn set_root_ca(&mut self, pem: Arc<str>) {
        match self {
            Self::None => {}
            Self::Always(settings) | Self::Elected { settings, .. } => {
                settings.root_ca = Some(pem);
            }
        }
    }

    /// Runs them from when the server is ready until `stop`.
    pub(crate) async fn run(self, server: &ApiServer, stop: &CancellationToken) {
        if matches!(self, Self::None) {
            return;
        }
        let mut ready = server.registry().ready();
        tokio::select! {
            biased;
            // An error means that the registry has ended, which the registry reports itself.
            served = ready.wait_for(|ready| *ready) => if served.is_err() { return },
            () = stop.cancelled() => return,
        }
        drop(ready);
        match self {
            Self::None => {}
            // Boxed, so that a control plane holds space only for what it runs.
            Self::Always(settings) => Box::pin(run(server, stop, settings)).await,
            Self::Elected { identity, settings } => {
                Box::pin(run_elected(server, stop, &identity, settings)).await;
            }
        }
    }
}

async fn run(server: &ApiServer, stop: &CancellationToken, settings: Settings) {
    let Settings { seed, aggregates, accounts, bootstrap_tokens, api_services, root_ca } = settings;
    // One client for all of them, because each client has a queue and a task.
    let (client, clock) = (server.client(), server.registry().clock());
    let namespaces = NamespaceController::new(client.clone(), clock.clone()).seed(seed);
    let protection = ProtectionController::new(client.clone(), clock.clone()).seed(seed);
    let feed = || Feed(server.registry().object_changes());
    let garbage = GarbageCollector::new(client.clone()).seed(seed).feed(feed());
    let quotas = QuotaController::new(client.clone(), clock.clone()).seed(seed).feed(feed());
    let aggregation = async {
        match aggregates {
            true => {
                let roles = client.clone();
                let aggregation = ClusterRoleAggregation::new(roles, clock.clone()).seed(seed);
                Box::pin(aggregation.run(stop.clone())).await
            }
            false => Ok(()),
        }
    };
    let defaults = async {
        match accounts {
            true => {
                let defaults = NamespaceDefaults::new(client.clone(), clock.clone());
                Box::pin(defaults.root_ca(root_ca.clone()).seed(seed).run(stop.clone())).await
            }
            false => Ok(()),
        }
    };
    let tokens = async {
        let keys = server.registry().service_account_tokens().key_ring();
        let tokens = TokenSecrets::new(client.clone(), clock.clone(), keys).seed(seed);
        Box::pin(tokens.root_ca(root_ca.clone()).run(stop.clone())).await
    };
    let cleaner = async {
        match bootstrap_tokens {
            true => {
                let cleaner = TokenCleaner::new(client.clone(), clock.clone()).seed(seed);
                Box::pin(cleaner.run(stop.clone())).await
            }
            false => Ok(()),
        }
    };
    let services = async {
        match api_services {
            true => {
                let services = ApiServices::new(client.clone(), clock.clone()).seed(seed);
                Box::pin(services.run(stop.clone())).await
            }
            false => Ok(()),
        }
    };
    let schemas = FlowSchemas::new(client.clone(), clock.clone()).seed(seed);
    let (
        namespaces,
        protection,
        quotas,
        aggregation,
        defaults,
        tokens,
        cleaner,
        services,
        schemas,
        (),
    ) = tokio::join!(
        namespaces.run(stop.clone()),
        protection.run(stop.clone()),
        Box::pin(quotas.run(stop.clone())),
        aggregation,
        defaults,
        tokens,
        cleaner,
        services,
        schemas.run(stop.clone()),
        garbage.run(stop.clone())
    );
    for (controller, ended) in [
        ("namespace", namespaces),
        ("storage protection", protection),
        ("resource quotas", quotas),
        ("aggregation of ClusterRoles", aggregation),
        ("defaults of namespaces", defaults),
        ("tokens in Secrets", tokens),
        ("bootstrap tokens", cleaner),
        ("APIServices", services),
        ("FlowSchemas", schemas),
    ] {
        if let Err(error) = ended {
            tracing::error!(%error, controller, "a built-in controller has failed");
        }
    }
}

/// The registry's object changes, as the garbage collector's feed.
#[derive(Debug)]
struct Feed(ObjectChanges);

impl ObjectFeed for Feed {
    fn next(&mut self) -> BoxFuture<'_, Option<ObjectEvent>> {
        Box::pin(async {
            loop {
                return Some(match self.0.next().await? {
                    ObjectChange::Resync => ObjectEvent::Restarted,
                    ObjectChange::Synced(_) => ObjectEvent::Synced,
                    ObjectChange::Put(object) => ObjectEvent::Put(object.value),
                    ObjectChange::Deleted(object) => ObjectEvent::Deleted(object.value),
                    // Not a change of an object.
                    _ => continue,
                });
            }
        })
    }
}

/// Takes part in the election, runs the controllers while it leads, and takes part again when it
/// has lost the Lease.
async fn run_elected(
    server: &ApiServer,
    stop: &CancellationToken,
    identity: &str,
    settings: Settings,
) {
    let seed = settings.seed;
    for term in 0.. {
        let (namespace, name) = LEASE;
        let options = ElectionOptions::new(name)
            .identity(identity)
            .namespace(namespace)
            // The controllers have stopped by then, so the next server need not wait.
            .release_on_stop(true)
            .seed(seed.wrapping_add(term));
        let clock = server.registry().clock().clone();
        let elector = match LeaderElector::new(server.client(), clock, options) {
            Ok(elector) => elector,
            Err(error) => {
                tracing::error!(%error, "run the leader election");
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
                // Cancel safe: it only waits for a state.
                elected = leadership.elected() => elected,
            };
            if elected {
                let seed = seed.wrapping_add(term);
                run(server, &end_term, Settings { seed, ..settings.clone() }).await;
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
