//! Definitions as real projects have them: what they weigh, what they cost others, and how soon
//! they are served.
//!
//! The definitions are made, since real ones cannot be committed: deep objects with descriptions,
//! lists, patterns and enums, a few kinds of parts that come again and again, as Pod templates do.
//! Sizes follow those of 349 definitions of 25 projects: most have some ten kilobytes, some have
//! half a megabyte.

use crate::https::Load;
use crate::process::Program;
use crate::results;
use crate::table::{Samples, Table, short};
use anyhow::Context;
use futures::{StreamExt as _, TryStreamExt as _};
use http::Request;
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::{Client, Config};
use serde_json::{Map, Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// Definitions of the crowd: as many as the 25 projects have.
const DEFINITIONS: usize = 349;
/// Small definitions beside which others create.
const SMALL: usize = 500;
/// Groups that the crowd is spread over.
const GROUPS: usize = 25;
/// Requests that are sent at the same time while definitions are created.
const AT_ONCE: usize = 4;
/// How long memory is given to settle.
const SETTLE: Duration = Duration::from_secs(5);
const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// What to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print the figures only.
    #[arg(long)]
    dry_run: bool,
}

pub(crate) fn measure(args: &Args) -> anyhow::Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut table = Table::default();
    runtime.block_on(async {
        crowd(&mut table).await?;
        creates(&mut table).await?;
        first_object(&mut table).await?;
        crate::conversion::measure(&mut table).await
    })?;
    println!("{table}");
    if args.dry_run {
        return Ok(());
    }
    let text = format!(
        "{} Command: `cargo xtask bench crds`. The program built with `--profile dist`; client and server on the same cores; objects in memory.\n\n{table}",
        results::machine()?
    );
    results::write(Some("Definitions"), &text)
}

/// What many large definitions weigh, and what is published of them.
async fn crowd(table: &mut Table) -> anyhow::Result<()> {
    let program = Program::start()?;
    let client = connect(&program.kubeconfig).await?;
    tokio::time::sleep(SETTLE).await;
    let before = program.resident_kib()?;
    let mut bytes = 0;
    for at in 0..DEFINITIONS {
        let definition = large(at).to_string();
        bytes += definition.len();
        create(&client, PATH, definition).await.with_context(|| format!("definition {at}"))?;
    }
    let last = format!("{PATH}/things{}.g{}.io", DEFINITIONS - 1, (DEFINITIONS - 1) % GROUPS);
    established(&client, &last).await?;
    tokio::time::sleep(SETTLE).await;
    let mib = |kib: u64| kib.saturating_sub(before) as f64 / 1024.0;
    let what = format!(
        "resident memory of {DEFINITIONS} definitions of {:.0} MiB in sum, more than none",
        bytes as f64 / f64::from(1 << 20)
    );
    let weight = mib(program.resident_kib()?);
    table.row(&what, format!("{weight:.0} MiB"), "≤ 150 MiB");
    for at in 0..DEFINITIONS {
        let (group, plural, kind) = names(at);
        let object = json!({"apiVersion": format!("{group}/v1"), "kind": kind, "metadata": {"name": "a"}, "spec": {}});
        let path = format!("/apis/{group}/v1/namespaces/default/{plural}");
        create(&client, &path, object.to_string()).await?;
    }
    tokio::time::sleep(SETTLE).await;
    let weight = mib(program.resident_kib()?);
    table.row("the same with an object of each", format!("{weight:.0} MiB"), "≤ 150 MiB");
    let started = Instant::now();
    client.request_text(get("/openapi/v3")?).await?;
    table.row("the first index of OpenAPI v3 of all of them", short(started.elapsed()), "–");
    let (mut first, mut next) = (Samples::default(), Samples::default());
    for group in 0..GROUPS {
        for samples in [&mut first, &mut next] {
            let started = Instant::now();
            client.request_text(get(&format!("/openapi/v3/apis/g{group}.io/v1"))?).await?;
            samples.push_since(started);
        }
    }
    let what = format!("OpenAPI v3 of one of the {GROUPS} group versions, asked for first");
    table.row(&what, first.told(), "≤ 5 ms");
    table.row("the same, asked for again", next.told(), "≤ 5 ms");
    let started = Instant::now();
    client.request_text(get("/openapi/v2")?).await?;
    table.row("OpenAPI v2 of all of them", short(started.elapsed()), "–");
    tokio::time::sleep(SETTLE).await;
    let weight = mib(program.resident_kib()?);
    table.row("resident memory after all of it was asked for", format!("{weight:.0} MiB"), "–");
    Ok(())
}

/// Creates of ConfigMaps beside many small definitions.
async fn creates(table: &mut Table) -> anyhow::Result<()> {
    let data = "x".repeat(1024);
    let load = |prefix| Load { n_connections: 4, lasting: crate::https::LOAD, data: &data, prefix };
    let (bare, crowded) = (Program::start()?, Program::start()?);
    let client = connect(&crowded.kubeconfig).await?;
    let creates = (0..SMALL).map(|at| create(&client, PATH, small(at).to_string()));
    futures::stream::iter(creates).buffer_unordered(AT_ONCE).try_collect::<Vec<_>>().await?;
    established(&client, &format!("{PATH}/smalls{}.small.io", SMALL - 1)).await?;
    let (mut without, mut with) = (0.0, 0.0);
    // Turn by turn, so that what else the machine does falls on both.
    for prefix in ["a", "b", "c"] {
        without += load(prefix).run(&bare.kubeconfig).await?;
        with += load(prefix).run(&crowded.kubeconfig).await?;
    }
    let what = format!("ConfigMap creates with {SMALL} definitions present, against none");
    table.row(&what, format!("{:.2}×", with / without), "≥ 0.95×");
    Ok(())
}

