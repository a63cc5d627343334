//! Extension points of a control plane: authentication, authorization, admission, audit, metrics,
//! routes and backends.

use crate::aggregation::AggregatorMetrics;
use crate::flow_metrics::FlowMetrics;
use crate::metrics_page::{METRICS, MetricsPage, MetricsPageOptions, SLIS};
use crate::proxy::connector::NetworkConnector;
use crate::proxy::kubelets::KubeletOptions;
use crate::registry_metrics::RegistryMetrics;
use crate::server_metrics::ServerMetrics;
use crate::{ControlPlaneBuilder, RequestMetrics, process_metrics};
use futures::future::{BoxFuture, FutureExt as _};
use setpoint_apiserver::{
    Anonymous, ApiServerBuilder, AuditSink, Authenticator, Backend, Connector, Cors, GoAwayChance,
    Handler, HealthCheck, Hsts, Interceptor, Metrics, NodeAgent, OpenApiDescriptions,
    RequestLimits, StreamLimits,
};
use setpoint_egress::{Dialer, EgressSelector};
use setpoint_object::time::Clock;
use setpoint_registry::{
    Admission, AdmissionPlugins, Authorizer, ConversionProvider, NodeAuthorizer, Rbac, Registry,
    RegistryBuilder, WebhookClients,
};
use setpoint_spans::Tracer;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// A task that runs beside the server until the token is cancelled.
pub(crate) type Task =
    Box<dyn FnOnce(Registry, CancellationToken) -> BoxFuture<'static, ()> + Send>;

/// The extensions, in the order in which they were added.
#[derive(Default)]
pub(crate) struct Extensions {
    authenticators: Vec<Arc<dyn Authenticator>>,
    node_agents: Vec<Arc<dyn NodeAgent>>,
    stream_limits: StreamLimits,
    kubelets: KubeletOptions,
    connector: Option<Arc<dyn Connector>>,
    cors: Option<Cors>,
    hsts: Option<Hsts>,
    go_away: GoAwayChance,
    request_timeout: Option<Duration>,
    min_request_timeout: Option<Duration>,
    livez_grace_period: Duration,
    denies_privileged: bool,
    has_no_watch_cache: bool,
    is_isolated: bool,
    anonymous: Anonymous,
    authorizers: Vec<Arc<dyn Authorizer>>,
    rbac: Option<Arc<Rbac>>,
    admission: Vec<Arc<dyn Admission>>,
    plugins: Option<AdmissionPlugins>,
    webhooks: Option<Arc<dyn WebhookClients>>,
    converter: Option<Arc<dyn ConversionProvider>>,
    audit: Vec<Arc<dyn AuditSink>>,
    metrics: Vec<Arc<dyn Metrics>>,
    routes: Vec<(String, Arc<dyn Handler>)>,
    backends: Vec<Backend>,
    interceptors: Vec<Arc<dyn Interceptor>>,
    health_checks: Vec<Arc<dyn HealthCheck>>,
    tasks: Vec<Task>,
    pub(crate) flow_metrics: Option<FlowMetrics>,
    pub(crate) server_metrics: Option<ServerMetrics>,
    pub(crate) registry_metrics: Option<RegistryMetrics>,
    pub(crate) aggregator_metrics: Option<AggregatorMetrics>,
    pub(crate) limits: RequestLimits,
    tracer: Option<Tracer>,
    descriptions: Option<Arc<OpenApiDescriptions>>,
    flags: Option<BTreeMap<String, String>>,
}

impl Extensions {
    /// The RBAC authorizer, if there is one.
    pub(crate) fn rbac(&self) -> Option<Arc<Rbac>> {
        self.rbac.clone()
    }

    /// Sets the RBAC authorizer, which an added authorizer asks.
    pub(crate) fn set_rbac(&mut self, rbac: Arc<Rbac>) {
        self.rbac = Some(rbac);
    }

