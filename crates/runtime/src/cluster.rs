//! Further clusters that a manager's controllers watch and write to.
//!
//! A cluster is a client with a cache, a mapper, an event recorder and a name (CLU-1). The manager
//! has one of its own; others are added before it runs, and their caches start and stop with its
//! own. A controller watches another cluster's objects by
//! [`Watch::cluster`](crate::Watch::cluster), with keys that say of which cluster they are: keys
//! are any type, and nothing here assumes that there is one cache (CLU-2). It reads and writes
//! there by [`Cluster::client`].
//!
//! Requests are not held back by this program: the API server's own fairness is trusted (CLU-3).
//! Types are told by the program, in Rust or as `ApiResource`s; of kinds that it reads the
//! [`Mapper`] of each cluster tells the resource (CLU-4).
//!
//! # Which server
//!
//! A program makes the client, and so it decides which server that is. `kube_client::Config` knows
//! the places of the field (CLU-3):
//!
//! | where                                     | by                                                                                |
//! |-------------------------------------------|-----------------------------------------------------------------------------------|
//! | a file that the command line names        | `Kubeconfig::read_from(path)`, then `Config::from_custom_kubeconfig`              |
//! | the files of `KUBECONFIG`, or else `~/.kube/config` | `Config::from_kubeconfig`                                               |
//! | the service account of a pod              | `Config::incluster`                                                               |
//! | the second, and where that fails the third | `Config::infer`, `Client::try_default`                                           |
//!
//! controller-runtime's order is: the flag, `KUBECONFIG`, the pod, the home directory. `infer`
//! differs in two cases: a pod whose image has a `~/.kube/config` gets that and not its service
//! account, and a `KUBECONFIG` that cannot be read is passed over within a pod. A program to which
//! that matters asks for `incluster` before `from_kubeconfig` where `KUBECONFIG` is not set.

use std::{fmt, sync::Arc};

use setpoint_informer::MetricsRegistry;
use setpoint_object::time::Clock;

use crate::{
    cache::{Cache, CacheOptions, CacheOptionsError},
    client::Client,
    events::{Broadcaster, EventOptions, EventRecorder, EventWorker},
    mapper::Mapper,
};
use setpoint_informer::factory::FactoryWorker;

/// How many further clusters a manager has at most. A fleet that comes and goes is another
/// program's (CLU-2).
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

/// What may be chosen about a [`Cluster`]; to be given to
/// [`Manager::add_cluster`](crate::Manager::add_cluster).
#[must_use = "a cluster is nothing until a manager has it"]
pub struct ClusterBuilder {
    client: kube_client::Client,
    cache: CacheOptions,
    field_manager: Option<Arc<str>>,
}

/// What a manager gives its clusters.
pub(crate) struct ClusterHome {
    pub(crate) name: Arc<str>,
    pub(crate) clock: Clock,
    pub(crate) seed: u64,
    pub(crate) informers: Option<MetricsRegistry>,
    pub(crate) field_manager: Arc<str>,
}

impl Cluster {
    /// Begins a cluster over a client.
    pub fn builder(client: kube_client::Client) -> ClusterBuilder {
        ClusterBuilder { client, cache: CacheOptions::new(), field_manager: None }
    }

    /// Its name: that of its informers in metrics, too.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads from this cluster's cache, writes to its server.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The cache of this cluster.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Which resource a kind is at this cluster.
    pub fn mapper(&self) -> &Mapper {
        &self.mapper
    }

    /// A recorder of events in the name of `component`, written to this cluster.
    pub fn recorder(&self, component: impl Into<Arc<str>>) -> EventRecorder {
        self.broadcaster.recorder(component.into())
    }
}

impl ClusterBuilder {
    /// Caches only the objects of these namespaces: [`CacheOptions::namespaces`]. Default: all.
    ///
    /// # Errors
    ///
    /// There are too many.
    pub fn namespaces<N: Into<String>>(
        mut self,
        names: impl IntoIterator<Item = N>,
    ) -> Result<Self, CacheOptionsError> {
        self.cache = self.cache.namespaces(names)?;
        Ok(self)
    }

    /// What is cached, and how, in place of what was chosen before, of namespaces too. Default:
    /// everything that is watched, counted in the manager's metrics by the cluster's name.
    pub fn cache(mut self, options: CacheOptions) -> Self {
        self.cache = options;
        self
    }

    /// The field manager of writes through [`Cluster::client`]. Default: the manager's.
    pub fn field_manager(mut self, name: impl Into<Arc<str>>) -> Self {
        self.field_manager = Some(name.into());
        self
    }

    /// The cluster, and what runs its caches and its events.
    pub(crate) fn build(self, home: ClusterHome) -> (Cluster, FactoryWorker, EventWorker) {
        let Self { client, mut cache, field_manager } = self;
        if let (None, Some(registry)) = (&cache.metrics, home.informers) {
            cache = cache.metrics(registry, &*home.name);
        }
        let (cache, cache_worker) = Cache::new(client.clone(), cache, home.seed);
        let mapper = Mapper::new(client.clone());
        let client =
            Client::new(client, cache.clone(), field_manager.unwrap_or(home.field_manager));
        let (broadcaster, heard) = Broadcaster::new(home.clock);
        let event_worker =
            EventWorker::new(client.clone(), heard, EventOptions::default(), home.seed);
        let cluster = Cluster { name: home.name, client, cache, mapper, broadcaster };
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
