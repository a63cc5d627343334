//! `setpoint up`: a control plane served on a socket.

mod run;

use crate::admission::AdmissionOptions;
use crate::audit::{AuditOptions, Log};
use crate::booleans::boolean;
use crate::connections::ConnectionOptions;
use crate::durations::duration;
use crate::egress::EgressOptions;
use crate::emulation::EmulationOptions;
use crate::encryption::{self, EncryptionOptions};
use crate::envtest::control::Pages;
use crate::envtest::parent::Parent;
use crate::envtest::planes::{Planes, Template, access};
use crate::front_proxy::FrontProxyOptions;
use crate::metric_options::MetricOptions;
use crate::nodes::NodeOptions;
use crate::open_api::OpenApiOptions;
use crate::peers::PeerOptions;
use crate::requests::RequestOptions;
use crate::service_accounts::ServiceAccountOptions;
use crate::serving::ServingOptions;
use crate::store_options::{StoreOptions, open_store};
use crate::trace::TraceOptions;
use crate::users::UserOptions;
use anyhow::Context as _;
use clap::{ArgAction, Args, ValueEnum};
use run::{Beside, Running, Signals};
use setpoint::apiserver::listen::{Certificate, CertificateFiles, read_file};
use setpoint::audit::AuditMetrics;
use setpoint::egress::EgressType;
use setpoint::log::LogFormat;
use setpoint::object::time::Clock;
use setpoint::registry::{NodePorts, RuntimeConfig, ServiceNetworks};
use setpoint::runtime::election::{machine_identity, machine_name};
use setpoint::runtime::metrics::Metrics;
use setpoint::spans::{SpanMetrics, Tracer};
use setpoint::webhook_client::Identity as WebhookIdentity;
use setpoint::{ConfigMetrics, ControlPlane, ControlPlaneBuilder, Selection, ServeOptions};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Options of `setpoint up`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// All of them as texts, for `/flagz`.
    #[arg(skip)]
    pub(crate) flags: BTreeMap<String, String>,
    #[command(flatten)]
    store: StoreOptions,
    #[command(flatten)]
    encryption: EncryptionOptions,
    #[command(flatten)]
    admission: AdmissionOptions,
    /// Port of the HTTPS listener; 0 picks a free one.
    #[arg(long, default_value_t = 6443, value_name = "PORT")]
    secure_port: u16,
    /// Address of the HTTPS listener.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), value_name = "IP")]
    bind_address: IpAddr,
    /// The address at which other machines reach the server: the endpoint of the Service
    /// `kubernetes`. Default: the address of the HTTPS listener, or, if that is 0.0.0.0, the
    /// address of this machine's default route.
    #[arg(long, value_name = "IP")]
    advertise_address: Option<IpAddr>,
    /// Port of a listener on 127.0.0.1 without TLS and without authentication; 0 picks a free one,
    /// which the ready line names (`insecure=http://…`). Off by default.
    #[arg(long, value_name = "PORT")]
    insecure_port: Option<u16>,
    /// Path of the administrator's kubeconfig. Default: a file named after the port, in the user's
    /// runtime directory or the directory of temporary files.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Time to live of an Event after its last write: seconds, or a duration such as `1h30m`.
    /// Default: one hour.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    event_ttl: Option<Duration>,
    /// How far back watches, and pages of a list, may begin. Older history is dropped from memory
    /// and from the store, which retains up to twice as much. A smaller value needs less memory and
    /// disk space; clients that are disconnected for longer have to list again. Default: five
    /// minutes.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    history: Option<Duration>,
    #[command(flatten)]
    certificates: CertificateOptions,
    #[command(flatten)]
    serving: ServingOptions,
    #[command(flatten)]
    requests: RequestOptions,
    #[command(flatten)]
    connections: ConnectionOptions,
    #[command(flatten)]
    service_accounts: ServiceAccountOptions,
    /// The network that new Services get their cluster addresses from, beside the networks of
    /// further ServiceCIDRs; or one of each family, for dual-stack Services: the first one is that
    /// of Services that ask for no family, and has at least 8 addresses. IPv6 from a /64 on.
    #[arg(long, default_value_t = ServiceNetworks::default(), value_name = "CIDR[,CIDR]")]
    service_cluster_ip_range: ServiceNetworks,
    /// The ports that may be node ports of Services: `30000-32767`, `30000+2767` or one port.
    #[arg(long, default_value_t = NodePorts::default(), value_name = "RANGE")]
    service_node_port_range: NodePorts,
    /// Built-in resources to turn on or off, as kube-apiserver's option: `apps/v1=false`,
    /// `batch/v1/cronjobs=false`, `resource.k8s.io/v1beta1`. Sets are `api/all`, `api/ga`,
    /// `api/beta` and `api/alpha`. Stable versions are on by default, others off. Turn the
    /// controllers that use a resource off as well. Some resources also need one of the
    /// `--feature-gates`.
    #[arg(long, value_name = "KEY=BOOL,...", default_value = "", hide_default_value = true)]
    runtime_config: String,
    /// Accept the bootstrap tokens in Secrets of `kube-system`, and delete expired ones.
    #[arg(long, value_name = "BOOL", value_parser = boolean, action = ArgAction::Set,
        num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value_t = false)]
    enable_bootstrap_token_auth: bool,
    #[command(flatten)]
    users: UserOptions,
    #[command(flatten)]
    audit: AuditOptions,
    #[command(flatten)]
    metrics: MetricOptions,
    #[command(flatten)]
    egress: EgressOptions,
    #[command(flatten)]
    peers: PeerOptions,
    #[command(flatten)]
    trace: TraceOptions,
    #[command(flatten)]
    nodes: NodeOptions,
    #[command(flatten)]
    open_api: OpenApiOptions,
    /// The controllers to run, by kube-controller-manager's names and in its syntax: `*` enables
    /// all that are on by default, `foo` enables the controller `foo`, `-foo` disables it.
    #[arg(long, default_value = "*", value_name = "LIST", allow_hyphen_values = true)]
    controllers: Selection,
    #[command(flatten)]
    emulation: EmulationOptions,
    /// Number of worker threads. Default: the number of cores of the machine or its control group.
    #[arg(long, value_name = "N")]
    worker_threads: Option<NonZeroUsize>,
    /// Format of the logs on standard error.
    #[arg(long, value_enum, default_value_t = LogLines::Text)]
    log_format: LogLines,
}