    /// Runs a Node authorizer with the control plane.
    pub(crate) fn follow_nodes(&mut self, node: Arc<NodeAuthorizer>) {
        self.task(move |registry, stop| {
            async move {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => {}
                    // Cancel safe: the graph stays as it is.
                    () = node.run(&registry) => {}
                }
            }
            .boxed()
        });
    }

    /// Adds a task that runs with the control plane.
    pub(crate) fn task(
        &mut self,
        task: impl FnOnce(Registry, CancellationToken) -> BoxFuture<'static, ()> + Send + 'static,
    ) {
        self.tasks.push(Box::new(task));
    }

    /// The tasks that were added.
    pub(crate) fn take_tasks(&mut self) -> Vec<Task> {
        std::mem::take(&mut self.tasks)
    }

    /// Adds the registry's extensions.
    pub(crate) fn registry(&mut self, mut builder: RegistryBuilder) -> RegistryBuilder {
        for authorizer in self.authorizers.drain(..) {
            builder = builder.authorizer(authorizer);
        }
        for plugin in self.admission.drain(..) {
            builder = builder.admission(plugin);
        }
        if let Some(plugins) = self.plugins.take() {
            builder = builder.admission_plugins(plugins);
        }
        if let Some(webhooks) = self.webhooks.take() {
            builder = builder.webhooks(webhooks);
        }
        if let Some(converter) = self.converter.take() {
            builder = builder.converter(converter);
        }
        if let Some(timeout) = self.min_request_timeout {
            builder = builder.watch_timeout_min(timeout);
        }
        builder.allow_privileged(!self.denies_privileged).watch_cache(!self.has_no_watch_cache)
    }

    /// Makes what connects to kubelets and others, with the task that follows its files, unless the
    /// embedder has set it.
    pub(crate) fn connect(&mut self, clock: &Clock, dialer: Dialer) {
        if self.is_isolated {
            self.connector = None;
        }
        if self.is_isolated || self.connector.is_some() {
            return;
        }
        let connector = NetworkConnector::new(self.kubelets.clone(), clock.clone(), dialer);
        if connector.has_files() {
            let connector = connector.clone();
            self.task(move |_, stop| connector.follow(stop).boxed());
        }
        self.connector = Some(Arc::new(connector));
    }

    /// Adds the API server's extensions.
    pub(crate) fn server(self, mut builder: ApiServerBuilder) -> ApiServerBuilder {
        for agent in self.node_agents {
            builder = builder.node_agent(agent);
        }
        if let Some(connector) = self.connector {
            builder = builder.connector(connector);
        }
        for authenticator in self.authenticators {
            builder = builder.authenticator(authenticator);
        }
        builder = builder.anonymous(self.anonymous);
        for sink in self.audit {
            builder = builder.audit(sink);
        }
        for metrics in self.metrics {
            builder = builder.metrics(metrics);
        }
        for (prefix, handler) in self.routes {
            builder = builder.route(&prefix, handler);
        }
        for backend in self.backends {
            builder = builder.backend(backend);
        }
        for interceptor in self.interceptors {
            builder = builder.interceptor(interceptor);
        }
        for check in self.health_checks {
            builder = builder.health_check(check);
        }
        if let Some(flags) = self.flags {
            builder = builder.flags(flags);
        }
        if let Some(descriptions) = self.descriptions {
            builder = builder.open_api_descriptions(descriptions);
        }
        if let Some(tracer) = self.tracer {
            builder = builder.tracer(tracer);
        }
        if let Some(origins) = self.cors {
            builder = builder.cors(origins);
        }
        if let Some(directives) = self.hsts {
            builder = builder.hsts(directives);
        }
        if let Some(timeout) = self.request_timeout {
            builder = builder.request_timeout(timeout);
        }
        builder = builder.go_away_chance(self.go_away).livez_grace_period(self.livez_grace_period);
        builder.limits(self.limits).stream_limits(self.stream_limits)
    }
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extensions")
            .field("authenticators", &self.authenticators)
            .field("node_agents", &self.node_agents.len())
            .field("anonymous", &self.anonymous)
            .field("authorizers", &self.authorizers)
            .field("admission", &self.admission)
            .field("plugins", &self.plugins)
            .field("audit", &self.audit)
            .field("metrics", &self.metrics)
            .field("routes", &self.routes.iter().map(|(prefix, _)| prefix).collect::<Vec<_>>())
            .field("backends", &self.backends)
            .field("interceptors", &self.interceptors)
            .field("health_checks", &self.health_checks)
            .finish()
    }
}

