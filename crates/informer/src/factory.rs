//! One informer per resource, started and stopped together.
//!
//! # Theory
//!
//! There is one informer, with one watch and one store of bytes, for each resource and selection,
//! whatever Rust types read it: `Pod`, a struct with three of its fields, `PartialObjectMeta<Pod>`
//! and `DynamicObject` share it, and each decodes the fields that it declares. The first request
//! determines how the informer is built, also for readers of other types; `build` of later requests
//! is not called (FAC-1). Namespace and selectors are the factory's unless a request has its own
//! (FAC-2). A request starts nothing: [`InformerFactory::start`] passes the requested informers to
//! the worker, which owns the tasks.
//!
//! Two kinds of informers do not serve all types:
//!
//! | the first request                     | its informer serves                          | a request of another type            |
//! |---------------------------------------|----------------------------------------------|--------------------------------------|
//! | has [`CachePolicy::Decoded`](crate::CachePolicy::Decoded) | this type: the cache holds its values        | makes a second informer              |
//! | is of metadata ([`InformerFactory::metadata`]) | requests of metadata                | turns it into one of whole objects before it has been started; makes a second informer afterwards |
//!
//! Index names belong to the informer, not to the type: an index that one type adds serves readers
//! of all types, and a second one of its name is an error.
//!
//! | an informer is  | when                                              | until                                                 |
//! |-----------------|---------------------------------------------------|-------------------------------------------------------|
//! | requested       | its first request                                 | `start`, or as below                                  |
//! | started         | `start`                                           | `shutdown`, the worker's end, or as below             |
//! | forgotten       | its last [`InformerLease`] is dropped, and it is not pinned; or it gave up | a request makes a new one |

mod options;
mod request;
mod worker;

pub use crate::source::Selection;
pub use options::{ChooseSource, FactoryOptions, OnError, SourceRequest};
pub use request::{InformerLease, InformerRequest};

pub use worker::FactoryWorker;

use crate::informer::{Cacheable, ObjectType, Settings, SharedInformer, SharedInformerBuilder};
use crate::object::Untyped;
use crate::resource_type::ResourceType;
use crate::source::ClientSource;
use crate::status::InformerStatus;
use futures::future::BoxFuture;
use kube_client::Client;
use kube_core::metadata::PartialObjectMeta;
use parking_lot::Mutex;
use std::any::TypeId;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Makes one informer per resource and selection. Cheap to clone.
#[derive(Clone)]
pub struct InformerFactory(Arc<Inner>);

impl fmt::Debug for InformerFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InformerFactory")
            .field("options", &self.0.options)
            .field("n_informers", &self.0.state.lock().informers.len())
            .finish_non_exhaustive()
    }
}

struct Inner {
    // Inputs.
    client: Client,
    options: FactoryOptions,
    // State.
    state: Mutex<State>,
    /// Informers wait for the worker.
    wake: Notify,
    stop: CancellationToken,
    /// The worker has ended or was dropped.
    ended: CancellationToken,
}

#[derive(Default)]
struct State {
    informers: HashMap<Id, Entry>,
    /// Requested, but not passed to the worker.
    requested: Vec<Start>,
    /// Passed to the worker, but not spawned.
    starting: Vec<Start>,
    is_shut_down: bool,
    next: u64,
}

/// Identifies an informer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Id {
    resource_type: ResourceType,
    selection: Selection,
    readers: Readers,
}

/// Which types can read the cache of an informer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Readers {
    /// All types: the cache holds bytes of whole objects.
    All,
    /// Types of metadata: the server sends only that.
    Metadata,
    /// One type: the cache holds its values.
    Only(TypeId),
}

/// A request for an informer.
struct Wanted {
    /// The type of the objects.
    of: ObjectType,
    resource_type: ResourceType,
    selection: Selection,
    is_pinned: bool,
}

impl Wanted {
    fn id(&self, readers: Readers) -> Id {
        let (resource_type, selection) = (self.resource_type.clone(), self.selection.clone());
        Id { resource_type, selection, readers }
    }
}

struct Entry {
    informer: SharedInformer<Untyped>,
    /// Whether requests ask for metadata only.
    metadata_only: Arc<AtomicBool>,
    /// Distinguishes this informer from an earlier one with the same id.
    number: u64,
    is_started: bool,
    /// Requested without a lease.
    is_pinned: bool,
    n_leases: usize,
    stop: CancellationToken,
}

/// An informer to run, unless it is forgotten before.
struct Start {
    number: u64,
    run: Run,
}

/// Runs one informer's worker.
type Run = Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, ()> + Send>;