/// The certificate and credential options, named as kube-apiserver's.
#[derive(Debug, Args)]
struct CertificateOptions {
    /// The folder of the CA, the administrator's credentials and the server's certificate. It is
    /// made if it is missing. Several servers may share it; one kubeconfig then works at all of
    /// them. Default: `pki` in the data folder; without a data folder, everything is made for this
    /// run.
    #[arg(long, value_name = "DIR")]
    cert_dir: Option<PathBuf>,
    /// The certificate to present (PEM, with its chain), instead of a generated one. It is reloaded
    /// while the server runs.
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,
    /// Its private key (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,
    /// The authorities (PEM) that clients verify this server with: in the ConfigMaps
    /// `kube-root-ca.crt`, Secrets with tokens and the kubeconfig. Read at start. Default: the CA
    /// of the certificate folder, or what --tls-cert-file has.
    #[arg(long, value_name = "FILE")]
    root_ca_file: Option<PathBuf>,
    /// Additional authorities (PEM) for client certificates: the common name is the user, each
    /// organization a group. Reloaded while the server runs.
    #[arg(long, value_name = "FILE")]
    client_ca_file: Option<PathBuf>,
    #[command(flatten)]
    front_proxy: FrontProxyOptions,
    /// An additional name or address for the generated certificate. May be given several times.
    #[arg(long, value_name = "NAME")]
    tls_san: Vec<String>,
    /// A client certificate (PEM, with its chain) for webhooks and servers of APIServices that ask
    /// for one. Read at start. Default: none for webhooks; for servers of APIServices one in the
    /// certificate folder.
    #[arg(long, value_name = "FILE", requires = "proxy_client_key_file")]
    proxy_client_cert_file: Option<PathBuf>,
    /// Its private key (PEM).
    #[arg(long, value_name = "FILE", requires = "proxy_client_cert_file")]
    proxy_client_key_file: Option<PathBuf>,
    /// The CA (PEM) that signs CertificateSigningRequests. Read at start. Default: the CA of the
    /// certificate folder.
    #[arg(long, value_name = "FILE", requires = "cluster_signing_key_file")]
    cluster_signing_cert_file: Option<PathBuf>,
    /// Its private key (PEM).
    #[arg(long, value_name = "FILE", requires = "cluster_signing_cert_file")]
    cluster_signing_key_file: Option<PathBuf>,
    /// How long signed certificates are valid: seconds, or a duration such as `24h`. Requests may
    /// ask for less. Default: a year.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    cluster_signing_duration: Option<Duration>,
    /// A file of additional tokens: lines of `token,user,uid,"group1,group2"`.
    #[arg(long, value_name = "FILE")]
    token_auth_file: Option<PathBuf>,
}

