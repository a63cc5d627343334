//! Controllers that start with the first object that they may have to do with: most control planes
//! of tests have none of these.

use super::context::{Context, TOKEN_CLEANER};
use super::serves;
use futures::future::{BoxFuture, FutureExt as _, select_all};
use setpoint_controllers::{
    AttributesClassProtection, BootstrapSigner, CoordinatedElection, GroupProtection, LegacyTokens,
    PodCertificateCleaner, PoolStatusController, ProtectionController, QuotaController, Setup,
    StorageVersionCollector, StorageVersionMigrator, TokenCleaner, TokenSecrets, UnusedClaims,
};
use setpoint_registry::Feature;
use setpoint_runtime::{BoxError, Manager};

/// The prefix of the keys of Secrets, which four controllers start with.
const SECRETS: &str = "/registry/secrets/";

/// A controller.
pub(super) struct Row {
    /// What it is about, for logs.
    pub(super) subject: &'static str,
    /// Its names in kube-controller-manager: it runs if one of them does. None: kube-apiserver runs
    /// it itself, so no name turns it off.
    names: &'static [&'static str],
    /// The feature that it needs.
    feature: Option<Feature>,
    /// The resource that it needs, by group, version and name. None: one that is always served.
    served: Option<[&'static str; 3]>,
    /// Prefixes of the keys of the resources whose first object starts it.
    resources: &'static [&'static str],
    start: Start,
}

