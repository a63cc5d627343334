//! Builds informers.
use super::board::{Board, ErrorHandler};
use super::intake::ObjectIntake;
use super::processor::Processor;
use super::worker::InformerWorker;
use super::{Cacheable, Shared, SharedInformer};
use crate::backoff::{self, SPAN_MAX};
use crate::failure::Failures;
use crate::indexer::{IndexExists, IndexFn, Indexer, LABEL_INDEX, NoValues};
use crate::metrics::MetricsRegistry;
use crate::object::{AnyValue, DECODED_BYTES, Object, Pool, Untyped};
use crate::policy::CachePolicy;
use crate::reflector::{ReflectorError, ReflectorOptions};
use crate::resource_type::ResourceType;
use crate::source::{ConsistencyDetector, Inconsistency, ListWatch};
use crate::transform::{Transform, TransformError};
use bytes::Bytes;
use parking_lot::Mutex;
use rand::Rng;
use setpoint_object::{Prune, seed};
use std::any::{Any, TypeId};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// The longest quiet timeout: a day. A watch ends earlier by its own timeout.
const QUIET_TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Builds a [`SharedInformer`] and the worker that runs it.
#[must_use]
pub struct SharedInformerBuilder<K> {
    settings: Box<Settings>,
    of: PhantomData<fn() -> K>,
}

/// What to build. Compiled once for all types of objects, as what is built is.
pub(crate) struct Settings {
    source: Arc<dyn ListWatch>,
    resource_type: ResourceType,
    policy: CachePolicy,
    decoded_bytes: usize,
    resync: Duration,
    resync_spread: f64,
    indices: Vec<(Arc<str>, IndexFn)>,
    reflector: ReflectorOptions,
    prune: Option<Prune>,
    keep_managed_fields: bool,
    transform: Option<Transform>,
    on_error: Option<ErrorHandler>,
    give_up_after: Option<Duration>,
    metrics: Option<(MetricsRegistry, Arc<str>)>,
    seed: Option<u64>,
}

/// What an informer must know of the type that it is built for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ObjectType {
    pub(crate) id: TypeId,
    /// Whether its readers need metadata only.
    pub(crate) is_metadata: bool,
    decode: fn(&[u8]) -> Option<AnyValue>,
    ids: fn(&(dyn Any + Send + Sync)) -> (&str, &str),
}

impl ObjectType {
    pub(crate) fn of<K: Cacheable>() -> Self {
        Self {
            id: TypeId::of::<K>(),
            is_metadata: K::metadata_api(),
            decode: decode_value::<K>,
            ids: ids_of::<K>,
        }
    }
}

impl<K> fmt::Debug for SharedInformerBuilder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedInformerBuilder")
            .field("resource", &self.settings.resource_type.to_string())
            .field("policy", &self.settings.policy)
            .field("resync", &self.settings.resync)
            .field("reflector", &self.settings.reflector)
            .finish_non_exhaustive()
    }
}

impl<K: Cacheable> SharedInformerBuilder<K> {
    pub(crate) fn new(source: Arc<dyn ListWatch>, resource_type: ResourceType) -> Self {
        Self::from_settings(Box::new(Settings::new(source, resource_type)))
    }

    pub(crate) fn from_settings(settings: Box<Settings>) -> Self {
        Self { settings, of: PhantomData }
    }

    pub(crate) fn into_settings(self) -> Box<Settings> {
        self.settings
    }

    /// How the cache stores objects. Default: [`CachePolicy::Compact`].
    pub fn policy(mut self, policy: CachePolicy) -> Self {
        self.settings.policy = policy;
        self
    }

    /// The largest size of the decoded objects that are kept for their next readers, in bytes;
    /// about, by their texts, lists and maps. One value may take an eighth of it. Default:
    /// [`DECODED_BYTES`]; zero is none. Without effect under [`CachePolicy::Decoded`].
    pub fn decoded_bytes(mut self, n_bytes: usize) -> Self {
        self.settings.decoded_bytes = n_bytes;
        self
    }

    /// Removes fields from every object while it is copied into the cache, which costs next to
    /// nothing. Default: removes `metadata.managedFields` only; see
    /// [`keep_managed_fields`](Self::keep_managed_fields).
    pub fn prune(mut self, prune: Prune) -> Self {
        self.settings.prune = Some(prune);
        self
    }

