//! Additional clusters that a manager's controllers watch and write to.
//!
//! A cluster is a client with a cache, a mapper, an event recorder and a name (CLU-1). The manager
//! has its own, and their caches start and stop with it. Others are
//! [added](crate::ManagerHandle::add_cluster) and
//! [removed](crate::ManagerHandle::remove_cluster), before it runs and while it does. A controller
//! watches another cluster's objects by [`Watch::cluster`](crate::Watch::cluster), with
//! keys that name the cluster. Keys can be of any type, and the runtime does not assume a single
//! cache (CLU-2). [`Context::client_of`](crate::Context::client_of) reads and writes there.
//!
//! # Clusters that come and go
//!
//! A program that learns of a cluster while it runs adds it. Controllers that are built with
//! [`each_cluster`](crate::ControllerBuilder::each_cluster) watch it from then on. Other watches
//! are added by hand, with [`ControllerHandle::watch`](crate::ControllerHandle::watch) or in a pass
//! [`Context::watches`](crate::Context::watches):
//!
//! ```no_run
//! # use k8s_openapi::api::core::v1::ConfigMap;
//! # use setpoint_runtime::{BoxError, ControllerHandle, ManagerHandle, Request, Watch};
//! # use setpoint_runtime::cluster::Cluster;
//! # fn example(
//! #     manager: &ManagerHandle, copier: &ControllerHandle, client: kube_client::Client,
//! # ) -> Result<(), BoxError> {
//! let east = manager.add_cluster("east", Cluster::builder(client))?;
//! copier.watch(Watch::<ConfigMap>::new().cluster(&east), |event| vec![event.key().clone()])?;
//! // … and when it is gone:
//! manager.remove_cluster("east");
//! # Ok(())
//! # }
//! ```
//!
//! | once a cluster is removed | |
//! |---|---|
//! | watches of it | end, in all controllers; queued keys stay |
//! | writes by its clients, also in passes that run | are refused with [`Fenced::ClusterRemoved`] |
//! | cached reads | return [`ClientError::NotCached`](crate::ClientError::NotCached); the objects are dropped |
//! | events that wait | are written, each with a single try |
//! | its name | is free when all of that is done: [`Cluster::ended`] |
//!
//! A cluster whose credentials have changed is removed and added again, with another client.
//!
//! | while a cluster cannot be reached | |
//! |---|---|
//! | the manager | starts, and is ready: [`Health::add_defaults`](crate::endpoint::Health::add_defaults). Types that the program itself requested from the cluster's cache before the start delay it, by at most [`SYNC_TIMEOUT`](crate::controller::SYNC_TIMEOUT): see [`Cache::informer`] |
//! | controllers that were built with a watch of it | wait for it, and fail after their [`sync_timeout`](crate::ControllerBuilder::sync_timeout) |
//! | controllers with watches that were added while they run | work; nothing waits for these watches |
//! | cached reads of it | return [`ClientError::NotSynced`](crate::ClientError::NotSynced), or what was there before |
//! | [`Cache::unsynced`], [`ControllerHandle::sources`](crate::ControllerHandle::sources) | have the reason |
//!
//! # Clients
//!
//! The client does not limit the rate of requests: the API server's priority and fairness does
//! (CLU-3). The program declares its types, in Rust or as `ApiResource`s. For kinds that it finds
//! in objects, each cluster's [`Mapper`] returns the resource (CLU-4).
//!
//! # Which server
//!
//! The program creates the client, and so chooses the server. `kube_client::Config` reads the usual
//! places (CLU-3):
//!
//! | place                                     | function                                                                          |
//! |-------------------------------------------|-----------------------------------------------------------------------------------|
//! | a file named on the command line          | `Kubeconfig::read_from(path)`, then `Config::from_custom_kubeconfig`              |
//! | the files of `KUBECONFIG`, or else `~/.kube/config` | `Config::from_kubeconfig`                                               |
//! | the service account of a pod              | `Config::incluster`                                                               |
//! | the second, and if that fails the third   | `Config::infer`, `Client::try_default`                                            |
//!
//! Credentials that change are in the hands of kube-client:
//!
//! | credentials                                 | read again                                                                                  |
//! |---------------------------------------------|---------------------------------------------------------------------------------------------|
//! | a token file, as a pod's                    | every minute; the file must have no line end after the token                                 |
//! | a token of an exec plugin                   | a minute before its `expirationTimestamp`. Never if it has none, and not after a 401, unlike client-go |
//! | a certificate, also of an exec plugin; a CA | never                                                                                       |
//!
//! While a server refuses credentials, informers retry with back-off, and
//! [`Cache::unsynced`](crate::Cache::unsynced) and the status of watches have its answer. Where
//! credentials are not read again, restart the program, or remove the cluster and add it again.
//!
//! controller-runtime's order is: the flag, `KUBECONFIG`, the pod, the home directory. `infer`
//! differs in two cases: in a pod whose image has a `~/.kube/config`, that file precedes the
//! service account; and within a pod, an unreadable `KUBECONFIG` is ignored. To avoid that, call
//! `incluster` before `from_kubeconfig` if `KUBECONFIG` is not set.

