//! From an acknowledged write to the reconcile.

use crate::in_process::Server;
use crate::table::{Samples, Table};
use anyhow::{Context as _, ensure};
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::Api;
use kube_runtime::{controller, watcher};
use setpoint::prelude::*;
use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// How many writes are timed; kube-runtime's queue wakes once a millisecond.
const ROUNDS: u32 = 3_000;

pub(crate) fn measure(server: &Server, table: &mut Table) -> anyhow::Result<()> {
    let ours = server.block_on(setpoint(server))?;
    table.judged("acknowledged write to no-op reconcile, setpoint", ours.summary(), "–", None);
    let theirs = server.block_on(kube_runtime(server))?;
    table.judged(
        "acknowledged write to no-op reconcile, kube-runtime 5",
        theirs.summary(),
        "–",
        None,
    );
    Ok(())
}

async fn setpoint(server: &Server) -> anyhow::Result<Samples> {
    let (sender, seen) = mpsc::unbounded_channel();
    let reconcile = move |_: Request, _: Context| {
        let _ = sender.send(Instant::now());
        ready(Ok::<_, ClientError>(Action::await_change()))
    };
    let mut manager = Manager::builder(server.client()).build();
    let watch = Watch::<ConfigMap>::new();
    manager.add(Controller::builder("bench").for_(watch).build(reconcile)?)?;
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(manager.run(stop.clone()));
    let samples = writes(server, seen).await?;
    stop.cancel();
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(samples)
}

async fn kube_runtime(server: &Server) -> anyhow::Result<Samples> {
    let (sender, seen) = mpsc::unbounded_channel();
    let sender = Arc::new(sender);
    let reconcile = |_: Arc<ConfigMap>, sender: Arc<mpsc::UnboundedSender<Instant>>| {
        let _ = sender.send(Instant::now());
        ready(Ok::<_, Infallible>(controller::Action::await_change()))
    };
    let maps = Api::<ConfigMap>::all(server.client());
    let running = kube_runtime::Controller::new(maps, watcher::Config::default())
        .with_config(controller::Config::default().concurrency(1))
        .run(reconcile, |_, error: &Infallible, _| match *error {}, sender)
        .for_each(|_| ready(()));
    let mut tasks = JoinSet::new();
    tasks.spawn(running);
    writes(server, seen).await
}

/// Writes one object again and again; each is reconciled before the next.
async fn writes(
    server: &Server,
    mut seen: mpsc::UnboundedReceiver<Instant>,
) -> anyhow::Result<Samples> {
    // What the list led to.
    tokio::time::sleep(Duration::from_millis(300)).await;
    while seen.try_recv().is_ok() {}
    let mut samples = Samples::default();
    for round in 0..ROUNDS {
        server.write(round).await?;
        let acknowledged = Instant::now();
        let reconciled = seen.recv().await.context("the controller ended")?;
        samples.push(reconciled.saturating_duration_since(acknowledged));
    }
    ensure!(seen.is_empty(), "a write led to more than one reconcile");
    Ok(samples)
}
