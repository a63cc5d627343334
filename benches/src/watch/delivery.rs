//! Latency from a write to all watchers.

use crate::in_process::{CONFIG_MAPS, plane_ready, send};
use crate::process::Program;
use crate::table::{Table, short};
use anyhow::{Context as _, ensure};
use bytes::Bytes;
use futures::Stream;
use futures::StreamExt as _;
use http_body_util::{BodyExt as _, Full};
use kube_client::client::Body;
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::{Client, Config};
use setpoint::ControlPlane;
use setpoint::apiserver::{ApiServer, Identity};
use setpoint::prelude::CancellationToken;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const WATCHERS: usize = 1000;
/// The number of changes, and the time between them.
const CHANGES: usize = 500;
const PERIOD: Duration = Duration::from_millis(10);
const P99_GOAL: Duration = Duration::from_millis(50);
/// Goal for the ratio of a delivery's CPU time to that of encrypting and writing the bytes.
const FLOOR_RATIO_GOAL: f64 = 2.0;

type Frames = Pin<Box<dyn Stream<Item = anyhow::Result<Bytes>> + Send>>;

/// An API server, in process or over HTTPS.
trait Server: Clone + Send + 'static {
    async fn watch(&self, path: &str) -> anyhow::Result<Frames>;
    fn write(
        &self,
        method: &'static str,
        path: String,
        body: String,
    ) -> impl Future<Output = anyhow::Result<()>> + Send;
}

impl Server for ApiServer {
    async fn watch(&self, path: &str) -> anyhow::Result<Frames> {
        let mut request = http::Request::builder().uri(path).body(Full::new(Bytes::new()))?;
        request.extensions_mut().insert(Identity::loopback());
        let response = self.serve(request).await;
        ensure!(response.status().is_success(), "{path}: {}", response.status());
        let frames = response.into_body().into_data_stream();
        Ok(Box::pin(frames.map(|frame| frame.map_err(|error| anyhow::anyhow!("{error}")))))
    }
    async fn write(&self, method: &'static str, path: String, body: String) -> anyhow::Result<()> {
        send(self, method, &path, "application/json", body).await.map(drop)
    }
}
impl Server for Client {
    async fn watch(&self, path: &str) -> anyhow::Result<Frames> {
        let request = http::Request::builder().uri(path).body(Body::empty())?;
        let response = self.send(request).await?;
        ensure!(response.status().is_success(), "{path}: {}", response.status());
        let frames = response.into_body().into_data_stream();
        Ok(Box::pin(frames.map(|frame| frame.map_err(anyhow::Error::from))))
    }
    async fn write(&self, method: &'static str, path: String, body: String) -> anyhow::Result<()> {
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header("content-type", "application/json");
        let response = self.send(request.body(Body::from(body.into_bytes()))?).await?;
        ensure!(response.status().is_success(), "{method}: {}", response.status());
        response.into_body().collect().await?;
        Ok(())
    }
}

fn config_map(n: usize) -> String {
    let payload = "x".repeat(1024);
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"watched"}},"data":{{"n":"{n}","payload":"{payload}"}}}}"#
    )
}

/// The numbers of the writes in a chunk of frames.
fn changes_in(frames: &[u8]) -> impl Iterator<Item = usize> {
    memchr::memmem::find_iter(frames, br#""data":{"n":""#).filter_map(|at| {
        let digits = frames[at + br#""data":{"n":""#.len()..].split(|byte| *byte == b'"').next()?;
        std::str::from_utf8(digits).ok()?.parse().ok()
    })
}

/// Returns the CPU time so far.
type Cpu<'a> = &'a (dyn Fn() -> anyhow::Result<Duration> + Sync);

