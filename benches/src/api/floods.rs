//! Small requests beside floods of one identity: every kind of costly request, on many connections
//! at once. The lists are in `beside`.

use super::beside::{FLOOD, P99_GOAL, RETRY, small_requests};
use super::client::{Answer, Ask, Connection, Endpoint};
use super::payload::{self, CONFIG_MAPS, PODS};
use super::small::Load;
use super::{Figures, Goal, Unit};
use crate::definitions;
use crate::process::Program;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Elements of the lists that are merged.
const ELEMENTS: usize = 20_000;
/// Bytes of the large bodies: below the limit of 3 MiB.
const BODY_BYTES: usize = 2_900_000;
/// Rules of the custom objects.
const N_RULES: usize = 20;
/// The Pod whose environment is patched.
const LARGE: &str = "/api/v1/namespaces/default/podtemplates/large";

/// The group of large definitions.
pub(super) const LARGE_GROUP: &str = "flood.io";

/// What is sent again and again.
#[derive(Debug, Clone)]
pub(super) enum Flood {
    /// A small request.
    Small(Load),
    /// A request with one body.
    Same(Box<Same>),
    /// A watch from the beginning that is left after its first bytes.
    Watches,
}

/// A request with one body.
#[derive(Debug, Clone)]
pub(super) struct Same {
    name: &'static str,
    method: &'static str,
    path: String,
    content_type: &'static str,
    accept: &'static str,
    body: Bytes,
}

impl Same {
    pub(super) async fn send(&self, connection: &mut Connection) -> anyhow::Result<Answer> {
        let Self { method, path, content_type, accept, body, .. } = self;
        let ask = Ask { method, path, content_type, accept, gzip: false };
        connection.send(ask, body.clone()).await
    }
}

impl Flood {
    pub(super) fn name(&self) -> String {
        match self {
            Self::Small(load) => load.name().to_owned(),
            Self::Same(same) => same.name.to_owned(),
            Self::Watches => "watch of all Pods, left at once".to_owned(),
        }
    }
}

/// All floods.
pub(super) fn floods() -> Vec<Flood> {
    let json = "application/json";
    let get = |name, path: &str, accept| {
        let (method, body) = ("GET", Bytes::new());
        Same { name, method, path: path.to_owned(), content_type: json, accept, body }
    };
    let write = |name, method, path: String, content_type, body: Bytes| Same {
        name,
        method,
        path,
        content_type,
        accept: json,
        body,
    };
    let maps = format!("{CONFIG_MAPS}?dryRun=All");
    let sames = [
        get("LIST of Pods, Table", "/api/v1/pods", "application/json;as=Table;g=meta.k8s.io;v=v1"),
        get("LIST of Pods, protobuf", "/api/v1/pods", "application/vnd.kubernetes.protobuf"),
        get("LIST of Pods by a label", "/api/v1/pods?labelSelector=app%3Dother", json),
        get("OpenAPI v2", "/openapi/v2", json),
        get("OpenAPI v3 of the core group", "/openapi/v3/api/v1", json),
        get(
            "aggregated discovery",
            "/apis",
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        ),
        get("metrics", "/metrics", "text/plain"),
        write(
            "strategic merge of 20,000 elements, dry run",
            "PATCH",
            format!("{LARGE}?dryRun=All"),
            "application/strategic-merge-patch+json",
            template(1),
        ),
        write(
            "apply of 20,000 elements, dry run",
            "PATCH",
            format!("{LARGE}?dryRun=All&fieldManager=bench&force=true"),
            "application/apply-patch+yaml",
            template(1),
        ),
        write("create of 2.9 MB of JSON, dry run", "POST", maps.clone(), json, large_json()),
        write(
            "create of 2.9 MB of YAML, dry run",
            "POST",
            maps.clone(),
            "application/yaml",
            large_yaml(),
        ),
        write("aliases in YAML, refused", "POST", maps, "application/yaml", aliases()),
        write(
            "create of a definition of 1 MB, dry run",
            "POST",
            format!("{}?dryRun=All", definitions::PATH),
            json,
            large_definition("larges"),
        ),
    ];
    let smalls =
        [Load::Create, Load::PodCreate, Load::Apply, Load::StatusPatch, Load::Ruled(N_RULES)];
    let smalls = smalls.into_iter().map(Flood::Small);
    smalls
        .chain(sames.into_iter().map(|same| Flood::Same(Box::new(same))))
        .chain([Flood::Watches])
        .collect()
}

