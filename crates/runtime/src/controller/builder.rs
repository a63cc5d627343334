//! Builds controllers.

use std::{fmt, num::NonZeroU32, sync::Arc, time::Duration};

use setpoint_informer::{Cacheable, Event, Object};
use setpoint_object::GroupVersionKind;
use setpoint_workqueue::{
    AtShutdown, Group, PRIORITY_LOW, Priorities, WorkQueue, metrics::Recorder,
};
use tokio::sync::{mpsc, watch};

use super::{
    BuildError, Controller, RateLimits, Shared,
    options::{Overrides, limiter_of},
    passes::Erased,
    stats::Counters,
    worker::MinInterval,
};
use crate::{
    client::Client,
    cluster::Cluster,
    explain::{EXPLAINED_PASSES, Explainer},
    predicate::Predicate,
    reconciler::Reconciler,
    request::{Request, RequestKey},
    shard::Sharded,
    source::{
        Channel, DynSource, Engage, EngageFn, EventHandler, External, Mapped, MappedByIndex,
        MappedObjects, MappedWith, Owner, Source, Sources, Unbound, Watch, WatchError, Watches,
    },
};

/// By default, how long a key must be ready to count as one priority higher.
///
/// 1 s: keys of the initial list come after all changes for a hundred seconds. After that, changes
/// cannot starve them (PQ-26; kubernetes-sigs/controller-runtime#3496).
pub const PRIORITY_AGEING: Duration = Duration::from_secs(1);

/// The longest name of a controller: 63 characters, as a label's value.
pub const CONTROLLER_NAME_CHARS_MAX: usize = 63;

/// Builds a [`Controller`]. Nothing runs before a manager runs it.
#[must_use = "a builder does nothing until `build`"]
pub struct ControllerBuilder<R = Request> {
    // Options.
    name: Arc<str>,
    overrides: Overrides,
    limits: RateLimits<R>,
    groups: Option<GroupOf<R>>,
    group_in_flight_max: Option<NonZeroU32>,
    priorities: Option<Priorities>,
    low_priority: i32,
    sharded: Option<Sharded>,
    explained_passes: usize,

    // Sources of keys.
    sources: Vec<Unbound<R>>,
    external: Vec<Box<dyn DynSource<R>>>,
    filters: Vec<Predicate>,
    engage: Vec<EngageFn<R>>,
    /// The type of `for_`.
    owner: Option<(GroupVersionKind, Owner)>,
    /// The first invalid call.
    fault: Option<Fault>,
}

/// Returns the group of a key.
type GroupOf<R> = Box<dyn Fn(&R) -> Group + Send + Sync>;

#[derive(Debug, Clone, Copy)]
enum Fault {
    TwoTypes,
    OwnsWithoutType,
}

impl ControllerBuilder<Request> {
    /// The type the controller is for: its objects' keys are the controller's keys. At most once.
    pub fn for_<K: Cacheable>(mut self, watch: Watch<K>) -> Self {
        if self.owner.is_some() {
            self.fault.get_or_insert(Fault::TwoTypes);
        }
        self.owner = Some((watch.kind(), watch.owner()));
        self.sources.push(watch.of_objects());
        self
    }

    /// A type whose objects are owned by those of [`for_`](Self::for_). The owners' keys are added,
    /// by owner reference.
    pub fn owns<K: Cacheable>(mut self, watch: Watch<K>) -> Self {
        match self.owner.clone() {
            Some((_, owner)) => self.sources.push(watch.of_owners(owner)),
            None => _ = self.fault.get_or_insert(Fault::OwnsWithoutType),
        }
        self
    }

    /// A type that objects of `T` refer to, such as the Secret of a Website. An index of `T`'s
    /// cache finds the objects that refer to the changed one; their keys are added.
    ///
    /// The index value is `namespace/name`, or the name of an object without a namespace. Watch `T`
    /// before, with the index:
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::{Pod, Secret};
    /// # use setpoint_runtime::{Controller, Watch};
    /// /// The Secrets of a Pod's environment, as `namespace/name`.
    /// fn secrets(pod: &Pod) -> Vec<String> {
    ///     let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    ///     let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    ///     let sources = containers.flat_map(|container| container.env_from.iter().flatten());
    ///     let names = sources.filter_map(|source| Some(&source.secret_ref.as_ref()?.name));
    ///     names.map(|name| format!("{namespace}/{name}")).collect()
    /// }
    ///
    /// let controller = Controller::builder("pods")
    ///     .for_(Watch::<Pod>::new().index("secrets", secrets))
    ///     .watches_by_index::<Pod, _>(Watch::<Secret>::new(), "secrets");
    /// ```
    ///
    /// The index is of the cluster that `watch` watches; if there is none, of the manager's own
    /// cluster. If `T` has no such index, adding the controller to a manager fails.
    pub fn watches_by_index<T, K>(mut self, watch: Watch<K>, index: impl Into<Arc<str>>) -> Self
    where
        T: Cacheable,
        T::DynamicType: Default,
        K: Cacheable,
    {
        let index = index.into();
        self.sources.push(watch.handled_with(move |client, cache| {
            MappedByIndex::<T>::new([cache, client.cache()], &T::DynamicType::default(), index)
        }));
        self
    }
}