/// The sorted times from each write's start to each watcher; and the CPU time of writing and
/// delivering, according to `cpu`.
async fn measure<S: Server + Sync>(
    server: S,
    cpu: Cpu<'_>,
) -> anyhow::Result<(Vec<Duration>, Duration)> {
    let writing = server.clone();
    writing.write("POST", CONFIG_MAPS.to_owned(), config_map(CHANGES)).await?;
    let sent: Arc<Vec<OnceLock<Instant>>> =
        Arc::new((0..CHANGES).map(|_| OnceLock::new()).collect());
    let mut tasks = JoinSet::new();
    for _ in 0..WATCHERS {
        let path = format!(
            "{CONFIG_MAPS}?watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"
        );
        let mut frames = server.watch(&path).await?;
        let sent = sent.clone();
        tasks.spawn(async move {
            let mut took = Vec::with_capacity(CHANGES);
            while took.len() < CHANGES {
                let frame = frames.next().await.context("a watch ended")??;
                let now = Instant::now();
                for n in changes_in(&frame) {
                    ensure!(n == took.len(), "change {n} came where {} was to come", took.len());
                    took.push(now - *sent[n].get().context("delivered before it was written")?);
                }
            }
            Ok(took)
        });
    }
    let before = cpu()?;
    let mut period = tokio::time::interval(PERIOD);
    for (n, sent) in sent.iter().enumerate() {
        period.tick().await;
        sent.set(Instant::now()).ok().context("written twice")?;
        writing.write("PUT", format!("{CONFIG_MAPS}/watched"), config_map(n)).await?;
    }
    let mut all = Vec::with_capacity(WATCHERS * CHANGES);
    while let Some(ended) = tasks.join_next().await {
        all.extend(ended??);
    }
    let cpu = cpu()? - before;
    all.sort_unstable();
    Ok((all, cpu))
}

fn add_rows(table: &mut Table, how: &str, took: &[Duration]) {
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
    let figure =
        format!("p99 {} (median {}, last {})", short(at(0.99)), short(at(0.5)), short(at(1.0)));
    let what = format!(
        "{WATCHERS} watchers × {:.0} changes of 1 KiB a second, {how}: write to frame",
        1.0 / PERIOD.as_secs_f64()
    );
    let goal = format!("p99 ≤ {} ms", P99_GOAL.as_millis());
    table.judged(&what, figure, &goal, Some(at(0.99) <= P99_GOAL));
}

pub(super) fn in_process(table: &mut Table) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let took = runtime.block_on(async {
        let plane = ControlPlane::builder().simulated(0).controllers(false).build();
        let (server, stop) = (plane.server().clone(), CancellationToken::new());
        let mut running = JoinSet::new();
        running.spawn(plane.run(stop.clone()));
        plane_ready(&server).await;
        let took = measure(server, &|| Ok(Duration::ZERO)).await.map(|(took, _)| took);
        stop.cancel();
        while let Some(ended) = running.join_next().await {
            ended??;
        }
        took
    })?;
    add_rows(table, "in process", &took);
    Ok(())
}

pub(super) fn over_https(table: &mut Table) -> anyhow::Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    // One socket per watcher, in the program and here.
    let (_, most) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE)?;
    nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE, most, most)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let program = Program::start()?;
    let kubeconfig = Kubeconfig::read_from(&program.kubeconfig)?;
    let (took, cpu) = runtime.block_on(async {
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig.clone(), &options).await?;
        measure(Client::try_from(config)?, &|| program.cpu()).await
    })?;
    add_rows(table, "over HTTPS, a connection each", &took);
    drop(program);
    // A frame as on the wire: the object with the server's additions, in a chunk.
    let frame = format!("5dc\r\n{}\r\n", "x".repeat(0x5dc)).into_bytes();
    let floor = super::floor::cpu_per_write(&kubeconfig, WATCHERS, CHANGES, frame)?;
    let each = cpu / u32::try_from(WATCHERS * CHANGES)?;
    let ratio = each.as_secs_f64() / floor.as_secs_f64();
    table.judged(
        "CPU time of the server per event delivered over HTTPS, its writes included, against a bare rustls loop writing as many bytes",
        format!("{ratio:.2}×: {} against {}", short(each), short(floor)),
        &format!("≤ {FLOOR_RATIO_GOAL}×"),
        Some(ratio <= FLOOR_RATIO_GOAL),
    );
    Ok(())
}
