//! One watched type: one reflector, one cache, any number of handlers.
//!
//! # Theory
//!
//! ```text
//!   ListWatch ── Reflector ──▶ OrderedFifo ──▶ consumer ──▶ Indexer ──▶ Lister …
//!               (one task       bounded       of both)    │
//!                                                         └──▶ a queue per handler ──▶ handler (one task each)
//! ```
//!
//! The consumer holds the distribution lock while it changes the cache and pushes the events to the
//! queues of the handlers. Adding a handler takes the same lock, so a late handler gets the present
//! objects and every later change, each once (SHI-3). Nothing else happens under that lock, it is
//! never held across an await, and nothing under it takes longer for a larger cache (a batch has at
//! most [`BATCH_MAX`](crate::delta::BATCH_MAX) events). A handler's task holds no lock during a
//! call.
//!
//! An informer runs once. After its worker has ended or was dropped, the cache stays readable and
//! never changes (SHI-1).

mod board;
mod builder;
mod consumer;
mod intake;
mod processor;
mod worker;

pub use crate::slices::{OBJECTS_PER_POLL_MAX, Slices};
pub use board::ErrorHandler;
pub use builder::SharedInformerBuilder;
pub(crate) use builder::{ObjectType, Settings};
pub use worker::InformerWorker;

use crate::event::Event;
use crate::failure::Stopped;
use crate::handler::{Handler, HandlerOptions, HandlerRegistration};
use crate::indexer::{AddIndexError, IndexFn, LABEL_INDEX, Lister, update_values, with_index};
use crate::object::{Object, Pool, Untyped};
use crate::resource_type::ResourceType;
use crate::source::{ListWatch, Selection};
use crate::status::{Degraded, InformerStatus};
use board::Board;
use kube_core::Resource;
use parking_lot::Mutex;
use processor::Processor;
use serde::de::DeserializeOwned;
use std::any::TypeId;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// A type that can be cached: any typed or dynamic Kubernetes object. Implemented for all of these.
pub trait Cacheable: Resource + DeserializeOwned + Send + Sync + 'static {}
impl<K: Resource + DeserializeOwned + Send + Sync + 'static> Cacheable for K {}

/// A handle of an informer, to add handlers, read the cache and read the status. Cheap to clone.
///
/// ```no_run
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use setpoint_informer::{ClientSource, Event, HandlerOptions, SharedInformer};
/// # async fn example(client: kube_client::Client, tasks: &mut tokio::task::JoinSet<()>) -> Result<(), Box<dyn std::error::Error>> {
/// let stop = tokio_util::sync::CancellationToken::new();
/// let (informer, worker) =
///     SharedInformer::<ConfigMap>::builder(ClientSource::all::<ConfigMap>(client)).build();
/// informer.add_handler(
///     |event: Event<ConfigMap>| println!("changed: {}", event.key()),
///     HandlerOptions::default(),
/// )?;
/// tasks.spawn(worker.run(stop.clone()));
/// informer.synced().await?;
/// let config = informer.lister().get("default", "settings")?;
/// # Ok(())
/// # }
/// ```
///
/// `K` is the type that this handle reads. The informer stores bytes, and handles of other types
/// may share it (see [`InformerFactory`](crate::InformerFactory)).
pub struct SharedInformer<K>(Arc<Shared>, PhantomData<fn() -> K>);

/// The parts that handles, consumer and worker of an informer share.
pub(crate) struct Shared {
    resource_type: ResourceType,
    selection: Selection,
    /// The type of the stored values, if the cache does not store bytes.
    values_of: Option<TypeId>,
    lister: Lister<Untyped>,
    processor: Mutex<Processor>,
    board: Arc<Board>,
    pool: Arc<Pool>,
    /// A new handler waits for the worker.
    wake: Notify,
}

impl<K> Clone for SharedInformer<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone(), PhantomData)
    }
}

impl<K> fmt::Debug for SharedInformer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedInformer")
            .field("resource", &self.0.resource_type.to_string())
            .field("n_objects", &self.0.lister.len())
            .field("status", &*self.0.board.status.borrow())
            .finish()
    }
}