pub(super) fn measure(
    program: &Program,
    endpoint: &Endpoint,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    prepare(endpoint)?;
    for flood in floods() {
        let (stop, n_answered, n_refused) =
            (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        let p99 = std::thread::scope(|scope| {
            let sending = scope.spawn(|| send(endpoint, &flood, &stop, (&n_answered, &n_refused)));
            std::thread::sleep(RETRY / 2);
            let p99 = small_requests(endpoint);
            stop.store(true, Ordering::Relaxed);
            sending.join().map_err(|_| anyhow::anyhow!("the flood panicked"))??;
            p99
        })?;
        let name = format!("{FLOOD} at once: {}", flood.name());
        let beside = format!("p99 of a small GET beside {name}");
        figures.add(&beside, Unit::Millis, Goal::Most(P99_GOAL), p99);
        for (what, n) in [("answered", &n_answered), ("refused with 429", &n_refused)] {
            let n = n.load(Ordering::Relaxed) as f64;
            figures.add(&format!("{name}: {what}"), Unit::Count, Goal::None, n);
        }
    }
    let resident = program.resident_kib()? as f64 / 1024.0;
    figures.add("resident memory after all floods", Unit::Mebibytes, Goal::None, resident);
    Ok(())
}

/// Creates what the floods change.
pub(super) fn prepare(endpoint: &Endpoint) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut connection = endpoint.connect().await?;
        let definition = payload::rules_definition(N_RULES);
        connection.send(Ask::write("POST", definitions::PATH), definition).await?.ok()?;
        let path = "/api/v1/namespaces/default/podtemplates";
        connection.send(Ask::write("POST", path), template(0)).await?.ok()?;
        // The one that is read; there already if other floods were measured.
        connection.send(Ask::write("POST", CONFIG_MAPS), payload::config_map("small", 0)).await?;
        Ok(())
    })
}

/// Sends requests on [`FLOOD`] connections until it is stopped.
async fn one(
    endpoint: &Endpoint,
    flood: &Flood,
    number: usize,
    stop: &AtomicBool,
    (n_answered, n_refused): (&AtomicU64, &AtomicU64),
) -> anyhow::Result<()> {
    let mut connection = endpoint.connect().await?;
    if matches!(flood, Flood::Small(Load::StatusPatch)) {
        let own = payload::pod(&format!("own-{number}"));
        connection.send(Ask::write("POST", PODS), own).await?;
    }
    for n in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let status = match flood {
            Flood::Small(load) => {
                let (method, path, content_type, body) = load.request("flood", number, n);
                let ask = Ask { content_type, ..Ask::write(method, &path) };
                connection.send(ask, body).await?.status
            }
            Flood::Same(same) => same.send(&mut connection).await?.status,
            Flood::Watches => {
                let ask = Ask::get("/api/v1/pods?watch=true&resourceVersion=0");
                let response = connection.begin(ask, Bytes::new()).await?;
                let status = response.status();
                let _ = response.into_body().frame().await;
                status
            }
        };
        if status == 429 {
            n_refused.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(RETRY).await;
        } else {
            n_answered.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

fn send(
    endpoint: &Endpoint,
    flood: &Flood,
    stop: &AtomicBool,
    counts: (&AtomicU64, &AtomicU64),
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let all = (0..FLOOD).map(|number| one(endpoint, flood, number, stop, counts));
        // A server may close a connection that asks too much of it.
        let ended = futures::future::join_all(all).await;
        let n_failed = ended.iter().filter(|ended| ended.is_err()).count();
        if n_failed > 0 {
            eprintln!("{n_failed} connections of {} failed", flood.name());
        }
        Ok(())
    })
}

/// A PodTemplate whose container has many variables. `n` distinguishes their values.
fn template(n: usize) -> Bytes {
    let env: Vec<Value> = (0..ELEMENTS)
        .map(|at| json!({"name": format!("V{at}"), "value": format!("{n}")}))
        .collect();
    let spec = json!({"containers": [{"name": "c", "image": "i", "env": env}]});
    let metadata = json!({"name": "large"});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": spec});
    json!({"apiVersion": "v1", "kind": "PodTemplate", "metadata": metadata, "template": template})
        .to_string()
        .into()
}

/// A ConfigMap of many short values.
fn large_json() -> Bytes {
    let mut data = serde_json::Map::new();
    let mut n_bytes = 0;
    for n in 0.. {
        if n_bytes > BODY_BYTES {
            break;
        }
        data.insert(format!("k{n}"), "v".into());
        n_bytes += 14;
    }
    let metadata = json!({"name": "large"});
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
    map.to_string().into()
}

/// The same in YAML.
fn large_yaml() -> Bytes {
    let mut text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: large}\ndata:\n".to_owned();
    for n in 0.. {
        if text.len() > BODY_BYTES {
            break;
        }
        text.push_str(&format!("  k{n}: v\n"));
    }
    text.into()
}

/// Aliases of aliases.
fn aliases() -> Bytes {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..100_000 {
        if text.len() > BODY_BYTES {
            break;
        }
        let of = n - 1;
        text.push_str(&format!("a{n}: &a{n} [*a{of}, *a{of}, *a{of}, *a{of}]\n"));
    }
    text.into()
}

/// A definition with many properties that have patterns.
pub(super) fn large_definition(plural: &str) -> Bytes {
    let property = json!({
        "type": "string", "maxLength": 64, "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$",
        "description": "one of many ".repeat(8),
    });
    let properties: serde_json::Map<_, _> =
        (0..4_500).map(|n| (format!("p{n}"), property.clone())).collect();
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": properties},
    }});
    definitions::definition(LARGE_GROUP, plural, "Large", schema).to_string().into()
}
