//! The handle of a manager, and what its members share.

use std::{fmt, future::Future, sync::Arc};

use futures::future::join_all;
use setpoint_informer::MetricsRegistry;
use setpoint_object::time::Clock;
use tokio_util::sync::CancellationToken;

use super::{
    AddError,
    fleet::Fleet,
    roster::{Member, Roster},
};
use crate::{
    cache::Cache,
    client::Client,
    cluster::{Cluster, ClusterBuilder, ClusterEnvironment},
    controller::{
        Controller, ControllerDefaults, ControllerHandle, ControllerState, Environment,
        SYNC_TIMEOUT,
    },
    election::Leadership,
    error::BoxError,
    events::{Broadcaster, EventRecorder},
    explain::Explanation,
    mapper::Mapper,
    metrics::Metrics,
    request::RequestKey,
    runnable::{Elected, Group, Run, Runnable},
    source::WatchError,
};

/// A handle to a manager, before and while it runs: adds and removes members, shows its state.
/// Cheap to clone.
///
/// It owns nothing: every task belongs to [`Manager::run`](crate::Manager::run). Once the stop has
/// begun, adding fails.
#[derive(Clone)]
pub struct ManagerHandle {
    pub(super) environment: Arc<ManagerEnvironment>,
    pub(super) roster: Arc<Roster>,
    pub(super) fleet: Arc<Fleet>,
    pub(super) synced: CancellationToken,
    pub(super) elected: CancellationToken,
}

/// What a manager's members share.
pub(super) struct ManagerEnvironment {
    pub(super) client: Client,
    pub(super) cache: Cache,
    pub(super) mapper: Mapper,
    pub(super) broadcaster: Broadcaster,
    pub(super) clock: Clock,
    pub(super) seed: u64,
    pub(super) controllers: ControllerDefaults,
    pub(super) metrics: Metrics,
    pub(super) leadership: Option<Leadership>,
    /// The registry of the informers' metrics.
    pub(super) informers: Option<MetricsRegistry>,
    pub(super) field_manager: Arc<str>,
    /// See [`ManagerBuilder::quiet`](super::ManagerBuilder::quiet).
    pub(super) is_quiet: bool,
}

impl ManagerHandle {
    pub(super) fn new(environment: ManagerEnvironment) -> Self {
        Self {
            environment: Arc::new(environment),
            roster: Arc::default(),
            fleet: Arc::default(),
            synced: CancellationToken::new(),
            elected: CancellationToken::new(),
        }
    }

    /// Adds a controller. The types it watches are cached from now on. In a running manager it
    /// starts at once, or when this process is elected (MGR-9).
    ///
    /// # Errors
    ///
    /// The name is taken, there are too many members, the manager stops, an index that a watch of
    /// the controller declares is not available, or the watches of a
    /// [cluster](crate::ControllerBuilder::each_cluster) cannot be added.
    pub fn add<R: RequestKey>(
        &self,
        controller: Controller<R>,
    ) -> Result<ControllerHandle, AddError> {
        let handle = controller.handle();
        let name: Arc<str> = handle.name().into();
        let stop = self.roster.reserve(&name)?;
        let shared = &self.environment;
        let bound = match controller.bind(&shared.client, &shared.controllers) {
            Ok(bound) => bound,
            Err(source) => {
                self.roster.ended(&name);
                return Err(AddError::Index { name, source });
            }
        };
        let group = match (bound.is_leader_only(), bound.warms_up()) {
            (true, true) => Group::WarmUp,
            (true, false) => Group::Leader,
            (false, _) => Group::Other,
        };
        let client =
            if bound.is_leader_only() { self.leader_client() } else { shared.client.clone() };
        let environment = Environment {
            client,
            recorder: shared.broadcaster.recorder(name.clone()),
            clock: shared.clock.clone(),
            seed: shared.seed_of(&name),
            go: CancellationToken::new(),
            is_quiet: shared.is_quiet,
            fence: shared
                .leadership
                .as_ref()
                .filter(|_| bound.is_leader_only())
                .map(Leadership::fence),
        };
        let run: Run = Box::new(move |start| {
            let environment = Environment { go: start.go, ..environment };
            Box::pin(
                async move { bound.run(environment, start.stop).await.map_err(BoxError::from) },
            )
        });
        let member = Member { name, group, awaits_its_caches: true, run, stop };
        self.roster.add(member, Some(handle.clone()))?;
        for cluster in self.clusters() {
            if let Err(refused) = engage(&handle, &cluster) {
                self.remove(handle.name());
                return Err(refused);
            }
        }
        Ok(handle)
    }