impl<K: Cacheable> SharedInformer<K> {
    /// A builder for a type known at compile time.
    pub fn builder(source: impl ListWatch) -> SharedInformerBuilder<K>
    where
        K::DynamicType: Default,
    {
        Self::builder_dynamic(source, &K::DynamicType::default())
    }

    /// A builder for a type known at run time (FAC-7).
    pub fn builder_dynamic(
        source: impl ListWatch,
        dynamic_type: &K::DynamicType,
    ) -> SharedInformerBuilder<K> {
        SharedInformerBuilder::new(Arc::new(source), ResourceType::of::<K>(dynamic_type))
    }

    /// Adds a handler, before or after the start. It gets every cached object as an initial
    /// addition, and then every change (SHI-3). Takes the same time however large the cache is.
    ///
    /// # Errors
    /// If the informer has stopped.
    pub fn add_handler(
        &self,
        handler: impl Handler<K>,
        options: HandlerOptions,
    ) -> Result<HandlerRegistration, Stopped> {
        self.add(Typed(handler, PhantomData), options)
    }

    /// Adds a handler that never waits, as [`add_handler`](Self::add_handler) does. What calls it
    /// is compiled once for all functions and types, so a program with many handlers is smaller;
    /// each call is one through a pointer.
    ///
    /// # Errors
    /// If the informer has stopped.
    pub fn add_callback(
        &self,
        mut callback: impl FnMut(Event<K>) + Send + 'static,
        options: HandlerOptions,
    ) -> Result<HandlerRegistration, Stopped> {
        let callback: Callback = Box::new(move |event| callback(event.into_type()));
        self.add(callback, options)
    }

    fn add(
        &self,
        handler: impl Handler<Untyped>,
        options: HandlerOptions,
    ) -> Result<HandlerRegistration, Stopped> {
        let registration = self.0.processor.lock().add(handler, options)?;
        self.0.wake.notify_one();
        Ok(registration)
    }

    /// Adds an index over typed objects, before or after the start. Under `Compact` each write then
    /// decodes the object once. An object that does not fit `K` has no values in the index, which
    /// is reported: [`InformerStatus::unindexed`]. Calls the function with all cached objects on
    /// the caller's thread; the cache and its handlers do not wait for it.
    ///
    /// # Errors
    /// If the name is taken or the informer has stopped.
    pub fn add_index(
        &self,
        name: impl Into<Arc<str>>,
        function: impl Fn(&K) -> Vec<String> + Send + Sync + 'static,
    ) -> Result<(), AddIndexError> {
        self.add_index_fn(name.into(), builder::typed(function))
    }

    /// Adds an index over objects that are not decoded.
    ///
    /// # Errors
    /// If the name is taken or the informer has stopped.
    pub fn add_object_index(
        &self,
        name: impl Into<Arc<str>>,
        function: impl Fn(&Object<K>) -> Vec<String> + Send + Sync + 'static,
    ) -> Result<(), AddIndexError> {
        self.add_index_fn(name.into(), builder::untyped(function))
    }

    /// Adds the index by labels, as [`SharedInformerBuilder::label_index`] does.
    ///
    /// # Errors
    /// If there is one or the informer has stopped.
    pub fn add_label_index(&self) -> Result<(), AddIndexError> {
        self.add_index_fn(LABEL_INDEX.into(), IndexFn::by_labels::<K>())
    }

    /// Calls the function without the lock. If the cache changes meanwhile, calls it with the
    /// changed objects, until the index is up to date.
    fn add_index_fn(&self, name: Arc<str>, function: IndexFn) -> Result<(), AddIndexError> {
        let mut filed = Vec::new();
        loop {
            let begun = self.0.processor.lock().begin_index(name.clone(), function.clone());
            let (function, snapshot) = begun?;
            update_values(&function, &snapshot, &mut filed)?;
            let new = with_index(&snapshot, &function, &mut filed);
            // Another index of this name may have been added meanwhile, which is a change, too.
            if self.0.processor.lock().end_index(&snapshot, new) {
                return Ok(());
            }
        }
    }
}

