//! What the gate costs: authorization, tokens, audit, admission; and spans.
//!
//! `cargo xtask bench gate`. Decisions and tokens are measured alone, in a loop. Creates pass the
//! whole pipeline of a control plane in this process. Each is measured beside one without what is
//! added, in turns, because the machine's speed changes with time. The webhook and the clients of
//! TLS handshakes run on the same thread as the server, so their costs are in the figures.
//! `--quick` shows in seconds that all of it works, and records nothing.

use crate::in_process::{CONFIG_MAPS, plane_ready, send};
use crate::results;
use crate::table::Table;
use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt as _};
use http_body_util::{BodyExt as _, Full};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::Config;
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::RootCertStore;
use rustls::client::Resumption;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use setpoint::apiserver::ApiServer;
use setpoint::audit::{Audit, AuditLogOptions, Destination, LogFile, LogFileOptions, Policy};
use setpoint::object::ApiError;
use setpoint::object::time::Clock;
use setpoint::registry::jwt::{KeySet, SigningKey, UnverifiedToken};
use setpoint::registry::{Admission, Identity, Review};
use setpoint::serve::ServeOptions;
use setpoint::spans::{Sampling, Tracer};
use setpoint::webhook::certificate::Certificate;
use setpoint::webhook::server::{Listen, WebhookServer};
use setpoint::webhook::{Call, Change, Refusal, Webhooks};
use setpoint::{ControlPlane, ControlPlaneBuilder};
use setpoint_rbac::{Index, Request, Subject};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

/// Options.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of turns of each.
    #[arg(long, default_value_t = 9)]
    turns: usize,
    /// Number of creates in one turn.
    #[arg(long, default_value_t = 5_000)]
    creates: usize,
    /// Only shows that it works: one short turn of each.
    #[arg(long, conflicts_with_all = ["turns", "creates"])]
    quick: bool,
}

impl Args {
    fn sizes(&self) -> Sizes {
        match self.quick {
            true => Sizes { turns: 1, creates: 20, rounds: 100 },
            false => Sizes { turns: self.turns, creates: self.creates, rounds: 20_000 },
        }
    }
}

/// How much is measured.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    turns: usize,
    creates: usize,
    /// Of what is measured alone.
    rounds: u32,
}

/// Spans that are taken at once, as an exporter does.
const SPANS_AT_ONCE: usize = 512;
/// The group of policies.
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1";
/// The group of roles.
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Prints the table, and records it unless it is a quick one.
pub(crate) fn measure(args: &Args) -> anyhow::Result<()> {
    let sizes = args.sizes();
    let mut table = Table::with_verdicts();
    for n in [10, 1_000, 10_000] {
        let each = decision(n, sizes.rounds as usize * 10)?;
        let what = format!("one RBAC decision, {n} bindings");
        table.row(&what, format!("{:.2} µs", each.as_secs_f64() * 1e6), "≤ 5 µs");
    }
    let each = verification(sizes.rounds / 4)?;
    let rate = 1.0 / each.as_secs_f64();
    let figure = format!("{:.1} µs ({rate:.0} per second)", each.as_secs_f64() * 1e6);
    table.row("one verification of an ES256 token", figure, "–");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let each = runtime.block_on(handshake(sizes.rounds / 20))?;
    let rate = 1.0 / each.as_secs_f64();
    let figure = format!("{:.0} µs ({rate:.0} per second)", each.as_secs_f64() * 1e6);
    table.row("one TLS 1.3 handshake, both ends on one thread", figure, "–");
    let (plain, audited) = runtime.block_on(creates(sizes, Gate::Audit))?;
    let cost = (audited.as_secs_f64() / plain.as_secs_f64() - 1.0) * 100.0;
    table.row(
        "a create with audit at level Metadata, beside one without",
        format!("{cost:.1} % more"),
        "≤ 5 %",
    );
    for (rate, what) in [
        (1_000_000, "a create whose spans are recorded, beside one without a tracer"),
        (10_000, "a create, one in 100 of which is recorded, beside one without a tracer"),
        (0, "a create with a tracer that records nothing, beside one without a tracer"),
    ] {
        let (plain, traced) = runtime.block_on(creates(sizes, Gate::Traced(rate)))?;
        let cost = (traced.as_secs_f64() / plain.as_secs_f64() - 1.0) * 100.0;
        table.row(what, format!("{cost:.1} % more"), "–");
    }
    for (gate, what) in [
        (Gate::Plugin, "a create with RBAC, three policies and a plugin in process"),
        (Gate::Webhook, "a create with RBAC, three policies and one webhook over loopback"),
    ] {
        let (plain, guarded) = runtime.block_on(creates(sizes, gate))?;
        let (plain, guarded) = (plain.as_secs_f64() * 1e6, guarded.as_secs_f64() * 1e6);
        table.row(what, format!("{guarded:.0} µs, {plain:.0} µs without"), "–");
    }
    println!("{table}");
    if args.quick {
        return Ok(());
    }
    results::write(
        Some("Gate"),
        &format!(
            "{} Command: `cargo xtask bench gate`. Release build; one thread, in process, objects in memory. Medians of {} turns of {} creates. The webhook \
             and the clients of handshakes run on the same thread as the server, so their costs are in the figures. Spans are taken from their queue \
             and dropped: sending them is not in the figures.\n\n{table}",
            results::machine()?,
            sizes.turns,
            sizes.creates
        ),
    )
}

