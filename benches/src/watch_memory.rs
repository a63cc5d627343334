//! Memory of the watch cache, with counted allocations.

use anyhow::Context as _;
use bytes::Bytes;
use futures::FutureExt as _;
use http_body_util::{BodyExt as _, Full};
use serde::{Deserialize, Serialize};
use setpoint::ControlPlane;
use setpoint::apiserver::Identity;
use setpoint::object::time::Clock;
use setpoint::prelude::CancellationToken;
use setpoint_registry::{Attributes, ListOptions, Registry, Target, Verb};
use setpoint_store::{DiskOptions, DiskStore, MemoryStore, Op, RangeRequest, Store, Txn};
use std::sync::Arc;
use tokio::task::JoinSet;

const OBJECTS: usize = 100_000;
const PAYLOAD_BYTES: usize = 850;
const IDLE: usize = 10_000;

/// The results in bytes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Weighed {
    pub(crate) engines: Vec<Engine>,
    pub(crate) n_idle: usize,
    pub(crate) idle_bytes: f64,
}
/// The cache over one engine; bytes per object.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Engine {
    pub(crate) name: String,
    pub(crate) n_objects: usize,
    /// Size of the stored object and its key.
    pub(crate) object_bytes: f64,
    /// Whether the object's bytes are shared with the store. They are included below in any case.
    pub(crate) is_shared: bool,
    /// After the cache was filled.
    pub(crate) filled: f64,
    /// After all objects were listed.
    pub(crate) listed: f64,
}

/// Measures. `heap` returns the allocated bytes.
#[allow(dead_code, reason = "only one of the two programs counts")]
pub(crate) fn weigh(heap: fn() -> u64) -> anyhow::Result<Weighed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let engines = runtime.block_on(async {
        let memory = Arc::new(MemoryStore::default());
        fill(&*memory).await?;
        let over_memory = over(memory, true, heap).await?;
        let folder = tempfile::tempdir()?;
        let disk = DiskStore::open(folder.path(), DiskOptions::default())?;
        fill(&disk).await?;
        // The engine's own cache of its file does not count.
        drop(disk.range(RangeRequest::prefix("/registry/")).await?);
        let over_disk = over(Arc::new(disk.clone()), false, heap).await?;
        disk.close().await;
        Ok::<_, anyhow::Error>(vec![over_memory, over_disk])
    })?;
    let idle_bytes = runtime.block_on(idle(heap))?;
    Ok(Weighed { engines, n_idle: IDLE, idle_bytes })
}

fn object(n: usize) -> (Bytes, Bytes) {
    let key = format!("/registry/configmaps/default/settings-{n:08}");
    let value = format!(
        r#"{{"apiVersion":"v1","data":{{"payload":"{}"}},"kind":"ConfigMap","metadata":{{"creationTimestamp":"2026-01-01T00:00:00Z","labels":{{"app":"bench"}},"name":"settings-{n:08}","namespace":"default","uid":"00000000-0000-4000-8000-0000{n:08}"}}}}"#,
        "x".repeat(PAYLOAD_BYTES)
    );
    // As a write path leaves them: a larger buffer.
    (key.into(), Bytes::copy_from_slice(value.as_bytes()))
}

async fn fill(store: &dyn Store) -> anyhow::Result<()> {
    for from in (0..OBJECTS).step_by(500) {
        let put = |n| {
            let (key, value) = object(n);
            Op::Put(key, value)
        };
        let ops = (from..from + 500).map(put).collect();
        store.commit(Txn { ops, ..Txn::default() }).await?;
    }
    Ok(())
}

async fn over(store: Arc<dyn Store>, is_shared: bool, heap: fn() -> u64) -> anyhow::Result<Engine> {
    let before = heap();
    let (registry, worker) = Registry::builder(store, Clock::wall()).seed(0).build();
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(worker.run(stop.clone()));
    registry.wait_ready().await;
    let filled = heap().saturating_sub(before);
    let resource = registry.catalog().get("", "v1", "configmaps").context("configmaps")?.clone();
    let request = Attributes::loopback(Verb::List, Target::new(resource, "", ""));
    let list = registry.list(&request, &ListOptions::default()).await?;
    anyhow::ensure!(list.items.len() >= OBJECTS, "only {} objects", list.items.len());
    drop(list);
    let listed = heap().saturating_sub(before);
    stop.cancel();
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    let (key, value) = object(0);
    let object_bytes = (key.len() + value.len()) as f64;
    let shared = if is_shared { object_bytes } else { 0.0 };
    let each = |bytes: u64| bytes as f64 / OBJECTS as f64 + shared;
    let name = if is_shared { "memory" } else { "disk" }.to_owned();
    let (filled, listed) = (each(filled), each(listed));
    Ok(Engine { name, n_objects: OBJECTS, object_bytes, is_shared, filled, listed })
}

/// Watches without events.
async fn idle(heap: fn() -> u64) -> anyhow::Result<f64> {
    let plane = ControlPlane::builder().simulated(0).controllers(false).build();
    let (server, stop) = (plane.server().clone(), CancellationToken::new());
    let mut tasks = JoinSet::new();
    tasks.spawn(plane.run(stop.clone()));
    let _ = server.registry().ready().wait_for(|ready| *ready).await;
    let mut bodies = Vec::with_capacity(IDLE);
    let before = heap();
    for n in 0..IDLE {
        let path = format!(
            "/api/v1/pods?watch=true&allowWatchBookmarks=true&resourceVersion=0&fieldSelector=spec.nodeName%3Dnode-{n}"
        );
        let mut request = http::Request::builder().uri(path).body(Full::new(Bytes::new()))?;
        request.extensions_mut().insert(Identity::loopback());
        let response = server.serve(request).await;
        anyhow::ensure!(response.status().is_success(), "{}", response.status());
        let mut body = Box::pin(response.into_body());
        // The bookmark after the empty initial list, and then nothing.
        while body.frame().now_or_never().is_some() {}
        bodies.push(body);
    }
    let after = heap();
    stop.cancel();
    drop(bodies);
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(after.saturating_sub(before) as f64)
}