impl ControlPlaneBuilder {
    /// Adds an authenticator, called after the credentials and the authenticators added before.
    /// Default: none.
    pub fn authenticator(mut self, authenticator: Arc<dyn Authenticator>) -> Self {
        self.extensions.authenticators.push(authenticator);
        self
    }

    /// Which requests without credentials are those of `system:anonymous`. Default:
    /// [`Anonymous::Health`].
    pub fn anonymous(mut self, anonymous: Anonymous) -> Self {
        self.extensions.anonymous = anonymous;
        self
    }

    /// Adds an authorizer, called after the authorizers added before. Default: every authenticated
    /// user may do everything.
    pub fn authorizer(mut self, authorizer: Arc<dyn Authorizer>) -> Self {
        self.extensions.authorizers.push(authorizer);
        self
    }

    /// Adds RBAC to the authorizers: users may do what roles and bindings allow. The roles of a new
    /// Kubernetes cluster are created at start, and aggregated ClusterRoles follow their sources if
    /// the built-in controllers run. A second call has no effect. Default: no RBAC.
    ///
    /// ```no_run
    /// let plane = setpoint_control_plane::ControlPlane::builder().rbac().build();
    /// # _ = plane;
    /// ```
    pub fn rbac(self) -> Self {
        if self.extensions.rbac.is_some() {
            return self;
        }
        let rbac = Arc::new(Rbac::new());
        let mut this = self.authorizer(rbac.clone());
        this.extensions.rbac = Some(rbac);
        this
    }

    /// Adds the Node authorizer to the authorizers: the agents of nodes (`system:node:<name>` in
    /// `system:nodes`) may read what pods on their nodes refer to, and write what concerns them.
    /// Enable the admission plugin `NodeRestriction` with it. Default: no Node authorizer.
    pub fn node_authorizer(mut self) -> Self {
        let node = Arc::new(NodeAuthorizer::new());
        self.extensions.follow_nodes(node.clone());
        self.authorizer(node)
    }

    /// Adds an admission plugin, called after Kubernetes' own and those added before. Default:
    /// none.
    pub fn admission(mut self, plugin: Arc<dyn Admission>) -> Self {
        self.extensions.admission.push(plugin);
        self
    }

    /// Which of Kubernetes' own admission plugins run, and with which configurations
    /// ([`AdmissionOptions`](setpoint_registry::AdmissionOptions)). Default: those that a
    /// kube-apiserver runs by default.
    ///
    /// ```
    /// use setpoint_registry::AdmissionOptions;
    ///
    /// let plugins = AdmissionOptions::default().enable("AlwaysPullImages").build()?;
    /// let plane = setpoint_control_plane::ControlPlane::builder().admission_plugins(plugins).build();
    /// # _ = plane;
    /// # Ok::<(), setpoint_registry::AdmissionOptionsError>(())
    /// ```
    pub fn admission_plugins(mut self, plugins: AdmissionPlugins) -> Self {
        self.extensions.plugins = Some(plugins);
        self
    }

