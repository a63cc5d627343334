//! One server behind an APIService: where it is, and its entry among the backends.

use super::Ways;
use super::api_service::{ApiService, Target};
use super::proxy::Proxy;
use http::{Request, Response};
use hyper::body::Incoming;
use parking_lot::{Mutex, RwLock};
use setpoint_apiserver::{Backend, BackendError, Backends, RequestBody};
use setpoint_object::GroupVersion;
use setpoint_object::error::chain;
use setpoint_object::time::Clock;
use setpoint_webhook_client::{
    Address, ConfigError, Lane, ResolveError, Transport, TransportError,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio::time::Instant;

/// How long a lookup of the service is used, unless a connection fails.
const LOOKUP_MAX: Duration = Duration::from_secs(1);

/// A server. The proxy and the actor share it.
#[derive(Debug)]
pub(super) struct Remote {
    pub(super) group_version: GroupVersion,
    ways: Arc<Ways>,
    clock: Clock,
    route: RwLock<Arc<Route>>,
    entry: Mutex<Entry>,
}

/// Its entry among the backends.
#[derive(Debug, Default)]
struct Entry {
    priorities: (u32, u32),
    is_available: bool,
    /// Whether discovery was fetched the last time.
    is_discovered: bool,
    is_removed: bool,
    /// The newest one, with its documents.
    documented: Option<Backend>,
}

/// The way to a server. Another service or bundle is another way.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) target: Target,
    transport: OnceCell<Result<Transport<RequestBody>, ConfigError>>,
    /// Which of several addresses is the next one.
    turn: AtomicUsize,
    addresses: Mutex<Option<(Instant, Vec<Address>)>>,
}

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// The service has no address.
    Resolve(ResolveError),
    /// The connection cannot be configured.
    Config(ConfigError),
    /// The server did not answer.
    Transport(TransportError),
}

impl Route {
    fn new(target: Target) -> Arc<Self> {
        Arc::new(Self {
            target,
            transport: OnceCell::new(),
            turn: AtomicUsize::default(),
            addresses: Mutex::default(),
        })
    }
}

impl Remote {
    /// A server that is not among the backends yet.
    pub(super) fn new(
        group_version: GroupVersion,
        target: Target,
        ways: Arc<Ways>,
        clock: Clock,
    ) -> Arc<Self> {
        Arc::new(Self {
            group_version,
            ways,
            clock,
            route: RwLock::new(Route::new(target)),
            entry: Mutex::default(),
        })
    }

    /// Follows a change of the object.
    pub(super) fn change(self: &Arc<Self>, backends: &Backends, service: &ApiService) {
        if let Some(target) = &service.target
            && self.route.read().target != *target
        {
            *self.route.write() = Route::new(target.clone());
        }
        let mut entry = self.entry.lock();
        entry.priorities = (service.group_priority, service.version_priority);
        entry.is_available = service.is_available();
        if let Err(error) = self.put(backends, &mut entry, None) {
            tracing::warn!(error = chain(&error), group_version = %self.group_version, "serve an APIService");
        }
    }

    /// Says whether discovery could be fetched the last time.
    pub(super) fn discovered(self: &Arc<Self>, backends: &Backends, is_discovered: bool) {
        let mut entry = self.entry.lock();
        if entry.is_removed || entry.is_discovered == is_discovered {
            return;
        }
        entry.is_discovered = is_discovered;
        if let Err(error) = self.put(backends, &mut entry, None) {
            tracing::warn!(error = chain(&error), group_version = %self.group_version, "show the discovery of an APIService");
        }
    }

    /// Replaces the documents.
    ///
    /// # Errors
    ///
    /// There are too many backends or documents; the former documents stay.
    pub(super) fn document(
        self: &Arc<Self>,
        backends: &Backends,
        documented: Backend,
    ) -> Result<(), BackendError> {
        let mut entry = self.entry.lock();
        if entry.is_removed {
            return Ok(());
        }
        let former = entry.documented.clone();
        let put = self.put(backends, &mut entry, Some(documented));
        if put.is_err() {
            entry.documented = former;
        }
        put
    }

