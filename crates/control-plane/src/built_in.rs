//! Runs the built-in controllers of a control plane.
//!
//! Controllers start when the first object exists that they may have to do with. Those of objects
//! that every control plane has sleep while there is nothing to do (`while_needed`).
//!
//! If several servers share a store, only the holder of a Lease runs them. Several sets would do no
//! harm, because their writes carry preconditions and are idempotent, but half of the writes would
//! be conflicts. Coordinated leader election has a Lease of its own, that of kube-apiserver.

mod context;
mod feed;
mod first_object;
mod settled;

use self::context::Context;
use crate::nodes::SimulatedNodes;
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{FuturesUnordered, StreamExt as _};
use setpoint_apiserver::ApiServer;
use setpoint_controllers::gc::GarbageCollector;
use setpoint_controllers::workload::certificates::Signers;
use setpoint_controllers::{Selection, WorkloadControllers};
use setpoint_object::error::chain;
use setpoint_registry::{Feature, ObjectChange, Registry};
use setpoint_runtime::BoxError;
use setpoint_runtime::election::{ElectionOptions, LeaderElector, Timings};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// The Lease that elects the server that runs them.
const LEASE: (&str, &str) = ("kube-system", "setpoint-controllers");
/// The Lease that elects the server that elects the holders of Leases with LeaseCandidates.
const COORDINATOR_LEASE: (&str, &str) = ("kube-system", "leader-election-controller");

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
    /// Which of those with a name in kube-controller-manager run.
    pub(crate) selection: Selection,
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
    /// The authorities that sign certificate requests; `None`: no listener has one.
    pub(crate) signers: Option<Signers>,
    /// Simulated nodes, with a scheduler.
    pub(crate) nodes: Option<SimulatedNodes>,
    /// The durations of the election of the server with coordinated leader election.
    pub(crate) coordinator: Timings,
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

    /// Sets the authorities that sign certificate requests.
    pub(crate) fn set_signers(&mut self, signers: Signers) {
        match self {
            Self::None => {}
            Self::Always(settings) | Self::Elected { settings, .. } => {
                settings.signers = Some(signers);
            }
        }
    }

    /// Whether the one with this name in kube-controller-manager runs.
    pub(crate) fn runs(&self, name: &str) -> bool {
        match self {
            Self::None => false,
            Self::Always(settings) | Self::Elected { settings, .. } => {
                settings.selection.is_enabled(name)
            }
        }
    }

    /// Runs them from when the server is ready until `stop`.
    pub(crate) async fn run(self, server: &ApiServer, stop: &CancellationToken) {
        if matches!(self, Self::None) {
            return;
        }
        if !is_served(server, stop).await {
            return;
        }
        match self {
            Self::None => {}
            // Boxed, so that a control plane holds space only for what it runs.
            Self::Always(settings) => {
                let identity = format!("setpoint_{:016x}", settings.seed);
                let coordinate = coordinate(server, stop, &identity, settings.clone());
                tokio::join!(Box::pin(run(server, stop, settings)), Box::pin(coordinate));
            }
            Self::Elected { identity, settings } => {
                let coordinate = coordinate(server, stop, &identity, settings.clone());
                let elect = elect(server, stop, &identity, settings, Duty::Controllers);
                tokio::join!(Box::pin(elect), Box::pin(coordinate));
            }
        }
    }
}

/// Waits until the server is ready, and writes do not wait; false if it stops before.
pub(crate) async fn is_served(server: &ApiServer, stop: &CancellationToken) -> bool {
    let mut opened = server.storage_versions().opened();
    let is_ready = async {
        server.registry().wait_ready().await;
        opened.wait_for(|is_open| *is_open).await.is_ok()
    };
    tokio::select! {
        biased;
        // Cancel safe: both only wait for a state.
        is_ready = is_ready => is_ready,
        () = stop.cancelled() => false,
    }
}

