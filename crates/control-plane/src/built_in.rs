//! Runs the built-in controllers of a control plane.
//!
//! Controllers start when the first object exists that they may have to do with. Those of objects
//! that every control plane has sleep while there is nothing to do (`while_needed`).
//!
//! If several servers share a store, only the holder of a Lease runs them. Several sets would do no
//! harm, because their writes carry preconditions and are idempotent, but half of the writes would
//! be conflicts.

mod feed;

use crate::nodes::SimulatedNodes;
use crate::while_needed::{Watched, while_needed};
use feed::Feed;
use futures::future::{BoxFuture, FutureExt as _, select_all};
use futures::stream::{FuturesUnordered, StreamExt as _};
use setpoint_apiserver::ApiServer;
use setpoint_controllers::workload::certificates::Signers;
use setpoint_controllers::{
    ApiServices, AttributesClassProtection, BootstrapSigner, ClusterRoleAggregation,
    CoordinatedElection, FlowSchemas, GarbageCollector, GroupProtection, LegacyTokens,
    NamespaceController, NamespaceDefaults, PodCertificateCleaner, PoolStatusController,
    ProtectionController, QuotaController, Selection, ServiceCidrs, Setup, StorageVersionCollector,
    StorageVersionMigrator, TokenCleaner, TokenSecrets, TrustBundlePublisher, WorkloadControllers,
};
use setpoint_object::error::chain;
use setpoint_registry::{ObjectChange, Registry};
use setpoint_runtime::election::{ElectionOptions, LeaderElector};
use setpoint_runtime::{BoxError, Manager};
use std::sync::{Arc, OnceLock};
use tokio_util::sync::CancellationToken;

/// Workloads, which are served as PodGroups are.
const WORKLOADS: [&str; 3] = ["scheduling.k8s.io", GroupProtection::VERSION, "workloads"];

/// The Lease that elects the server that runs them.
const LEASE: (&str, &str) = ("kube-system", "setpoint-controllers");

/// The resources whose first object starts a controller, as prefixes of keys.
const CLAIMS: &str = "/registry/persistentvolumeclaims/";
const VOLUMES: &str = "/registry/persistentvolumes/";
const ATTRIBUTES_CLASSES: &str = "/registry/volumeattributesclasses/";
const QUOTAS: &str = "/registry/resourcequotas/";
const SECRETS: &str = "/registry/secrets/";
const POD_CERTIFICATES: &str = "/registry/podcertificaterequests/";
const POD_GROUPS: &str = "/registry/podgroups/";
const MIGRATIONS: &str = "/registry/storageversionmigrations/";
const LEASE_CANDIDATES: &str = "/registry/leasecandidates/";
const POOL_REQUESTS: &str = "/registry/resourcepoolstatusrequests/";
const STORAGE_VERSIONS: &str = "/registry/storageversions/";

/// The feature gate of elections by LeaseCandidates. kube-apiserver runs them itself, so no name of
/// kube-controller-manager's turns them off.
const COORDINATED_ELECTION: &str = "CoordinatedLeaderElection";

/// The feature gates of taints for devices that rules choose, of answers to
/// ResourcePoolStatusRequests, of the collection of StorageVersions, and of Workloads for Jobs.
const DEVICE_TAINT_RULES: &str = "DRADeviceTaintRules";
const POOL_STATUS: &str = "DRAResourcePoolStatus";
pub(crate) const STORAGE_VERSION_API: &str = "StorageVersionAPI";
const WORKLOAD_WITH_JOB: &str = "WorkloadWithJob";

