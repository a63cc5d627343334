//! What may be chosen about a controller.

use std::{fmt, num::NonZeroU32, sync::Arc, time::Duration};

use setpoint_informer::{Cacheable, Event, Object};
use setpoint_object::GroupVersionKind;
use setpoint_workqueue::{
    AtShutdown, Group, PRIORITY_LOW, Priorities, WorkQueue, metrics::Recorder,
};
use tokio::sync::{mpsc, watch};

use super::{
    BuildError, Controller, RateLimits, Shared, options::Chosen, pace::Pace,
    rate_limits::limiter_of, stats::Counters, worker::Erased,
};
use crate::{
    client::Client,
    explain::{EXPLAINED_PASSES, Explainer},
    predicate::Predicate,
    reconciler::Reconciler,
    request::{Request, RequestKey},
    shard::Sharded,
    source::{
        Channel, DynSource, EventHandler, Foreign, Mapped, MappedByIndex, MappedObjects,
        MappedWith, Owner, Source, Sources, Unbound, Watch,
    },
};

/// How long a key is ready until it counts as one priority higher, by default.
///
/// 1 s: what the initial list brought goes behind all changes for a hundred seconds, and then no
/// storm of changes starves it (PQ-26; kubernetes-sigs/controller-runtime#3496).
pub const PRIORITY_AGEING: Duration = Duration::from_secs(1);

/// How long a controller's name may be: 63, as a label's value.
pub const CONTROLLER_NAME_CHARS_MAX: usize = 63;

/// Builds a [`Controller`]. Nothing runs before a manager runs it.
#[must_use = "a builder does nothing until `build`"]
pub struct ControllerBuilder<R = Request> {
    // What was chosen.
    name: Arc<str>,
    chosen: Chosen,
    limits: RateLimits<R>,
    groups: Option<GroupOf<R>>,
    group_in_flight_max: Option<NonZeroU32>,
    priorities: Option<Priorities>,
    low_priority: i32,
    sharded: Option<Sharded>,
    explained_passes: usize,

    // Where keys come from.
    sources: Vec<Unbound<R>>,
    foreign: Vec<Box<dyn DynSource<R>>>,
    filters: Vec<Predicate>,
    /// The type of `for_`.
    owner: Option<(GroupVersionKind, Owner)>,
    /// The first thing asked for that cannot be.
    fault: Option<Fault>,
}

/// Says whose a key is.
type GroupOf<R> = Box<dyn Fn(&R) -> Group + Send + Sync>;

#[derive(Debug, Clone, Copy)]
enum Fault {
    TwoTypes,
    OwnsWithoutType,
}

impl ControllerBuilder<Request> {
    /// The type the controller is for: keys are its objects. At most once.
    pub fn for_<K: Cacheable>(mut self, watch: Watch<K>) -> Self {
        if self.owner.is_some() {
            self.fault.get_or_insert(Fault::TwoTypes);
        }
        self.owner = Some((watch.kind(), watch.owner()));
        self.sources.push(watch.of_objects());
        self
    }

    /// A type whose objects belong to those of [`for_`](Self::for_): keys are their owners, by
    /// owner reference.
    pub fn owns<K: Cacheable>(mut self, watch: Watch<K>) -> Self {
        match self.owner.clone() {
            Some((_, owner)) => self.sources.push(watch.of_owners(owner)),
            None => _ = self.fault.get_or_insert(Fault::OwnsWithoutType),
        }
        self
    }

    /// A type that objects of `T` name, such as the Secret of a Website: keys are the objects of
    /// `T` that an index of their cache files under the key of what changed.
    ///
    /// The key is `namespace/name`, or the name of an object without a namespace. Objects of `T`
    /// are watched before, with the index:
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
    /// That `T` has no such index is an error when the controller is added to a manager.
    pub fn watches_by_index<T, K>(mut self, watch: Watch<K>, index: impl Into<Arc<str>>) -> Self
    where
        T: Cacheable,
        T::DynamicType: Default,
        K: Cacheable,
    {
        let index = index.into();
        self.sources.push(watch.handled_with(move |client| {
            MappedByIndex::<T>::new(client, &T::DynamicType::default(), index)
        }));
        self
    }
}

impl<R: RequestKey> ControllerBuilder<R> {
    pub(super) fn new(name: Arc<str>) -> Self {
        Self {
            name,
            chosen: Chosen::default(),
            limits: RateLimits::new(),
            groups: None,
            group_in_flight_max: None,
            priorities: Some(Priorities::Ageing { step: PRIORITY_AGEING }),
            low_priority: PRIORITY_LOW,
            sharded: None,
            explained_passes: EXPLAINED_PASSES,
            sources: Vec::new(),
            foreign: Vec::new(),
            filters: Vec::new(),
            owner: None,
            fault: None,
        }
    }