/// Runs them until `stop`.
async fn run(server: &ApiServer, stop: &CancellationToken, mut settings: Settings) {
    let nodes = settings.nodes.take();
    let context = Context::new(server, stop, &settings);
    // Boxed, so that a control plane holds space only for what it runs.
    let mut running: Vec<(&str, BoxFuture<'_, Result<(), BoxError>>)> =
        vec![("controllers of every control plane", settled::shared(&context).boxed())];
    if context.is_on("service-cidr-controller") {
        running.push(("ranges of Services", settled::service_ranges(&context).boxed()));
    }
    if context.is_on("kube-apiserver-serving-clustertrustbundle-publisher-controller")
        && let Some(version) = settled::trust_bundle_version(context.registry())
        && let Some(authorities) = settings.root_ca.clone()
    {
        let publisher = settled::trust_bundle(&context, version, authorities);
        running.push(("the server's trust bundle", publisher.boxed()));
    }
    let rows = first_object::ROWS.iter().filter(|row| row.is_on(&context));
    running.extend(rows.map(|row| (row.subject, row.run(&context).boxed())));
    if WorkloadControllers::has_any(&settings.selection) {
        let workloads = WorkloadControllers::new(context.setup(), settings.selection.clone());
        running.push(("workload controllers", workloads.run(stop.clone()).boxed()));
    }
    if let Some(nodes) = nodes {
        running.push(("simulated nodes", simulate(nodes, &context).boxed()));
    }
    if context.is_on("garbage-collector-controller") {
        running.push(("garbage collection", collect_garbage(&context).boxed()));
    }
    let running = running.into_iter().map(async |(controller, running)| {
        if let Err(error) = running.await {
            tracing::error!(error = chain(&*error), controller, "a built-in controller has failed");
        }
    });
    // Each is polled when it is woken itself.
    running.collect::<FuturesUnordered<_>>().collect::<()>().await;
}

/// Runs simulated nodes.
async fn simulate(nodes: SimulatedNodes, context: &Context<'_>) -> Result<(), BoxError> {
    let Settings { selection, seed, .. } = context.settings;
    // They need the controllers of the life of nodes, unless the user runs others.
    let needs = |name| !context.is_on(name) && !selection.is_disabled(name);
    let has_lifecycle = needs("node-lifecycle-controller") && needs("taint-eviction-controller");
    nodes.run(context.server, context.setup(), *seed, has_lifecycle, context.stop.clone()).await
}

/// Collects garbage from when there may be some.
async fn collect_garbage(context: &Context<'_>) -> Result<(), BoxError> {
    tokio::select! {
        biased;
        () = context.stop.cancelled() => return Ok(()),
        // Cancel safe: it only waits for a state.
        () = first_to_collect(context.registry()) => {}
    }
    let collector = GarbageCollector::new(context.client()).seed(context.settings.seed);
    // Boxed, so that a server without such objects holds no space for it.
    Box::pin(collector.feed(context.feed()).run(context.stop.clone())).await;
    Ok(())
}

/// Whether a resource is served, by group, version and name.
pub(crate) fn serves(registry: &Registry, [group, version, resource]: [&str; 3]) -> bool {
    registry.catalog().get(group, version, resource).is_some()
}

/// Whether the taints of DeviceTaintRules count.
pub(crate) fn has_taint_rules(registry: &Registry) -> bool {
    registry.features().is_on(Feature::DRADeviceTaintRules)
        && serves(registry, ["resource.k8s.io", "v1beta2", "devicetaintrules"])
}

/// Waits until there is an object that the garbage collector may have to do with.
async fn first_to_collect(registry: &Registry) {
    let is_concerned = |_: &[u8], object: &[u8]| GarbageCollector::is_concerned(object);
    let mut changes = registry.object_changes_where(is_concerned);
    while let Some(change) = changes.next().await {
        // The objects of the start have no owners.
        if let ObjectChange::Put(object) = change
            && !registry.is_of_start(object.revision)
            && GarbageCollector::is_concerned(&object.value)
        {
            return;
        }
    }
    // The server has stopped, and so do the controllers.
    std::future::pending().await
}

/// What a server does while it is elected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Duty {
    /// Runs the controllers.
    Controllers,
    /// Elects the holders of Leases with LeaseCandidates.
    CoordinatedElection,
}

impl Duty {
    /// The Lease of the election.
    fn lease(self) -> (&'static str, &'static str) {
        match self {
            Self::Controllers => LEASE,
            Self::CoordinatedElection => COORDINATOR_LEASE,
        }
    }

    fn timings(self, settings: &Settings) -> Timings {
        match self {
            Self::Controllers => Timings::default(),
            Self::CoordinatedElection => settings.coordinator,
        }
    }

    /// Does it until `stop`.
    async fn run(self, server: &ApiServer, stop: &CancellationToken, settings: Settings) {
        match self {
            Self::Controllers => run(server, stop, settings).await,
            Self::CoordinatedElection => {
                let row = &first_object::COORDINATED_ELECTION;
                if let Err(error) = row.run(&Context::new(server, stop, &settings)).await {
                    let (error, controller) = (chain(&*error), row.subject);
                    tracing::error!(error, controller, "a built-in controller has failed");
                }
            }
        }
    }
}

/// Runs coordinated leader election, if it is on, while this server is elected for it.
async fn coordinate(
    server: &ApiServer,
    stop: &CancellationToken,
    identity: &str,
    mut settings: Settings,
) {
    if first_object::COORDINATED_ELECTION.is_on(&Context::new(server, stop, &settings)) {
        // Not the delays of the other election.
        settings.seed = settings.seed.wrapping_add(1 << 32);
        elect(server, stop, identity, settings, Duty::CoordinatedElection).await;
    }
}

/// Takes part in the election for a duty, does it while it leads, and takes part again when it has
/// lost the Lease.
async fn elect(
    server: &ApiServer,
    stop: &CancellationToken,
    identity: &str,
    settings: Settings,
    duty: Duty,
) {
    let (seed, (namespace, name)) = (settings.seed, duty.lease());
    for term in 0.. {
        let options = ElectionOptions::new(name)
            .identity(identity)
            .namespace(namespace)
            .timings(duty.timings(&settings))
            // The controllers have stopped by then, so the next server need not wait.
            .release_on_stop(true)
            .seed(seed.wrapping_add(term));
        let clock = server.registry().clock().clone();
        let elector = match LeaderElector::new(server.client(), clock, options) {
            Ok(elector) => elector,
            Err(error) => {
                tracing::error!(error = chain(&error), "run the leader election");
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
                let settings = Settings { seed: seed.wrapping_add(term), ..settings.clone() };
                duty.run(server, &end_term, settings).await;
            }
            end_term.cancelled().await;
            end_election.cancel();
        };
        if let (Err(error), ()) = tokio::join!(lead, work) {
            tracing::warn!(error = chain(&error), name, "the built-in controllers have stopped");
        }
        if stop.is_cancelled() {
            return;
        }
    }
}
