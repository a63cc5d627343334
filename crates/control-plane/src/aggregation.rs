//! API aggregation: group versions that other servers serve, by APIService objects.
//!
//! # Theory
//!
//! ```text
//!              watch                    put, availability
//! APIService ────────▶ Aggregation ────────────────────────▶ Backends ──▶ requests ─▶ Proxy ─▶ server
//!     ▲                     │ one per object with a service                             ▲
//!     │ status              ▼                                                           │
//!     └──────────────── Actor: checks, documents ──── GET /apis/<g>/<v>, /openapi/… ────┘
//! ```
//!
//! | APIService | becomes |
//! |---|---|
//! | without a service | a registration: its position in discovery |
//! | with a service | a [`Backend`](setpoint_apiserver::Backend), whose handler forwards requests |
//!
//! - Whether requests are forwarded is what the object's condition `Available` says, whoever wrote
//!   it. An actor checks the server, and writes the condition if it differs ([`check`]).
//! - An actor runs its checks when the object, its Service or the Service's EndpointSlices change,
//!   every [`RESYNC`](actor::RESYNC), and after failures with a growing pause. It watches that one
//!   Service and its slices only, so that nothing else wakes it.
//! - Documents of discovery and OpenAPI are fetched after a check that passed, at most once a
//!   minute, and stay while the server is away ([`documents`]).
//! - Each control plane runs its own, as each kube-apiserver does: also without built-in
//!   controllers. It sleeps as long as the objects are those of the start, which are the same for
//!   all control planes of a process. Without others it is one idle watch.
//!
//! The rules are those of kube-aggregator (spec: extension §1).

mod actor;
mod api_service;
mod check;
mod documents;
pub(crate) mod forwarding;
mod metrics;
mod proxy;
mod remote;
mod user;

pub(crate) use metrics::AggregatorMetrics;

use crate::built_in::is_served;
use actor::Actor;
use api_service::ApiService;
use futures::{FutureExt as _, StreamExt as _};
use parking_lot::Mutex;
use remote::Remote;
use setpoint_apiserver::{
    ApiServer, Attributes, Events, Identity, Registration, Requested, ResourcePath, Verb,
};
use setpoint_egress::Dialer;
use setpoint_object::ApiError;
use setpoint_object::error::chain;
use setpoint_registry::{EventKind, ListOptions, Registry};
use setpoint_webhook_client::{Identity as ClientCertificate, ServiceResolver};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The pause after a watch that could not be started, or ended at once.
const RETRY: Duration = Duration::from_secs(1);
/// Maximum number of servers whose documents are fetched at a time, each of at most some mebibytes.
const FETCHES_MAX: usize = 4;

/// The key prefix of APIServices.
const PREFIX: &str = "/registry/apiregistration.k8s.io/apiservices/";

/// The client certificate of proxied requests. Set before the first one, or never.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProxyCertificate(Arc<Mutex<Option<ClientCertificate>>>);

impl ProxyCertificate {
    /// One that is known already.
    pub(crate) fn of(certificate: Option<ClientCertificate>) -> Self {
        Self(Arc::new(Mutex::new(certificate)))
    }

    /// Sets it, unless there is one. Returns whether it was set.
    pub(crate) fn set(&self, certificate: impl FnOnce() -> ClientCertificate) -> bool {
        let mut known = self.0.lock();
        let is_new = known.is_none();
        if is_new {
            *known = Some(certificate());
        }
        is_new
    }

    /// Whether there is one.
    pub(crate) fn is_set(&self) -> bool {
        self.0.lock().is_some()
    }

    /// The certificate, if there is one.
    pub(crate) fn get(&self) -> Option<ClientCertificate> {
        self.0.lock().clone()
    }
}

/// Serves what APIService objects say. Does nothing until [`Aggregation::run`].
#[must_use]
pub(crate) struct Aggregation {
    server: ApiServer,
    ways: Arc<Ways>,
    fetches: Arc<Semaphore>,
    metrics: AggregatorMetrics,
    /// Somebody reads the metrics.
    has_metrics: bool,
}

impl fmt::Debug for Aggregation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aggregation").field("ways", &self.ways).finish_non_exhaustive()
    }
}

/// How servers of APIServices are found and reached.
#[derive(Debug)]
pub(crate) struct Ways {
    pub(crate) resolver: Arc<dyn ServiceResolver>,
    /// The resolver looks among the objects of this control plane, so that a missing Service is an
    /// error.
    pub(crate) has_services: bool,
    pub(crate) certificate: ProxyCertificate,
    pub(crate) dialer: Dialer,
}

/// What an APIService became.
enum Known {
    Local(Registration),
    Remote { remote: Arc<Remote>, changes: watch::Sender<Arc<ApiService>>, actor: AbortHandle },
}

/// All APIServices.
#[derive(Default)]
struct State {
    known: BTreeMap<String, Known>,
    actors: JoinSet<()>,
}

impl Aggregation {
    /// Creates the aggregation of a server. `metrics`: `None` if nobody reads them.
    pub(crate) fn new(server: ApiServer, ways: Ways, metrics: Option<AggregatorMetrics>) -> Self {
        let fetches = Arc::new(Semaphore::new(FETCHES_MAX));
        let (has_metrics, metrics) = (metrics.is_some(), metrics.unwrap_or_default());
        Self { server, ways: Arc::new(ways), fetches, metrics, has_metrics }
    }

