//! The built-in controllers of a control plane.
//!
//! # Theory
//!
//! Each controller is an ordinary client of the API: it lists and watches, queues what changed, and
//! writes with preconditions. It uses no server interface that a user's controller lacks, so it
//! also runs against any Kubernetes-compatible server.
//!
//! | controller | watches | does |
//! |---|---|---|
//! | [`NamespaceController`] | namespaces | deletes the content of a namespace that is being deleted, then removes its finalizer |
//! | [`GarbageCollector`] | metadata of everything that can be deleted, or a feed of the server in the same process | deletes objects whose owners are gone; foreground and orphan deletion |
//! | [`QuotaController`] | resource quotas, in process all objects | writes the limits and the usage of quotas into their status |
//! | [`ProtectionController`] | metadata of claims, volumes and pods | removes the finalizer of a deleted claim or volume once nothing uses it |
//! | [`AttributesClassProtection`] | metadata of attributes classes, claims, volumes | removes the finalizer of a deleted class once nothing uses it |
//! | [`UnusedClaims`] | claims, pods | says since when a claim is not used |
//! | [`GroupProtection`] | metadata of PodGroups, pods | removes the finalizer of a deleted group once no pod of it runs |
//! | [`ServiceCidrs`] | metadata of ServiceCIDRs, IPAddresses | keeps their condition, and removes the finalizer of a deleted one once no address needs it |
//! | [`NamespaceDefaults`] | namespaces, and the objects named below | keeps the ServiceAccount `default` and the ConfigMap `kube-root-ca.crt` in every namespace |
//! | [`TokenSecrets`] | Secrets with tokens, metadata of ServiceAccounts | fills the Secrets, and deletes them with their account |
//! | [`LegacyTokens`] | Secrets with tokens, once a day | ends tokens that were unused for a year |
//! | [`TokenCleaner`] | bootstrap tokens | deletes expired ones |
//! | [`BootstrapSigner`] | bootstrap tokens, the ConfigMap `cluster-info` | signs the kubeconfig in it with each token |
//! | [`TrustBundlePublisher`] | metadata of the ClusterTrustBundles of a signer | keeps the bundle with the authority of the API server's certificates |
//! | [`PodCertificateCleaner`] | metadata of PodCertificateRequests | deletes old ones |
//! | [`StorageVersionMigrator`] | StorageVersionMigrations | rewrites the objects of a resource in the version in which they are stored now |
//! | [`StorageVersionCollector`] | metadata of StorageVersions, Leases of servers | removes what servers that are gone have left in StorageVersions |
//! | [`PoolStatusController`] | metadata of ResourcePoolStatusRequests | answers them, and deletes old ones |
//! | [`CoordinatedElection`] | LeaseCandidates, Leases | elects the holders of Leases that have candidates, and deletes candidates that have ended |
//! | [`ApiServices`] | definitions of custom resources, APIServices | keeps an APIService for each group version that definitions serve |
//! | [`FlowSchemas`] | FlowSchemas, PriorityLevelConfigurations | keeps the condition `Dangling` of FlowSchemas |
//! | [`ClusterRoleAggregation`] | ClusterRoles | joins the rules of the roles that an aggregated role selects |
//! | [`workload`] | workloads, pods | creates, replaces and deletes the pods of Deployments, ReplicaSets, ReplicationControllers, StatefulSets and DaemonSets |
//!
//! Among the controllers of [`workload`] are also:
//!
//! | controller | watches | does |
//! |---|---|---|
//! | [`JobController`](workload::job::JobController) | Jobs, pods | runs the pods of Jobs and counts them |
//! | [`CronJobController`](workload::cron_job::CronJobController) | CronJobs, Jobs | creates Jobs at the times of a schedule |
//! | [`TtlAfterFinished`](workload::ttl_after_finished::TtlAfterFinished) | Jobs | deletes finished Jobs after their time |
//! | [`EndpointSliceController`](workload::endpoints::EndpointSliceController) | Services, pods, nodes | keeps the EndpointSlices of Services |
//! | [`EndpointsController`](workload::endpoints::EndpointsController) | Services, pods | keeps the Endpoints of Services |
//! | [`EndpointSliceMirroring`](workload::endpoints::EndpointSliceMirroring) | Endpoints, Services | copies Endpoints that users write into EndpointSlices |
//! | [`DisruptionController`](workload::disruption::DisruptionController) | budgets, pods, their owners | counts how many pods may be evicted |
//! | [`HorizontalPodAutoscalerController`](workload::autoscaler::HorizontalPodAutoscalerController) | autoscalers, metrics, scales | sets how many replicas a target has |
//! | [`CsrApprover`](workload::certificates::CsrApprover), [`CsrSigner`](workload::certificates::CsrSigner), [`CsrCleaner`](workload::certificates::CsrCleaner) | certificate requests | approve, sign and delete them |
//! | [`VolumeBinder`](workload::volume_binder::VolumeBinder) | volumes, claims, storage classes | binds, makes, expands and reclaims volumes |
//! | [`EphemeralVolumeController`](workload::ephemeral_volume::EphemeralVolumeController) | pods, claims | creates the claims of generic ephemeral volumes |
//! | [`ResourceClaimController`](workload::resource_claim::ResourceClaimController) | pods, claims of devices, templates | creates the claims of pods from templates, and releases what ended pods had |
//! | [`PodGarbageCollector`](workload::pod_gc::PodGarbageCollector) | pods, nodes | deletes pods that nobody else ends |
//! | [`NodeLifecycleController`](workload::node_lifecycle::NodeLifecycleController) | nodes, Leases, pods | marks nodes whose Leases are not renewed, with conditions and taints |
//! | [`TaintEvictionController`](workload::taint_eviction::TaintEvictionController) | nodes, pods | deletes pods from tainted nodes when their tolerations end |
//! | [`DeviceTaintEviction`](workload::device_taint_eviction::DeviceTaintEviction) | pods, claims of devices, slices, taint rules | deletes pods that use tainted devices when their tolerations end |
//! | [`NodeTtlController`](workload::node_ttl::NodeTtlController) | nodes | says on each node how long kubelets may use what they have read |
//!
//! A [`Selection`] chooses among them by kube-controller-manager's names.
//!
//! [`ServerIdentity`] is no controller of objects: every server runs one, to publish its address.
//!
//! They write as `kube-controller-manager`, the name that tools expect in `managedFields`. They
//! start from one [`Setup`]. Constructors do nothing; `run` returns a future that the caller owns.
//! The crate knows nothing of the API server's internals.