/// From a definition to its first object.
async fn first_object(table: &mut Table) -> anyhow::Result<()> {
    let program = Program::start()?;
    let client = connect(&program.kubeconfig).await?;
    let (mut objects, mut documents) = (Samples::default(), Samples::default());
    for at in 0..100 {
        let started = Instant::now();
        create(&client, PATH, small(at).to_string()).await?;
        let path = format!("/apis/small.io/v1/namespaces/default/smalls{at}");
        let object = json!({"apiVersion": "small.io/v1", "kind": format!("Small{at}"), "metadata": {"name": "a"}});
        while create(&client, &path, object.to_string()).await.is_err() {
            tokio::task::yield_now().await;
        }
        objects.push_since(started);
        client.request_text(get("/apis/small.io/v1")?).await?;
        let document = client.request_text(get("/openapi/v3/apis/small.io/v1")?).await?;
        anyhow::ensure!(document.contains(&format!("Small{at}")), "it is not published");
        documents.push_since(started);
    }
    table.row("first object after its definition was sent", objects.told(), "≤ 20 ms");
    table.row("the same, discovered and published in OpenAPI", documents.told(), "≤ 20 ms");
    Ok(())
}

async fn connect(kubeconfig: &Path) -> anyhow::Result<Client> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}
fn get(path: &str) -> http::Result<Request<Vec<u8>>> {
    Request::get(path).body(Vec::new())
}
async fn create(client: &Client, path: &str, body: String) -> anyhow::Result<()> {
    let request = Request::post(path).header("content-type", "application/json");
    client.request_text(request.body(body.into_bytes())?).await?;
    Ok(())
}
async fn established(client: &Client, path: &str) -> anyhow::Result<()> {
    loop {
        let definition: Value = client.request(get(path)?).await?;
        let conditions = definition["status"]["conditions"].as_array();
        let is = |c: &Value| c["type"] == "Established" && c["status"] == "True";
        if conditions.is_some_and(|conditions| conditions.iter().any(is)) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn definition(group: &str, plural: &str, kind: &str, schema: Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema}}],
        },
    })
}
fn small(at: usize) -> Value {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"color": {"type": "string"}}}}});
    definition("small.io", &format!("smalls{at}"), &format!("Small{at}"), schema)
}
/// Group, plural name and kind of a definition of the crowd.
fn names(at: usize) -> (String, String, String) {
    (format!("g{}.io", at % GROUPS), format!("things{at}"), format!("Thing{at}"))
}
fn large(at: usize) -> Value {
    let (group, plural, kind) = names(at);
    // One in forty is as large as a definition may be and still be stored with its status, the
    // others have a size of their own.
    let size = if at % 40 == 7 { 900_000 } else { 8_000 + (at * 7919) % 130_000 };
    let mut schema = Schema { state: at as u64 + 1, left: size as i64 };
    let mut properties = Map::new();
    while schema.left > 0 {
        properties.insert(format!("part{}", properties.len()), schema.object(0));
    }
    let spec = json!({"type": "object", "description": schema.text(20), "properties": properties});
    let whole = json!({"type": "object", "description": schema.text(30), "properties": {"spec": spec,
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
    definition(&group, &plural, &kind, whole)
}

/// Makes schemas from a seed until so many bytes are used up.
struct Schema {
    state: u64,
    left: i64,
}
impl Schema {
    /// xorshift64*.
    fn draw(&mut self, n: u64) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) % n
    }
    fn text(&mut self, n_words: u64) -> String {
        const WORDS: [&str; 12] = [
            "the", "name", "of", "Pods", "that", "are", "selected", "when", "a", "template", "is",
            "optional",
        ];
        let n = 4 + self.draw(n_words);
        let words: Vec<&str> =
            (0..n).map(|_| WORDS[self.draw(WORDS.len() as u64) as usize]).collect();
        words.join(" ")
    }
    fn object(&mut self, depth: u64) -> Value {
        let n = 3 + self.draw(9);
        let properties: Map<String, Value> = (0..n)
            .map(|at| {
                (
                    format!("{}Field{at}", ["a", "label", "container"][at as usize % 3]),
                    self.field(depth + 1),
                )
            })
            .collect();
        self.left -= 60;
        json!({"type": "object", "description": self.text(24), "properties": properties})
    }
    fn field(&mut self, depth: u64) -> Value {
        let description = self.text(24);
        self.left -= 100 + description.len() as i64;
        match self.draw(10) {
            0 | 1 if depth < 9 && self.left > 0 => self.object(depth),
            2 if depth < 9 && self.left > 0 => {
                json!({"type": "array", "description": description, "items": self.object(depth)})
            }
            3 => {
                json!({"type": "object", "description": description, "additionalProperties": {"type": "string"}})
            }
            4 => {
                json!({"type": "integer", "format": "int32", "description": description, "minimum": 0})
            }
            5 => {
                json!({"type": "string", "description": description, "enum": ["Always", "Never", "IfNotPresent"]})
            }
            6 => {
                json!({"type": "string", "description": description, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63})
            }
            7 => {
                json!({"description": description, "x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]})
            }
            8 => json!({"type": "boolean", "description": description}),
            _ => json!({"type": "string", "description": description}),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{DEFINITIONS, large};

    #[test]
    fn the_crowd_is_as_large_as_that_of_real_projects() {
        let sizes: Vec<usize> = (0..DEFINITIONS).map(|at| large(at).to_string().len()).collect();
        let sum: usize = sizes.iter().sum();
        assert!((25 << 20..40 << 20).contains(&sum), "{sum}");
        assert!(sizes.iter().all(|size| *size < 1_400_000), "{sizes:?}");
        assert_eq!(large(3), large(3));
    }
}
