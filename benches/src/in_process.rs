//! Steps inside one process: the budget for running a thousand controller lifetimes per second.

use crate::process;
use crate::table::{Samples, Table};
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

/// Number of measurements of each step.
const ROUNDS: u32 = 5_000;

/// Number of processes whose first create is measured.
const PROCESSES: usize = 21;
/// Number of later control planes of this process.
const PLANES: usize = 100;

pub(crate) fn measure(table: &mut Table) -> anyhow::Result<()> {
    let mut first = Samples::default();
    for _ in 0..PROCESSES {
        first.push(Duration::from_secs_f64(process::again(&["first-create"])?));
    }
    table.row(
        "API server in process, `build()` to its first acknowledged create: the first of a process",
        first.summary(),
        "≤ 5 ms",
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut acknowledged = Samples::default();
        let mut built = Samples::default();
        // It also makes the state that all later ones share.
        start().await?;
        for _ in 0..PLANES {
            let (ready, created) = start().await?;
            built.push(ready);
            acknowledged.push(created);
        }
        table.row(
            "API server in process, `build()` to its first acknowledged create: each later one",
            acknowledged.summary(),
            "≤ 5 ms",
        );
        table.row(
            "fresh control plane in process without its built-in controllers, `build()` to ready",
            built.summary(),
            "≤ 50 µs",
        );

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

/// Time to the first acknowledged create of this process.
pub(crate) fn first_create() -> anyhow::Result<Duration> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { Ok(start().await?.1) })
}

/// Starts a control plane: times until it is ready, and until a create is acknowledged.
async fn start() -> anyhow::Result<(Duration, Duration)> {
    let started = Instant::now();
    let plane = ControlPlane::builder().simulated(0).controllers(false).build();
    let server = plane.server().clone();
    let stop = CancellationToken::new();
    let (ended, created) = tokio::join!(plane.run(stop.clone()), async {
        plane_ready(&server).await;
        let ready = started.elapsed();
        let created = send(&server, "POST", CONFIG_MAPS, "application/json", config_map(0)).await;
        let acknowledged = started.elapsed();
        stop.cancel();
        created.map(|_| (ready, acknowledged))
    });
    ended?;
    created
}

/// The policies whose deliveries are timed.
const POLICIES: [CachePolicy; 2] = [CachePolicy::Compact, CachePolicy::Decoded];

const DELIVERED: &str = "acknowledged write to handler, through watch, queue and index";

/// The same, with an informer that calls the registry directly and nothing encoded as HTTP.
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
    /// Starts a server with one ConfigMap.
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

    /// Time from the acknowledged write to an informer's handler.
    pub(crate) fn deliveries(&self, table: &mut Table) -> anyhow::Result<()> {
        for policy in POLICIES {
            let mut judge = |what, delivered: Samples| {
                let is_met = delivered.median() <= Duration::from_micros(5);
                let what = format!("{what} ({policy:?})");
                table.judged(&what, delivered.summary(), "≤ 5 µs", Some(is_met));
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

/// Sends one request through the whole pipeline; returns the response body.
pub(crate) async fn send(
    server: &ApiServer,
    method: &str,
    path: &str,
    content_type: &str,
    body: impl Into<Bytes>,
) -> anyhow::Result<Bytes> {
    let mut request =
        http::Request::builder().method(method).uri(path).header("content-type", content_type);
    if let Some(extensions) = request.extensions_mut() {
        extensions.insert(Identity::loopback());
    }
    let response = server.serve(request.body(Full::new(body.into()))?).await;
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
    table.row("live get, ConfigMap of 1 KiB", get.summary(), "≤ 10 µs");

    let mut update = Samples::default();
    for round in 0..ROUNDS {
        let body = config_map(round + 1);
        let started = Instant::now();
        black_box(send(server, "PUT", CONFIG_MAP, "application/json", body).await?);
        update.push_since(started);
        tokio::task::yield_now().await;
    }
    table.row("update, ConfigMap of 1 KiB", update.summary(), "≤ 40 µs");

    let mut apply = Samples::default();
    let path = format!("{CONFIG_MAP}?fieldManager=bench&force=true");
    for round in 0..ROUNDS {
        let body = config_map(round);
        let started = Instant::now();
        black_box(send(server, "PATCH", &path, "application/apply-patch+yaml", body).await?);
        apply.push_since(started);
        tokio::task::yield_now().await;
    }
    table.row("server-side apply, ConfigMap of 1 KiB", apply.summary(), "≤ 100 µs");
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