use std::{fmt, sync::Arc};

use setpoint_informer::MetricsRegistry;
use setpoint_object::time::Clock;

use crate::{
    cache::{Cache, CacheOptions},
    client::Client,
    events::{Broadcaster, EventOptions, EventRecorder, EventWorker},
    fence::{Fence, Fenced},
    mapper::Mapper,
};
use setpoint_informer::factory::FactoryWorker;
use tokio_util::sync::CancellationToken;

/// The maximum number of additional clusters at a time, with those that are being removed.
pub const CLUSTERS_MAX: usize = 256;

/// Another cluster of a manager. Cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    name: Arc<str>,
    client: Client,
    cache: Cache,
    mapper: Mapper,
    broadcaster: Broadcaster,
    /// Cancelled when its workers have ended.
    end: CancellationToken,
}

/// Refuses writes to a cluster that was removed.
struct Present(Cache);

impl Fence for Present {
    fn check(&self) -> Result<(), Fenced> {
        if self.0.closed().is_cancelled() { Err(Fenced::ClusterRemoved) } else { Ok(()) }
    }
}

/// Builds a [`Cluster`]; for
/// [`ManagerHandle::add_cluster`](crate::ManagerHandle::add_cluster).
#[must_use = "a cluster does nothing until it is added to a manager"]
pub struct ClusterBuilder {
    client: kube_client::Client,
    cache: CacheOptions,
    field_manager: Option<Arc<str>>,
}

/// The parts of a manager that its clusters use.
pub(crate) struct ClusterEnvironment {
    pub(crate) name: Arc<str>,
    pub(crate) clock: Clock,
    pub(crate) seed: u64,
    pub(crate) informers: Option<MetricsRegistry>,
    pub(crate) field_manager: Arc<str>,
}

impl Cluster {
    /// Builds a cluster over a client.
    pub fn builder(client: kube_client::Client) -> ClusterBuilder {
        ClusterBuilder { client, cache: CacheOptions::new(), field_manager: None }
    }

    /// Its name; also the name of its informers in metrics.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads from this cluster's cache and writes to its server. The election does not fence its
    /// writes, and no pass records them: reconcilers use
    /// [`Context::client_of`](crate::Context::client_of), and tasks of the leader
    /// [`ManagerHandle::leader_client_of`](crate::ManagerHandle::leader_client_of).
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The cache of this cluster.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Maps kinds to resources of this cluster.
    pub fn mapper(&self) -> &Mapper {
        &self.mapper
    }

    /// A recorder that reports events as `component`, in this cluster.
    pub fn recorder(&self, component: impl Into<Arc<str>>) -> EventRecorder {
        self.broadcaster.recorder(component.into())
    }

    /// Whether it was removed from its manager.
    pub fn is_removed(&self) -> bool {
        self.cache.closed().is_cancelled()
    }

    /// Waits until its caches and events have ended: it was removed, or the manager has ended. Its
    /// name is free then. Cancel safe: it only observes.
    pub async fn ended(&self) {
        self.end.cancelled().await;
    }

    /// The token of [`ended`](Self::ended).
    pub(crate) fn end(&self) -> &CancellationToken {
        &self.end
    }
}

impl ClusterBuilder {
    /// The options of its cache. Default: cache everything that is watched, with metrics under the
    /// cluster's name.
    pub fn cache(mut self, options: CacheOptions) -> Self {
        self.cache = options;
        self
    }

    /// The field manager of writes through [`Cluster::client`]. Default: the manager's.
    pub fn field_manager(mut self, name: impl Into<Arc<str>>) -> Self {
        self.field_manager = Some(name.into());
        self
    }

    /// Builds the cluster, and the workers of its cache and events.
    pub(crate) fn build(
        self,
        environment: ClusterEnvironment,
    ) -> (Cluster, FactoryWorker, EventWorker) {
        let Self { client, mut cache, field_manager } = self;
        if let (None, Some(registry)) = (&cache.metrics, environment.informers) {
            cache = cache.metrics(registry, &*environment.name);
        }
        let (cache, cache_worker) = Cache::new(client.clone(), cache, environment.seed);
        let mapper = Mapper::new(client.clone());
        let client =
            Client::new(client, cache.clone(), field_manager.unwrap_or(environment.field_manager));
        let (broadcaster, queue) = Broadcaster::new(environment.clock);
        // The last events are written after the removal.
        let event_worker =
            EventWorker::new(client.clone(), queue, EventOptions::default(), environment.seed);
        let client = client.fenced(Arc::new(Present(cache.clone())));
        let (name, end) = (environment.name, CancellationToken::new());
        let cluster = Cluster { name, client, cache, mapper, broadcaster, end };
        (cluster, cache_worker, event_worker)
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("name", &self.name)
            .field("cache", &self.cache)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ClusterBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterBuilder").field("cache", &self.cache).finish_non_exhaustive()
    }
}
