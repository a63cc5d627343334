//! Steps inside one process: the budgets that an exploration of a thousand controller lifetimes a
//! second stands on.

use crate::table::{Samples, Table, short};
use anyhow::ensure;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use k8s_openapi::api::core::v1::ConfigMap;
use setpoint::apiserver::{ApiServer, Identity};
use setpoint::informer::CachePolicy;
use setpoint::prelude::*;
use setpoint::{ControlPlane, InProcessSource};
use std::future::Future;
use std::hint::black_box;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// How often each step is measured.
const ROUNDS: u32 = 5_000;

pub(crate) fn measure(table: &mut Table) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut fresh = Samples::default();
        let mut built = Samples::default();
        let mut first = None;
        for round in 0..=100 {
            let started = Instant::now();
            let plane = ControlPlane::builder().simulated(0).controllers(false).build();
            let server = plane.server().clone();
            let stop = CancellationToken::new();
            let (ended, created) = tokio::join!(plane.run(stop.clone()), async {
                plane_ready(&server).await;
                let ready = started.elapsed();
                let created =
                    send(&server, "POST", CONFIG_MAPS, "application/json", config_map(0)).await;
                let acknowledged = started.elapsed();
                if round == 0 {
                    // The first of a process makes what all later ones share.
                    first = Some(acknowledged);
                } else {
                    built.push(ready);
                    fresh.push(acknowledged);
                }
                stop.cancel();
                created
            });
            ended?;
            created?;
        }
        let first = first.map(short).unwrap_or_default();
        table.row("API server in process, `build()` to its first acknowledged create: the first of a process", first, "≤ 5 ms");
        table.row("API server in process, `build()` to its first acknowledged create: each later one", fresh.told(), "≤ 5 ms");
        table.row("fresh control plane in process without its built-in controllers, `build()` to ready", built.told(), "≤ 50 µs");

        let plane = ControlPlane::builder().simulated(0).controllers(false).build();
        let server = plane.server().clone();
        let stop = CancellationToken::new();
        let (ended, measured) = tokio::join!(plane.run(stop.clone()), async {
            let measured = async {
                plane_ready(&server).await;
                steps(&server, table).await
            };
            let measured = measured.await;
            stop.cancel();
            measured
        });
        ended?;
        measured
    })
}

/// Whose deliveries are timed.
const POLICIES: [CachePolicy; 2] = [CachePolicy::Compact, CachePolicy::Decoded];

const DELIVERED: &str = "acknowledged write to handler, through watch, queue and index";

/// The same, where the informer asks the registry itself and nothing is written in HTTP.
const DELIVERED_WITHIN: &str =
    "acknowledged write to handler, without HTTP (`ControlPlane::source`)";

/// An API server in this process, on a thread that others may use too.
pub(crate) struct Server {
    runtime: Runtime,
    server: ApiServer,
    client: kube_client::Client,
    stop: CancellationToken,
    tasks: JoinSet<anyhow::Result<()>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
        let tasks = &mut self.tasks;
        self.runtime.block_on(async { while tasks.join_next().await.is_some() {} });
    }
}

impl Server {
    /// Serves one ConfigMap.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let plane = ControlPlane::builder().simulated(0).controllers(false).build();
        let server = plane.server().clone();
        // A client starts a task for its buffer.
        let client = runtime.block_on(async { plane.client() });
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let running = plane.run(stop.clone());
        tasks.spawn_on(async move { Ok(running.await?) }, runtime.handle());
        runtime.block_on(async {
            plane_ready(&server).await;
            send(&server, "POST", CONFIG_MAPS, "application/json", config_map(0)).await
        })?;
        Ok(Self { runtime, server, client, stop, tasks })
    }

    pub(crate) fn client(&self) -> kube_client::Client {
        self.client.clone()
    }

    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Changes the ConfigMap.
    pub(crate) async fn write(&self, value: u32) -> anyhow::Result<()> {
        let body = config_map(value + 1);
        send(&self.server, "PUT", CONFIG_MAP, "application/json", body).await.map(drop)
    }

    /// From the acknowledged write to an informer's handler.
    pub(crate) fn deliveries(&self, table: &mut Table) -> anyhow::Result<()> {
        for policy in POLICIES {
            let mut judge = |what, delivered: Samples| {
                let is_met = delivered.median() <= Duration::from_micros(5);
                let what = format!("{what} ({policy:?})");
                table.judged(&what, delivered.told(), "≤ 5 µs", Some(is_met));
            };
            let within = InProcessSource::namespaced::<ConfigMap>(&self.server, "default");
            let delivered = self.block_on(delivery(&self.server, within, policy))?;
            judge(DELIVERED_WITHIN, delivered);
            let over_http = ClientSource::namespaced::<ConfigMap>(self.client.clone(), "default");
            let delivered = self.block_on(delivery(&self.server, over_http, policy))?;
            judge(DELIVERED, delivered);
        }
        Ok(())
    }
}