    /// Whether the cache keeps `metadata.managedFields`. Default: no. They are often a third of an
    /// object, and few controllers read them.
    ///
    /// Without them an update of a cached object is safe: a `PUT` whose body has no `managedFields`
    /// keeps the owners on the server, and a server-side apply must not send them. Keep them to
    /// read who owns which field. [`CachePolicy::Metadata`] never keeps them.
    pub fn keep_managed_fields(mut self, keep: bool) -> Self {
        self.settings.keep_managed_fields = keep;
        self
    }

    /// How often handlers get every cached object again, without a request to the server (REF-40).
    /// Default: zero, never.
    pub fn resync(mut self, period: Duration) -> Self {
        self.settings.resync = period;
        self
    }

    /// Makes the resync period randomly shorter or longer by up to this fraction: 0.1 is ± 10 %. So
    /// informers and replicas that start together do not resync together. Default: 0.
    pub fn resync_spread(mut self, fraction: f64) -> Self {
        self.settings.resync_spread = fraction.clamp(0.0, 1.0);
        self
    }

    /// Adds an index over typed objects. Under `Compact` each write then decodes the object once.
    /// An object that does not fit `K` has no values in the index, which is reported:
    /// [`InformerStatus::unindexed`](crate::InformerStatus::unindexed).
    pub fn index(
        mut self,
        name: impl Into<Arc<str>>,
        function: impl Fn(&K) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        self.settings.indices.push((name.into(), typed(function)));
        self
    }

    /// Adds an index over objects that are not decoded: by owner uid, label, or another part of a
    /// skim.
    pub fn object_index(
        mut self,
        name: impl Into<Arc<str>>,
        function: impl Fn(&Object<K>) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        self.settings.indices.push((name.into(), untyped(function)));
        self
    }

    /// Adds the index by labels, [`LABEL_INDEX`](crate::indexer::LABEL_INDEX): a read by a label
    /// selector that requires one value of a label looks only at objects with that label. Decodes
    /// nothing; costs about 20 bytes per object and label.
    pub fn label_index(mut self) -> Self {
        self.settings.indices.push((LABEL_INDEX.into(), IndexFn::by_labels::<K>()));
        self
    }

    /// The first and the longest wait between failures, before jitter. Default:
    /// [`BACKOFF_MIN`](crate::backoff::BACKOFF_MIN) and
    /// [`BACKOFF_MAX`](crate::backoff::BACKOFF_MAX).
    pub fn backoff(mut self, min: Duration, max: Duration) -> Self {
        self.settings.reflector.backoff_min = min;
        self.settings.reflector.backoff_max = max;
        self
    }

    /// Objects per page of all lists (REF-1 d). Default: by REF-1.
    pub fn page_size(mut self, page_size: u32) -> Self {
        self.settings.reflector.page_size = Some(page_size);
        self
    }

    /// How long a watch may bring nothing, not even a bookmark, before another one is opened, and
    /// how long a request for a watch may wait for its answer. Zero turns it off: a watch then ends
    /// by its own timeout. Default:
    /// [`WATCH_QUIET_TIMEOUT`](crate::reflector::WATCH_QUIET_TIMEOUT), 90 s.
    ///
    /// Servers send a bookmark every minute or so. A shorter time opens many watches for nothing.
    pub fn watch_quiet_timeout(mut self, timeout: Duration) -> Self {
        let timeout = timeout.min(QUIET_TIMEOUT_MAX);
        self.settings.reflector.watch_quiet_timeout = (!timeout.is_zero()).then_some(timeout);
        self
    }

    /// All options of the reflector.
    pub fn reflector(mut self, options: ReflectorOptions) -> Self {
        self.settings.reflector = options;
        self
    }

    /// Changes every object before it is cached, after [`prune`](Self::prune), which removes fields
    /// at less cost. The last call counts. See [`Transform`].
    pub fn transform(
        mut self,
        transform: impl Fn(Bytes) -> Result<Bytes, TransformError> + Send + Sync + 'static,
    ) -> Self {
        self.settings.transform = Some(Arc::new(transform));
        self
    }

