//! The registry: one write path, one read path, every resource.
use crate::admission::{self, Admission};
use crate::allocate::Allocator;
use crate::authorize::{self, Authorizer};
use crate::conversion::ConversionProvider;
use crate::followed::Followed;
use crate::kind::CompiledKind;
use crate::origins::Origins;
use crate::shared::Inner;
use crate::threads::Threads;
use crate::{bootstrap, cache, crd, foreign};

pub use crate::shared::Registry;
use rand::SeedableRng;
use setpoint_object::ApiError;
use setpoint_object::time::Clock;
use setpoint_store::{Revision, Store};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How far back watches may begin unless it is said otherwise: the watch cache keeps changes so
/// long, and the store's history is compacted away once it is older, in steps of the same length.
///
/// Five minutes, as kube-apiserver's `--etcd-compaction-interval`, so that clients' watches live as
/// long as they are used to.
pub const HISTORY_PERIOD: Duration = Duration::from_secs(300);

/// How many revisions of a durable store's history are taken in at start: watches of before the
/// restart that are no further behind go on. Ten thousand: clients are seldom further behind, and
/// reading them takes a fraction of a second.
pub const REPLAYED_REVISIONS: u64 = 10_000;

/// How long an Event is kept unless it is said otherwise: one hour, as kube-apiserver's
/// `--event-ttl`.
pub const EVENT_TTL: Duration = Duration::from_secs(3600);
/// How long a store may fail to answer at start before the worker gives up: half a minute, in which
/// a cluster finds a new leader.
const START_UP_PATIENCE: Duration = Duration::from_secs(30);
/// How long it is left alone in between.
const START_UP_PAUSE: Duration = Duration::from_millis(500);
/// Builds a registry.
#[derive(Debug)]
pub struct RegistryBuilder {
    store: Arc<dyn Store>,
    clock: Clock,
    seed: Option<u64>,
    replayed_revisions: Option<u64>,
    event_ttl: Duration,
    history: Duration,
    view_bytes_max: usize,
    is_shared: bool,
    kinds: Vec<CompiledKind>,
    converter: Option<Arc<dyn ConversionProvider>>,
    authorizers: Vec<Arc<dyn Authorizer>>,
    admission: Vec<Arc<dyn Admission>>,
}
impl RegistryBuilder {
    /// A kind that is compiled in, beside the built-in ones. Definitions cannot take its place.
    pub fn kind(mut self, kind: CompiledKind) -> Self {
        self.kinds.push(kind);
        self
    }
    /// The seed of uids, generated names and watch time-outs. Default: from the operating system.
    /// Two registries with one seed make the same names, so only simulations set it. With a seed
    /// costly work is done where it is asked for, without one on threads of its own: which of two
    /// threads is faster would be chance.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }
    /// How many revisions of the store's history are taken in at start, as far as they are kept:
    /// watches from one of them go on, as if there had been no restart. Each costs the start a
    /// little. When not given, [`REPLAYED_REVISIONS`] of a store that keeps its history over
    /// restarts ([`Store::keeps_history`]), and none of another.
    pub fn replayed_revisions(mut self, n: u64) -> Self {
        self.replayed_revisions = Some(n);
        self
    }
    /// How long an Event is kept after it was written last. [`EVENT_TTL`] when not given.
    pub fn event_ttl(mut self, ttl: Duration) -> Self {
        self.event_ttl = ttl;
        self
    }
    /// How far back watches may begin: the watch cache keeps changes so long (and the newest
    /// hundred of each resource), and has the store compact what is older, in steps of the same
    /// length. [`HISTORY_PERIOD`] when not given. A store with bounds of its own must keep twice as
    /// much.
    pub fn history(mut self, history: Duration) -> Self {
        self.history = history;
        self
    }
    /// How many bytes of objects are held of each version that a conversion webhook makes. Beyond
    /// it, lists and watches of the whole resource in that version are refused with 503.
    /// [`VIEW_BYTES_MAX`](crate::VIEW_BYTES_MAX) when not given.
    pub fn view_bytes_max(mut self, n_bytes: usize) -> Self {
        self.view_bytes_max = n_bytes;
        self
    }
    /// Whether other servers, perhaps other programs, write to the same store. Then nothing is
    /// believed that only this registry's own writes would make true: custom objects are held to
    /// their schema whenever they are read, a definition's objects are looked for once more before
    /// it goes, and values that a kube-apiserver encoded, as JSON or in protobuf, are understood.
    /// Default: no.
    pub fn shared(mut self, is_shared: bool) -> Self {
        self.is_shared = is_shared;
        self
    }
    /// Who converts the custom resources whose definitions have the conversion strategy `Webhook`.
    /// When not given, requests for versions other than the stored one are refused.
    pub fn converter(mut self, converter: Arc<dyn ConversionProvider>) -> Self {
        self.converter = Some(converter);
        self
    }
    /// Asks an authorizer, after those added before. The API server asks for each request, the
    /// registry for what a request does besides. None when not given: whoever is authenticated may
    /// do everything ([`AllowAuthenticated`](crate::AllowAuthenticated)).
    pub fn authorizer(mut self, authorizer: Arc<dyn Authorizer>) -> Self {
        self.authorizers.push(authorizer);
        self
    }
    /// Adds an admission plugin, behind Kubernetes' own and those added before.
    pub fn admission(mut self, plugin: Arc<dyn Admission>) -> Self {
        self.admission.push(plugin);
        self
    }
    /// The registry and the worker that its owner runs. Nothing is served before the worker has
    /// started up.
    pub fn build(self) -> (Registry, RegistryWorker) {
        let seed = self.seed.unwrap_or_else(setpoint_object::seed::from_entropy);
        let store = match self.is_shared {
            true => Arc::new(foreign::ForeignStore::new(self.store)),
            false => self.store,
        };
        let compiled = bootstrap::catalog_with(&self.kinds);
        let kept = || if store.keeps_history() { REPLAYED_REVISIONS } else { 0 };
        let replayed_revisions = self.replayed_revisions.unwrap_or_else(kept);
        let inner = Arc::new(Inner {
            store,
            is_shared: self.is_shared,
            clock: self.clock,
            rng: parking_lot::Mutex::new(rand::rngs::SmallRng::seed_from_u64(seed)),
            catalog: tokio::sync::watch::Sender::new(compiled.clone()),
            compiled,
            ready: tokio::sync::watch::Sender::new(false),
            serves: Followed::default(),
            cache: cache::WatchCache::new(self.history, self.view_bytes_max),
            replayed_revisions,
            event_ttl: self.event_ttl,
            history: self.history,
            origins: Origins::default(),
            allocator: Allocator::default(),
            admission: admission::Chain::new(self.admission),
            authorization: authorize::Chain::new(self.authorizers),
            converter: self.converter,
            threads: Threads::new(self.seed.is_some()),
        });
        (Registry { inner: inner.clone() }, RegistryWorker { inner })
    }
}
/// What keeps the registry going: start-up objects, the watch cache's feed, CRD controllers,
/// compaction.
#[derive(Debug)]
pub struct RegistryWorker {
    pub(crate) inner: Arc<Inner>,
}
impl RegistryWorker {
    /// Runs until `stop`; watches end politely then.
    ///
    /// # Errors
    /// When the store cannot be read at start-up or the cache's feed breaks for good.
    ///
    /// Dropping the future stops everything at once; nothing that was acknowledged is lost.
    pub async fn run(self, stop: CancellationToken) -> Result<(), ApiError> {
        let inner = &*self.inner;
        let started = tokio::select! {
            biased;
            // Cancel safe: what was done of it is done, and looked at again at the next start.
            started = self.start_up() => started?,
            () = stop.cancelled() => return Ok(()),
        };
        let (definitions, present) = started;
        let ready = async {
            tokio::select! {
                biased;
                // Cancel safe: waiting takes nothing.
                () = inner.cache.wait_until(present.0) => inner.set_ready(true),
                () = stop.cancelled() => {}
            }
            Ok(())
        };
        let result = tokio::try_join!(
            inner.cache.run(&inner.store, inner.replayed_revisions, stop.clone()),
            definitions.run(stop.clone()),
            compact(inner, &stop),
            ready,
        );
        inner.set_ready(false);
        result.map(|_| ())
    }
}
impl RegistryWorker {
    /// What is there before anything is served. A store that cannot answer for a moment is asked
    /// again.
    async fn start_up(&self) -> Result<(crd::Controller, Revision), ApiError> {
        let first = tokio::time::Instant::now();
        loop {
            let error = match self.attempt_start_up().await {
                Err(error) if matches!(error.code(), 503 | 504) => error,
                ended => return ended,
            };
            if first.elapsed() >= START_UP_PATIENCE {
                return Err(error);
            }
            tracing::warn!(%error, "start up; trying again");
            tokio::time::sleep(START_UP_PAUSE).await;
        }
    }
    async fn attempt_start_up(&self) -> Result<(crd::Controller, Revision), ApiError> {
        let inner = &*self.inner;
        inner.allocator.bring_up(&*inner.store).await?;
        bootstrap::objects::ensure(inner).await?;
        let definitions = crd::Controller::load(&Registry { inner: self.inner.clone() }).await?;
        let present = inner.store.revision().await.map_err(crate::stored::store_error)?;
        Ok((definitions, present))
    }
}
/// Forgets, every period of history, what was before the revision seen one period ago.
async fn compact(inner: &Inner, stop: &CancellationToken) -> Result<(), ApiError> {
    let mut seen: Option<Revision> = None;
    loop {
        tokio::select! {
            biased;
            // Cancel safe: a sleep takes nothing.
            () = tokio::time::sleep(inner.history) => {}
            () = stop.cancelled() => return Ok(()),
        }
        // A store that cannot answer now is asked again next time; compaction is housekeeping.
        if let Some(revision) = seen
            && let Err(error) = inner.store.compact(revision).await
        {
            tracing::warn!(%error, %revision, "compact the store");
        }
        seen = inner.store.revision().await.ok();
    }
}
impl Registry {
    /// A builder over a store.
    pub fn builder(store: Arc<dyn Store>, clock: Clock) -> RegistryBuilder {
        RegistryBuilder {
            store,
            clock,
            seed: None,
            replayed_revisions: None,
            event_ttl: EVENT_TTL,
            history: HISTORY_PERIOD,
            view_bytes_max: cache::VIEW_BYTES_MAX,
            is_shared: false,
            kinds: Vec::new(),
            converter: None,
            authorizers: Vec::new(),
            admission: Vec::new(),
        }
    }
}
