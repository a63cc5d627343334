//! Builds a server.

use super::shutdown::Shutdown;
use super::{ApiServer, Inner};
use crate::backend::{Backend, Backends};
use crate::connector::Connector;
use crate::discovery::Aggregated;
use crate::extra::{Extra, Handler};
use crate::figures::ServerFigures;
use crate::filter::authenticate::{Anonymous, Authenticator, Authenticators, Credentials};
use crate::filter::cors::Cors;
use crate::filter::fairness::Fairness;
use crate::filter::goaway::GoAwayChance;
use crate::filter::hsts::Hsts;
use crate::filter::in_flight::{InFlight, RequestLimits};
use crate::filter::large::LargeAnswers;
use crate::filter::storage_versions::StorageVersionBarrier;
use crate::filter::watches::Watches;
use crate::health::HealthCheck;
use crate::intercept::Interceptor;
use crate::negotiate::Types;
use crate::node_agent::{NodeAgent, StreamLimits};
use crate::observe::{AuditSink, Metrics, Observers};
use crate::openapi::{self, OpenApiDescriptions};
use crate::peers::Peers;
use crate::streams::{Agents, Slots};
use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use setpoint_registry::{Feature, Registry, TokenReviewer};
use setpoint_spans::Tracer;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Builds an [`ApiServer`].
#[derive(Debug)]
#[must_use]
pub struct ApiServerBuilder {
    pub(super) registry: Registry,
    pub(super) credentials: Credentials,
    pub(super) bootstrap_tokens: bool,
    pub(super) authenticators: Vec<Arc<dyn Authenticator>>,
    pub(super) anonymous: Anonymous,
    pub(super) extra: Extra,
    pub(super) audit: Vec<Arc<dyn AuditSink>>,
    pub(super) metrics: Vec<Arc<dyn Metrics>>,
    pub(super) backends: Vec<Backend>,
    pub(super) interceptors: Vec<Arc<dyn Interceptor>>,
    pub(super) health_checks: Vec<Arc<dyn HealthCheck>>,
    pub(super) tracer: Option<Tracer>,
    pub(super) address: Option<String>,
    pub(super) seed: Option<u64>,
    pub(super) limits: RequestLimits,
    pub(super) agents: Agents,
    pub(super) cors: Option<Cors>,
    pub(super) hsts: Option<Hsts>,
    pub(super) go_away: GoAwayChance,
    pub(super) request_timeout: Duration,
    pub(super) livez_grace_period: Duration,
    pub(super) descriptions: Option<Arc<OpenApiDescriptions>>,
    pub(super) flags: Option<BTreeMap<String, String>>,
}

impl ApiServerBuilder {
    /// Accepted credentials. Default: none.
    pub fn credentials(mut self, credentials: Credentials) -> Self {
        self.credentials = credentials;
        self
    }

    /// Whether the bootstrap tokens in Secrets of `kube-system` authenticate new nodes, as
    /// kube-apiserver's `--enable-bootstrap-token-auth`. Default: no.
    pub fn bootstrap_tokens(mut self, are_accepted: bool) -> Self {
        self.bootstrap_tokens = are_accepted;
        self
    }

    /// Adds an authenticator after those added before. Default: none.
    pub fn authenticator(mut self, authenticator: Arc<dyn Authenticator>) -> Self {
        self.authenticators.push(authenticator);
        self
    }

    /// Which requests without credentials are anonymous. Default: [`Anonymous::Health`].
    pub fn anonymous(mut self, anonymous: Anonymous) -> Self {
        self.anonymous = anonymous;
        self
    }

    /// Adds a handler for paths that begin with `prefix` and have no other route. Its requests are
    /// authenticated and authorized as non-resource requests.
    pub fn route(mut self, prefix: &str, handler: Arc<dyn Handler>) -> Self {
        self.extra.add(prefix, handler);
        self
    }

    /// Adds an audit sink. Default: none.
    pub fn audit(mut self, sink: Arc<dyn AuditSink>) -> Self {
        self.audit.push(sink);
        self
    }

    /// Adds metrics. Default: none.
    pub fn metrics(mut self, metrics: Arc<dyn Metrics>) -> Self {
        self.metrics.push(metrics);
        self
    }

    /// Adds a backend for a group version. While the server runs, backends can be added and removed
    /// with [`ApiServer::backends`]. Default: none.
    pub fn backend(mut self, backend: Backend) -> Self {
        self.backends.push(backend);
        self
    }

    /// Adds an agent that serves the streams of pods: `log`, `exec`, `attach`, `portforward`.
    /// Default: none, and such requests are answered with 503.
    pub fn node_agent(mut self, agent: Arc<dyn NodeAgent>) -> Self {
        self.agents.list.push(agent);
        self
    }

    /// What reaches kubelets, pods and Services: for the streams of pods on nodes without an agent,
    /// and for the proxies of pods, Services and nodes. Default: nothing does, and such requests
    /// are answered with 503.
    pub fn connector(mut self, connector: Arc<dyn Connector>) -> Self {
        self.agents.connector = Some(connector);
        self
    }