    /// Called with every failure, besides the log and [`SharedInformer::status`]. Must return fast.
    /// The last call counts.
    pub fn on_error(mut self, handler: impl Fn(&ReflectorError) + Send + Sync + 'static) -> Self {
        self.settings.on_error = Some(Arc::new(handler));
        self
    }

    /// Stops the informer when all answers for this long were 403 or 404: the type is no longer
    /// served or may not be read (k/k#79610). Sets
    /// [`InformerStatus::has_given_up`](crate::InformerStatus). Default: never; the informer goes
    /// on trying and recovers by itself.
    pub fn give_up_after(mut self, patience: Duration) -> Self {
        self.settings.give_up_after = Some(patience);
        self
    }

    /// Reports metrics under this informer name, unless a running informer of the same resource
    /// does so already (2.7). The name is a label: a program should have few. Logs of failures have
    /// it too.
    pub fn metrics(mut self, registry: &MetricsRegistry, informer: impl Into<Arc<str>>) -> Self {
        self.settings.metrics = Some((registry.clone(), informer.into()));
        self
    }

    /// Compares each streamed list with a list at exactly its version, and calls `report` if they
    /// differ (FAC-9), to find faults of servers; see [`ConsistencyDetector`]. Default: no.
    pub fn detect_inconsistency(
        mut self,
        report: impl Fn(&Inconsistency) + Send + Sync + 'static,
    ) -> Self {
        let source = self.settings.source.clone();
        self.settings.source = Arc::new(ConsistencyDetector::new(source, report));
        self
    }

    /// The seed of the informer's jitter and watch timeouts, for a simulation. Default: the
    /// operating system's entropy, so that processes that fail together do not retry together.
    pub fn seed(mut self, seed: u64) -> Self {
        self.settings.seed = Some(seed);
        self
    }

    /// The informer and its worker. Starts nothing.
    ///
    /// # Panics
    /// If two indexes have one name, or if there is no seed and the operating system has no
    /// randomness.
    pub fn build(self) -> (SharedInformer<K>, InformerWorker) {
        match self.try_build() {
            Ok(built) => built,
            Err(error) => panic!("{error}"),
        }
    }

    /// [`build`](Self::build), if index names may not be distinct.
    ///
    /// # Errors
    /// If two indexes have one name (IDX-6).
    pub fn try_build(self) -> Result<(SharedInformer<K>, InformerWorker), IndexExists> {
        let (informer, worker) = self.settings.try_build(ObjectType::of::<K>())?;
        Ok((informer.cast(), worker))
    }
}

impl Settings {
    pub(crate) fn new(source: Arc<dyn ListWatch>, resource_type: ResourceType) -> Self {
        Self {
            source,
            resource_type,
            policy: CachePolicy::default(),
            decoded_bytes: DECODED_BYTES,
            resync: Duration::ZERO,
            resync_spread: 0.0,
            indices: Vec::new(),
            reflector: ReflectorOptions::default(),
            prune: None,
            keep_managed_fields: false,
            transform: None,
            on_error: None,
            give_up_after: None,
            metrics: None,
            seed: None,
        }
    }

    /// Whether the cache stores values of a type, which readers of other types cannot use.
    pub(crate) fn holds_values(&self) -> bool {
        self.policy == CachePolicy::Decoded
    }