/// The time of one decision among `n` RoleBindings, for a user whom one of them names.
fn decision(n: usize, rounds: usize) -> anyhow::Result<Duration> {
    const NAMESPACES: usize = 50;
    let mut index = Index::default();
    let rules = json!({"rules": [
        {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "services"]},
        {"verbs": ["*"], "apiGroups": ["apps"], "resources": ["deployments"]},
    ]});
    index.put_role("", "reader", &rules);
    for i in 0..n {
        let binding = json!({
            "roleRef": {"kind": "ClusterRole", "name": "reader"},
            "subjects": [{"kind": "User", "name": format!("user-{i}")}],
        });
        index.put_binding(&format!("ns-{}", i % NAMESPACES), &format!("b-{i}"), &binding);
    }
    let users: Vec<(String, String)> =
        (0..n.min(1024)).map(|i| (format!("user-{i}"), format!("ns-{}", i % NAMESPACES))).collect();
    let request = Request { verb: "get", resource: "pods", name: "a", ..Request::default() };
    let begun = Instant::now();
    let mut n_allowed = 0;
    for (user, namespace) in users.iter().cycle().take(rounds) {
        let subject = Subject { user, groups: &["devs", "system:authenticated"] };
        n_allowed += usize::from(index.decide(&subject, namespace, &request).allowed.is_some());
    }
    let elapsed = begun.elapsed();
    ensure!(n_allowed == rounds, "{n_allowed} of {rounds} are allowed");
    Ok(elapsed / u32::try_from(rounds.max(1))?)
}

/// The time of one verification of a token's signature.
fn verification(rounds: u32) -> anyhow::Result<Duration> {
    let keys = KeySet::new(SigningKey::generate_from_system()?);
    let token = keys.sign(&json!({"iss": "https://a", "sub": "system:serviceaccount:a:b"}))?;
    let begun = Instant::now();
    for _ in 0..rounds {
        keys.verify(UnverifiedToken::parse(&token)?)?;
    }
    Ok(begun.elapsed() / rounds.max(1))
}

/// The time of one handshake with a served control plane, without resumption, until the connection
/// is closed.
async fn handshake(rounds: u32) -> anyhow::Result<Duration> {
    let folder = tempfile::tempdir()?;
    let kubeconfig = folder.path().join("kubeconfig");
    let plane = ControlPlane::builder().controllers(false).build();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let serving = plane.serve(ServeOptions::new(address).kubeconfig(&kubeconfig)).await?;
    let stop = CancellationToken::new();
    let port = serving.port();
    let measured = async {
        let read = Kubeconfig::read_from(&kubeconfig)?;
        let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
        let mut roots = RootCertStore::empty();
        for root in config.root_cert.into_iter().flatten() {
            roots.add(CertificateDer::from(root))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut client = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        client.resumption = Resumption::disabled();
        let connector = TlsConnector::from(Arc::new(client));
        let begun = Instant::now();
        for _ in 0..rounds {
            let tcp = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
            let name = ServerName::try_from("127.0.0.1")?;
            drop(connector.connect(name, tcp).await?);
        }
        anyhow::Ok(begun.elapsed() / rounds.max(1))
    };
    let measuring = async {
        let measured = measured.await;
        stop.cancel();
        measured
    };
    let (served, measured) = tokio::join!(serving.run(stop.clone()), measuring);
    served?;
    measured
}

/// What is added to creates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gate {
    /// An audit log at level `Metadata` in a file.
    Audit,
    /// Spans of so many requests in a million, taken from the queue and dropped.
    Traced(u32),
    /// RBAC, three policies and a plugin in process.
    Plugin,
    /// RBAC, three policies and a validating webhook.
    Webhook,
}

