//! Many objects of a kind in one namespace, and what each of them costs.
//!
//! `cargo xtask bench crowd`. Objects of a kind are created in a fresh process, and in another one
//! four times as many. What admission and the controllers do for an object must not grow with the
//! number of the others: a pass that looks at all objects of a namespace shows as a growth of
//! about four.

use crate::definitions::create;
use crate::envtest::environment::client;
use crate::process::{self, Program};
use crate::results;
use crate::table::short;
use anyhow::ensure;
use futures::{TryStreamExt as _, stream};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Objects of the smaller number.
const FEW: usize = 1_000;
/// How many times as many there are in the other process.
const TIMES: usize = 4;
/// Most growth of the cost of an object that is none: caches and heaps are larger, too.
const GROWTH_MAX: f64 = 1.5;
/// Objects that are created at the same time.
const CREATES: usize = 8;
/// Nodes: pods have a place.
const NODES: &str = "50";
/// Controllers rest if the process has used less CPU than [`REST_CPU`] in this time.
const REST: Duration = Duration::from_millis(500);
/// What nodes and timers use at most in [`REST`].
const REST_CPU: Duration = Duration::from_millis(50);
/// How long the controllers may take.
const PATIENCE: Duration = Duration::from_secs(600);

const CORE: &str = "/api/v1/namespaces/default";
const APPS: &str = "/apis/apps/v1/namespaces/default";
const BATCH: &str = "/apis/batch/v1/namespaces/default";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Options.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Do not write the table.
    #[arg(long)]
    dry: bool,
}

/// The collection and the body of each object that is created for a number.
type Objects = fn(usize) -> Vec<(String, Value)>;

/// What is created.
const ROWS: &[(&str, Objects)] = &[
    ("ConfigMaps", |n| vec![(at(CORE, "configmaps"), json!({"metadata": named(n)}))]),
    ("Services with a selector each", |n| vec![service(n)]),
    ("Services, and Endpoints that are mirrored", |n| {
        let ports = json!([{"port": 80}]);
        let subsets = json!([{"addresses": [{"ip": "10.1.1.1"}], "ports": ports}]);
        vec![
            (at(CORE, "services"), json!({"metadata": named(n), "spec": {"ports": ports}})),
            (at(CORE, "endpoints"), json!({"metadata": named(n), "subsets": subsets})),
        ]
    }),
    ("Services, and a pod of each", |n| vec![service(n), pod(n, json!({}))]),
    ("pods with a budget each", |n| {
        let spec = json!({"maxUnavailable": 1, "selector": selector(n)});
        let budgets = "/apis/policy/v1/namespaces/default";
        let budget = json!({"metadata": named(n), "spec": spec});
        vec![(at(budgets, "poddisruptionbudgets"), budget), pod(n, json!({}))]
    }),
    ("pods with a claim that nothing provisions", |n| {
        let source = json!({"claimName": name(n)});
        let volumes = json!([{"name": "v", "persistentVolumeClaim": source}]);
        vec![claim(n, "none"), pod(n, json!({"volumes": volumes}))]
    }),
    ("volumes and claims", |n| {
        let spec = json!({
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"},
        });
        let volume = json!({"metadata": named(n), "spec": spec});
        vec![(at("/api/v1", "persistentvolumes"), volume), claim(n, "")]
    }),
    ("Deployments of one pod", |n| vec![workload(n, "deployments", 1)]),
    ("Deployments without pods", |n| vec![workload(n, "deployments", 0)]),
    ("Deployments of one pod with an autoscaler each", |n| {
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name(n)});
        let spec = json!({"maxReplicas": 3, "scaleTargetRef": target});
        let scalers = "/apis/autoscaling/v2/namespaces/default";
        let scaler = json!({"metadata": named(n), "spec": spec});
        vec![workload(n, "deployments", 1), (at(scalers, "horizontalpodautoscalers"), scaler)]
    }),
    ("ReplicaSets of one pod", |n| vec![workload(n, "replicasets", 1)]),
    ("StatefulSets of one pod", |n| vec![workload(n, "statefulsets", 1)]),
    ("Jobs of one pod", |n| {
        vec![(at(BATCH, "jobs"), json!({"metadata": named(n), "spec": job()}))]
    }),
    ("CronJobs that are not due", |n| {
        let spec = json!({"schedule": "0 0 1 1 *", "jobTemplate": {"spec": job()}});
        vec![(at(BATCH, "cronjobs"), json!({"metadata": named(n), "spec": spec}))]
    }),
    ("ResourceQuotas", |n| {
        let spec = json!({"hard": {"secrets": "100"}});
        vec![(at(CORE, "resourcequotas"), json!({"metadata": named(n), "spec": spec}))]
    }),
    ("ClusterRoles, and one that aggregates each", |n| {
        let of = name(n);
        let roles = at(RBAC, "clusterroles");
        let matching = json!([{"matchLabels": {"of": of}}]);
        let source = json!({"metadata": {"name": of, "labels": {"of": of}}, "rules": []});
        let aggregate = json!({
            "metadata": {"name": format!("all-{of}")}, "rules": [],
            "aggregationRule": {"clusterRoleSelectors": matching},
        });
        vec![(roles.clone(), source), (roles, aggregate)]
    }),
    ("namespaces", |n| vec![(at("/api/v1", "namespaces"), json!({"metadata": named(n)}))]),
];

