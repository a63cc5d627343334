//! What the gate costs: authorization, tokens, audit, admission.
//!
//! `cargo run --release -p setpoint-benches -- gate`. Decisions and tokens are measured alone, in a
//! loop. Creates pass the whole pipeline of a control plane in this process. Each is measured
//! beside one without what is added, in turns, because the machine's speed changes with time. The
//! figures are printed, not recorded.

use crate::in_process::{CONFIG_MAPS, plane_ready, send};
use crate::table::Table;
use anyhow::{Context as _, ensure};
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt as _};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use setpoint::apiserver::ApiServer;
use setpoint::audit::{Audit, Destination, LogFile, LogFileOptions, Policy};
use setpoint::object::ApiError;
use setpoint::object::time::Clock;
use setpoint::registry::jwt::{KeySet, SigningKey, UnverifiedToken};
use setpoint::registry::{Admission, Identity, Review};
use setpoint::{ControlPlane, ControlPlaneBuilder};
use setpoint_rbac::{Index, Request, Subject};
use std::sync::Arc;
use std::time::{Duration, Instant};
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
}

/// The group of policies.
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1";
/// The group of roles.
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Prints the table.
pub(crate) fn measure(args: &Args) -> anyhow::Result<()> {
    let mut table = Table::with_verdicts();
    for n in [10, 1_000, 10_000] {
        let each = decision(n)?;
        let what = format!("one RBAC decision, {n} bindings");
        table.row(&what, format!("{:.2} µs", each.as_secs_f64() * 1e6), "≤ 5 µs");
    }
    let each = verification()?;
    let rate = 1.0 / each.as_secs_f64();
    let figure = format!("{:.1} µs ({rate:.0} per second)", each.as_secs_f64() * 1e6);
    table.row("one verification of an ES256 token", figure, "");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (plain, audited) = runtime.block_on(creates(args, Gate::Audit))?;
    let cost = (audited.as_secs_f64() / plain.as_secs_f64() - 1.0) * 100.0;
    table.row(
        "a create with audit at level Metadata, beside one without",
        format!("{cost:.1} % more"),
        "≤ 5 %",
    );
    let (plain, guarded) = runtime.block_on(creates(args, Gate::Policies))?;
    let (plain, guarded) = (plain.as_secs_f64() * 1e6, guarded.as_secs_f64() * 1e6);
    let figure = format!("{guarded:.0} µs, {plain:.0} µs without");
    table.row("a create with RBAC, three policies and a plugin in process", figure, "");
    println!("{table}");
    Ok(())
}

/// The time of one decision among `n` RoleBindings, for a user whom one of them names.
fn decision(n: usize) -> anyhow::Result<Duration> {
    const NAMESPACES: usize = 50;
    const ROUNDS: usize = 200_000;
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
    for (user, namespace) in users.iter().cycle().take(ROUNDS) {
        let subject = Subject { user, groups: &["devs", "system:authenticated"] };
        n_allowed += usize::from(index.decide(&subject, namespace, &request).allowed.is_some());
    }
    let elapsed = begun.elapsed();
    ensure!(n_allowed == ROUNDS, "{n_allowed} of {ROUNDS} are allowed");
    Ok(elapsed / u32::try_from(ROUNDS)?)
}

/// The time of one verification of a token's signature.
fn verification() -> anyhow::Result<Duration> {
    const ROUNDS: u32 = 5_000;
    let keys = KeySet::new(SigningKey::generate_from_system()?);
    let token = keys.sign(&json!({"iss": "https://a", "sub": "system:serviceaccount:a:b"}))?;
    let begun = Instant::now();
    for _ in 0..ROUNDS {
        keys.verify(UnverifiedToken::parse(&token)?)?;
    }
    Ok(begun.elapsed() / ROUNDS)
}

/// What is added to creates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gate {
    /// An audit log at level `Metadata` in a file.
    Audit,
    /// RBAC, three policies and a plugin in process.
    Policies,
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

/// The medians of the time of one create, without and with the gate.
async fn creates(args: &Args, gate: Gate) -> anyhow::Result<(Duration, Duration)> {
    let folder = tempfile::tempdir()?;
    let plain = ControlPlane::builder().controllers(false).service_accounts(false);
    let gated = ControlPlane::builder().controllers(false).service_accounts(false);
    let mut worker = None;
    let gated = match gate {
        Gate::Audit => {
            let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n";
            let path = folder.path().join("audit.log");
            let file = LogFile::open(path, LogFileOptions::default(), Clock::wall())?;
            let (sink, log) = Audit::new(Policy::parse(policy)?, Destination::File(file));
            worker = Some(log);
            gated.audit(sink)
        }
        Gate::Policies => gated.rbac().admission(Arc::new(Labelled)),
    };
    let stop = CancellationToken::new();
    let log = async {
        if let Some(worker) = worker {
            worker.run(stop.clone()).await;
        }
    };
    let measured = compare(args, gate, plain, gated, &stop);
    let (measured, ()) = tokio::join!(measured, log);
    measured
}

async fn compare(
    args: &Args,
    gate: Gate,
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
            if gate == Gate::Policies {
                guard(&servers[1]).await?;
            }
            let mut samples = [Vec::new(), Vec::new()];
            for turn in 0..args.turns {
                // The two alternate in going first.
                for n in [turn % 2, 1 - turn % 2] {
                    samples[n].push(turn_of(&servers[n], turn, args.creates).await?);
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

/// Creates the role of the user and three policies with their bindings.
async fn guard(server: &ApiServer) -> anyhow::Result<()> {
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