/// Allows objects with a label.
#[derive(Debug)]
struct Labelled;

impl Admission for Labelled {
    fn name(&self) -> &str {
        "labelled"
    }
    fn validate<'a>(
        &'a self,
        review: &'a Review<'a>,
        object: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        let is_labelled = object.is_none_or(|object| !object["metadata"]["name"].is_null());
        let result = if is_labelled { Ok(()) } else { Err(review.forbidden("it has no name")) };
        futures::future::ready(result).boxed()
    }
}

/// A server of a webhook that allows objects with a name, and its `clientConfig`.
async fn webhook() -> anyhow::Result<(WebhookServer, Value)> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(["127.0.0.1".to_owned()])?.signed_by(&key, &ca)?;
    let (certificate, key) = (certificate.pem(), key.serialize_pem());
    let certificate = Certificate::from_pem(certificate.as_bytes(), key.as_bytes())?;
    async fn named(change: Change<ConfigMap>, _: Call) -> Result<(), Refusal> {
        match change.after() {
            Some(map) if map.metadata.name.is_none() => Err(Refusal::denied("it has no name")),
            _ => Ok(()),
        }
    }
    let webhooks = Webhooks::builder().validate(named).build()?;
    let server = WebhookServer::builder(webhooks, Clock::wall())
        .listen(Listen::Address((Ipv4Addr::LOCALHOST, 0).into()))
        .certificate(certificate)
        .bind()
        .await?;
    let address = server.address().context("the webhook has no address")?;
    let config = json!({
        "url": format!("https://{address}/validate--v1-configmap"),
        "caBundle": STANDARD.encode(ca.pem()),
    });
    Ok((server, config))
}

/// The medians of the time of one create, without and with the gate.
async fn creates(sizes: Sizes, gate: Gate) -> anyhow::Result<(Duration, Duration)> {
    let folder = tempfile::tempdir()?;
    let plain = ControlPlane::builder().controllers(false).service_accounts(false);
    let gated = ControlPlane::builder().controllers(false).service_accounts(false);
    let mut worker = None;
    let mut spans = None;
    let gated = match gate {
        Gate::Audit => {
            let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n";
            let path = folder.path().join("audit.log");
            let file = LogFile::open(path, LogFileOptions::default(), Clock::wall())?;
            let (sink, log) = Audit::log(
                Policy::parse(policy)?,
                Destination::File(file),
                AuditLogOptions::default(),
            );
            worker = Some(log);
            gated.audit(sink)
        }
        Gate::Traced(rate) => {
            let tracer = Tracer::new(Sampling::per_million(rate), Clock::wall(), 0);
            spans = Some(tracer.queue().clone());
            gated.tracer(tracer)
        }
        Gate::Plugin => gated.rbac().admission(Arc::new(Labelled)),
        Gate::Webhook => gated.rbac(),
    };
    let (server, webhook) = match gate {
        Gate::Webhook => webhook().await.map(|(server, config)| (Some(server), Some(config)))?,
        _ => (None, None),
    };
    let stop = CancellationToken::new();
    let beside = async {
        if let Some(worker) = worker {
            worker.run(stop.clone()).await;
        }
        if let Some(spans) = spans {
            let taking = async {
                loop {
                    spans.has(SPANS_AT_ONCE).await;
                    drop(spans.take(SPANS_AT_ONCE));
                }
            };
            // Dropping what waits takes nothing.
            stop.run_until_cancelled(taking).await;
        }
        match server {
            Some(server) => server.run(stop.clone()).await,
            None => Ok(()),
        }
    };
    let measured = compare(sizes, gate, webhook, plain, gated, &stop);
    let (measured, ended) = tokio::join!(measured, beside);
    ended?;
    measured
}