    /// Puts the backend, with the documents that it has unless there are new ones.
    fn put(
        self: &Arc<Self>,
        backends: &Backends,
        entry: &mut Entry,
        documented: Option<Backend>,
    ) -> Result<(), BackendError> {
        let backend = match documented.or_else(|| entry.documented.clone()) {
            Some(backend) => backend,
            None => self.builder().build()?,
        };
        let (group, version) = entry.priorities;
        let backend = backend.with_priorities(group, version)?;
        let backend = backend.with_availability(entry.is_available);
        let backend = backend.with_discovery(entry.is_discovered);
        entry.documented = Some(backend.clone());
        backends.put(backend)
    }

    /// A builder of its backend.
    pub(super) fn builder(self: &Arc<Self>) -> setpoint_apiserver::BackendBuilder {
        let GroupVersion { group, version } = &self.group_version;
        Backend::builder(group, version, Arc::new(Proxy(self.clone()))).forward_discovery(true)
    }

    /// Removes the backend.
    pub(super) fn remove(&self, backends: &Backends) {
        let mut entry = self.entry.lock();
        entry.is_removed = true;
        backends.remove(&self.group_version);
    }

    /// The present way to the server.
    pub(super) fn route(&self) -> Arc<Route> {
        self.route.read().clone()
    }

    /// An address of the server: the next one of its service.
    ///
    /// # Errors
    ///
    /// [`Failure::Resolve`].
    pub(super) async fn address(&self, route: &Route) -> Result<Address, Failure> {
        let known = route.addresses.lock().clone();
        let addresses = match known {
            Some((at, addresses)) if at.elapsed() < LOOKUP_MAX => addresses,
            _ => {
                let found = self.ways.resolver.resolve(&route.target.service).await;
                let found = found.map_err(Failure::Resolve)?;
                *route.addresses.lock() = Some((Instant::now(), found.clone()));
                found
            }
        };
        let turn = route.turn.fetch_add(1, Ordering::Relaxed);
        let Some(at) = turn.checked_rem(addresses.len()) else {
            let name = &route.target.service.name;
            let none = format!("no endpoints available for service {name:?}");
            return Err(Failure::Resolve(ResolveError(none)));
        };
        addresses
            .into_iter()
            .nth(at)
            .ok_or_else(|| Failure::Resolve(ResolveError("the service has no address".to_owned())))
    }

    /// The transport to the server.
    ///
    /// # Errors
    ///
    /// [`Failure::Config`].
    pub(super) async fn transport<'r>(
        &self,
        route: &'r Route,
    ) -> Result<&'r Transport<RequestBody>, Failure> {
        let Target { service, trust } = &route.target;
        let made = route.transport.get_or_init(async || {
            let server_name = format!("{}.{}.svc", service.name, service.namespace);
            let certificate = self.ways.certificate.get();
            let (identity, dialer) = (certificate.as_ref(), self.ways.dialer.clone());
            Transport::new(trust, Some(&server_name), identity, &self.clock, dialer).await
        });
        made.await.as_ref().map_err(|error| Failure::Config(error.clone()))
    }

    /// Sends a request to an address of the server.
    ///
    /// # Errors
    ///
    /// [`Failure::Config`] and [`Failure::Transport`].
    pub(super) async fn send(
        &self,
        route: &Route,
        address: &Address,
        request: Request<RequestBody>,
        lane: Lane,
    ) -> Result<Response<Incoming>, Failure> {
        let transport = self.transport(route).await?;
        transport.send(address, request, lane).await.map_err(|error| {
            // The service may have moved.
            *route.addresses.lock() = None;
            Failure::Transport(error)
        })
    }
}