pub(crate) async fn plane_ready(server: &ApiServer) {
    let _ = server.registry().ready().wait_for(|ready| *ready).await;
}

pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const CONFIG_MAP: &str = "/api/v1/namespaces/default/configmaps/cm";

fn config_map(value: u32) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"cm","labels":{{"app":"bench"}}}},"data":{{"value":"{value}","payload":"{}"}}}}"#,
        "x".repeat(1024)
    )
}

/// One request through the whole pipeline; the answer's bytes.
pub(crate) async fn send(
    server: &ApiServer,
    method: &str,
    path: &str,
    content_type: &str,
    body: String,
) -> anyhow::Result<Bytes> {
    let mut request =
        http::Request::builder().method(method).uri(path).header("content-type", content_type);
    if let Some(extensions) = request.extensions_mut() {
        extensions.insert(Identity::loopback());
    }
    let response = server.serve(request.body(Full::new(Bytes::from(body)))?).await;
    let status = response.status();
    let body = response
        .into_body()
        .collect()
        .await
        .map_err(|error| anyhow::anyhow!("{error}"))?
        .to_bytes();
    ensure!(status.is_success(), "{method} {path}: {}", String::from_utf8_lossy(&body));
    Ok(body)
}

async fn steps(server: &ApiServer, table: &mut Table) -> anyhow::Result<()> {
    send(server, "POST", CONFIG_MAPS, "application/json", config_map(0)).await?;
    let mut get = Samples::default();
    for _ in 0..ROUNDS {
        let started = Instant::now();
        black_box(send(server, "GET", CONFIG_MAP, "application/json", String::new()).await?);
        get.push_since(started);
    }
    table.row("live get, ConfigMap of 1 KiB", get.told(), "≤ 10 µs");

    let mut update = Samples::default();
    for round in 0..ROUNDS {
        let body = config_map(round + 1);
        let started = Instant::now();
        black_box(send(server, "PUT", CONFIG_MAP, "application/json", body).await?);
        update.push_since(started);
        tokio::task::yield_now().await;
    }
    table.row("update, ConfigMap of 1 KiB", update.told(), "≤ 40 µs");

    let mut apply = Samples::default();
    let path = format!("{CONFIG_MAP}?fieldManager=bench&force=true");
    for round in 0..ROUNDS {
        let body = config_map(round);
        let started = Instant::now();
        black_box(send(server, "PATCH", &path, "application/apply-patch+yaml", body).await?);
        apply.push_since(started);
        tokio::task::yield_now().await;
    }
    table.row("server-side apply, ConfigMap of 1 KiB", apply.told(), "≤ 100 µs");
    Ok(())
}

/// From the acknowledged write to the handler.
async fn delivery(
    server: &ApiServer,
    source: impl ListWatch,
    policy: CachePolicy,
) -> anyhow::Result<Samples> {
    let (informer, worker) = SharedInformer::<ConfigMap>::builder(source).policy(policy).build();
    let (sender, mut seen) = mpsc::unbounded_channel();
    informer.add_handler(
        move |_: Event<ConfigMap>| {
            let _ = sender.send(Instant::now());
        },
        HandlerOptions::default(),
    )?;
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(worker.run(stop.clone()));
    informer.synced().await?;
    tokio::time::sleep(Duration::from_millis(100)).await;
    while seen.try_recv().is_ok() {}

    let mut delivered = Samples::default();
    for round in 0..ROUNDS {
        send(server, "PUT", CONFIG_MAP, "application/json", config_map(round + 1_000_000)).await?;
        let acknowledged = Instant::now();
        black_box(seen.recv().await);
        delivered.push_since(acknowledged);
    }
    stop.cancel();
    while tasks.join_next().await.is_some() {}
    Ok(delivered)
}