    /// Calls webhooks in another way: those of webhook configurations, and the conversion webhooks
    /// of definitions. [`webhook_identity`](Self::webhook_identity) and
    /// [`webhook_credentials`](Self::webhook_credentials) have no effect on them then. Default:
    /// HTTPS requests, as kube-apiserver.
    ///
    /// ```
    /// use futures::future::{BoxFuture, FutureExt as _};
    /// use serde_json::{Value, json};
    /// use setpoint_registry::{WebhookCaller, WebhookClient, WebhookClients, WebhookError};
    /// use std::{sync::Arc, time::Duration};
    ///
    /// /// Every webhook is in this process, and allows everything.
    /// #[derive(Debug)]
    /// struct InProcess;
    ///
    /// impl WebhookClients for InProcess {
    ///     fn client(&self, _caller: WebhookCaller, _config: &Value) -> Arc<dyn WebhookClient> {
    ///         Arc::new(Self)
    ///     }
    /// }
    ///
    /// impl WebhookClient for InProcess {
    ///     fn call(
    ///         &self,
    ///         review: bytes::Bytes,
    ///         _timeout: Duration,
    ///         _caller: Option<setpoint_spans::SpanContext>,
    ///     ) -> BoxFuture<'static, Result<bytes::Bytes, WebhookError>> {
    ///         async move {
    ///             let review: Value = serde_json::from_slice(&review)
    ///                 .map_err(|error| WebhookError::Call(error.to_string()))?;
    ///             let answer = json!({
    ///                 "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
    ///                 "response": {"uid": review["request"]["uid"], "allowed": true},
    ///             });
    ///             Ok(answer.to_string().into())
    ///         }
    ///         .boxed()
    ///     }
    /// }
    ///
    /// let plane = setpoint_control_plane::ControlPlane::builder().webhooks(Arc::new(InProcess)).build();
    /// # _ = plane;
    /// ```
    pub fn webhooks(mut self, clients: Arc<dyn WebhookClients>) -> Self {
        self.extensions.webhooks = Some(clients);
        self
    }

    /// Converts custom resources whose definitions have the conversion strategy `Webhook`, in this
    /// process: no webhook of a definition is called. [`Conversion`](setpoint_registry::Conversion)
    /// has an example. Default: calls the webhook of the definition.
    pub fn converter(mut self, converter: Arc<dyn ConversionProvider>) -> Self {
        self.extensions.converter = Some(converter);
        self
    }

    /// Adds an audit sink that receives every request. Default: none.
    pub fn audit(mut self, sink: Arc<dyn AuditSink>) -> Self {
        self.extensions.audit.push(sink);
        self
    }

    /// Makes spans of sampled requests over HTTP ([`ApiServerBuilder::tracer`]). Somebody has to
    /// empty the tracer's queue: an exporter. Default: none.
    pub fn tracer(mut self, tracer: Tracer) -> Self {
        self.extensions.tracer = Some(tracer);
        self
    }

    /// Sets the observer that counts requests. Default: none.
    pub fn metrics(mut self, metrics: Arc<dyn Metrics>) -> Self {
        self.extensions.metrics.push(metrics);
        self
    }

    /// How many requests run at the same time, whether priority and fairness decides who does, and
    /// how many watches are open. Default: requests as kube-apiserver, 20,000 watches of a user and
    /// 200,000 in all.
    pub fn request_limits(mut self, limits: RequestLimits) -> Self {
        self.extensions.limits = limits;
        self
    }

    /// The options of the program, which `/flagz` shows ([`ApiServerBuilder::flags`]). Default: no
    /// such page.
    pub fn flags(mut self, flags: BTreeMap<String, String>) -> Self {
        self.extensions.flags = Some(flags);
        self
    }

    /// Descriptions of built-in types in the OpenAPI documents, for `kubectl explain`. Default:
    /// `ObjectMeta` alone has some.
    pub fn open_api_descriptions(mut self, descriptions: Arc<OpenApiDescriptions>) -> Self {
        self.extensions.descriptions = Some(descriptions);
        self
    }

    /// Counts requests as kube-apiserver does ([`RequestMetrics`], the families of
    /// [`Registry::figures`], `apiserver_flowcontrol_*`, `aggregator_unavailable_apiservice`,
    /// `kubernetes_build_info`, `process_*`, and those of connections), and serves all metrics in
    /// `metrics` at `/metrics`, and results of health checks at `/metrics/slis`. Both are
    /// authorized like any path. Default: neither.
    pub fn serve_metrics(self, metrics: &setpoint_runtime::metrics::Metrics) -> Self {
        self.serve_some_metrics(metrics, MetricsPageOptions::default())
    }