/// How a controller starts.
enum Start {
    /// Added to a manager of its own.
    Managed(fn(&Setup, &mut Manager) -> Result<(), BoxError>),
    /// By itself.
    Alone(fn(&Context<'_>) -> Running),
}

/// A controller that runs.
type Running = BoxFuture<'static, Result<(), BoxError>>;

/// Elects the holders of Leases. It is no row of [`ROWS`]: the server that runs it is elected by
/// another Lease.
pub(super) const COORDINATED_ELECTION: Row = Row::new(
    "coordinated leader election",
    &[],
    &["/registry/leasecandidates/"],
    Start::Managed(|setup, manager| CoordinatedElection::new(setup.clone()).add_to(manager)),
)
.needs(Feature::CoordinatedLeaderElection)
.served(["coordination.k8s.io", "v1beta1", "leasecandidates"]);

/// All of them, in the order in which they start.
pub(super) const ROWS: &[Row] = &[
    Row::new(
        "storage protection",
        &["persistentvolumeclaim-protection-controller", "persistentvolume-protection-controller"],
        &["/registry/persistentvolumeclaims/", "/registry/persistentvolumes/"],
        Start::Managed(|setup, manager| ProtectionController::new(setup.clone()).add_to(manager)),
    ),
    Row::new(
        "claims that no pod uses",
        &["persistentvolumeclaim-protection-controller"],
        &["/registry/persistentvolumeclaims/"],
        Start::Managed(|setup, manager| UnusedClaims::new(setup.clone()).add_to(manager)),
    )
    .needs(Feature::PersistentVolumeClaimUnusedSinceTime),
    Row::new(
        "protection of attributes classes",
        &["volumeattributesclass-protection-controller"],
        &["/registry/volumeattributesclasses/"],
        Start::Managed(|setup, manager| {
            AttributesClassProtection::new(setup.clone()).add_to(manager)
        }),
    ),
    Row::new(
        "requests for certificates of pods",
        &["podcertificaterequest-cleaner-controller"],
        &["/registry/podcertificaterequests/"],
        Start::Managed(|setup, manager| PodCertificateCleaner::new(setup.clone()).add_to(manager)),
    )
    .served(["certificates.k8s.io", "v1beta1", "podcertificaterequests"]),
    Row::new(
        "protection of groups of pods",
        &["podgroup-protection-controller"],
        &["/registry/podgroups/"],
        Start::Managed(|setup, manager| GroupProtection::new(setup.clone()).add_to(manager)),
    )
    .served(["scheduling.k8s.io", GroupProtection::VERSION, "podgroups"]),
    Row::new(
        "storage version migration",
        &["storage-version-migrator-controller"],
        &["/registry/storageversionmigrations/"],
        Start::Managed(|setup, manager| StorageVersionMigrator::new(setup.clone()).add_to(manager)),
    )
    .served(["storagemigration.k8s.io", "v1beta1", "storageversionmigrations"]),
    Row::new(
        "requests for the status of pools",
        &["resourcepoolstatusrequest-controller"],
        &["/registry/resourcepoolstatusrequests/"],
        Start::Managed(|setup, manager| PoolStatusController::new(setup.clone()).add_to(manager)),
    )
    .needs(Feature::DRAResourcePoolStatus)
    .served(["resource.k8s.io", "v1alpha3", "resourcepoolstatusrequests"]),
    Row::new(
        "collection of storage versions",
        &["storageversion-garbage-collector-controller"],
        &["/registry/storageversions/"],
        Start::Alone(|context| {
            StorageVersionCollector::new(context.setup()).run(context.stop.clone()).boxed()
        }),
    )
    .needs(Feature::StorageVersionAPI)
    .served(["internal.apiserver.k8s.io", "v1alpha1", "storageversions"]),
    Row::new(
        "resource quotas",
        &["resourcequota-controller"],
        &["/registry/resourcequotas/"],
        Start::Alone(|context| {
            let controller = QuotaController::new(context.setup()).feed(context.feed());
            controller.run(context.stop.clone()).boxed()
        }),
    ),
    Row::new(
        "bootstrap tokens",
        &[TOKEN_CLEANER],
        &[SECRETS],
        Start::Alone(|context| {
            TokenCleaner::new(context.setup()).run(context.stop.clone()).boxed()
        }),
    ),
    Row::new(
        "signatures of bootstrap tokens",
        &["bootstrap-signer-controller"],
        &[SECRETS],
        Start::Alone(|context| {
            BootstrapSigner::new(context.setup()).run(context.stop.clone()).boxed()
        }),
    ),
    Row::new(
        "tokens in Secrets",
        &["serviceaccount-token-controller"],
        &[SECRETS],
        Start::Alone(|context| {
            let settings = context.registry().service_account_tokens();
            if settings.signer().is_some() {
                // Another program's key, which it does not lend.
                return context.stop.clone().cancelled_owned().map(Ok).boxed();
            }
            let tokens = TokenSecrets::new(context.setup(), settings.key_ring());
            tokens.root_ca(context.settings.root_ca.clone()).run(context.stop.clone()).boxed()
        }),
    ),
    Row::new(
        "unused tokens in Secrets",
        &["legacy-serviceaccount-token-cleaner-controller"],
        &[SECRETS],
        Start::Alone(|context| {
            LegacyTokens::new(&context.setup()).run(context.stop.clone()).map(Ok).boxed()
        }),
    ),
];

impl Row {
    const fn new(
        subject: &'static str,
        names: &'static [&'static str],
        resources: &'static [&'static str],
        start: Start,
    ) -> Self {
        Self { subject, names, feature: None, served: None, resources, start }
    }

    const fn needs(self, feature: Feature) -> Self {
        Self { feature: Some(feature), ..self }
    }

    const fn served(self, resource: [&'static str; 3]) -> Self {
        Self { served: Some(resource), ..self }
    }

    /// Whether it runs when there is an object for it.
    pub(super) fn is_on(&self, context: &Context<'_>) -> bool {
        let registry = context.registry();
        (self.names.is_empty() || self.names.iter().any(|name| context.is_on(name)))
            && self.feature.is_none_or(|feature| registry.features().is_on(feature))
            && self.served.is_none_or(|resource| serves(registry, resource))
    }

    /// Runs it from when one of its resources has an object, unless the server stops sooner.
    pub(super) async fn run(&self, context: &Context<'_>) -> Result<(), BoxError> {
        let registry = context.registry();
        let first = self.resources.iter().map(|prefix| registry.any_object(prefix).boxed());
        let first = select_all(first);
        tokio::select! {
            biased;
            () = context.stop.cancelled() => return Ok(()),
            // Cancel safe: it only waits for a state.
            _ = first => {}
        }
        match self.start {
            Start::Managed(add) => context.setup().run(context.stop.clone(), add).boxed(),
            Start::Alone(start) => start(context),
        }
        .await
    }
}
