//! One informer per type, started and stopped together.
//!
//! # Theory
//!
//! A factory hands out informers; the first request of a type and selection decides how its
//! informer is built, later ones get the same one (FAC-1). Namespace and selectors are the
//! factory's unless a request has its own (FAC-2). Requesting starts nothing:
//! [`InformerFactory::start`] passes what was requested so far to the worker, which owns the tasks.
//!
//! | an informer is  | when                                              | until                                                 |
//! |-----------------|---------------------------------------------------|-------------------------------------------------------|
//! | requested       | it is asked for, and was not known                | `start`, or as below                                  |
//! | started         | `start`                                           | `shutdown`, the worker's end, or as below             |
//! | forgotten       | its last [`InformerLease`] is dropped, and nobody asked for it for good; or it gave up | a request makes a new one |

mod lease;
mod options;
mod request;
mod worker;

pub use crate::source::Selection;
pub use lease::InformerLease;
pub use options::FactoryOptions;
pub use request::InformerRequest;

pub use worker::FactoryWorker;

use crate::informer::{Cacheable, SharedInformer, SharedInformerBuilder};
use crate::resource_type::ResourceType;
use crate::status::InformerStatus;
use futures::future::BoxFuture;
use kube_client::Client;
use kube_core::metadata::PartialObjectMeta;
use parking_lot::Mutex;
use std::any::{Any, TypeId};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Hands out one informer per type. Cheap to clone.
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
    /// Informers wait to be run.
    wake: Notify,
    stop: CancellationToken,
    /// The worker has ended, or there is none any more.
    ended: CancellationToken,
}

#[derive(Default)]
struct State {
    informers: HashMap<Id, Entry>,
    /// Requested, and not passed to the worker.
    requested: Vec<Start>,
    /// Passed to the worker, and not taken up.
    starting: Vec<Start>,
    is_shut_down: bool,
    next: u64,
}

/// What there is one informer of.
type Id = (TypeId, ResourceType, Selection);

struct Entry {
    informer: Box<dyn Any + Send + Sync>,
    /// Tells this informer from an earlier one of the same id.
    number: u64,
    status: Status,
    synced: Synced,
    is_started: bool,
    /// Somebody asked for it without a lease.
    is_pinned: bool,
    n_leases: usize,
    stop: CancellationToken,
}

/// One informer to be run, unless it is forgotten before.
struct Start {
    number: u64,
    run: Run,
}

/// Runs one informer's worker.
type Run = Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, ()> + Send>;

/// Waits until an informer has synced (`true`) or stopped.
type Synced = Arc<dyn Fn() -> BoxFuture<'static, bool> + Send + Sync>;

type Status = Arc<dyn Fn() -> InformerStatus + Send + Sync>;

impl State {
    /// The informer of an id, unless it has ended by itself, which is no use to anybody.
    fn known<K: Cacheable>(
        &mut self,
        id: &Id,
        is_pinned: bool,
    ) -> Option<(SharedInformer<K>, u64)> {
        let entry = self.informers.get_mut(id)?;
        let informer: &SharedInformer<K> = entry.informer.downcast_ref()?;
        if informer.has_stopped() && !self.is_shut_down {
            return None;
        }
        entry.is_pinned |= is_pinned;
        entry.n_leases += usize::from(!is_pinned);
        Some((informer.clone(), entry.number))
    }
}

/// Some informers have not synced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the informers stopped before they had synced: {}", .resources.join(", "))]
#[non_exhaustive]
pub struct NotSynced {
    /// Their resources, sorted.
    pub resources: Vec<String>,
    /// What kept each of them from it last, where anything is known.
    pub causes: BTreeMap<String, String>,
}

impl InformerFactory {
    /// A factory over a client, and what runs its informers. Nothing has been started or asked.
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

    /// The informer of the metadata of a type: of its objects nothing else is asked for or held
    /// (FAC-7). Beside an informer of the whole objects it is a second cache, and neither waits for
    /// the other.
    pub fn metadata<K: Cacheable>(&self) -> SharedInformer<PartialObjectMeta<K>>
    where
        K::DynamicType: Default,
    {
        self.request(&K::DynamicType::default()).pinned()
    }