    /// As [`serve_metrics`](Self::serve_metrics), but the page leaves out what the options say.
    pub fn serve_some_metrics(
        mut self,
        metrics: &setpoint_runtime::metrics::Metrics,
        options: MetricsPageOptions,
    ) -> Self {
        self.extensions.flow_metrics = Some(FlowMetrics::register(metrics));
        self.extensions.registry_metrics = Some(RegistryMetrics::register(metrics));
        process_metrics::register(metrics);
        self.extensions.aggregator_metrics = Some(AggregatorMetrics::register(metrics));
        let health = setpoint_runtime::metrics::Metrics::new();
        process_metrics::register_start(&health);
        self.extensions.server_metrics = Some(ServerMetrics::register(metrics, &health));
        let page = MetricsPage::new(METRICS, metrics.clone()).options(options);
        let slis = MetricsPage::new(SLIS, health);
        self.metrics(RequestMetrics::register(metrics))
            .route(METRICS, Arc::new(page))
            .route(SLIS, Arc::new(slis))
    }

    /// Adds an agent that serves `log`, `exec`, `attach` and `portforward` of the pods on its
    /// nodes. Default: none, and such requests are answered with 503.
    pub fn node_agent(mut self, agent: Arc<dyn NodeAgent>) -> Self {
        self.extensions.node_agents.push(agent);
        self
    }

    /// How webhooks, servers of APIServices, kubelets and what requests are proxied to are reached.
    /// Default: directly.
    pub fn egress(mut self, egress: EgressSelector) -> Self {
        self.egress = egress;
        self
    }

    /// How the server reaches the kubelets of nodes that no [agent](Self::node_agent) serves, for
    /// `log`, `exec`, `attach`, `portforward` and the proxies of nodes. Default: as kube-apiserver,
    /// without certificates.
    pub fn kubelets(mut self, options: KubeletOptions) -> Self {
        self.extensions.kubelets = options;
        self
    }

    /// Reaches pods, Services, nodes and kubelets in another way, such as through a tunnel: for the
    /// streams of pods on nodes without an [agent](Self::node_agent), and for the proxies.
    /// [`kubelets`](Self::kubelets) has no effect then, and no address is refused before it is
    /// asked. With [`connections(false)`](Self::connections) it is not asked. Default: connects to
    /// the addresses that the objects have.
    ///
    /// ```
    /// use futures::future::{BoxFuture, FutureExt as _};
    /// use http::{Request, Response};
    /// use setpoint_apiserver::{Body, Connector, Location, RequestBody};
    /// use setpoint_object::ApiError;
    /// use std::sync::Arc;
    ///
    /// /// Answers for everybody.
    /// #[derive(Debug)]
    /// struct Tunnel;
    ///
    /// impl Connector for Tunnel {
    ///     fn kubelet(&self, node: &serde_json::Value) -> Result<Option<(String, u16)>, ApiError> {
    ///         Ok(node["metadata"]["name"].as_str().map(|name| (name.to_owned(), 10250)))
    ///     }
    ///     fn forward(
    ///         &self,
    ///         to: Location,
    ///         _request: Request<RequestBody>,
    ///     ) -> BoxFuture<'static, Result<Response<Body>, ApiError>> {
    ///         let answer = Body::once(format!("{}:{}{}", to.host, to.port, to.path));
    ///         async { Ok(Response::new(answer)) }.boxed()
    ///     }
    ///     fn send(
    ///         &self,
    ///         to: Location,
    ///         request: Request<RequestBody>,
    ///     ) -> BoxFuture<'static, Result<Response<Body>, ApiError>> {
    ///         self.forward(to, request)
    ///     }
    /// }
    ///
    /// let plane = setpoint_control_plane::ControlPlane::builder().connector(Arc::new(Tunnel)).build();
    /// # _ = plane;
    /// ```
    pub fn connector(mut self, connector: Arc<dyn Connector>) -> Self {
        self.extensions.connector = Some(connector);
        self
    }

