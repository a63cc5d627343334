//! What the stages of a request share: the store, the clock, what is served, the watch cache,
//! numbers in use, admission.
//!
//! It belongs to nobody: `registry` makes it and keeps it going, `read`, `write` and `watch` are
//! handed it.
use crate::admission;
use crate::allocate::Allocator;
use crate::attributes::Attributes;
use crate::authorize;
use crate::cache;
use crate::catalog::{Catalog, Resource};
use crate::conversion::{ConversionProvider, Converter};
use crate::followed::Followed;
use crate::origins::Origins;
use crate::stored::{NOT_ENCRYPTING, store_error, unreadable};
use crate::threads::Threads;
use setpoint_object::time::Clock;
use setpoint_object::{ApiError, Origin};
use setpoint_store::{At, KeyValue, Revision, Store, is_sealed};
use std::sync::Arc;
use std::time::Duration;

/// How long the store may take to answer before it counts as out of reach: two seconds, as
/// kube-apiserver's `--etcd-healthcheck-timeout`.
const HEALTH_PATIENCE: Duration = Duration::from_secs(2);

/// What every part of the registry shares.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) store: Arc<dyn Store>,
    /// Others write to it, too.
    pub(crate) is_shared: bool,
    pub(crate) clock: Clock,
    /// Uids, generated names, watch time-outs.
    pub(crate) rng: parking_lot::Mutex<rand::rngs::SmallRng>,
    /// What is served whatever the definitions say.
    pub(crate) compiled: Arc<Catalog>,
    /// What is served; a new catalog for every change.
    pub(crate) catalog: tokio::sync::watch::Sender<Arc<Catalog>>,
    pub(crate) ready: tokio::sync::watch::Sender<bool>,
    /// The same, for those who must go on in the order in which they came.
    pub(crate) serves: Followed<bool>,
    pub(crate) cache: cache::WatchCache,
    /// How far back the cache begins.
    pub(crate) replayed_revisions: u64,
    /// How long Events are kept.
    pub(crate) event_ttl: Duration,
    /// How long history is kept.
    pub(crate) history: Duration,
    /// Which reconciles recent changes come from.
    pub(crate) origins: Origins,
    /// Cluster addresses and node ports in use.
    pub(crate) allocator: Allocator,
    /// Who may change or refuse a write.
    pub(crate) admission: admission::Chain,
    /// Who may do what.
    pub(crate) authorization: authorize::Chain,
    /// Who converts what conversion webhooks convert.
    pub(crate) converter: Option<Arc<dyn ConversionProvider>>,
    /// Where costly work is done.
    pub(crate) threads: Threads,
}
/// A handle; cheap to clone.
#[derive(Debug, Clone)]
pub struct Registry {
    pub(crate) inner: Arc<Inner>,
}
impl Inner {
    /// What makes a row's version of stored objects, where that may wait.
    pub(crate) fn served(&self, row: &Resource) -> Option<Arc<Converter>> {
        let webhook = row.stored.as_ref()?.webhook.as_ref()?;
        webhook.served(&**self.converter.as_ref()?, row)
    }
    /// What makes the stored version of a row's objects, where that may wait.
    pub(crate) fn stored(&self, row: &Resource) -> Option<Arc<Converter>> {
        let webhook = row.stored.as_ref()?.webhook.as_ref()?;
        let provider =
            self.converter.as_ref().filter(|_| row.gvk.version != row.storage_version)?;
        webhook.converter(&**provider, &row.group_kind(), &row.storage_version)
    }
    /// The objects of a row as it serves them, where their conversion may wait.
    pub(crate) fn view(&self, row: &Arc<Resource>) -> Option<cache::Reading> {
        self.served(row).map(|converter| self.cache.view(row, converter))
    }
    /// Compiles the schemas that reads of a row's objects may need, if that takes long.
    ///
    /// # Errors
    ///
    /// As [`Threads::run`].
    pub(crate) async fn compile(&self, row: &Resource) -> Result<(), ApiError> {
        let slow = row.schemas().filter(|schema| schema.compiles_slowly());
        let slow: Vec<_> = slow.cloned().collect();
        let is_needed = || {
            let (index, _) = self.cache.resource(&row.storage_prefix).snapshot();
            !index.is_empty() || row.gvk.version != row.storage_version
        };
        if slow.is_empty() || !self.threads.are_used() || !is_needed() {
            return Ok(());
        }
        let compile = async move { slow.iter().for_each(|schema| _ = schema.view()) };
        self.threads.run(compile).await
    }
    /// From now on requests are served, or not.
    pub(crate) fn set_ready(&self, ready: bool) {
        self.serves.change(|serves| *serves = ready);
        self.ready.send_replace(ready);
    }
}
impl Registry {
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
    /// Waits until start-up is done. Those who wait go on in the order in which they came. Dropping
    /// it loses nothing.
    pub async fn wait_ready(&self) {
        self.inner.serves.wait_for(|serves| *serves).await;
    }
    /// Whether the store answers now, within two seconds. Dropping it loses nothing.
    pub async fn store_answers(&self) -> bool {
        let answer = tokio::time::timeout(HEALTH_PATIENCE, self.inner.store.revision()).await;
        matches!(answer, Ok(Ok(_)))
    }
    /// Which reconcile made a change, as its client said: controller, key and pass. Known of the
    /// newest 8,192 changes that come from one, through this server since it started.
    pub fn origin_of(&self, revision: Revision) -> Option<Arc<Origin>> {
        self.inner.origins.of(revision)
    }
    /// Every object there is and every change of one, in order, for a reader in this process: one
    /// of these instead of a watch of every resource. Costs the server nothing until it is made,
    /// and stops nobody when it is not read.
    pub fn object_changes(&self) -> cache::ObjectChanges {
        self.inner.cache.object_changes()
    }
    /// Whether a request is allowed: asks the authorizers
    /// ([`RegistryBuilder::authorizer`](crate::RegistryBuilder::authorizer)).
    ///
    /// # Errors
    ///
    /// 403; what an authorizer that cannot answer says, when nobody else allows it.
    pub async fn authorize(&self, request: &Attributes) -> Result<(), ApiError> {
        self.inner.authorization.authorize(request).await
    }
    /// The clock it was given.
    pub fn clock(&self) -> &Clock {
        &self.inner.clock
    }
}
impl Inner {
    /// The newest state of a key.
    pub(crate) async fn live(&self, key: &[u8]) -> Result<Option<KeyValue>, ApiError> {
        let found = self.store.get(key, At::Latest).await.map_err(store_error)?.value;
        match found {
            Some(kv) if is_sealed(&kv.value) => Err(unreadable(&kv.key, NOT_ENCRYPTING)),
            found => Ok(found),
        }
    }
    /// The state of a key as the watch cache has it, which may be behind the store; `None` if it
    /// has none, or is not filled yet.
    ///
    /// For writes that end in a compare: what is committed was made of the newest state after all.
    /// Any other outcome counts only if it was made of [`Inner::live`].
    pub(crate) fn recent(&self, storage_prefix: &str, key: &[u8]) -> Option<KeyValue> {
        if !self.cache.reached().is_filled {
            return None;
        }
        let item = self.cache.resource(storage_prefix).get(key)?;
        let (modified, key, value) =
            (Revision(item.revision), item.key.clone(), item.value.clone());
        // A write does not ask when its object was created.
        (!is_sealed(&value)).then_some(KeyValue { key, value, modified, created: Revision(0) })
    }
}
