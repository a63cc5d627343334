//! Definitions as real projects have them: what they weigh, what they cost others, and how soon
//! they are served.
//!
//! The definitions are made ([`crate::definitions`]), since real ones cannot be committed.

use crate::definitions::{
    DEFINITIONS, GROUPS, PATH, create, definition, established, large, object, path,
};
use crate::definitions_memory::Weighed;
use crate::https::Load;
use crate::process::{self, Program};
use crate::results;
use crate::table::{Samples, Table, short};
use anyhow::Context;
use futures::{StreamExt as _, TryStreamExt as _};
use http::Request;
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::{Client, Config};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// Small definitions beside which others create.
const SMALL: usize = 500;
/// Requests that are sent at the same time while definitions are created.
const AT_ONCE: usize = 4;
/// How long memory is given to settle. Encoded watch events are cached for ten seconds.
const SETTLE: Duration = Duration::from_secs(15);

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
        "{} Command: `cargo xtask bench crds`. {}; client and server on the same cores; objects in memory.\n\n{table}",
        results::machine()?,
        process::built()?
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
    established(&client, &path(DEFINITIONS - 1)).await?;
    tokio::time::sleep(SETTLE).await;
    let mib = |kib: u64| kib.saturating_sub(before) as f64 / 1024.0;
    let what = format!(
        "resident memory of {DEFINITIONS} definitions of {:.0} MiB in sum, more than none",
        bytes as f64 / f64::from(1 << 20)
    );
    let weight = mib(program.resident_kib()?);
    table.row(&what, format!("{weight:.0} MiB"), "≤ 150 MiB");
    for at in 0..DEFINITIONS {
        let (path, object) = object(at);
        create(&client, &path, object.to_string()).await?;
    }
    tokio::time::sleep(SETTLE).await;
    let weight = mib(program.resident_kib()?);
    table.row(
        "resident memory of them with an object of each",
        format!("{weight:.0} MiB"),
        "≤ 150 MiB",
    );
    let weighed: Weighed = process::counted(&["definitions-memory"])?;
    let heap = weighed.definitions_bytes as f64 / f64::from(1 << 20);
    table.row("heap of the definitions, in process", format!("{heap:.0} MiB"), "–");
    let each =
        weighed.with_objects_bytes.saturating_sub(weighed.definitions_bytes) / DEFINITIONS as u64;
    let each = format!("{:.1} KiB", each as f64 / 1024.0);
    table.row("heap of the first object of a definition, in process", each, "–");
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
    table.row(&what, first.summary(), "≤ 5 ms");
    table.row("OpenAPI v3 of one of the group versions, asked for again", next.summary(), "≤ 5 ms");
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
    table.row("first object after its definition was sent", objects.summary(), "≤ 20 ms");
    table.row(
        "first object after its definition was sent, discovered and published in OpenAPI",
        documents.summary(),
        "≤ 20 ms",
    );
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
fn small(at: usize) -> Value {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"color": {"type": "string"}}}}});
    definition("small.io", &format!("smalls{at}"), &format!("Small{at}"), schema)
}

#[cfg(test)]
mod tests {
    use crate::definitions::{DEFINITIONS, large};

    #[test]
    fn the_crowd_is_as_large_as_that_of_real_projects() {
        let sizes: Vec<usize> = (0..DEFINITIONS).map(|at| large(at).to_string().len()).collect();
        let sum: usize = sizes.iter().sum();
        assert!((25 << 20..40 << 20).contains(&sum), "{sum}");
        assert!(sizes.iter().all(|size| *size < 1_400_000), "{sizes:?}");
        assert_eq!(large(3), large(3));
    }
}