impl<R: RequestKey> ControllerBuilder<R> {
    pub(super) fn new(name: Arc<str>) -> Self {
        Self {
            name,
            overrides: Overrides::default(),
            limits: RateLimits::new(),
            groups: None,
            group_in_flight_max: None,
            priorities: Some(Priorities::Ageing { step: PRIORITY_AGEING }),
            low_priority: PRIORITY_LOW,
            sharded: None,
            explained_passes: EXPLAINED_PASSES,
            sources: Vec::new(),
            external: Vec::new(),
            filters: Vec::new(),
            engage: Vec::new(),
            owner: None,
            fault: None,
        }
    }

    /// A type whose events concern other keys; `map` returns them. It runs in the informer's
    /// delivery: it must be fast and free of side effects.
    ///
    /// An update has the old and the new object. A missed deletion may have no object.
    pub fn watches<K: Cacheable>(
        self,
        watch: Watch<K>,
        map: impl Fn(&Event<K>) -> Vec<R> + Send + Sync + 'static,
    ) -> Self {
        self.handles(watch, Mapped(map))
    }

    /// [`watches`](Self::watches) with a `map` that also gets the manager's client, to read from
    /// the cache. It must be fast. It cannot wait, as it is not async.
    pub fn watches_with<K: Cacheable>(
        mut self,
        watch: Watch<K>,
        map: impl Fn(&Event<K>, &Client) -> Vec<R> + Send + Sync + 'static,
    ) -> Self {
        self.sources.push(
            watch.handled_with(move |client, _| Ok(MappedWith { client: client.clone(), map })),
        );
        self
    }

    /// A type whose events `handler` turns into keys, with delays and priorities of its choice: see
    /// [`Enqueue`](crate::source::Enqueue).
    pub fn handles<K: Cacheable>(
        mut self,
        watch: Watch<K>,
        handler: impl EventHandler<K, R>,
    ) -> Self {
        self.sources.push(watch.handled(handler));
        self
    }

    /// A type whose objects concern other keys; `map` returns them. For an update it is called for
    /// both sides, and each key is added once. It runs in the informer's delivery: it must be fast
    /// and free of side effects.
    ///
    /// Adds nothing for a missed deletion of which only the key is known;
    /// [`watches`](Self::watches) gets that key.
    pub fn maps<K: Cacheable>(
        self,
        watch: Watch<K>,
        map: impl Fn(&Object<K>) -> Vec<R> + Send + Sync + 'static,
    ) -> Self {
        self.handles(watch, MappedObjects(map))
    }

    /// Keys from outside the cluster. The queue takes each key at once and holds it once, so only
    /// the channel's bound limits what waits, and its sender gets the back-pressure.
    /// controller-runtime uses 1024. Closing the channel ends this source only.
    pub fn channel(self, keys: mpsc::Receiver<R>) -> Self {
        self.channel_of(keys, |key| vec![key])
    }