    /// The informer of a type, whose readers are of any type, and its worker.
    pub(crate) fn try_build(
        self,
        of: ObjectType,
    ) -> Result<(SharedInformer<Untyped>, InformerWorker), IndexExists> {
        for (n, (name, function)) in self.indices.iter().enumerate() {
            if !function.may_have(name) || self.indices[..n].iter().any(|(other, _)| other == name)
            {
                return Err(IndexExists(name.clone()));
            }
        }
        let values_of = self.holds_values().then_some(of.id);
        let name = self.metrics.as_ref().map(|(_, informer)| informer.clone()).unwrap_or_default();
        let reserved = self.metrics.and_then(|(registry, informer)| {
            registry.reserve(informer, &self.resource_type.resource)
        });
        let metrics = reserved.as_ref().map(|reserved| reserved.metrics().clone());
        let resource = self.resource_type.to_string();
        let board = Arc::new(Board::new(resource, name, self.on_error, metrics.clone()));
        let mut indexer = Indexer::<Untyped>::new();
        indexer.failures = Failures::new(board.clone());
        // The names are distinct and there are no objects, so this cannot fail.
        let added = indexer.add_raw_indices(self.indices);
        debug_assert!(added.is_ok());
        let lister = indexer.lister();
        let seed = self.seed.unwrap_or_else(seed::from_entropy);
        let resync = spread(self.resync, self.resync_spread, seed);
        let shared = Arc::new(Shared {
            resource_type: self.resource_type,
            selection: self.source.selection(),
            values_of,
            lister,
            processor: Mutex::new(Processor::new(indexer, resync, metrics)),
            board,
            pool: Pool::new(self.policy, self.decoded_bytes, Some(of.ids)),
            wake: Notify::new(),
        });
        let rng = backoff::rng(seed, 1);
        let prune = match (self.prune, self.keep_managed_fields) {
            (prune, true) => prune,
            (None, false) => Some(Prune::managed_fields()),
            (Some(prune), false) => Some(prune.and_managed_fields()),
        };
        let intake = ObjectIntake::new(
            shared.resource_type.clone(),
            prune,
            self.transform,
            (shared.pool.clone(), of.decode),
            Failures::new(shared.board.clone()),
            shared.lister.clone(),
        );
        let worker = InformerWorker::new(shared.clone(), self.source, self.reflector, intake, rng)
            .give_up_after(self.give_up_after)
            .metrics(reserved);
        Ok((SharedInformer(shared, PhantomData), worker))
    }
}

/// `period`, shorter or longer by up to `fraction` of it; zero stays zero.
fn spread(period: Duration, fraction: f64, seed: u64) -> Duration {
    if fraction == 0.0 {
        return period.min(SPAN_MAX);
    }
    let factor = 1.0 - fraction + 2.0 * fraction * backoff::rng(seed, 13).random::<f64>();
    Duration::try_from_secs_f64(period.as_secs_f64() * factor)
        .map_or(SPAN_MAX, |period| period.min(SPAN_MAX))
}

/// Adapts an index function over typed objects.
pub(super) fn typed<K: Cacheable>(
    function: impl Fn(&K) -> Vec<String> + Send + Sync + 'static,
) -> IndexFn {
    IndexFn::new(move |object, looked| match looked.get::<K>(object) {
        Ok(object) => Ok(function(&object)),
        Err(error) => Err(NoValues::Undecodable(error)),
    })
}

/// Adapts an index function over objects of a type.
pub(super) fn untyped<K: 'static>(
    function: impl Fn(&Object<K>) -> Vec<String> + Send + Sync + 'static,
) -> IndexFn {
    IndexFn::new(move |object, _| Ok(function(&object.cast())))
}

/// uid and resourceVersion of a value of [`decode_value`].
fn ids_of<K: Cacheable>(value: &(dyn Any + Send + Sync)) -> (&str, &str) {
    fn text(text: &Option<String>) -> &str {
        text.as_deref().unwrap_or_default()
    }
    value.downcast_ref().map_or_else(Default::default, |value: &K| {
        let meta = value.meta();
        (text(&meta.uid), text(&meta.resource_version))
    })
}

fn decode_value<K: Cacheable>(json: &[u8]) -> Option<AnyValue> {
    let value: K = crate::decode::from_slice(json).ok()?;
    Some(Arc::new(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resync_periods_are_spread_by_the_seed_and_zero_stays_off() {
        let period = Duration::from_secs(36_000);
        let spread_of = |seed| spread(period, 0.1, seed);
        let all: Vec<Duration> = (0..1000).map(spread_of).collect();
        let (min, max) = (*all.iter().min().unwrap(), *all.iter().max().unwrap());
        assert!((period.mul_f64(0.9)..period.mul_f64(0.92)).contains(&min), "{min:?}");
        assert!((period.mul_f64(1.08)..period.mul_f64(1.1)).contains(&max), "{max:?}");
        assert_eq!(spread_of(7), spread_of(7));
        assert_eq!(spread(Duration::ZERO, 0.1, 7), Duration::ZERO);
        assert_eq!(spread(period, 0.0, 7), period);
    }
}