impl State {
    /// The existing informer for a request, unless it has ended by itself.
    fn known(&mut self, wanted: &Wanted) -> Option<(SharedInformer<Untyped>, u64)> {
        let of = wanted.of;
        if !of.is_metadata {
            self.widen(wanted.id(Readers::Metadata), wanted.id(Readers::All));
        }
        let is_shut_down = self.is_shut_down;
        let readers = match of.is_metadata {
            true => &[Readers::Only(of.id), Readers::Metadata, Readers::All][..],
            false => &[Readers::Only(of.id), Readers::All],
        };
        let mut ids = readers.iter().map(|readers| wanted.id(*readers));
        let id = ids.find(|id| {
            let entry = self.informers.get(id);
            entry.is_some_and(|entry| is_shut_down || !entry.informer.has_stopped())
        })?;
        let entry = self.informers.get_mut(&id)?;
        entry.is_pinned |= wanted.is_pinned;
        entry.n_leases += usize::from(!wanted.is_pinned);
        Some((entry.informer.clone(), entry.number))
    }

    /// Turns an informer of metadata that has not started into one of whole objects.
    fn widen(&mut self, metadata: Id, whole: Id) {
        if self.informers.contains_key(&whole) {
            return;
        }
        let waits = |entry: &Entry| {
            let mut starts = self.requested.iter().chain(&self.starting);
            starts.any(|start| start.number == entry.number)
        };
        if !self.informers.get(&metadata).is_some_and(waits) {
            return;
        }
        if let Some(entry) = self.informers.remove(&metadata) {
            entry.metadata_only.store(false, Relaxed);
            self.informers.insert(whole, entry);
        }
    }
}

/// Some informers have not synced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the informers stopped before they had synced: {}", .resources.join(", "))]
#[non_exhaustive]
pub struct NotSynced {
    /// Their resources, sorted.
    pub resources: Vec<String>,
    /// The latest failure of each, if any.
    pub causes: BTreeMap<String, String>,
}

impl InformerFactory {
    /// A factory over a client, and the worker of its informers. Starts nothing.
    pub fn new(client: Client, options: FactoryOptions) -> (Self, FactoryWorker) {
        let factory = Self(Arc::new(Inner {
            client,
            options,
            state: Mutex::default(),
            wake: Notify::new(),
            stop: CancellationToken::new(),
            ended: CancellationToken::new(),
        }));
        (factory.clone(), FactoryWorker::new(factory))
    }

    /// The informer of a type known at compile time, as long as the factory lives.
    pub fn informer<K: Cacheable>(&self) -> SharedInformer<K>
    where
        K::DynamicType: Default,
    {
        self.request(&K::DynamicType::default()).pinned()
    }

    /// The informer of the metadata of a type. Reads the cache of whole objects if there is one;
    /// otherwise requests and stores only metadata (FAC-7). A request of whole objects after it has
    /// started makes a second cache.
    pub fn metadata<K: Cacheable>(&self) -> SharedInformer<PartialObjectMeta<K>>
    where
        K::DynamicType: Default,
    {
        self.request(&K::DynamicType::default()).pinned()
    }

    /// The informer of a type, built by `build` if this is its first request (FAC-1).
    pub fn informer_with<K: Cacheable>(
        &self,
        dynamic_type: &K::DynamicType,
        build: impl FnOnce(SharedInformerBuilder<K>) -> SharedInformerBuilder<K>,
    ) -> SharedInformer<K> {
        self.find(dynamic_type, self.0.options.selection(), true, build).0
    }