    /// [`channel`](Self::channel) of other values; `map` returns their keys. If it panics, the
    /// value is lost: see the [module](crate::source).
    pub fn channel_of<T: Send + 'static>(
        mut self,
        receiver: mpsc::Receiver<T>,
        map: impl Fn(T) -> Vec<R> + Send + 'static,
    ) -> Self {
        self.external.push(Box::new(Channel::new(receiver, map)));
        self
    }

    /// Keys from a custom [`Source`], or a function, [`source_fn`](crate::source::source_fn).
    /// Filters do not apply to it (BLD-5).
    pub fn source(mut self, source: impl Source<R>) -> Self {
        self.external.push(Box::new(External(source)));
        self
    }

    /// Watches each cluster that the manager has or gets besides its own. `engage` adds the
    /// watches: it is called once per cluster, when both the controller and the cluster are in the
    /// manager, whichever is added first.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use setpoint_runtime::{Controller, Request, Watch};
    /// # #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    /// # struct Place { cluster: String, object: Request }
    /// # impl std::fmt::Display for Place {
    /// #     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { write!(f, "{}", self.object) }
    /// # }
    /// let controller = Controller::<Place>::builder_of("copier").each_cluster(|cluster, watches| {
    ///     let name = cluster.name().to_owned();
    ///     watches.watch(Watch::<ConfigMap>::new().cluster(cluster), move |event| {
    ///         vec![Place { cluster: name.clone(), object: event.key().clone() }]
    ///     })?;
    ///     Ok(())
    /// });
    /// ```
    ///
    /// The start of the controller does not wait for these watches: a cluster that cannot be
    /// reached delays and fails nothing. They end with their cluster. If `engage` fails, what was
    /// being added, the controller or the cluster, is not added.
    pub fn each_cluster(
        mut self,
        engage: impl Fn(&Cluster, &Watches<R>) -> Result<(), WatchError> + Send + Sync + 'static,
    ) -> Self {
        self.engage.push(Box::new(engage));
        self
    }

    /// Passes only events that match `filter`, for all watches of the controller: added before or
    /// after this call, or at run time. Applies in addition to the watches' own predicates (BLD-6).
    /// An event must pass all filters.
    pub fn filter(mut self, filter: Predicate) -> Self {
        self.filters.push(filter);
        self
    }

    /// How many keys are reconciled concurrently. Default: 1; zero means 1 too.
    pub fn concurrency(mut self, n_workers: usize) -> Self {
        self.overrides.n_workers = Some(n_workers);
        self
    }

    /// Limits how fast keys come back: back-off after failures per key and over all keys, the
    /// minimum time between two passes, and when a key is given up. Default: 5 ms after the first
    /// failure, doubling to 1000 s; no other limit. The last call applies.
    pub fn rate_limiter(mut self, limits: RateLimits<R>) -> Self {
        self.limits = limits;
        self
    }

    /// Serves groups of keys in turn, within each priority, so that a burst of one tenant's keys
    /// delays another tenant's by at most one round. `group_of` is called at each add. It must be
    /// fast, free of side effects, and always return the same group for a key. Default: one group.
    pub fn groups(mut self, group_of: impl Fn(&R) -> Group + Send + Sync + 'static) -> Self {
        self.groups = Some(Box::new(group_of));
        self
    }

    /// How many keys of one [group](Self::groups) are reconciled concurrently, at most. Default: no
    /// limit.
    pub fn group_in_flight_max(mut self, n: NonZeroU32) -> Self {
        self.group_in_flight_max = Some(n);
        self
    }

    /// How keys of different priorities are served. Default: the highest first, and waiting keys
    /// rise: [`PRIORITY_AGEING`]. `None`: in order of arrival, whatever the priority (PQ-48).
    pub fn priorities(mut self, priorities: impl Into<Option<Priorities>>) -> Self {
        self.priorities = priorities.into();
        self
    }

    /// The low priority: of the objects in the initial list, and of resyncs. Default:
    /// [`PRIORITY_LOW`], -100.
    pub fn low_priority(mut self, priority: i32) -> Self {
        self.low_priority = priority;
        self
    }

    /// Where to send traces of its passes, as OpenTelemetry spans. Default: the manager's setting,
    /// or nowhere.
    #[cfg(feature = "otel")]
    pub fn traces(mut self, traces: crate::telemetry::Traces) -> Self {
        self.overrides.traces = Some(traces);
        self
    }

    /// Whether it reconciles only on the leader, if the manager has an election. Default: yes.
    pub fn leader_only(mut self, leader_only: bool) -> Self {
        self.overrides.leader_only = Some(leader_only);
        self
    }

    /// Whether its sources sync before this process leads, so that it can take over at once.
    /// Default: yes. Without an election, or if not [`leader_only`](Self::leader_only), its sources
    /// sync at the start in any case.
    pub fn warm_up(mut self, warm_up: bool) -> Self {
        self.overrides.warm_up = Some(warm_up);
        self
    }

    /// Runs the controller on several replicas; each reconciles its share of the keys. See
    /// [`shard`](crate::shard). It then runs whether or not this process leads. Default: it
    /// reconciles all keys.
    pub fn sharded(mut self, sharded: Sharded) -> Self {
        self.overrides.leader_only = Some(false);
        self.sharded = Some(sharded);
        self
    }

    /// How long the caches may take to sync before the controller, and so its manager, fails.
    /// Default: 2 min.
    ///
    /// `None` waits for ever: for a controller that may start before its type is served. Meanwhile
    /// the informer logs the server's error and retries with back-off.
    pub fn sync_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.overrides.sync_timeout = Some(timeout);
        self
    }

    /// How long one pass may take. After that its future is dropped, and the pass counts as an
    /// error and as a time-out. [`Context::deadline`](crate::Context::deadline) returns the time.
    /// Default: no limit.
    ///
    /// controller-runtime only sets a deadline that a reconciler may ignore (RES-10). A request of
    /// a dropped pass may still reach the server. As after a crash, the next pass finds its result.
    pub fn reconcile_timeout(mut self, timeout: Duration) -> Self {
        self.overrides.reconcile_timeout = Some(Some(timeout));
        self
    }

    /// After a pass that wrote or deleted, holds its key back until the caches that this controller
    /// watches show it, for at most this time. Default: 250 ms. Zero: never.
    ///
    /// So the next pass over the key reads its own writes, and their events lead to one pass
    /// instead of one each. The worker reconciles other keys meanwhile. Caches that will never show
    /// a write are not waited for: of another type, namespace or cluster, with a label or field
    /// selector that does not match the object, or stopped.
    /// [`ControllerStats::catch_up_timeouts`](super::ControllerStats::catch_up_timeouts) counts the
    /// keys for which the time was too short.
    pub fn catch_up(mut self, max: Duration) -> Self {
        self.overrides.catch_up = Some(max);
        self
    }

    /// How many of its last passes it can [explain](crate::ControllerHandle::explain). Default:
    /// [`EXPLAINED_PASSES`]; zero disables it.
    pub fn explain(mut self, passes_max: usize) -> Self {
        self.explained_passes = passes_max;
        self
    }

    /// Whether a pass that panics counts as a failed pass. Default: yes. Otherwise the panic stops
    /// the manager.
    pub fn recover_panics(mut self, recovers: bool) -> Self {
        self.overrides.recovers_panics = Some(recovers);
        self
    }

    /// Builds the controller with its reconciler.
    ///
    /// # Errors
    ///
    /// The name is empty or no valid label, there is nothing to watch, `for_` was called twice,
    /// `owns` was called without `for_`, or the figures of the rate limits are invalid (RL-14).
    pub fn build(self, reconciler: impl Reconciler<R>) -> Result<Controller<R>, BuildError> {
        let name = self.name;
        if name.is_empty() {
            return Err(BuildError::NoName);
        }
        if !is_label(&name) {
            return Err(BuildError::Name { name });
        }
        match self.fault {
            Some(Fault::TwoTypes) => return Err(BuildError::TwoTypes { name }),
            Some(Fault::OwnsWithoutType) => return Err(BuildError::OwnsWithoutType { name }),
            None if self.sources.is_empty()
                && self.external.is_empty()
                && self.engage.is_empty() =>
            {
                return Err(BuildError::NoSource { name });
            }
            None => {}
        }
        let RateLimits { limiter, backoff, retries, min_interval, attempts_max } = self.limits;
        let limiter = limiter_of(limiter, backoff, retries)
            .map_err(|source| BuildError::Limiter { name: name.clone(), source })?;
        let mut overrides = self.overrides;
        overrides.attempts_max = attempts_max.map(Some);
        let recorder = Arc::new(Recorder::new());
        let mut queue = WorkQueue::builder()
            .rate_limiter(limiter)
            .metrics(recorder.clone())
            .at_shutdown(AtShutdown::Abandon);
        if let Some(priorities) = self.priorities {
            queue = queue.priorities(priorities);
        }
        if let Some(group_of) = self.groups {
            queue = queue.groups(group_of);
        }
        if let Some(n) = self.group_in_flight_max {
            queue = queue.group_in_flight_max(n);
        }
        let queue = queue.build();
        let sources = Sources::new(
            queue.clone(),
            self.low_priority,
            self.filters,
            self.sources,
            self.external,
            Engage::new(self.engage),
        );
        let explainer = Arc::new(Explainer::new(name.clone(), self.explained_passes));
        Ok(Controller {
            reconciler: Arc::new(Erased(reconciler)),
            name,
            kind: self.owner.map(|(kind, _)| kind),
            overrides,
            sharded: self.sharded,
            min_interval: min_interval.map(MinInterval::new),
            sources: Arc::new(sources),
            queue,
            explainer,
            shared: Arc::new(Shared {
                state: watch::Sender::default(),
                counters: Counters::default(),
                recorder,
            }),
        })
    }
}

/// Whether a name is valid in metrics labels and `managedFields`: letters and digits, with `-`,
/// `_`, `.` and `/` between them.
fn is_label(name: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    let bytes = name.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    name.len() <= CONTROLLER_NAME_CHARS_MAX
        && bytes.iter().all(|byte| is_inner(*byte))
        && ends.iter().all(|end| end.is_some_and(u8::is_ascii_alphanumeric))
}

impl<R> fmt::Debug for ControllerBuilder<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerBuilder")
            .field("name", &self.name)
            .field("overrides", &self.overrides)
            .field("n_sources", &(self.sources.len() + self.external.len()))
            .finish_non_exhaustive()
    }
}