    /// Runs until `stop`. Dropping it stops everything at once.
    pub(crate) async fn run(self, stop: CancellationToken) {
        if !is_served(&self.server, &stop).await || !self.is_needed(&stop).await {
            return;
        }
        let follow = async {
            let mut state = State::default();
            loop {
                let begun = Instant::now();
                let followed = self.follow(&mut state).await;
                if let Err(error) = &followed {
                    tracing::warn!(error = chain(&error), "watch APIServices");
                }
                // A server that drains ends watches at once.
                if followed.is_err() || begun.elapsed() < RETRY {
                    tokio::time::sleep(RETRY).await;
                }
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            // Cancel safe: what it knows is read again at the next start.
            () = follow => {}
        }
    }

    /// Registers the objects of the start and waits for the first change, unless there are others
    /// already. `false`: stopped before.
    async fn is_needed(&self, stop: &CancellationToken) -> bool {
        let registry = self.server.registry();
        // Begins before the objects are looked at, so that no change is missed.
        let mut changes = registry.change_signal(PREFIX, None);
        let of_start = of_start(registry).filter(|_| !self.has_metrics);
        let Some(of_start) = of_start else { return true };
        self.server.backends().register(Some(of_start));
        tokio::select! {
            biased;
            () = stop.cancelled() => false,
            // Cancel safe: it only waits for a state.
            () = changes.changed() => true,
        }
    }

    /// Lists the objects, and follows their changes until the watch ends.
    async fn follow(&self, state: &mut State) -> Result<(), ApiError> {
        // Boxed, so that an idle watch holds no space for the requests.
        let list = Box::pin(self.server.list(request(Verb::List), ListOptions::default())).await?;
        let found = list.items.iter().filter_map(|item| ApiService::parse(&item.bytes()));
        let found: Vec<ApiService> = found.collect();
        let gone: Vec<String> = state
            .known
            .keys()
            .filter(|name| !found.iter().any(|service| service.name == **name))
            .cloned()
            .collect();
        for name in gone {
            self.metrics.forget(&name);
            self.remove(state, &name);
        }
        for service in found {
            self.put(state, service);
        }
        self.register(state);
        let options =
            ListOptions { resource_version: list.revision.to_string(), ..ListOptions::default() };
        drop(list);
        let watch = Box::pin(self.server.watch(request(Verb::Watch), options));
        let mut events: Events = watch.await?;
        while let Some(first) = events.next().await {
            let mut next = Some(first);
            // All that have happened are one change of discovery.
            while let Some(event) = next {
                let event = event?;
                let service = ApiService::parse(&event.object());
                match (event.kind, service) {
                    (EventKind::Added | EventKind::Modified, Some(service)) => {
                        self.put(state, service);
                    }
                    (EventKind::Deleted, Some(service)) => {
                        self.metrics.forget(&service.name);
                        self.remove(state, &service.name);
                    }
                    _ => {}
                }
                next = events.next().now_or_never().flatten();
            }
            self.register(state);
        }
        Ok(())
    }

    fn put(&self, state: &mut State, service: ApiService) {
        // Removes finished actors, so that the set holds running ones only.
        while state.actors.try_join_next().is_some() {}
        self.metrics.observe(&service);
        let Some(target) = service.target.clone() else {
            if matches!(state.known.get(&service.name), Some(Known::Remote { .. })) {
                self.remove(state, &service.name);
            }
            let registration = service.registration();
            state.known.insert(service.name, Known::Local(registration));
            return;
        };
        if let Some(Known::Remote { remote, changes, .. }) = state.known.get(&service.name) {
            let service = Arc::new(service);
            remote.change(self.server.backends(), &service);
            changes.send_replace(service);
            return;
        }
        let name = service.name.clone();
        let service = Arc::new(service);
        let remote = Remote::new(
            service.group_version.clone(),
            target,
            self.ways.clone(),
            self.server.registry().clock().clone(),
        );
        remote.change(self.server.backends(), &service);
        let (changes, follows) = watch::channel(service);
        let actor = Actor {
            server: self.server.clone(),
            remote: remote.clone(),
            service: follows,
            has_services: self.ways.has_services,
            fetches: self.fetches.clone(),
        };
        let actor = state.actors.spawn(actor.run());
        state.known.insert(name, Known::Remote { remote, changes, actor });
    }

    fn remove(&self, state: &mut State, name: &str) {
        if let Some(Known::Remote { remote, actor, .. }) = state.known.remove(name) {
            actor.abort();
            remote.remove(self.server.backends());
        }
    }

    /// Passes the registered group versions to discovery.
    fn register(&self, state: &State) {
        let registrations = state.known.values().filter_map(|known| match known {
            Known::Local(registration) => Some(registration.clone()),
            Known::Remote { .. } => None,
        });
        self.server.backends().register(Some(Arc::new(registrations.collect())));
    }
}

/// The registrations of a start, if the objects are still those of the start. They are the same for
/// all control planes of a process with the default resources, so they are read once.
fn of_start(registry: &Registry) -> Option<Arc<Vec<Registration>>> {
    static OF_ALL: OnceLock<Arc<Vec<Registration>>> = OnceLock::new();
    let is_like_others = registry.has_default_resources();
    if let Some(known) = OF_ALL.get().filter(|_| is_like_others) {
        return registry.is_as_started(PREFIX).then(|| known.clone());
    }
    let (objects, newest) = registry.stored_objects(PREFIX);
    if !registry.is_of_start(newest) {
        return None;
    }
    let services = objects.iter().filter_map(|object| ApiService::parse(&object.value));
    let read = Arc::new(services.map(|service| service.registration()).collect());
    Some(if is_like_others { OF_ALL.get_or_init(|| read).clone() } else { read })
}

/// A request for all APIServices, as the server itself.
fn request(verb: Verb) -> Attributes {
    let path = ResourcePath {
        group: "apiregistration.k8s.io".to_owned(),
        version: "v1".to_owned(),
        resource: "apiservices".to_owned(),
        ..ResourcePath::default()
    };
    Attributes::new(Identity::loopback(), verb, Requested::Unrouted(path))
}
