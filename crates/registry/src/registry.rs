//! The registry: one write path, one read path, every resource.
use crate::catalog::Catalog;
use setpoint_object::ApiError;
use setpoint_object::time::Clock;
use setpoint_store::Store;
use std::sync::Arc;

/// Builds a registry.
#[derive(Debug)]
pub struct RegistryBuilder {
    _store: Arc<dyn Store>,
    _clock: Clock,
    _seed: u64,
}
impl RegistryBuilder {
    /// The seed of uids, generated names and watch time-outs.
    pub fn seed(mut self, seed: u64) -> Self {
        self._seed = seed;
        self
    }
    /// The registry and the worker that its owner runs. Nothing is served before the worker has started up.
    pub fn build(self) -> (Registry, RegistryWorker) {
        todo!()
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
    pub(crate) cache: crate::cache::WatchCache,
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
    pub async fn run(self, _stop: tokio_util::sync::CancellationToken) -> Result<(), ApiError> {
        todo!()
    }
}
impl Registry {
    /// A builder over a store.
    pub fn builder(store: Arc<dyn Store>, clock: Clock) -> RegistryBuilder {
        RegistryBuilder { _store: store, _clock: clock, _seed: 0 }
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
    /// The clock it was given.
    pub fn clock(&self) -> &Clock {
        &self.inner.clock
    }
}