// The objects that controllers of every control plane watch.
const NAMESPACES: Watched = Watched::all("", "namespaces");
const ACCOUNTS: Watched = Watched::named("", "serviceaccounts", NamespaceDefaults::ACCOUNT);
const ROOT_CAS: Watched = Watched::named("", "configmaps", NamespaceDefaults::ROOT_CA);
const CLUSTER_ROLES: Watched = Watched::all("rbac.authorization.k8s.io", "clusterroles");
const SCHEMAS: Watched = Watched::all("flowcontrol.apiserver.k8s.io", "flowschemas");
const LEVELS: Watched = Watched::all("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations");
const DEFINITIONS: Watched = Watched::all("apiextensions.k8s.io", "customresourcedefinitions");
const SERVICE_CIDRS: Watched = Watched::all("networking.k8s.io", "servicecidrs");
const API_SERVICES: Watched = Watched::all("apiregistration.k8s.io", "apiservices");
const TRUST_BUNDLES: Watched = Watched::all("certificates.k8s.io", "clustertrustbundles");

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
            Self::Always(settings) => Box::pin(run(server, stop, settings)).await,
            Self::Elected { identity, settings } => {
                Box::pin(run_elected(server, stop, &identity, settings)).await;
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

async fn run(server: &ApiServer, stop: &CancellationToken, settings: Settings) {
    let Settings {
        selection,
        seed,
        aggregates,
        accounts,
        bootstrap_tokens,
        api_services,
        root_ca,
        signers,
        nodes,
    } = settings;
    let is_on = |name| selection.is_enabled(name);
    let registry = server.registry();
    // Made when the first of them runs. One client for most of them, because each client has a
    // queue and a task.
    let client = OnceLock::new();
    let client = || client.get_or_init(|| server.client()).clone();
    let setup_of = |client| {
        let setup = Setup::new(client, registry.clock().clone()).seed(seed);
        let setup = setup.in_place(registry.works_in_place());
        let setup = setup.device_taint_rules(has_taint_rules(registry));
        let has_workloads = registry.has_gate(WORKLOAD_WITH_JOB) && serves(registry, WORKLOADS);
        let setup = setup.workloads_of_jobs(has_workloads);
        match &signers {
            Some(signers) => setup.signers(signers.clone()),
            None => setup,
        }
    };
    let setup = || setup_of(client());
    let feed = || Feed(registry.object_changes());
    // Controllers of a manager of their own, from when one of their resources has an object.
    let started = |resources: &'static [&'static str], add: Add| {
        once(registry, stop, resources, move || setup().run(stop.clone(), add).boxed())
    };
    let protects = is_on("persistentvolumeclaim-protection-controller")
        || is_on("persistentvolume-protection-controller");
    let cleans_tokens = is_on("token-cleaner-controller")
        || bootstrap_tokens && !selection.is_disabled("token-cleaner-controller");
    let everywhere = SharedControllers {
        deletes_namespaces: is_on("namespace-controller"),
        aggregates: aggregates && is_on("clusterrole-aggregation-controller"),
        has_defaults: accounts
            && (is_on("serviceaccount-controller")
                || is_on("root-ca-certificate-publisher-controller")),
        api_services,
        root_ca: root_ca.clone(),
    };
    let watched = everywhere.watched();
    // Boxed, so that a control plane holds space only for what it runs.
    let everywhere = while_needed(
        registry,
        stop,
        &watched,
        || everywhere.is_settled(registry),
        // With its own client, which ends with it.
        |stop| {
            let add = |setup: &Setup, manager: &mut Manager| everywhere.add_to(setup, manager);
            setup_of(server.client()).run(stop, add).boxed()
        },
    );
    let mut running: Vec<(&str, BoxFuture<'_, Result<(), BoxError>>)> =
        vec![("controllers of every control plane", everywhere.boxed())];
    if protects {
        let protection = started(&[CLAIMS, VOLUMES], |setup, manager| {
            ProtectionController::new(setup.clone()).add_to(manager)
        });
        running.push(("storage protection", protection.boxed()));
    }
    if is_on("volumeattributesclass-protection-controller") {
        let protection = started(&[ATTRIBUTES_CLASSES], |setup, manager| {
            AttributesClassProtection::new(setup.clone()).add_to(manager)
        });
        running.push(("protection of attributes classes", protection.boxed()));
    }
    if is_on("service-cidr-controller") {
        let is_settled = || {
            SERVICE_CIDRS.is_as_started(registry)
                || ServiceCidrs::is_settled(&SERVICE_CIDRS.objects(registry))
        };
        let run = |stop| {
            let add = |setup: &Setup, manager: &mut Manager| {
                ServiceCidrs::new(setup.clone()).add_to(manager)
            };
            setup_of(server.client()).run(stop, add).boxed()
        };
        let ranges = while_needed(registry, stop, &[SERVICE_CIDRS], is_settled, run);
        running.push(("ranges of Services", ranges.boxed()));
    }
    // These need the feature gate of their resource.
    let served = TrustBundlePublisher::VERSIONS;
    let served = served
        .into_iter()
        .find(|version| serves(registry, ["certificates.k8s.io", version, "clustertrustbundles"]));
    if is_on("kube-apiserver-serving-clustertrustbundle-publisher-controller")
        && let (Some(version), Some(root_ca)) = (served, root_ca.clone())
    {
        let authorities = root_ca.clone();
        let run = move |stop| {
            let setup = setup_of(server.client());
            TrustBundlePublisher::new(setup, version, authorities.clone()).run(stop).boxed()
        };
        let publisher = async move {
            let is_settled =
                || TrustBundlePublisher::is_settled(&TRUST_BUNDLES.objects(registry), &root_ca);
            while_needed(registry, stop, &[TRUST_BUNDLES], is_settled, run).await
        };
        running.push(("the server's trust bundle", publisher.boxed()));
    }
    if is_on("podcertificaterequest-cleaner-controller")
        && serves(registry, ["certificates.k8s.io", "v1beta1", "podcertificaterequests"])
    {
        let cleaner = started(&[POD_CERTIFICATES], |setup, manager| {
            PodCertificateCleaner::new(setup.clone()).add_to(manager)
        });
        running.push(("requests for certificates of pods", cleaner.boxed()));
    }
    if is_on("podgroup-protection-controller")
        && serves(registry, ["scheduling.k8s.io", GroupProtection::VERSION, "podgroups"])
    {
        let protection = started(&[POD_GROUPS], |setup, manager| {
            GroupProtection::new(setup.clone()).add_to(manager)
        });
        running.push(("protection of groups of pods", protection.boxed()));
    }
    if is_on("storage-version-migrator-controller")
        && serves(registry, ["storagemigration.k8s.io", "v1beta1", "storageversionmigrations"])
    {
        let migrator = started(&[MIGRATIONS], |setup, manager| {
            StorageVersionMigrator::new(setup.clone()).add_to(manager)
        });
        running.push(("storage version migration", migrator.boxed()));
    }
    if registry.has_gate(COORDINATED_ELECTION)
        && serves(registry, ["coordination.k8s.io", "v1beta1", "leasecandidates"])
    {
        let elections = started(&[LEASE_CANDIDATES], |setup, manager| {
            CoordinatedElection::new(setup.clone()).add_to(manager)
        });
        running.push(("coordinated leader election", elections.boxed()));
    }
    if registry.has_gate(POOL_STATUS)
        && is_on("resourcepoolstatusrequest-controller")
        && serves(registry, ["resource.k8s.io", "v1alpha3", "resourcepoolstatusrequests"])
    {
        let answers = started(&[POOL_REQUESTS], |setup, manager| {
            PoolStatusController::new(setup.clone()).add_to(manager)
        });
        running.push(("requests for the status of pools", answers.boxed()));
    }
    if registry.has_gate(STORAGE_VERSION_API)
        && is_on("storageversion-garbage-collector-controller")
        && serves(registry, ["internal.apiserver.k8s.io", "v1alpha1", "storageversions"])
    {
        let collector = once(registry, stop, &[STORAGE_VERSIONS], || {
            StorageVersionCollector::new(setup()).run(stop.clone()).boxed()
        });
        running.push(("collection of storage versions", collector.boxed()));
    }
    if is_on("resourcequota-controller") {
        let quotas = once(registry, stop, &[QUOTAS], || {
            QuotaController::new(setup()).feed(feed()).run(stop.clone()).boxed()
        });
        running.push(("resource quotas", quotas.boxed()));
    }
    if cleans_tokens {
        let cleaner = once(registry, stop, &[SECRETS], || {
            TokenCleaner::new(setup()).run(stop.clone()).boxed()
        });
        running.push(("bootstrap tokens", cleaner.boxed()));
    }
    if is_on("bootstrap-signer-controller") {
        let signer = once(registry, stop, &[SECRETS], || {
            BootstrapSigner::new(setup()).run(stop.clone()).boxed()
        });
        running.push(("signatures of bootstrap tokens", signer.boxed()));
    }
    if is_on("serviceaccount-token-controller") {
        let tokens = once(registry, stop, &[SECRETS], || {
            let keys = registry.service_account_tokens().key_ring();
            TokenSecrets::new(setup(), keys).root_ca(root_ca.clone()).run(stop.clone()).boxed()
        });
        running.push(("tokens in Secrets", tokens.boxed()));
    }
    if is_on("legacy-serviceaccount-token-cleaner-controller") {
        let cleaner = once(registry, stop, &[SECRETS], || {
            LegacyTokens::new(&setup()).run(stop.clone()).map(Ok).boxed()
        });
        running.push(("unused tokens in Secrets", cleaner.boxed()));
    }
    if WorkloadControllers::has_any(&selection) {
        let workloads = WorkloadControllers::new(setup(), selection.clone());
        running.push(("workload controllers", workloads.run(stop.clone()).boxed()));
    }
    if let Some(nodes) = nodes {
        // They need the controllers of the life of nodes, unless the user runs others.
        let needs = |name| !is_on(name) && !selection.is_disabled(name);
        let has_lifecycle =
            needs("node-lifecycle-controller") && needs("taint-eviction-controller");
        let running_nodes = nodes.run(server, setup(), seed, has_lifecycle, stop.clone());
        running.push(("simulated nodes", running_nodes.boxed()));
    }
    if is_on("garbage-collector-controller") {
        let collect = async {
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                // Cancel safe: it only waits for a state.
                () = first_to_collect(registry) => {}
            }
            let collector = GarbageCollector::new(client()).seed(seed).feed(feed());
            // Boxed, so that a server without such objects holds no space for it.
            Box::pin(collector.run(stop.clone())).await;
            Ok(())
        };
        running.push(("garbage collection", collect.boxed()));
    }
    let running = running.into_iter().map(async |(controller, running)| {
        if let Err(error) = running.await {
            tracing::error!(error = chain(&*error), controller, "a built-in controller has failed");
        }
    });
    // Each is polled when it is woken itself.
    running.collect::<FuturesUnordered<_>>().collect::<()>().await;
}