pub mod aggregation;
mod api;
pub mod api_services;
pub mod bootstrap_signer;
mod boxed;
pub mod coordinated_election;
pub mod defaults;
mod first_error;
pub mod flow_schemas;
pub mod gc;
pub mod identity;
pub mod legacy_tokens;
pub mod namespace;
pub mod pod_certificates;
pub mod pool_status;
pub mod protection;
pub mod quota;
mod readable;
mod selection;
pub mod service_cidr;
mod setup;
pub mod storage_migration;
pub mod storage_version_gc;
pub mod token_cleaner;
pub mod token_secrets;
pub mod trust_bundle;
pub mod unused_claims;
pub mod workload;

pub use aggregation::ClusterRoleAggregation;
pub use api::RequestError;
pub use api_services::ApiServices;
pub use bootstrap_signer::BootstrapSigner;
pub use coordinated_election::CoordinatedElection;
pub use defaults::NamespaceDefaults;
pub use flow_schemas::FlowSchemas;
pub use gc::GarbageCollector;
pub use identity::{PublishedAddresses, Registration, ServerIdentity, StoredResource};
pub use legacy_tokens::LegacyTokens;
pub use namespace::NamespaceController;
pub use pod_certificates::PodCertificateCleaner;
pub use pool_status::PoolStatusController;
pub use protection::{AttributesClassProtection, GroupProtection, ProtectionController};
pub use quota::QuotaController;
pub use selection::{
    ControllerGroup, KNOWN_CONTROLLERS, KnownController, Selection, SelectionError,
};
pub use service_cidr::ServiceCidrs;
pub use setup::Setup;
pub use storage_migration::StorageVersionMigrator;
pub use storage_version_gc::StorageVersionCollector;
pub use token_cleaner::TokenCleaner;
pub use token_secrets::TokenSecrets;
pub use trust_bundle::TrustBundlePublisher;
pub use unused_claims::UnusedClaims;
pub use workload::WorkloadControllers;