    /// The informer of a type, built by `build` if this is the first request for it (FAC-1).
    pub fn informer_with<K: Cacheable>(
        &self,
        dynamic_type: &K::DynamicType,
        build: impl FnOnce(SharedInformerBuilder<K>) -> SharedInformerBuilder<K>,
    ) -> SharedInformer<K> {
        self.find(dynamic_type, self.0.options.selection(), true, build).0
    }

    /// Begins a request for an informer with a selection of its own, or for a while.
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
    ) -> (SharedInformer<K>, Id, u64) {
        let resource_type = ResourceType::of::<K>(dynamic_type);
        let id = (TypeId::of::<K>(), resource_type, selection);
        if let Some((known, number)) = self.0.state.lock().known(&id, is_pinned) {
            return (known, id, number);
        }
        // Built without the lock, for `build` may ask for other informers. Building does nothing,
        // so a lost race costs nothing.
        let builder = self.0.options.builder(&self.0.client, dynamic_type, &id.1, &id.2);
        let (informer, worker) = build(builder).build();
        let mut state = self.0.state.lock();
        if let Some((known, number)) = state.known(&id, is_pinned) {
            drop(state);
            return (known, id, number);
        }
        state.next += 1;
        let number = state.next;
        let stop = CancellationToken::new();
        let entry = Entry::new(&informer, number, is_pinned, stop.clone());
        let ended = state.informers.insert(id.clone(), entry);
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
        (informer, id, number)
    }

    /// A lease is over. The last one of an informer that nobody holds otherwise ends it.
    fn release(&self, id: &Id, number: u64) {
        let mut state = self.0.state.lock();
        let Some(entry) = state.informers.get_mut(id).filter(|entry| entry.number == number) else {
            return;
        };
        entry.n_leases = entry.n_leases.saturating_sub(1);
        if entry.n_leases > 0 || entry.is_pinned {
            return;
        }
        entry.stop.cancel();
        let forgotten = state.informers.remove(id);
        let state = &mut *state;
        let mut never_run = Vec::new();
        for starts in [&mut state.requested, &mut state.starting] {
            never_run.extend(starts.extract_if(.., |start| start.number == number));
        }
        // What a worker drops may ask the factory: not under its lock.
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
    /// When some have stopped before; they are named, with what they said last (FAC-4).
    pub async fn wait_for_sync(&self) -> Result<(), NotSynced> {
        let mut started: Vec<(String, Synced, Status)> = {
            let state = self.0.state.lock();
            let started = state.informers.iter().filter(|(_, entry)| entry.is_started);
            started
                .map(|(id, entry)| (id.1.to_string(), entry.synced.clone(), entry.status.clone()))
                .collect()
        };
        started.sort_by(|(a, ..), (b, ..)| a.cmp(b));
        let (mut resources, mut causes) = (Vec::new(), BTreeMap::new());
        for (resource, synced, status) in started {
            if !synced().await {
                causes.extend(status().degraded.map(|why| (resource.clone(), why.to_string())));
                resources.push(resource);
            }
        }
        if resources.is_empty() { Ok(()) } else { Err(NotSynced { resources, causes }) }
    }

    /// How every started informer is doing, by resource (FAC-4); of several with one resource, one
    /// of them.
    pub fn statuses(&self) -> BTreeMap<String, InformerStatus> {
        let state = self.0.state.lock();
        let started = state.informers.iter().filter(|(_, entry)| entry.is_started);
        started.map(|(id, entry)| (id.1.to_string(), (entry.status)())).collect()
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

impl Entry {
    fn new<K: Cacheable>(
        informer: &SharedInformer<K>,
        number: u64,
        is_pinned: bool,
        stop: CancellationToken,
    ) -> Self {
        let (awaited, asked) = (informer.clone(), informer.clone());
        Self {
            informer: Box::new(informer.clone()),
            number,
            status: Arc::new(move || asked.status()),
            synced: Arc::new(move || {
                let awaited = awaited.clone();
                Box::pin(async move { awaited.synced().await.is_ok() })
            }),
            is_started: false,
            is_pinned,
            n_leases: usize::from(!is_pinned),
            stop,
        }
    }
}