/// Adds controllers to a manager.
type Add = fn(&Setup, &mut Manager) -> Result<(), BoxError>;

/// Whether a resource is served, by group, version and name.
pub(crate) fn serves(registry: &Registry, [group, version, resource]: [&str; 3]) -> bool {
    registry.catalog().get(group, version, resource).is_some()
}

/// Whether the taints of DeviceTaintRules count.
pub(crate) fn has_taint_rules(registry: &Registry) -> bool {
    registry.has_gate(DEVICE_TAINT_RULES)
        && serves(registry, ["resource.k8s.io", "v1beta2", "devicetaintrules"])
}

/// The controllers whose objects every control plane has. They share a manager.
struct SharedControllers {
    deletes_namespaces: bool,
    aggregates: bool,
    has_defaults: bool,
    api_services: bool,
    root_ca: Option<Arc<str>>,
}

impl SharedControllers {
    fn add_to(&self, setup: &Setup, manager: &mut Manager) -> Result<(), BoxError> {
        FlowSchemas::new(setup.clone()).add_to(manager)?;
        if self.deletes_namespaces {
            NamespaceController::new(setup.clone()).add_to(manager)?;
        }
        if self.aggregates {
            ClusterRoleAggregation::new(setup.clone()).add_to(manager)?;
        }
        if self.has_defaults {
            NamespaceDefaults::new(setup.clone()).root_ca(self.root_ca.clone()).add_to(manager)?;
        }
        if self.api_services {
            ApiServices::new(setup.clone()).add_to(manager)?;
        }
        Ok(())
    }