impl<K> SharedInformer<K> {
    /// A reader of the cache.
    pub fn lister(&self) -> Lister<K> {
        self.0.lister.cast()
    }

    /// The same informer for a reader that decodes objects as `V`, with the same watch and the same
    /// bytes. `None` if the cache stores values of another type
    /// ([`CachePolicy::Decoded`](crate::CachePolicy::Decoded)). Objects that do not fit `V` are
    /// errors when they are read.
    pub fn view<V: 'static>(&self) -> Option<SharedInformer<V>> {
        let can_read = self.0.values_of.is_none_or(|values| values == TypeId::of::<V>());
        can_read.then(|| self.cast())
    }

    /// The same informer for a reader of another type.
    pub(crate) fn cast<V>(&self) -> SharedInformer<V> {
        SharedInformer(self.0.clone(), PhantomData)
    }

    /// The watched type.
    pub fn resource_type(&self) -> &ResourceType {
        &self.0.resource_type
    }

    /// The objects of the type that are cached, according to the source.
    pub fn selection(&self) -> &Selection {
        &self.0.selection
    }

    /// Whether both handles are of one informer, whatever types they read.
    pub fn shares_cache<V>(&self, other: &SharedInformer<V>) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether the whole first list is in the cache (SHI-9). Never reverts.
    pub fn has_synced(&self) -> bool {
        self.0.board.status.borrow().has_synced
    }

    /// Waits until the whole first list is in the cache. Any number of tasks may wait. Handlers may
    /// not have handled it yet: see [`HandlerRegistration::synced`].
    ///
    /// # Errors
    /// If the informer stops first.
    pub async fn synced(&self) -> Result<(), Stopped> {
        let board = &self.0.board;
        board.wait_for(|status| status.has_synced || status.has_stopped).await;
        if self.has_synced() { Ok(()) } else { Err(Stopped) }
    }

    /// Whether the worker has ended (SHI-1).
    pub fn has_stopped(&self) -> bool {
        self.0.board.status.borrow().has_stopped
    }

    /// The present status.
    pub fn status(&self) -> InformerStatus {
        self.0.board.status.borrow().clone()
    }

    /// Waits until the cache has been out of date for this long; returns at once if it already is.
    /// For alerts: the informer continues to retry (REF-33), unless it [gives
    /// up](SharedInformerBuilder::give_up_after).
    ///
    /// # Errors
    /// If the informer stops first.
    pub async fn until_degraded_for(&self, period: Duration) -> Result<Degraded, Stopped> {
        self.0.board.degraded_for(period, |degraded| Some(degraded.since)).await.ok_or(Stopped)
    }

    /// Waits until the worker has ended, and returns the last status.
    pub async fn stopped(&self) -> InformerStatus {
        self.0.board.wait_for(|status| status.has_stopped).await;
        self.status()
    }

    /// The status, to await changes.
    pub fn watch_status(&self) -> watch::Receiver<InformerStatus> {
        self.0.board.status.subscribe()
    }

    /// About how many bytes the decoded values take that are kept beside encoded objects: at most
    /// [`SharedInformerBuilder::decoded_bytes`]. Not counted under
    /// [`CachePolicy`](crate::CachePolicy) `Decoded`.
    pub fn decoded_bytes(&self) -> usize {
        self.0.pool.decoded_bytes()
    }

    /// The resourceVersion that the reflector has reached. The cache may be behind it by the queued
    /// deltas (REF-34); its version is [`Lister::resource_version`]. Empty before the first list.
    pub fn last_sync_resource_version(&self) -> Arc<str> {
        self.0.board.last_resource_version()
    }
}

/// Adapts a handler of typed events.
struct Typed<H, K>(H, PhantomData<fn() -> K>);

/// A handler that never waits, of objects of any type.
type Callback = Box<dyn FnMut(Event<Untyped>) + Send>;

impl<K: 'static, H: Handler<K>> Handler<Untyped> for Typed<H, K> {
    fn handle(&mut self, event: Event<Untyped>) -> impl Future<Output = ()> + Send {
        self.0.handle(event.into_type())
    }
}
