//! What a manager's members share, for whoever adds to it.

use std::{fmt, future::Future, sync::Arc};

use futures::{FutureExt, future::join_all};
use parking_lot::Mutex;
use setpoint_informer::MetricsRegistry;
use setpoint_object::time::Clock;
use tokio_util::sync::CancellationToken;

use super::{
    AddError, Elected, Readiness,
    roster::{Member, Roster},
    runnable::{Group, Run, Runnable},
};
use crate::{
    cache::Cache,
    client::Client,
    cluster::Cluster,
    controller::{Controller, ControllerDefaults, ControllerHandle, Environment},
    election::Leadership,
    events::{Broadcaster, EventRecorder},
    explain::Explanation,
    mapper::Mapper,
    metrics::Metrics,
    reconciler::BoxError,
    request::RequestKey,
};

/// A way into a manager, before and while it runs: adds members, stops single ones, asks how it
/// does. Cheap to clone.
///
/// It owns nothing: every task belongs to [`Manager::run`](crate::Manager::run). After the stop has
/// begun nothing can be added.
#[derive(Clone)]
pub struct ManagerHandle {
    pub(super) environment: Arc<ManagerEnvironment>,
    pub(super) roster: Arc<Roster>,
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
    /// Where informers tell of themselves.
    pub(super) informers: Option<MetricsRegistry>,
    pub(super) field_manager: Arc<str>,
    pub(super) clusters: Mutex<Vec<Cluster>>,
}

impl ManagerHandle {
    pub(super) fn new(environment: ManagerEnvironment) -> Self {
        Self {
            environment: Arc::new(environment),
            roster: Arc::default(),
            synced: CancellationToken::new(),
            elected: CancellationToken::new(),
        }
    }

    /// Adds a controller; the types it watches are cached from now on. In a manager that runs it
    /// starts at once, or when this process is elected (MGR-9).
    ///
    /// # Errors
    ///
    /// There is a member of that name, there are too many, or the manager stops; or an index that a
    /// watch of the controller declares cannot be had.
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
        Ok(handle)
    }

    /// Adds another task; see [`Runnable`] for when it runs.
    ///
    /// # Errors
    ///
    /// There is a member of that name, there are too many, or the manager stops.
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

    /// Asks one member to stop, and says whether there is one of that name. The others go on. A
    /// controller ends when its passes have, and takes its handlers off the informers; what it
    /// watched stays cached. When it has ended its name is free.
    pub fn remove(&self, name: &str) -> bool {
        self.roster.remove(name)
    }

    /// The client that controllers get, under the manager's own field manager.
    pub fn client(&self) -> &Client {
        &self.environment.client
    }

    /// The client for work that only the leader may do: what it writes leaves this process only
    /// while the lease is held. Controllers that run on the leader get it; tasks that do should
    /// write through it. Without an election it is [`client`](Self::client).
    pub fn leader_client(&self) -> Client {
        let client = &self.environment.client;
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

    /// Which resource a kind is at the manager's own cluster.
    pub fn mapper(&self) -> &Mapper {
        &self.environment.mapper
    }

    /// A recorder of events in the name of `component`.
    pub fn recorder(&self, component: impl Into<Arc<str>>) -> EventRecorder {
        self.environment.broadcaster.recorder(component.into())
    }

    /// The further clusters that were added.
    pub fn clusters(&self) -> Vec<Cluster> {
        self.environment.clusters.lock().clone()
    }

    /// Where the manager's dates come from.
    pub fn clock(&self) -> &Clock {
        &self.environment.clock
    }

    /// What the manager tells about itself, to be read, served or added to.
    pub fn metrics(&self) -> Metrics {
        self.environment.metrics.clone()
    }

    /// The views of the controllers added so far and not removed.
    pub fn controllers(&self) -> Vec<ControllerHandle> {
        self.roster.controllers()
    }

    /// Why the last passes over a key of a controller ran, by the controller's name and the key as
    /// it displays; `None` if there is no such controller. See [`ControllerHandle::explain`].
    pub fn explain(&self, controller: &str, key: &str) -> Option<Vec<Explanation>> {
        let controllers = self.controllers();
        let controller = controllers.iter().find(|handle| handle.name() == controller)?;
        Some(controller.explain_text(key))
    }

    /// Whether the controllers added so far reconcile, to be awaited by any number of tasks.
    pub fn readiness(&self) -> Readiness {
        Readiness::new(self.controllers())
    }

    /// Whether this process leads, to be awaited by any number of tasks.
    pub fn elected(&self) -> Elected {
        Elected::new(self.elected.clone())
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

impl ManagerEnvironment {
    /// A member's share of the seed.
    pub(super) fn seed_of(&self, name: &str) -> u64 {
        use std::hash::{DefaultHasher, Hasher};
        // A hasher with fixed keys: the same name has the same share in each process.
        let mut hasher = DefaultHasher::new();
        hasher.write(name.as_bytes());
        self.seed ^ hasher.finish()
    }

    /// Waits until the caches that somebody asked for by name have synced, or ended.
    pub(super) fn caches_synced(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut all = vec![self.cache.synced().boxed()];
        all.extend(self.clusters.lock().iter().map(|cluster| cluster.cache().synced().boxed()));
        join_all(all).map(drop)
    }
}