    /// What they watch.
    fn watched(&self) -> Vec<Watched> {
        let mut watched = vec![SCHEMAS, LEVELS];
        if self.deletes_namespaces || self.has_defaults {
            watched.push(NAMESPACES);
        }
        if self.aggregates {
            watched.push(CLUSTER_ROLES);
        }
        if self.has_defaults {
            watched.push(ACCOUNTS);
            watched.extend(self.root_ca.as_ref().map(|_| ROOT_CAS));
        }
        if self.api_services {
            watched.extend([DEFINITIONS, API_SERVICES]);
        }
        watched
    }

    /// Whether none of them has work.
    fn is_settled(&self, registry: &Registry) -> bool {
        if !self.is_fresh(registry) {
            return self.have_no_work(registry);
        }
        debug_assert!(
            // Objects that somebody writes meanwhile are not of the start; their signal wakes the
            // controllers.
            self.have_no_work(registry) || !self.is_fresh(registry),
            "a start leaves no work"
        );
        true
    }

    /// Whether the objects are those that every control plane has written at its start, as these
    /// controllers would leave them. Then they need not be read.
    fn is_fresh(&self, registry: &Registry) -> bool {
        let has_defaults = registry.has_default_accounts();
        let is_as_started = |watched: &Watched| watched.is_as_started(registry);
        (has_defaults || !self.has_defaults) && self.watched().iter().all(is_as_started)
    }