    /// Starts a request for an informer with its own selection, or with a lease.
    pub fn request<'a, K: Cacheable>(
        &self,
        dynamic_type: &'a K::DynamicType,
    ) -> InformerRequest<'a, K> {
        InformerRequest::new(self.clone(), dynamic_type, self.0.options.selection())
    }

    fn find<K: Cacheable>(
        &self,
        dynamic_type: &K::DynamicType,
        selection: Selection,
        is_pinned: bool,
        build: impl FnOnce(SharedInformerBuilder<K>) -> SharedInformerBuilder<K>,
    ) -> (SharedInformer<K>, u64) {
        let (of, resource_type) = (ObjectType::of::<K>(), ResourceType::of::<K>(dynamic_type));
        let wanted = Wanted { of, resource_type, selection, is_pinned };
        let known = self.0.state.lock().known(&wanted);
        let (informer, number) = known.unwrap_or_else(|| {
            // Built without the lock, since `build` may request other informers. Building starts
            // nothing, so a lost race costs nothing.
            let namespace = wanted.selection.namespace.as_deref();
            let source = ClientSource::dynamic::<K>(self.0.client.clone(), dynamic_type, namespace);
            let (settings, metadata_only) = self.settings(&wanted, source);
            let builder = build(SharedInformerBuilder::from_settings(settings));
            self.insert(wanted, builder.into_settings(), metadata_only)
        });
        (informer.cast(), number)
    }

    /// How a new informer is built, and whether its requests ask for metadata only.
    fn settings(&self, wanted: &Wanted, source: ClientSource) -> (Box<Settings>, Arc<AtomicBool>) {
        let metadata_only = Arc::new(AtomicBool::new(wanted.of.is_metadata));
        let (options, flag) = (&self.0.options, metadata_only.clone());
        let settings = options.settings(source, &wanted.resource_type, &wanted.selection, flag);
        (settings, metadata_only)
    }

    /// Builds an informer and keeps it, unless another call was faster.
    ///
    /// # Panics
    /// As [`SharedInformerBuilder::build`].
    fn insert(
        &self,
        wanted: Wanted,
        settings: Box<Settings>,
        metadata_only: Arc<AtomicBool>,
    ) -> (SharedInformer<Untyped>, u64) {
        let readers = match wanted.of.is_metadata {
            _ if settings.holds_values() => Readers::Only(wanted.of.id),
            true => Readers::Metadata,
            false => Readers::All,
        };
        let (informer, worker) = match settings.try_build(wanted.of) {
            Ok(built) => built,
            Err(error) => panic!("{error}"),
        };
        let mut state = self.0.state.lock();
        if let Some(known) = state.known(&wanted) {
            drop(state);
            return known;
        }
        state.next += 1;
        let number = state.next;
        let stop = CancellationToken::new();
        let entry = Entry {
            informer: informer.clone(),
            metadata_only,
            number,
            is_started: false,
            is_pinned: wanted.is_pinned,
            n_leases: usize::from(!wanted.is_pinned),
            stop: stop.clone(),
        };
        let ended = state.informers.insert(wanted.id(readers), entry);
        if !state.is_shut_down {
            let run: Run = Box::new(move |all| {
                Box::pin(async move {
                    let mut run = std::pin::pin!(worker.run(stop.clone()));
                    tokio::select! {
                        biased;
                        // Cancel safe: it is polled on below.
                        () = &mut run => return,
                        () = all.cancelled() => stop.cancel(),
                    }
                    run.await;
                })
            });
            state.requested.push(Start { number, run });
        }
        drop(state);
        drop(ended);
        (informer, number)
    }

    /// A lease was dropped. The last lease of an informer that is not pinned stops it.
    fn release(&self, number: u64) {
        let mut state = self.0.state.lock();
        let mut informers = state.informers.iter_mut();
        let Some((id, entry)) = informers.find(|(_, entry)| entry.number == number) else {
            return;
        };
        entry.n_leases = entry.n_leases.saturating_sub(1);
        if entry.n_leases > 0 || entry.is_pinned {
            return;
        }
        entry.stop.cancel();
        let id = id.clone();
        let forgotten = state.informers.remove(&id);
        let state = &mut *state;
        let mut never_run = Vec::new();
        for starts in [&mut state.requested, &mut state.starting] {
            never_run.extend(starts.extract_if(.., |start| start.number == number));
        }
        // Without the lock: a dropped worker may call the factory.
        let _after = (forgotten, never_run);
    }

    /// Starts the informers requested so far; call it again for those requested later. Does nothing
    /// after shutdown (FAC-3).
    pub fn start(&self) {
        let mut state = self.0.state.lock();
        if state.is_shut_down {
            return;
        }
        let requested = std::mem::take(&mut state.requested);
        state.starting.extend(requested);
        for entry in state.informers.values_mut() {
            entry.is_started = true;
        }
        drop(state);
        self.0.wake.notify_one();
    }

    /// Waits until every started informer has synced.
    ///
    /// # Errors
    /// Some informers stopped before. The error has their resources and last failures (FAC-4).
    pub async fn wait_for_sync(&self) -> Result<(), NotSynced> {
        let mut started: Vec<(String, SharedInformer<Untyped>)> = {
            let state = self.0.state.lock();
            let started = state.informers.iter().filter(|(_, entry)| entry.is_started);
            started
                .map(|(id, entry)| (id.resource_type.to_string(), entry.informer.clone()))
                .collect()
        };
        started.sort_by(|(a, _), (b, _)| a.cmp(b));
        let (mut resources, mut causes) = (Vec::new(), BTreeMap::new());
        for (resource, informer) in started {
            if informer.synced().await.is_err() {
                let degraded = informer.status().degraded;
                causes.extend(degraded.map(|why| (resource.clone(), why.to_string())));
                resources.push(resource);
            }
        }
        if resources.is_empty() { Ok(()) } else { Err(NotSynced { resources, causes }) }
    }

    /// The status of every started informer, by resource (FAC-4). If several informers have the
    /// same resource, the status of one of them.
    pub fn statuses(&self) -> BTreeMap<String, InformerStatus> {
        let state = self.0.state.lock();
        let started = state.informers.iter().filter(|(_, entry)| entry.is_started);
        started.map(|(id, entry)| (id.resource_type.to_string(), entry.informer.status())).collect()
    }

    /// Stops every informer, refuses new starts, and waits until the worker has ended (FAC-5).
    pub async fn shutdown(&self) {
        let requested = {
            let mut state = self.0.state.lock();
            state.is_shut_down = true;
            std::mem::take(&mut state.requested)
        };
        // Informers that never ran stop by losing their worker.
        drop(requested);
        self.0.stop.cancel();
        self.0.ended.cancelled().await;
    }
}
