//! The cost of explanations of reconciles.
//!
//! `cargo run --release -p setpoint-benches -- explain`. One controller over the API server of this
//! process, with a worker on the same thread: 1,024 keys (or with `--keys 50000` more than fit into
//! the processor's caches) are added and reconciled repeatedly, alternating between a controller
//! that records its passes and one that does not. Each turn measures processor time, so that other
//! load on the machine does not count; the result is the median of the turns' ratios.

use crate::in_process::{plane_ready, send};
use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use setpoint::ControlPlane;
use setpoint::prelude::*;
use setpoint::runtime::explain::EXPLAINED_PASSES;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

/// Options.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of turns of each.
    #[arg(long, default_value_t = 15)]
    turns: usize,
    /// Number of keys.
    #[arg(long, default_value_t = 1024)]
    keys: usize,
    /// Number of timed reconciles in one turn, rounded up to full rounds of all keys.
    #[arg(long, default_value_t = 200_000)]
    reconciles: usize,
}

/// The work of a reconcile.
#[derive(Debug, Clone, Copy)]
enum Pass {
    /// Nothing.
    Nothing,
    /// Reads its object from the cache.
    Reads,
}

/// Prints the time of one reconcile with and without recording.
pub(crate) fn measure(args: &Args) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let plane = ControlPlane::builder().simulated(0).controllers(false).build();
        let (server, client) = (plane.server().clone(), plane.client());
        let stop = CancellationToken::new();
        let (ended, measured) = tokio::join!(plane.run(stop.clone()), async {
            let measured = async {
                plane_ready(&server).await;
                for n in 0..args.keys {
                    let body = format!(
                        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"cm-{n}"}}}}"#
                    );
                    let path = "/api/v1/namespaces/default/configmaps";
                    send(&server, "POST", path, "application/json", body).await?;
                }
                for pass in [Pass::Nothing, Pass::Reads] {
                    compare(args, &client, pass).await?;
                }
                Ok::<_, anyhow::Error>(())
            };
            let measured = measured.await;
            stop.cancel();
            measured
        });
        ended?;
        measured
    })
}

async fn compare(args: &Args, client: &kube_client::Client, pass: Pass) -> anyhow::Result<()> {
    let (mut with, mut without, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for turn in 0..args.turns {
        let mut pair = [0.0; 2];
        // The two alternate in going first.
        for n in [turn % 2, 1 - turn % 2] {
            let passes_max = if n == 0 { EXPLAINED_PASSES } else { 0 };
            pair[n] = turn_of(args, client.clone(), pass, passes_max).await?;
        }
        with.push(pair[0]);
        without.push(pair[1]);
        ratios.push(pair[0] / pair[1]);
    }
    let median = |figures: &mut Vec<f64>| {
        figures.sort_unstable_by(f64::total_cmp);
        figures[figures.len() / 2]
    };
    let (low, high) = {
        median(&mut ratios);
        (ratios[ratios.len() / 4], ratios[ratios.len() * 3 / 4])
    };
    println!(
        "{pass:?}: {:.0} ns with, {:.0} ns without; ratio {:.4} (quartiles {low:.4} to {high:.4}), goal ≤ 1.03",
        median(&mut with),
        median(&mut without),
        median(&mut ratios),
    );
    Ok(())
}

/// Processor time of one reconcile in nanoseconds: add, get, reconcile, done.
async fn turn_of(
    args: &Args,
    client: kube_client::Client,
    pass: Pass,
    passes_max: usize,
) -> anyhow::Result<f64> {
    let (n_left, lap_over) = (Arc::new(AtomicUsize::new(args.keys)), Arc::new(Notify::new()));
    let (left, over) = (n_left.clone(), lap_over.clone());
    let reconcile = move |request: Request, context: Context| {
        let read = match pass {
            Pass::Nothing => Ok(None),
            Pass::Reads => context.client().api::<ConfigMap>().get(&request),
        };
        if left.fetch_sub(1, Ordering::Relaxed) == 1 {
            over.notify_one();
        }
        std::future::ready(read.map(|_| Action::await_change()))
    };
    let mut manager = Manager::builder(client).build();
    let controller = Controller::builder("bench")
        .for_(Watch::<ConfigMap>::new())
        .explain(passes_max)
        .build(reconcile)?;
    let queue = controller.queue();
    let handle = manager.add(controller)?;
    let stop = CancellationToken::new();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(manager.run(stop.clone()));
    // The first list is the first lap.
    lap_over.notified().await;
    let keys: Vec<Request> =
        (0..args.keys).map(|n| Request::new("default", format!("cm-{n}"))).collect();
    let mut started = processor_time()?;
    let laps = args.reconciles.div_ceil(args.keys);
    for lap in 0..laps + 2 {
        if lap == 2 {
            started = processor_time()?;
        }
        n_left.store(args.keys, Ordering::Relaxed);
        keys.iter().for_each(|key| queue.add(key.clone()));
        lap_over.notified().await;
    }
    let took = processor_time()? - started;
    ensure!(handle.explain_all().len() == passes_max.min(EXPLAINED_PASSES), "what is remembered");
    stop.cancel();
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(took / (laps * args.keys) as f64)
}

/// The processor time of this process so far, in nanoseconds.
fn processor_time() -> anyhow::Result<f64> {
    use nix::sys::time::TimeValLike;
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF)
        .context("ask for the processor time")?;
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(micros as f64 * 1000.0)
}