impl CertificateOptions {
    /// The certificate for webhooks.
    fn webhook_identity(&self) -> anyhow::Result<Option<WebhookIdentity>> {
        let (Some(certificates), Some(key)) =
            (&self.proxy_client_cert_file, &self.proxy_client_key_file)
        else {
            return Ok(None);
        };
        let (chain, key) = (read_file(certificates)?, read_file(key)?);
        Certificate::from_pem(&chain, &key)
            .with_context(|| format!("use --proxy-client-cert-file {}", certificates.display()))?;
        Ok(Some(WebhookIdentity { certificates: chain.into(), key: key.into() }))
    }

    fn apply(self, mut options: ServeOptions, data: Option<&Path>) -> ServeOptions {
        if let Some(folder) = self.cert_dir.or_else(|| Some(data?.join("pki"))) {
            options = options.cert_dir(folder);
        }
        if let (Some(certificate), Some(key)) = (self.tls_cert_file, self.tls_private_key_file) {
            options = options.tls_files(CertificateFiles { certificate, key });
        }
        if let (Some(certificate), Some(key)) =
            (self.cluster_signing_cert_file, self.cluster_signing_key_file)
        {
            options = options.cluster_signing_files(CertificateFiles { certificate, key });
        }
        if let Some(duration) = self.cluster_signing_duration {
            options = options.cluster_signing_duration(duration);
        }
        if let Some(path) = self.root_ca_file {
            options = options.root_ca_file(path);
        }
        if let Some(path) = self.client_ca_file {
            options = options.client_ca_file(path);
        }
        if let Some(path) = self.token_auth_file {
            options = options.token_auth_file(path);
        }
        options = self.front_proxy.apply(options);
        self.tls_san.into_iter().fold(options, ServeOptions::tls_san)
    }
}

/// Log format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogLines {
    /// Human-readable text.
    Text,
    /// One JSON object per line.
    Json,
}

/// Starts a control plane, prints one line when it is ready, and runs until SIGINT or SIGTERM. A
/// second signal ends the program at once.
pub(crate) fn up(options: Options) -> anyhow::Result<()> {
    setpoint::log::init(match options.log_format {
        LogLines::Text => LogFormat::Text,
        LogLines::Json => LogFormat::Json,
    })?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if let Some(n) = options.worker_threads {
        runtime.worker_threads(n.get());
    }
    runtime.enable_all().build().context("start the runtime")?.block_on(serve(options, None))
}

/// What differs if a test harness has started the program in kube-apiserver's place: it prints and
/// writes nothing that the original does not, and ends with its parent.
#[derive(Debug)]
pub(crate) struct Harness {
    /// The process that started the program.
    pub(crate) parent: Parent,
    /// Temporary folders that are removed once the parent has ended.
    pub(crate) leftovers: Vec<PathBuf>,
    /// Whether a line of JSON with the server's address is printed once it is ready.
    pub(crate) announces: bool,
}