    /// The same as [`Self::is_settled`], by the objects.
    fn have_no_work(&self, registry: &Registry) -> bool {
        let all = |watched: Watched| watched.objects(registry);
        let root_ca = self.root_ca.as_deref();
        let maps = || root_ca.map(|_| all(ROOT_CAS)).unwrap_or_default();
        FlowSchemas::is_settled(&all(SCHEMAS), &all(LEVELS))
            && (!self.deletes_namespaces || NamespaceController::is_settled(&all(NAMESPACES)))
            && (!self.aggregates || ClusterRoleAggregation::is_settled(&all(CLUSTER_ROLES)))
            && (!self.has_defaults
                || NamespaceDefaults::is_settled(
                    &all(NAMESPACES),
                    &all(ACCOUNTS),
                    &maps(),
                    root_ca,
                ))
            && (!self.api_services
                || ApiServices::is_settled(&all(DEFINITIONS), &all(API_SERVICES)))
    }
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

/// Runs a controller from when one of the resources has an object, unless `stop` is sooner: most
/// control planes of tests have none of them.
async fn once<'a>(
    registry: &Registry,
    stop: &CancellationToken,
    resources: &[&str],
    run: impl FnOnce() -> BoxFuture<'a, Result<(), BoxError>>,
) -> Result<(), BoxError> {
    let first = resources.iter().map(|prefix| registry.any_object(prefix).boxed());
    let first = select_all(first);
    tokio::select! {
        biased;
        () = stop.cancelled() => return Ok(()),
        // Cancel safe: it only waits for a state.
        _ = first => {}
    }
    run().await
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
                let seed = seed.wrapping_add(term);
                run(server, &end_term, Settings { seed, ..settings.clone() }).await;
            }
            end_term.cancelled().await;
            end_election.cancel();
        };
        if let (Err(error), ()) = tokio::join!(lead, work) {
            tracing::warn!(error = chain(&error), "the built-in controllers have stopped");
        }
        if stop.is_cancelled() {
            return;
        }
    }
}
