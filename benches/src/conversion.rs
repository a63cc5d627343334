//! A version with slow conversion, as through a webhook: the cost of its lists and watches, for
//! their clients and for others.
//!
//! In process, on one thread.

use crate::table::{Samples, Table, short};
use anyhow::Context as _;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use setpoint::object::GroupKind;
use setpoint::object::time::Clock;
use setpoint::prelude::CancellationToken;
use setpoint_registry::{
    Attributes, Body, Conversion, ConversionError, ConversionProvider, ConversionRequest, Format,
    ListOptions, Registry, Target, Verb, WriteOptions,
};
use setpoint_store::MemoryStore;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Duration of one batch.
const BATCH: Duration = Duration::from_millis(20);
const OBJECTS: usize = 10_000;
const WATCHERS: usize = 1000;
const CHANGES: usize = 20;
/// Pause between two small requests of another client.
const PAUSE: Duration = Duration::from_millis(1);

/// Replaces the version, and counts.
#[derive(Debug, Clone, Default)]
struct Converter {
    n_objects: Arc<AtomicUsize>,
    n_calls: Arc<AtomicUsize>,
}

impl ConversionProvider for Converter {
    fn conversion(&self, _: &GroupKind, _: &Value) -> Option<Arc<dyn Conversion>> {
        Some(Arc::new(self.clone()))
    }
}

impl Conversion for Converter {
    fn convert(
        &self,
        request: ConversionRequest,
    ) -> BoxFuture<'static, Result<Vec<Bytes>, ConversionError>> {
        self.n_calls.fetch_add(1, Ordering::Relaxed);
        self.n_objects.fetch_add(request.objects.len(), Ordering::Relaxed);
        Box::pin(async move {
            tokio::time::sleep(BATCH).await;
            let convert = |object: &Bytes| {
                let refused =
                    |error: serde_json::Error| ConversionError::Refused(error.to_string());
                let mut object: Value = serde_json::from_slice(object).map_err(refused)?;
                object["apiVersion"] = request.api_version.clone().into();
                Ok(object.to_string().into())
            };
            request.objects.iter().map(convert).collect()
        })
    }
}

fn definition() -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = |name: &str, is_storage: bool| {
        json!({"name": name, "served": true, "storage": is_storage,
            "schema": {"openAPIV3Schema": schema}})
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.ex.io"},
        "spec": {
            "group": "ex.io", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"},
            "versions": [version("v1", true), version("v2", false)],
            "conversion": {"strategy": "Webhook", "webhook": {
                "clientConfig": {"url": "https://localhost/convert"},
                "conversionReviewVersions": ["v1"]}},
        },
    })
}

/// A request for a served resource.
fn request(
    registry: &Registry,
    verb: Verb,
    what: [&str; 3],
    name: &str,
) -> anyhow::Result<Attributes> {
    let [group, version, resource] = what;
    let catalog = registry.catalog();
    let row = catalog.get(group, version, resource).context("it is not served")?.clone();
    let namespace = if resource == "customresourcedefinitions" { "" } else { "default" };
    Ok(Attributes::loopback(verb, Target::new(row, namespace, name)))
}

async fn create(registry: &Registry, what: [&str; 3], object: Value) -> anyhow::Result<()> {
    let body = Body { bytes: object.to_string().into(), format: Format::Json };
    let request = request(registry, Verb::Create, what, "")?;
    registry.create(&request, body, &WriteOptions::default()).await?;
    Ok(())
}

fn foo(name: &str) -> Value {
    json!({"apiVersion": "ex.io/v1", "kind": "Foo", "metadata": {"name": name, "namespace": "default"},
        "spec": {"payload": "x".repeat(512)}})
}

const CONFIG_MAPS: [&str; 3] = ["", "v1", "configmaps"];
const STORED: [&str; 3] = ["ex.io", "v1", "foos"];
const CONVERTED: [&str; 3] = ["ex.io", "v2", "foos"];

pub(crate) async fn measure(table: &mut Table) -> anyhow::Result<()> {
    let converter = Converter::default();
    let (registry, worker) = Registry::builder(Arc::new(MemoryStore::default()), Clock::wall())
        .converter(Arc::new(converter.clone()))
        .build();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { drop(worker.run(CancellationToken::new()).await) });
    registry.wait_ready().await;
    let definitions = ["apiextensions.k8s.io", "v1", "customresourcedefinitions"];
    create(&registry, definitions, definition()).await?;
    let mut catalogs = registry.catalog_changes();
    catalogs.wait_for(|catalog| catalog.get("ex.io", "v2", "foos").is_some()).await?;
    let small = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "small"}});
    create(&registry, CONFIG_MAPS, small).await?;
    for n in 0..OBJECTS {
        create(&registry, STORED, foo(&format!("foo-{n}"))).await?;
    }
    lists(&registry, &converter, table).await?;
    watches(&registry, &converter, table).await
}

