//! What may be chosen about a manager.

use std::{fmt, sync::Arc, time::Duration};

use setpoint_informer::{CachePolicy, MetricsRegistry, factory::FactoryOptions};
use setpoint_object::time::Clock;

use super::{GRACE_PERIOD, Grace, Manager, ManagerEnvironment};
use crate::{
    cache::Cache,
    client::Client,
    event::{Broadcaster, EventWorker},
};

/// The field manager of writes outside of a controller, unless told otherwise.
const FIELD_MANAGER: &str = "setpoint";

/// Builds a [`Manager`]. Nothing runs before [`Manager::run`].
#[must_use = "a builder does nothing until `build`"]
pub struct ManagerBuilder {
    client: kube_client::Client,
    clock: Clock,
    cache: FactoryOptions,
    grace: Grace,
    field_manager: Arc<str>,
}

impl ManagerBuilder {
    pub(super) fn new(client: kube_client::Client, clock: Clock) -> Self {
        Self {
            client,
            clock,
            cache: FactoryOptions::default(),
            grace: Grace::Period(GRACE_PERIOD),
            field_manager: FIELD_MANAGER.into(),
        }
    }

    /// The seed of all chance: watch time-outs, jitter, reconcile ids. Default: 0. A program should give each process its own.
    pub fn seed(mut self, seed: u64) -> Self {
        self.cache.seed = seed;
        self
    }

    /// Caches only the objects of this namespace. Default: all.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.cache.namespace = Some(namespace.into());
        self
    }

    /// Caches only objects whose labels match, in the query form. Default: all.
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.cache.labels = selector.into();
        self
    }

    /// How often handlers are told again of every cached object, without asking the server. Default: zero, never.
    pub fn resync(mut self, period: Duration) -> Self {
        self.cache.resync = period;
        self
    }

    /// What caches hold of each object. Default: [`CachePolicy::Compact`].
    pub fn cache_policy(mut self, policy: CachePolicy) -> Self {
        self.cache.policy = policy;
        self
    }

    /// The first and the longest wait of an informer between failures. Default: client-go's.
    pub fn cache_backoff(mut self, min: Duration, max: Duration) -> Self {
        self.cache.backoff = Some((min, max));
        self
    }

    /// Ends an informer whose type the server has refused (403, 404) for so long; controllers that still wait for its first
    /// list then fail. Default: never, it goes on trying.
    pub fn cache_give_up_after(mut self, patience: Duration) -> Self {
        self.cache.give_up_after = Some(patience);
        self
    }

    /// Where informers tell of themselves, under this informer name. Default: nowhere.
    pub fn cache_metrics(mut self, registry: MetricsRegistry, name: impl Into<String>) -> Self {
        self.cache.metrics = Some(registry);
        self.cache.name = name.into();
        self
    }

    /// How long tasks may take to end when the manager stops. Default: 30 s.
    pub fn grace(mut self, grace: Grace) -> Self {
        self.grace = grace;
        self
    }

    /// The field manager of writes through [`Manager::client`]. Controllers write in their own names.
    pub fn field_manager(mut self, name: impl Into<Arc<str>>) -> Self {
        self.field_manager = name.into();
        self
    }

    /// The manager: nothing has been asked of the server.
    pub fn build(self) -> Manager {
        let Self { client, clock, cache, grace, field_manager } = self;
        let seed = cache.seed;
        let (cache, cache_worker) = Cache::new(client.clone(), cache);
        let client = Client::new(client, cache.clone(), field_manager);
        let (broadcaster, heard) = Broadcaster::new(clock.clone());
        let environment =
            ManagerEnvironment { client: client.clone(), cache, broadcaster, clock, seed };
        let event_worker = EventWorker::new(
            client,
            heard,
            environment.broadcaster.lost(),
            environment.seed_of("event recorder"),
        );
        Manager {
            environment,
            grace,
            cache_worker,
            event_worker,
            members: Vec::new(),
            handles: Vec::new(),
        }
    }
}

impl fmt::Debug for ManagerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManagerBuilder")
            .field("cache", &self.cache)
            .field("grace", &self.grace)
            .finish_non_exhaustive()
    }
}