/// Serves until a signal, or until the harness has ended.
pub(crate) async fn serve(options: Options, harness: Option<Harness>) -> anyhow::Result<()> {
    // Installed first, so that no signal during start-up is lost.
    let mut signals = Signals::listen()?;
    let path = options.kubeconfig.clone();
    let Built { plane, serve, beside } = build(options, harness.is_some(), &mut signals).await?;
    let client = plane.client();
    let serving = plane.serve(serve.exclusive_authorities(harness.is_some())).await?;
    let url = serving.url().to_owned();
    let path = match path {
        Some(path) => Some(path),
        None if harness.is_some() => None,
        None => {
            // Named after the port, which is known only now.
            let path = default_path(serving.port());
            serving.write_kubeconfig(&path)?;
            Some(path)
        }
    };
    let insecure_url = serving.insecure_url().map(str::to_owned);
    if let Some(url) = &insecure_url {
        tracing::info!(url, "serving without authentication");
    }
    let document =
        harness.as_ref().is_some_and(|harness| harness.announces).then(|| access(&serving));
    let announce = || match (&path, document) {
        (_, Some(document)) => print_line(&document),
        (Some(path), None) => print_line(&ready_line(&url, path, insecure_url.as_deref())),
        (None, None) => {
            tracing::info!(url, "serving");
            Ok(())
        }
    };
    let running = Running::start(serving, client, beside)?;
    let (parent, leftovers) = harness.map(|harness| (harness.parent, harness.leftovers)).unzip();
    running.run(announce, (parent, leftovers.unwrap_or_default()), &mut signals).await
}

/// A control plane that is not served yet.
struct Built {
    plane: ControlPlane,
    serve: ServeOptions,
    beside: Beside,
}

/// Opens what the options name, and builds a control plane of it. A signal while the store is
/// opened ends the process.
async fn build(options: Options, is_harness: bool, signals: &mut Signals) -> anyhow::Result<Built> {
    let features = options.emulation.features()?;
    let runtime_config = RuntimeConfig::with_gates(&options.runtime_config, features)
        .context("use --runtime-config")?;
    options.peers.check(features)?;
    let admission = options.admission.open(features).await?;
    let clock = Clock::wall();
    let metrics = Metrics::new();
    let egress = options.egress.open(features, &clock, &metrics).await?;
    let dialer = egress.selector.dialer(EgressType::ControlPlane);
    let (tracer, exporter) = options.trace.open(&clock, dialer.clone()).await?.unzip();
    let history = options.history.unwrap_or(setpoint::registry::HISTORY_PERIOD);
    let (of_store, of_encryption) = (&options.store, &options.encryption);
    let (open, wrapped) = tokio::select! {
        biased;
        // Cancel safe: the program exits.
        opened = async {
            let dialer = egress.selector.dialer(EgressType::Etcd);
            let open = open_store(of_store, &clock, history, dialer).await?;
            let wrapped = encryption::wrap(open.store.clone(), of_encryption, &clock).await?;
            anyhow::Ok((open, wrapped))
        } => opened?,
        // The runtime would wait for the thread that reads the data folder. To end it is like a
        // kill, and nothing has been acknowledged or written.
        _ = signals.next() => std::process::exit(0),
    };
    let server_hash = setpoint::server_hash(&machine_name());
    let (store, keepers) = wrapped.counted(&metrics, &clock, &server_hash);
    let nodes = options.nodes.simulated().await?;
    let planes = is_harness.then(|| {
        Planes::new(Template {
            controllers: options.controllers.clone(),
            admission: options.admission.clone(),
            client_ca_file: options.certificates.client_ca_file.clone(),
            token_auth_file: options.certificates.token_auth_file.clone(),
            service_networks: options.service_cluster_ip_range,
            node_ports: options.service_node_port_range,
            runtime_config: runtime_config.clone(),
            nodes: nodes.clone(),
            allow_privileged: options.requests.allow_privileged,
        })
    });
    let mut plane = ControlPlane::builder()
        .store(store)
        .event_ttl(options.event_ttl.unwrap_or(setpoint::registry::EVENT_TTL))
        .history(history)
        .controllers(options.controllers)
        .clock(clock.clone())
        .service_networks(options.service_cluster_ip_range)
        .node_ports(options.service_node_port_range)
        .runtime_config(runtime_config)
        .egress(egress.selector.clone())
        .flags(options.flags)
        .coordinated_leadership(options.serving.coordinated_leadership()?)
        .serve_some_metrics(&metrics, options.metrics.page()?);
    let counted =
        || ConfigMetrics::register(&metrics, "manifest_admission", clock.clone(), &server_hash);
    plane = admission.counted(counted).apply(wrapped.watched(plane));
    let own_issuers = options.service_accounts.issuers();
    plane = options.peers.apply(plane, &metrics)?;
    plane = options.open_api.apply(plane).await?;
    plane = options.connections.apply(plane)?;
    plane = options.requests.apply(plane, options.secure_port)?;
    plane =
        options.users.apply(plane, &clock, &metrics, own_issuers, &server_hash, &egress).await?;
    let folder = open.disk().map(|(_, folder)| folder);
    let (with_processes, processes) = options.nodes.processes(plane, folder)?;
    plane = match (nodes, &processes) {
        (Some(nodes), _) => with_processes.nodes(nodes),
        // The scheduler, and nodes that carry the label.
        (None, Some(_)) => with_processes.nodes(0),
        (None, None) => with_processes,
    };
    if let Some((planes, _)) = &planes {
        plane = Pages::new(planes.clone()).add_to(plane);
    }
    let audit = options.audit.open(&clock, dialer).await?;
    plane = observed(plane, tracer, &audit, &metrics);
    if open.is_shared() {
        let identity = machine_identity().context("read the operating system's randomness")?;
        plane = plane.shared_as(identity).storage_media_type(options.store.media_type());
    }
    if let Some(identity) = options.certificates.webhook_identity()? {
        plane = plane.webhook_identity(identity);
    }
    let signer = options.service_accounts.signer(&clock, &metrics).await;
    let signer = signer.context("while setting up external-jwt-signer")?;
    let mut tokens = options.service_accounts.tokens();
    if let Some(signer) = &signer {
        tokens = tokens.keys(signer.keys()).signed_by(signer.clone());
    }
    let plane =
        plane.service_account_tokens(tokens).bootstrap_tokens(options.enable_bootstrap_token_auth);
    let address = SocketAddr::new(options.bind_address, options.secure_port);
    let serve = options.certificates.apply(ServeOptions::new(address), folder);
    let mut serve = options.serving.apply(options.service_accounts.apply(serve))?;
    serve = options.peers.serve(serve.host_name(machine_name()));
    if let Some(address) = options.advertise_address {
        serve = serve.advertise_address(address);
    }
    if let Some(port) = options.insecure_port {
        serve = serve.insecure_port(port);
    }
    if let Some(path) = &options.kubeconfig {
        serve = serve.kubeconfig(path);
    }
    let planes = planes.map(|(_, worker)| worker);
    let beside = Beside { open, audit, exporter, keepers, signer, planes, processes, clock };
    Ok(Built { plane: plane.build(), serve, beside })
}