fn at(scope: &str, plural: &str) -> String {
    format!("{scope}/{plural}")
}

fn name(n: usize) -> String {
    format!("a{n}")
}

fn named(n: usize) -> Value {
    json!({"name": name(n)})
}

fn selector(n: usize) -> Value {
    json!({"matchLabels": {"app": name(n)}})
}

fn containers() -> Value {
    json!([{"name": "c", "image": "registry.k8s.io/pause:3.10"}])
}

fn service(n: usize) -> (String, Value) {
    let spec = json!({"selector": {"app": name(n)}, "ports": [{"port": 80}]});
    (at(CORE, "services"), json!({"metadata": named(n), "spec": spec}))
}

fn claim(n: usize, class: &str) -> (String, Value) {
    let spec = json!({
        "storageClassName": class, "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    });
    (at(CORE, "persistentvolumeclaims"), json!({"metadata": named(n), "spec": spec}))
}

fn pod(n: usize, mut spec: Value) -> (String, Value) {
    spec["containers"] = containers();
    let metadata = json!({"name": name(n), "labels": {"app": name(n)}});
    (at(CORE, "pods"), json!({"metadata": metadata, "spec": spec}))
}

fn workload(n: usize, plural: &str, replicas: u32) -> (String, Value) {
    let template = json!({
        "metadata": {"labels": {"app": name(n)}}, "spec": {"containers": containers()},
    });
    let spec = json!({"replicas": replicas, "selector": selector(n), "template": template});
    (at(APPS, plural), json!({"metadata": named(n), "spec": spec}))
}

fn job() -> Value {
    let spec = json!({"restartPolicy": "Never", "containers": containers()});
    json!({"template": {"spec": spec}})
}

/// Measures all rows and writes the table.
pub(crate) fn measure(args: &Args) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let many = FEW * TIMES;
    let mut text = format!("| objects | {FEW} | {many} | growth | |\n|---|---|---|---|---|");
    for (what, objects) in ROWS {
        let few = runtime.block_on(cost(*objects, FEW))?;
        let all = runtime.block_on(cost(*objects, many))?;
        let growth = all.as_secs_f64() / few.as_secs_f64().max(1e-9);
        let verdict = if growth <= GROWTH_MAX { "met" } else { "**missed**" };
        let row =
            format!("| {what} | {} | {} | {growth:.1}× | {verdict} |", short(few), short(all));
        eprintln!("{row}");
        text = format!("{text}\n{row}");
    }
    println!("{text}");
    if args.dry {
        return Ok(());
    }
    let preface = format!(
        "{} Command: `cargo xtask bench crowd`. CPU of the server's process, user and system, for one object in a namespace with as many others: of its create over HTTPS and of \
         everything that admission, the controllers, the scheduler and {NODES} nodes do until the process is at rest. One run of each number, in fresh processes in memory. {}. \
         Goal: {TIMES} times as many objects make one at most {GROWTH_MAX} times as expensive; what looks at all of a namespace grows about {TIMES} times.",
        results::machine()?,
        process::built()?
    );
    results::write(Some("Crowded namespaces"), &format!("{preface}\n\n{text}"))
}

/// CPU for each of `n` objects.
async fn cost(objects: Objects, n: usize) -> anyhow::Result<Duration> {
    let program = Program::start_with(&["--nodes".as_ref(), NODES.as_ref()])?;
    let client = client(&std::fs::read_to_string(&program.kubeconfig)?).await?;
    rest(&program).await?;
    let before = program.cpu()?;
    let all = stream::iter((0..n).map(Ok::<_, anyhow::Error>));
    let created = all.try_for_each_concurrent(CREATES, |n| {
        let client = &client;
        async move {
            for (path, body) in objects(n) {
                create(client, &path, body.to_string()).await?;
            }
            Ok(())
        }
    });
    created.await?;
    rest(&program).await?;
    let cpu = program.cpu()?.saturating_sub(before);
    Ok(cpu / u32::try_from(n)?)
}

/// Until the process does nothing more.
async fn rest(program: &Program) -> anyhow::Result<()> {
    let began = Instant::now();
    let mut last = program.cpu()?;
    loop {
        tokio::time::sleep(REST).await;
        let now = program.cpu()?;
        if now.saturating_sub(last) <= REST_CPU {
            return Ok(());
        }
        ensure!(began.elapsed() < PATIENCE, "the controllers do not come to rest");
        last = now;
    }
}