/// The first list of a converted version, with small requests of others during it, and the second
/// list.
async fn lists(
    registry: &Registry,
    converter: &Converter,
    table: &mut Table,
) -> anyhow::Result<()> {
    let all = request(registry, Verb::List, CONVERTED, "")?;
    let list = async {
        let started = Instant::now();
        let list = registry.list(&all, &ListOptions::default()).await?;
        anyhow::ensure!(list.items.len() == OBJECTS, "{} objects", list.items.len());
        Ok(started.elapsed())
    };
    let get = request(registry, Verb::Get, CONFIG_MAPS, "small")?;
    let others = async {
        let mut samples = Samples::default();
        loop {
            let started = Instant::now();
            registry.get(&get, "").await?;
            samples.push_since(started);
            tokio::time::sleep(PAUSE).await;
            if converter.n_objects.load(Ordering::Relaxed) >= OBJECTS {
                return anyhow::Ok(samples);
            }
        }
    };
    let (first, others) = tokio::try_join!(list, others)?;
    let n_calls = converter.n_calls.load(Ordering::Relaxed);
    let what = format!(
        "LIST of {OBJECTS} objects of a version that takes {} ms to convert a batch, the first",
        BATCH.as_millis()
    );
    table.row(&what, format!("{}, {n_calls} batches", short(first)), "–");
    table.row("a GET of another resource meanwhile", others.summary(), "≤ 5 ms");
    let started = Instant::now();
    registry.list(&all, &ListOptions::default()).await?;
    table.row("the same LIST again", short(started.elapsed()), "–");
    let n_objects = converter.n_objects.load(Ordering::Relaxed);
    anyhow::ensure!(n_objects == OBJECTS, "{n_objects} conversions of {OBJECTS} objects");
    Ok(())
}

/// One new object, delivered to many watchers of both versions.
async fn watches(
    registry: &Registry,
    converter: &Converter,
    table: &mut Table,
) -> anyhow::Result<()> {
    let mut tasks = JoinSet::new();
    let delivered = [CONVERTED, STORED].map(|what| (what, Arc::new(Semaphore::new(0))));
    for (what, delivered) in &delivered {
        let list = request(registry, Verb::List, *what, "")?;
        let one = ListOptions { limit: 1, ..ListOptions::default() };
        let resource_version = registry.list(&list, &one).await?.revision.to_string();
        let options = ListOptions { resource_version, ..ListOptions::default() };
        let watch = request(registry, Verb::Watch, *what, "")?;
        for _ in 0..WATCHERS {
            let mut stream = registry.watch(&watch, &options).await?;
            let delivered = delivered.clone();
            tasks.spawn(async move {
                while let Some(Ok(_)) = stream.next().await {
                    delivered.add_permits(1);
                }
            });
        }
    }
    let before = converter.n_objects.load(Ordering::Relaxed);
    let mut took = [Samples::default(), Samples::default()];
    for n in 0..CHANGES {
        let started = Instant::now();
        create(registry, STORED, foo(&format!("new-{n}"))).await?;
        let [converted, stored] = &mut took;
        let everybody = u32::try_from(WATCHERS)?;
        let [(_, of_converted), (_, of_stored)] = &delivered;
        let of_converted = async {
            of_converted.acquire_many(everybody).await?.forget();
            converted.push_since(started);
            anyhow::Ok(())
        };
        let of_stored = async {
            of_stored.acquire_many(everybody).await?.forget();
            stored.push_since(started);
            anyhow::Ok(())
        };
        tokio::try_join!(of_converted, of_stored)?;
    }
    let n_objects = converter.n_objects.load(Ordering::Relaxed) - before;
    let [converted, stored] = took;
    let what = format!("a new object to the last of {WATCHERS} watchers of that version");
    let figure = format!("{}, {n_objects} conversions for {CHANGES} objects", converted.summary());
    table.row(&what, figure, "–");
    let what = format!("the same object to the last of {WATCHERS} watchers of the stored version");
    table.row(&what, stored.summary(), "≤ 20 ms");
    Ok(())
}
