//! The registry: one write path, one read path, every resource.
use crate::admission::Chain;
use crate::allocate::Allocator;
use crate::catalog::Catalog;
use crate::followed::Followed;
use crate::{bootstrap, cache, crd};
use rand::SeedableRng;
use setpoint_object::ApiError;
use setpoint_object::time::Clock;
use setpoint_store::{Revision, Store};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// History older than this is compacted away, in steps of the same length.
///
/// Five minutes, as kube-apiserver does, so that clients' watches live as long as they are used to.
pub const COMPACTION_PERIOD: Duration = Duration::from_secs(300);

/// Builds a registry.
#[derive(Debug)]
pub struct RegistryBuilder {
    store: Arc<dyn Store>,
    clock: Clock,
    seed: u64,
}
impl RegistryBuilder {
    /// The seed of uids, generated names and watch time-outs. Zero when not given: two registries of one seed make the same names.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }
    /// The registry and the worker that its owner runs. Nothing is served before the worker has started up.
    pub fn build(self) -> (Registry, RegistryWorker) {
        let inner = Arc::new(Inner {
            store: self.store,
            clock: self.clock,
            rng: parking_lot::Mutex::new(rand::rngs::SmallRng::seed_from_u64(self.seed)),
            catalog: tokio::sync::watch::Sender::new(bootstrap::catalog()),
            ready: tokio::sync::watch::Sender::new(false),
            serves: Followed::default(),
            cache: cache::WatchCache::default(),
            allocator: Allocator::default(),
            admission: Chain::built_in(),
        });
        (Registry { inner: inner.clone() }, RegistryWorker { inner })
    }
}
/// What every part of the registry shares.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Clock,
    /// Uids, generated names, watch time-outs.
    pub(crate) rng: parking_lot::Mutex<rand::rngs::SmallRng>,
    /// What is served; a new catalog for every change.
    pub(crate) catalog: tokio::sync::watch::Sender<Arc<Catalog>>,
    pub(crate) ready: tokio::sync::watch::Sender<bool>,
    /// The same, for those who must go on in the order in which they came.
    serves: Followed<bool>,
    pub(crate) cache: cache::WatchCache,
    /// Cluster addresses and node ports in use.
    pub(crate) allocator: Allocator,
    /// Who may change or refuse a write.
    pub(crate) admission: Chain,
}
/// A handle; cheap to clone.
#[derive(Debug, Clone)]
pub struct Registry {
    pub(crate) inner: Arc<Inner>,
}
/// What keeps the registry going: start-up objects, the watch cache's feed, CRD controllers, compaction.
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
        let registry = Registry { inner: self.inner.clone() };
        let inner = &*self.inner;
        bootstrap::objects::ensure(inner).await?;
        inner.allocator.rebuild(&*inner.store).await?;
        let definitions = crd::Controller::load(&registry).await?;
        let present = inner.store.revision().await.map_err(crate::write::store_error)?;
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
            inner.cache.run(inner, stop.clone()),
            definitions.run(stop.clone()),
            compact(inner, &stop),
            ready,
        );
        inner.set_ready(false);
        result.map(|_| ())
    }
}
impl Inner {
    fn set_ready(&self, ready: bool) {
        self.serves.change(|serves| *serves = ready);
        self.ready.send_replace(ready);
    }
}
/// Forgets, every [`COMPACTION_PERIOD`], the history before the revision seen one period ago.
async fn compact(inner: &Inner, stop: &CancellationToken) -> Result<(), ApiError> {
    let mut seen: Option<Revision> = None;
    loop {
        tokio::select! {
            biased;
            // Cancel safe: a sleep takes nothing.
            () = tokio::time::sleep(COMPACTION_PERIOD) => {}
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
        RegistryBuilder { store, clock, seed: 0 }
    }
    /// What is served now.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.inner.catalog.borrow().clone()
    }
    /// Changes with every new catalog.
    pub fn catalog_changes(&self) -> tokio::sync::watch::Receiver<Arc<Catalog>> {
        self.inner.catalog.subscribe()
    }
    /// Becomes true once start-up is done (built-in namespaces exist, the watch cache is filled).
    pub fn ready(&self) -> tokio::sync::watch::Receiver<bool> {
        self.inner.ready.subscribe()
    }
    /// Waits until start-up is done. Those who wait go on in the order in which they came. Dropping it loses nothing.
    pub async fn wait_ready(&self) {
        self.inner.serves.wait_for(|serves| *serves).await;
    }
    /// The clock it was given.
    pub fn clock(&self) -> &Clock {
        &self.inner.clock
    }
}