    /// A type whose events concern other keys: `map` says which. It runs in the informer's
    /// delivery: quick and pure, please.
    ///
    /// For an update it sees old and new; for a deletion that was missed there may be no object.
    pub fn watches<K: Cacheable>(
        self,
        watch: Watch<K>,
        map: impl Fn(&Event<K>) -> Vec<R> + Send + Sync + 'static,
    ) -> Self {
        self.handles(watch, Mapped(map))
    }

    /// [`watches`](Self::watches) whose mapping may read: it is given the manager's client, to read
    /// from the cache what the event concerns. It must be fast, and cannot wait: it is not async.
    pub fn watches_with<K: Cacheable>(
        mut self,
        watch: Watch<K>,
        map: impl Fn(&Event<K>, &Client) -> Vec<R> + Send + Sync + 'static,
    ) -> Self {
        self.sources
            .push(watch.handled_with(move |client| Ok(MappedWith { client: client.clone(), map })));
        self
    }

    /// A type whose events `handler` turns into keys, with a say in when and how urgently: see
    /// [`Enqueue`](crate::source::Enqueue).
    pub fn handles<K: Cacheable>(
        mut self,
        watch: Watch<K>,
        handler: impl EventHandler<K, R>,
    ) -> Self {
        self.sources.push(watch.handled(handler));
        self
    }

    /// A type whose objects concern the keys that `map` says: of an update, those of both sides,
    /// each once. It runs in the informer's delivery: quick and pure, please.
    ///
    /// A deletion that was missed and of which nothing is known but the key leads nowhere;
    /// [`watches`](Self::watches) sees that key.
    pub fn maps<K: Cacheable>(
        self,
        watch: Watch<K>,
        map: impl Fn(&Object<K>) -> Vec<R> + Send + Sync + 'static,
    ) -> Self {
        self.handles(watch, MappedObjects(map))
    }

    /// Keys from outside the cluster. The queue takes each as it comes, and holds it once, so the
    /// channel's bound is all that waits and its sender's back-pressure; 1024 is what
    /// controller-runtime has. Closing it ends this source and nothing else.
    pub fn channel(self, keys: mpsc::Receiver<R>) -> Self {
        self.channel_of(keys, |key| vec![key])
    }