    /// Adds another task; see [`Runnable`] for when it runs.
    ///
    /// # Errors
    ///
    /// The name is taken, there are too many members, or the manager stops.
    pub fn add_runnable(
        &self,
        name: impl Into<Arc<str>>,
        runnable: Runnable,
    ) -> Result<(), AddError> {
        let name = name.into();
        let stop = self.roster.reserve(&name)?;
        let Runnable { group, run } = runnable;
        self.roster.add(Member { name, group, awaits_its_caches: false, run, stop }, None)
    }

    /// Adds a task that runs on the leader: [`add_runnable`](Self::add_runnable) with
    /// [`Runnable::new`].
    ///
    /// # Errors
    ///
    /// As [`add_runnable`](Self::add_runnable).
    pub fn add_task<Fut>(
        &self,
        name: impl Into<Arc<str>>,
        run: impl FnOnce(CancellationToken) -> Fut + Send + 'static,
    ) -> Result<(), AddError>
    where
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        self.add_runnable(name, Runnable::new(run))
    }

    /// Stops one member; returns whether it existed. The others keep running. A controller ends
    /// after its running passes, and removes its handlers from the informers; the types it watched
    /// stay cached. The name is free once the member has ended.
    pub fn remove(&self, name: &str) -> bool {
        self.roster.remove(name)
    }

    /// The client that controllers get, with the manager's own field manager.
    pub fn client(&self) -> &Client {
        &self.environment.client
    }

    /// The client for work of the leader only. Its writes leave this process only while the lease
    /// is held. Leader-only controllers get it; leader-only tasks should write through it. Without
    /// an election it is [`client`](Self::client).
    pub fn leader_client(&self) -> Client {
        let client = &self.environment.client;
        match &self.environment.leadership {
            Some(leadership) => client.fenced(leadership.fence()),
            None => client.clone(),
        }
    }

    /// [`leader_client`](Self::leader_client) of another cluster, whose field manager it keeps.
    pub fn leader_client_of(&self, cluster: &Cluster) -> Client {
        let client = cluster.client();
        match &self.environment.leadership {
            Some(leadership) => client.fenced(leadership.fence()),
            None => client.clone(),
        }
    }

    /// The election, if there is one.
    pub fn leadership(&self) -> Option<&Leadership> {
        self.environment.leadership.as_ref()
    }

    /// The cache that controllers share.
    pub fn cache(&self) -> &Cache {
        &self.environment.cache
    }

    /// Maps kinds to resources of the manager's own cluster.
    pub fn mapper(&self) -> &Mapper {
        &self.environment.mapper
    }

    /// A recorder that reports events as `component`.
    pub fn recorder(&self, component: impl Into<Arc<str>>) -> EventRecorder {
        self.environment.broadcaster.recorder(component.into())
    }

    /// Adds another cluster. Its caches and events run with the manager's own, at once if it runs.
    /// Controllers that watch [each cluster](crate::ControllerBuilder::each_cluster) watch it from
    /// now on; add other watches of its objects by hand: [`cluster`](crate::cluster). Call it
    /// within a tokio runtime.
    ///
    /// # Errors
    ///
    /// The name is taken, also by a cluster whose removal has not [ended](Cluster::ended), or there
    /// are [`CLUSTERS_MAX`](crate::cluster::CLUSTERS_MAX), or the manager stops, or a controller
    /// cannot watch it.
    pub fn add_cluster(
        &self,
        name: impl Into<Arc<str>>,
        cluster: ClusterBuilder,
    ) -> Result<Cluster, AddError> {
        let (name, shared) = (name.into(), &self.environment);
        let environment = ClusterEnvironment {
            name: name.clone(),
            clock: shared.clock.clone(),
            seed: shared.seed_of(&name),
            informers: shared.informers.clone(),
            field_manager: shared.field_manager.clone(),
        };
        let cluster = self.fleet.add(&name, || cluster.build(environment))?;
        self.roster.added.notify_one();
        for controller in self.controllers() {
            if let Err(refused) = engage(&controller, &cluster) {
                self.remove_cluster(cluster.name());
                return Err(refused);
            }
        }
        Ok(cluster)
    }

    /// Removes another cluster; returns whether it existed. Its watches end in all controllers, and
    /// its clients write no more: see [`cluster`](crate::cluster). Passes over keys that name it
    /// may still run. Does not wait: [`Cluster::ended`] does.
    pub fn remove_cluster(&self, name: &str) -> bool {
        let Some((cluster, stop, never_run)) = self.fleet.remove(name) else { return false };
        cluster.cache().close();
        // Before its informers end, so that no controller misses them.
        let id = cluster.cache().id();
        self.controllers().iter().for_each(|controller| controller.remove_cluster(id));
        stop.cancel();
        drop(never_run);
        true
    }

    /// The additional clusters.
    pub fn clusters(&self) -> Vec<Cluster> {
        self.fleet.clusters()
    }

    /// The manager's clock.
    pub fn clock(&self) -> &Clock {
        &self.environment.clock
    }

    /// The manager's metrics, to read, serve or extend.
    pub fn metrics(&self) -> Metrics {
        self.environment.metrics.clone()
    }

    /// Handles of the controllers that were added and not removed.
    pub fn controllers(&self) -> Vec<ControllerHandle> {
        self.roster.controllers()
    }

    /// Why the last passes over a key of a controller ran. Takes the controller's name and the
    /// key's `Display` text; `None` if there is no such controller. See
    /// [`ControllerHandle::explain`].
    pub fn explain(&self, controller: &str, key: &str) -> Option<Vec<Explanation>> {
        let controllers = self.controllers();
        let controller = controllers.iter().find(|handle| handle.name() == controller)?;
        Some(controller.explain_text(key))
    }

    /// Whether the controllers added so far are ready. Any number of tasks may await it.
    pub fn readiness(&self) -> Readiness {
        Readiness::new(self.controllers())
    }

    /// Whether this process leads. Any number of tasks may await it.
    pub fn elected(&self) -> Elected {
        Elected::new(self.elected.clone())
    }
}