async fn compare(
    sizes: Sizes,
    gate: Gate,
    webhook: Option<Value>,
    plain: ControlPlaneBuilder,
    gated: ControlPlaneBuilder,
    stop: &CancellationToken,
) -> anyhow::Result<(Duration, Duration)> {
    let (plain, gated) = (plain.build(), gated.build());
    let servers = [plain.server().clone(), gated.server().clone()];
    let mut ready = gated.ready();
    let turns = async {
        let measured = async {
            for server in &servers {
                plane_ready(server).await;
            }
            ready.wait_for(|ready| *ready).await?;
            if matches!(gate, Gate::Plugin | Gate::Webhook) {
                guard(&servers[1], webhook).await?;
            }
            let mut samples = [Vec::new(), Vec::new()];
            for turn in 0..sizes.turns {
                // The two alternate in going first.
                for n in [turn % 2, 1 - turn % 2] {
                    samples[n].push(turn_of(&servers[n], turn, sizes.creates).await?);
                }
            }
            let [plain, gated] = samples.map(|mut times: Vec<Duration>| {
                times.sort();
                times.get(times.len() / 2).copied()
            });
            plain.zip(gated).context("no turns")
        };
        let measured = measured.await;
        stop.cancel();
        measured
    };
    let (one, two, measured) =
        tokio::join!(plain.run(stop.clone()), gated.run(stop.clone()), turns);
    one?;
    two?;
    measured
}

/// Creates the role of the user, three policies with their bindings, and the configuration of the
/// webhook.
async fn guard(server: &ApiServer, webhook: Option<Value>) -> anyhow::Result<()> {
    let post = async |path: String, object: Value| {
        send(server, "POST", &path, "application/json", object.to_string()).await.map(drop)
    };
    let rules = json!([{"verbs": ["*"], "apiGroups": [""], "resources": ["configmaps"]}]);
    let role = json!({"metadata": {"name": "maps"}, "rules": rules});
    post(format!("{RBAC}/clusterroles"), role).await?;
    let binding = json!({
        "metadata": {"name": "maps"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "maps"},
        "subjects": [{"kind": "User", "name": "jane"}],
    });
    post(format!("{RBAC}/clusterrolebindings"), binding).await?;
    for (n, expression) in
        ["has(object.data)", "object.metadata.name.size() < 60", "!('x' in object.data)"]
            .into_iter()
            .enumerate()
    {
        let name = format!("p{n}");
        let rules = json!([{
            "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["configmaps"],
        }]);
        let policy = json!({"metadata": {"name": name}, "spec": {
            "matchConstraints": {"resourceRules": rules},
            "validations": [{"expression": expression}],
        }});
        post(format!("{POLICIES}/validatingadmissionpolicies"), policy).await?;
        let binding = json!({"metadata": {"name": name}, "spec": {
            "policyName": name, "validationActions": ["Deny"],
        }});
        post(format!("{POLICIES}/validatingadmissionpolicybindings"), binding).await?;
    }
    if let Some(config) = webhook {
        let configuration = json!({"metadata": {"name": "named"}, "webhooks": [{
            "name": "named.example.com", "clientConfig": config, "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "rules": [{
                "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
                "resources": ["configmaps"],
            }],
        }]});
        post(format!("{POLICIES}/validatingwebhookconfigurations"), configuration).await?;
    }
    // The index of roles follows the objects.
    while create(server, "first").await.is_err() {
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// The time of one create in a turn of many.
async fn turn_of(server: &ApiServer, turn: usize, n: usize) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    for i in 0..n {
        create(server, &format!("m-{turn}-{i}")).await?;
    }
    Ok(begun.elapsed() / u32::try_from(n.max(1))?)
}

/// Creates a ConfigMap as a user.
async fn create(server: &ApiServer, name: &str) -> anyhow::Result<()> {
    let body = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":{{"k":"v"}}}}"#
    );
    let mut request = http::Request::post(CONFIG_MAPS)
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body)))?;
    request.extensions_mut().insert(Identity::new("jane", ["system:authenticated"]));
    let response = server.serve(request).await;
    let status = response.status();
    let body = response.into_body().collect().await.map_err(|error| anyhow::anyhow!("{error}"))?;
    ensure!(status.is_success(), "{}", String::from_utf8_lossy(&body.to_bytes()));
    Ok(())
}