    /// [`channel`](Self::channel) of something that concerns the keys that `map` says.
    pub fn channel_of<T: Send + 'static>(
        self,
        receiver: mpsc::Receiver<T>,
        map: impl Fn(T) -> Vec<R> + Send + 'static,
    ) -> Self {
        self.source(Channel { receiver, map })
    }

    /// Keys from anywhere: somebody's own [`Source`], or a function,
    /// [`source_fn`](crate::source::source_fn). Filters do not apply to it (BLD-5).
    pub fn source(mut self, source: impl Source<R>) -> Self {
        self.foreign.push(Box::new(Foreign(source)));
        self
    }

    /// Only events that `filter` passes, of all watches, before and after this call, those added at
    /// run time included; beside the watches' own predicates (BLD-6). Of several, all must pass an
    /// event.
    pub fn filter(mut self, filter: Predicate) -> Self {
        self.filters.push(filter);
        self
    }

    /// How many keys are reconciled at the same time. Default: 1, which zero means too.
    pub fn concurrency(mut self, n_workers: usize) -> Self {
        self.chosen.n_workers = Some(n_workers);
        self
    }

    /// How fast keys may come back: the wait after a pass that failed, for one key and over all
    /// keys, the least time between two passes, and when a key is given up. Default: 5 ms after the
    /// first failure, doubling to 1000 s, and no other limit. The last one set counts.
    pub fn rate_limiter(mut self, limits: RateLimits<R>) -> Self {
        self.limits = limits;
        self
    }

    /// Serves groups of keys in turn, within each priority, so that a storm of one tenant's keys
    /// delays no other tenant's by more than a round. Asked at each add: quick, pure and always the
    /// same for one key, please. Default: all keys are one group.
    pub fn groups(mut self, group_of: impl Fn(&R) -> Group + Send + Sync + 'static) -> Self {
        self.groups = Some(Box::new(group_of));
        self
    }

    /// At most so many keys of one [group](Self::groups) are reconciled at the same time. Default:
    /// no such limit.
    pub fn group_in_flight_max(mut self, n: NonZeroU32) -> Self {
        self.group_in_flight_max = Some(n);
        self
    }

    /// How keys of different priority are served. Default: the highest first, but waiting counts:
    /// [`PRIORITY_AGEING`]. `None` is first come, first served, whatever the priority (PQ-48).
    pub fn priorities(mut self, priorities: impl Into<Option<Priorities>>) -> Self {
        self.priorities = priorities.into();
        self
    }

    /// The priority of what is not urgent: the objects that are there at the start, and resyncs.
    /// Default: [`PRIORITY_LOW`], -100.
    pub fn low_priority(mut self, priority: i32) -> Self {
        self.low_priority = priority;
        self
    }

    /// Where its passes are traced to, as spans of OpenTelemetry. Default: what the manager says,
    /// or nowhere.
    #[cfg(feature = "otel")]
    pub fn traces(mut self, traces: crate::telemetry::Traces) -> Self {
        self.chosen.traces = Some(traces);
        self
    }

    /// Whether it reconciles only on the leader, where the manager has an election. Default: yes.
    pub fn leader_only(mut self, leader_only: bool) -> Self {
        self.chosen.leader_only = Some(leader_only);
        self
    }

    /// Whether its sources sync before this process leads, so that it takes over at once. Default:
    /// yes. Without an election, and where it is not [`leader_only`](Self::leader_only), that is
    /// how it starts in any case.
    pub fn warm_up(mut self, warm_up: bool) -> Self {
        self.chosen.warm_up = Some(warm_up);
        self
    }

    /// Runs the controller on several replicas, of which each reconciles its share of the keys; see
    /// [`shard`](crate::shard). It then runs whether or not this process leads. Default: it
    /// reconciles all keys.
    pub fn sharded(mut self, sharded: Sharded) -> Self {
        self.chosen.leader_only = Some(false);
        self.sharded = Some(sharded);
        self
    }

    /// How long the caches may take to sync before the controller, and so its manager, fails.
    /// Default: 2 min.
    ///
    /// `None` waits for ever: for a controller that may start before its type is served. The
    /// informer meanwhile logs what the server says and asks again with back-off.
    pub fn sync_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.chosen.sync_timeout = Some(timeout);
        self
    }

    /// How long one pass may take. Then its future is dropped where it waits, and that is an error,
    /// counted as a time-out too. [`Context::deadline`](crate::Context::deadline) tells it
    /// beforehand. Default: for ever.
    ///
    /// controller-runtime only sets a deadline that a reconciler may ignore (RES-10). A dropped
    /// request may still reach the server: the next pass finds what became of it, as after a crash.
    pub fn reconcile_timeout(mut self, timeout: Duration) -> Self {
        self.chosen.reconcile_timeout = Some(Some(timeout));
        self
    }

    /// How long a key rests after a pass that wrote, at most, until the caches that this controller
    /// watches show what the pass wrote. Default: 250 ms. Zero is never.
    ///
    /// So the next pass over the key reads its own writes, and their events lead to one pass
    /// instead of one each. The worker is free meanwhile. A cache that will not show a write is not
    /// waited for: one of another type, namespace or cluster, one whose label or field selector
    /// does not match the object, one that has stopped.
    /// [`ControllerStats::catch_up_timeouts`](super::ControllerStats::catch_up_timeouts) counts the
    /// keys for which this was too short.
    pub fn catch_up(mut self, max: Duration) -> Self {
        self.chosen.catch_up = Some(max);
        self
    }

    /// How many of its last passes it can [explain](crate::ControllerHandle::explain). Default:
    /// [`EXPLAINED_PASSES`]; zero turns it off.
    pub fn explain(mut self, passes_max: usize) -> Self {
        self.explained_passes = passes_max;
        self
    }

    /// Whether a pass that panics is an error like another. Default: yes; otherwise the panic ends
    /// the manager.
    pub fn recover_panics(mut self, recovers: bool) -> Self {
        self.chosen.recovers_panics = Some(recovers);
        self
    }

    /// The controller, with its reconciler.
    ///
    /// # Errors
    ///
    /// It has no name or none that suits a label, watches nothing, is for two types, or owns
    /// something without being for a type; or the figures of its rate limits make no sense (RL-14).
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
            None if self.sources.is_empty() && self.foreign.is_empty() => {
                return Err(BuildError::NoSource { name });
            }
            None => {}
        }
        let RateLimits { limiter, backoff, retries, min_interval, attempts_max } = self.limits;
        let limiter = limiter_of(limiter, backoff, retries)
            .map_err(|source| BuildError::Limiter { name: name.clone(), source })?;
        let mut chosen = self.chosen;
        chosen.attempts_max = attempts_max.map(Some);
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
            self.foreign,
        );
        let explainer = Arc::new(Explainer::new(name.clone(), self.explained_passes));
        Ok(Controller {
            reconciler: Arc::new(Erased(reconciler)),
            name,
            kind: self.owner.map(|(kind, _)| kind),
            chosen,
            sharded: self.sharded,
            pace: min_interval.map(Pace::new),
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

/// Whether a name suits labels of metrics and `managedFields`: letters and digits, with `-`, `_`,
/// `.` and `/` between them.
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
            .field("chosen", &self.chosen)
            .field("n_sources", &(self.sources.len() + self.foreign.len()))
            .finish_non_exhaustive()
    }
}