    /// How many streams of pods and proxied requests are open at the same time. Default: 64 of a
    /// pod, 512 of a node, 1024 proxied requests of a user.
    pub fn stream_limits(mut self, limits: StreamLimits) -> Self {
        self.agents.slots = Arc::new(Slots::new(limits));
        self
    }

    /// Adds an interceptor of requests over HTTP, for tests. They are called in the order in which
    /// they were added. Default: none.
    pub fn interceptor(mut self, interceptor: Arc<dyn Interceptor>) -> Self {
        self.interceptors.push(interceptor);
        self
    }

    /// Adds a check to `/healthz` and `/readyz`. Default: none.
    pub fn health_check(mut self, check: Arc<dyn HealthCheck>) -> Self {
        self.health_checks.push(check);
        self
    }

    /// Makes spans of requests over HTTP and their stages, of those that the tracer samples. The
    /// header `traceparent` of users in `system:masters` and `system:monitoring` decides; that of
    /// others is a link. Somebody has to empty the tracer's queue. Default: none.
    pub fn tracer(mut self, tracer: Tracer) -> Self {
        self.tracer = Some(tracer);
        self
    }

    /// The `host:port` of the server in discovery. Default: the `Host` header of each request.
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.address = Some(address.into());
        self
    }

    /// How many requests run, and how many watches are open, at the same time. Default: requests as
    /// kube-apiserver, 20,000 watches of a user and 200,000 in all.
    pub fn limits(mut self, limits: RequestLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Descriptions of built-in types in the OpenAPI documents. Default: `ObjectMeta` alone has
    /// some.
    pub fn open_api_descriptions(mut self, descriptions: Arc<OpenApiDescriptions>) -> Self {
        self.descriptions = Some(descriptions);
        self
    }

    /// The options of the program by name, which `/flagz` shows to those who may read it. Leave out
    /// the values of secret ones. Default: there is no such page.
    pub fn flags(mut self, flags: BTreeMap<String, String>) -> Self {
        self.flags = Some(flags);
        self
    }

    /// Pages of which origins may read answers. Default: none, and no such headers are sent.
    pub fn cors(mut self, origins: Cors) -> Self {
        self.cors = Some(origins);
        self
    }

    /// The header `Strict-Transport-Security` of every answer that has none. Default: none.
    pub fn hsts(mut self, directives: Hsts) -> Self {
        self.hsts = Some(directives);
        self
    }

    /// The chance that a request over HTTP/2 is the last of its connection. Default: never.
    pub fn go_away_chance(mut self, chance: GoAwayChance) -> Self {
        self.go_away = chance;
        self
    }

    /// Maximum time of a request that is not long-running; a smaller `?timeout=` counts. Default: a
    /// minute, as kube-apiserver's `--request-timeout`.
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// For how long `/livez` takes an unfinished start to succeed, as kube-apiserver's
    /// `--livez-grace-period`. Default: zero.
    pub fn livez_grace_period(mut self, period: Duration) -> Self {
        self.livez_grace_period = period;
        self
    }

    /// The seed of audit ids, and of the chance that connections end. Default: from the operating
    /// system.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Builds the server.
    pub fn build(self) -> ApiServer {
        let seed = self.seed.unwrap_or_else(setpoint_object::seed::from_entropy);
        let authenticators = Authenticators::new(
            &self.registry,
            self.credentials,
            self.bootstrap_tokens,
            self.authenticators,
        );
        let authenticators = Arc::new(authenticators.anonymous(self.anonymous));
        let reviewer: Arc<dyn TokenReviewer> = authenticators.clone();
        self.registry.set_token_reviewer(Arc::downgrade(&reviewer));
        let started = self.registry.clock().now();
        let features = self.registry.features();
        let types = Types { cbor: features.is_on(Feature::CBORServingAndStorage) };
        ApiServer {
            inner: Arc::new(Inner {
                authenticators,
                extra: self.extra,
                observers: Arc::new(Observers {
                    audit: self.audit,
                    metrics: self.metrics,
                    clock: self.registry.clock().clone(),
                }),
                large: LargeAnswers::new(self.registry.works_in_place()),
                registry: self.registry,
                tracer: self.tracer,
                address: self.address,
                backends: Backends::of(self.backends),
                peers: Peers::default(),
                interceptors: self.interceptors,
                health_checks: self.health_checks,
                served: Mutex::default(),
                rng: Mutex::new(SmallRng::seed_from_u64(seed)),
                in_flight: InFlight::new(&self.limits),
                watches: Watches::new(&self.limits),
                storage_versions: StorageVersionBarrier::default(),
                fairness: self.limits.is_fair.then(|| Fairness::new(self.limits.seats())),
                figures: ServerFigures::default(),
                aggregated: Aggregated::default(),
                open_api: openapi::Documents::new(features, self.descriptions),
                drain: CancellationToken::new(),
                shutdown: Shutdown::default(),
                request_timeout: self.request_timeout,
                livez_grace_period: self.livez_grace_period,
                agents: self.agents,
                types,
                cors: self.cors,
                hsts: self.hsts,
                go_away: self.go_away,
                started,
                flags: self.flags,
            }),
        }
    }
}
