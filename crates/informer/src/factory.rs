//! One informer per type, started and stopped together.
//!
//! # Theory
//!
//! A factory hands out informers; the first request of a type decides how its informer is built, later ones get the same one
//! (FAC-1). Requesting starts nothing: [`InformerFactory::start`] passes what was requested so far to the worker, which owns the
//! tasks. Namespace and selectors are the factory's: two selectors need two factories (FAC-2).

mod worker;

pub use worker::FactoryWorker;

use crate::informer::{Cacheable, SharedInformer, SharedInformerBuilder};
use crate::policy::CachePolicy;
use crate::resource_type::ResourceType;
use crate::source::ClientSource;
use futures::future::BoxFuture;
use kube_client::Client;
use parking_lot::Mutex;
use std::any::{Any, TypeId};
use std::collections::hash_map::{DefaultHasher, HashMap};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;
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
    informers: HashMap<(TypeId, ResourceType), Entry>,
    /// Requested, and not passed to the worker.
    requested: Vec<Start>,
    /// Passed to the worker, and not taken up.
    starting: Vec<Start>,
    is_shut_down: bool,
}

impl State {
    fn known<K: Cacheable>(&self, id: &(TypeId, ResourceType)) -> Option<SharedInformer<K>> {
        self.informers.get(id)?.informer.downcast_ref().cloned()
    }
}

/// Runs one informer's worker.
type Start = Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, ()> + Send>;

struct Entry {
    informer: Box<dyn Any + Send + Sync>,
    synced: Synced,
    is_started: bool,
}

/// Waits until an informer has synced (`true`) or stopped.
type Synced = Arc<dyn Fn() -> BoxFuture<'static, bool> + Send + Sync>;

/// What all informers of a factory have in common.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct FactoryOptions {
    /// Only objects of this namespace; `None` is all of them.
    pub namespace: Option<String>,
    /// A label selector in the query form.
    pub labels: String,
    /// A field selector in the query form.
    pub fields: String,
    /// The resync period; zero is never.
    pub resync: Duration,
    /// What caches hold.
    pub policy: CachePolicy,
    /// The first and the longest wait between failures; `None` is client-go's.
    pub backoff: Option<(Duration, Duration)>,
    /// The seed of all jitter; each informer has its own share.
    pub seed: u64,
}

/// Some informers have not synced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the informers stopped before they had synced: {}", .resources.join(", "))]
#[non_exhaustive]
pub struct NotSynced {
    /// Their resources, sorted.
    pub resources: Vec<String>,
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

    /// The informer of a type.
    pub fn informer<K: Cacheable>(&self) -> SharedInformer<K>
    where
        K::DynamicType: Default,
    {
        self.informer_with(&K::DynamicType::default(), |builder| builder)
    }

    /// The informer of a type, built by `build` if this is the first request for it (FAC-1).
    pub fn informer_with<K: Cacheable>(
        &self,
        dynamic_type: &K::DynamicType,
        build: impl FnOnce(SharedInformerBuilder<K>) -> SharedInformerBuilder<K>,
    ) -> SharedInformer<K> {
        let resource_type = ResourceType::of::<K>(dynamic_type);
        let id = (TypeId::of::<K>(), resource_type.clone());
        if let Some(known) = self.0.state.lock().known(&id) {
            return known;
        }
        // Built without the lock, for `build` may ask for other informers. Building does nothing, so a lost race costs nothing.
        let (informer, worker) = build(self.builder(dynamic_type, &resource_type)).build();
        let mut state = self.0.state.lock();
        if let Some(known) = state.known(&id) {
            return known;
        }
        let awaited = informer.clone();
        let synced: Synced = Arc::new(move || {
            let awaited = awaited.clone();
            Box::pin(async move { awaited.synced().await.is_ok() })
        });
        let entry = Entry { informer: Box::new(informer.clone()), synced, is_started: false };
        state.informers.insert(id, entry);
        if !state.is_shut_down {
            state.requested.push(Box::new(move |stop| Box::pin(worker.run(stop))));
        }
        informer
    }

    fn builder<K: Cacheable>(
        &self,
        dynamic_type: &K::DynamicType,
        resource_type: &ResourceType,
    ) -> SharedInformerBuilder<K> {
        let options = &self.0.options;
        let namespace = options.namespace.as_deref();
        let source = ClientSource::dynamic::<K>(self.0.client.clone(), dynamic_type, namespace)
            .labels(options.labels.clone())
            .fields(options.fields.clone());
        let mut hasher = DefaultHasher::new();
        resource_type.hash(&mut hasher);
        let builder = SharedInformer::builder_dynamic(source, dynamic_type)
            .resync(options.resync)
            .policy(options.policy)
            .seed(options.seed ^ hasher.finish());
        match options.backoff {
            Some((min, max)) => builder.backoff(min, max),
            None => builder,
        }
    }

    /// Starts the informers requested so far; call it again for those requested later. Does nothing after shutdown (FAC-3).
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
    /// When some have stopped before; they are named (FAC-4).
    pub async fn wait_for_sync(&self) -> Result<(), NotSynced> {
        let mut started: Vec<(String, Synced)> = {
            let state = self.0.state.lock();
            let started = state.informers.iter().filter(|(_, entry)| entry.is_started);
            started.map(|((_, name), entry)| (name.to_string(), entry.synced.clone())).collect()
        };
        started.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut resources = Vec::new();
        for (resource, synced) in started {
            if !synced().await {
                resources.push(resource);
            }
        }
        if resources.is_empty() { Ok(()) } else { Err(NotSynced { resources }) }
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