/// Records requests in audit logs and as spans, and counts both in `metrics`.
fn observed(
    mut plane: ControlPlaneBuilder,
    tracer: Option<Tracer>,
    audit: &[Log],
    metrics: &Metrics,
) -> ControlPlaneBuilder {
    if let Some(tracer) = tracer {
        let spans = SpanMetrics::of(tracer.queue().clone());
        metrics.update(|registry| registry.register_collector(Box::new(spans)));
        plane = plane.tracer(tracer);
    }
    for (sink, _) in audit {
        plane = plane.audit(sink.clone());
    }
    let counted = AuditMetrics::of(audit.iter().map(|(sink, _)| sink.clone()));
    metrics.update(|registry| registry.register_collector(Box::new(counted)));
    plane
}

fn ready_line(url: &str, kubeconfig: &Path, insecure_url: Option<&str>) -> String {
    let insecure = insecure_url.map(|url| format!(" insecure={url}")).unwrap_or_default();
    format!("ready {url}{insecure} kubeconfig={}", kubeconfig.display())
}

/// Prints the one line on standard output.
fn print_line(line: &impl Display) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("write to standard output")
}

fn default_path(port: u16) -> PathBuf {
    std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|dir| dir.is_dir())
        .unwrap_or_else(std::env::temp_dir)
        .join(format!("setpoint-{port}.kubeconfig"))
}

#[cfg(test)]
mod tests {
    use super::Options;

    #[test]
    fn defaults_of_options_are_values() {
        #[derive(clap::Parser)]
        struct Up {
            #[command(flatten)]
            _options: Options,
        }
        let parsed = <Up as clap::Parser>::try_parse_from(["up"]);
        assert!(parsed.is_ok(), "{:?}", parsed.err());
    }
}