impl ManagerHandle {
    /// Waits until the caches that the program requested itself have synced or ended. For those of
    /// additional clusters at most [`SYNC_TIMEOUT`]: one that cannot be reached must not keep the
    /// program from working for all others.
    pub(super) fn caches_synced(&self) -> impl Future<Output = ()> + Send + 'static {
        let (cache, clusters) = (self.environment.cache.clone(), self.fleet.clusters());
        async move {
            let all = [&cache].into_iter().chain(clusters.iter().map(Cluster::cache));
            let all = join_all(all.map(Cache::synced));
            if tokio::time::timeout(SYNC_TIMEOUT, all).await.is_ok() {
                return;
            }
            for cluster in &clusters {
                for why in cluster.cache().awaited() {
                    let cluster = cluster.name();
                    tracing::warn!(cluster, "starting without a cache that was requested: {why}");
                }
            }
            for why in cache.awaited() {
                tracing::warn!("still waiting for a cache that was requested: {why}");
            }
            cache.synced().await;
        }
    }

    /// Refuses new members and clusters from now on.
    pub(super) fn begin_stop(&self) {
        self.roster.begin_stop();
        self.fleet.begin_stop();
    }
}

impl fmt::Debug for ManagerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManagerHandle")
            .field("controllers", &self.controllers())
            .field("is_elected", &self.elected.is_cancelled())
            .finish_non_exhaustive()
    }
}

/// Adds a controller's watches of a cluster. One that has ended meanwhile needs none.
fn engage(controller: &ControllerHandle, cluster: &Cluster) -> Result<(), AddError> {
    match controller.engage(cluster) {
        Ok(()) | Err(WatchError::Stopped | WatchError::ClusterRemoved) => Ok(()),
        Err(source) => Err(AddError::Engage {
            controller: controller.name().into(),
            cluster: cluster.name().into(),
            source,
        }),
    }
}

impl ManagerEnvironment {
    /// The seed of one member.
    pub(super) fn seed_of(&self, name: &str) -> u64 {
        use std::hash::{DefaultHasher, Hasher};
        // A hasher with fixed keys: a name has the same seed in each process.
        let mut hasher = DefaultHasher::new();
        hasher.write(name.as_bytes());
        self.seed ^ hasher.finish()
    }
}

/// Whether all of a manager's controllers reconcile, or would at once if this process led. Cheap to
/// clone; any number of tasks may wait.
#[derive(Debug, Clone)]
pub struct Readiness {
    controllers: Vec<ControllerHandle>,
}

impl Readiness {
    pub(super) fn new(controllers: Vec<ControllerHandle>) -> Self {
        Self { controllers }
    }

    /// Whether every controller is ready now.
    pub fn is_ready(&self) -> bool {
        self.controllers.iter().all(|controller| controller.state().is_ready())
    }

    /// Waits until every controller has been ready. Returns false if one stops before.
    ///
    /// Cancel safe: it only observes.
    pub async fn ready(&self) -> bool {
        for controller in &self.controllers {
            let mut state = controller.watch_state();
            let settled =
                |state: &ControllerState| state.is_ready() || *state == ControllerState::Stopped;
            match state.wait_for(settled).await {
                Ok(state) if state.is_ready() => {}
                _ => return false,
            }
        }
        true
    }
}