    /// Pages of which origins may read answers. Default: none, and no such headers are sent.
    pub fn cors(mut self, origins: Cors) -> Self {
        self.extensions.cors = Some(origins);
        self
    }

    /// The header `Strict-Transport-Security` of every answer that has none. Default: none.
    pub fn hsts(mut self, directives: Hsts) -> Self {
        self.extensions.hsts = Some(directives);
        self
    }

    /// The chance that a request over HTTP/2 is the last of its connection. Default: never.
    pub fn go_away_chance(mut self, chance: GoAwayChance) -> Self {
        self.extensions.go_away = chance;
        self
    }

    /// Maximum time of a request that is not long-running; a smaller `?timeout=` counts. Default: a
    /// minute, as kube-apiserver's `--request-timeout`.
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.extensions.request_timeout = Some(timeout);
        self
    }

    /// Minimum duration of a watch that asks for none; a random part of up to the same length is
    /// added. Default: half an hour, as kube-apiserver's `--min-request-timeout`.
    pub fn min_request_timeout(mut self, timeout: Duration) -> Self {
        self.extensions.min_request_timeout = Some(timeout);
        self
    }

    /// For how long `/livez` takes an unfinished start to succeed. Default: zero, as
    /// kube-apiserver's `--livez-grace-period`.
    pub fn livez_grace_period(mut self, period: Duration) -> Self {
        self.extensions.livez_grace_period = period;
        self
    }

    /// Whether containers may be privileged; otherwise new ones are refused with 422. Default: yes.
    /// kube-apiserver's `--allow-privileged` is false by default.
    pub fn allow_privileged(mut self, is_allowed: bool) -> Self {
        self.extensions.denies_privileged = !is_allowed;
        self
    }

    /// Whether lists of any version have all objects in one page: see
    /// [`RegistryBuilder::watch_cache`]. Default: yes.
    pub fn watch_cache(mut self, is_on: bool) -> Self {
        self.extensions.has_no_watch_cache = !is_on;
        self
    }

    /// Whether the server connects to pods, Services, nodes and kubelets for users who may use
    /// their proxies and streams: wherever the addresses in these objects lead. Addresses of the
    /// own machine are refused, but for kubelets. Without, such requests are answered with 503.
    /// Default: yes, as kube-apiserver.
    pub fn connections(mut self, are_made: bool) -> Self {
        self.extensions.is_isolated = !are_made;
        self
    }

    /// How many streams of pods and proxied requests are open at the same time. Default: 64 of a
    /// pod, 512 of a node, 1024 proxied requests of a user.
    pub fn stream_limits(mut self, limits: StreamLimits) -> Self {
        self.extensions.stream_limits = limits;
        self
    }

    /// Routes requests under a path to a handler, if nothing else answers them. Default: 404.
    pub fn route(mut self, prefix: &str, handler: Arc<dyn Handler>) -> Self {
        self.extensions.routes.push((prefix.to_owned(), handler));
        self
    }

    /// Adds an interceptor of requests over HTTP, which may delay them, fail them or change their
    /// answers: for tests. Default: none.
    pub fn interceptor(mut self, interceptor: Arc<dyn Interceptor>) -> Self {
        self.extensions.interceptors.push(interceptor);
        self
    }

    /// Adds a check to `/healthz` and `/readyz`. Default: none.
    pub fn health_check(mut self, check: Arc<dyn HealthCheck>) -> Self {
        self.extensions.health_checks.push(check);
        self
    }

    /// Serves a group version from a backend.
    /// [`ApiServer::backends`](setpoint_apiserver::ApiServer::backends) adds and removes backends
    /// at run time. Default: none.
    pub fn backend(mut self, backend: Backend) -> Self {
        self.extensions.backends.push(backend);
        self
    }
}
