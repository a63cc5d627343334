//! Additional clusters that a manager's controllers watch and write to.
//!
//! A cluster is a client with a cache, a mapper, an event recorder and a name (CLU-1). The manager
//! has its own; others are added before it runs, and their caches start and stop with its own. A
//! controller watches another cluster's objects by [`Watch::cluster`](crate::Watch::cluster), with
//! keys that name the cluster. Keys can be of any type, and the runtime does not assume a single
//! cache (CLU-2). [`Context::client_of`](crate::Context::client_of) reads and writes there.
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
    mapper::Mapper,
};
use setpoint_informer::factory::FactoryWorker;

/// The maximum number of additional clusters. Fleets whose clusters change at run time are out of
/// scope (CLU-2).
pub const CLUSTERS_MAX: usize = 256;

/// Another cluster of a manager. Cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    name: Arc<str>,
    client: Client,
    cache: Cache,
    mapper: Mapper,
    broadcaster: Broadcaster,
}

/// Builds a [`Cluster`]; for [`Manager::add_cluster`](crate::Manager::add_cluster).
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
        let event_worker =
            EventWorker::new(client.clone(), queue, EventOptions::default(), environment.seed);
        let cluster = Cluster { name: environment.name, client, cache, mapper, broadcaster };
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
