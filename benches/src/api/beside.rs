//! Small requests during large lists: one client that lists in a loop, and one that lists as fast
//! as it can.

use super::client::{Ask, Endpoint};
use super::large::Form;
use super::payload::{CONFIG_MAPS, config_map};
use super::{Figures, Goal, Unit};
use crate::process::Program;
use bytes::Bytes;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Duration of each load.
pub(super) const LOAD: Duration = Duration::from_secs(5);
/// The pause between two small requests.
const PAUSE: Duration = Duration::from_millis(2);
/// Concurrent lists in a flood, each on a separate connection.
pub(super) const FLOOD: usize = 32;
/// How long a client waits after a 429.
pub(super) const RETRY: Duration = Duration::from_secs(1);
/// Goal for the 99th percentile of small requests, in milliseconds.
pub(super) const P99_GOAL: f64 = 20.0;

/// The results of the lists.
#[derive(Debug, Default)]
struct Lists {
    n_answered: AtomicU64,
    n_refused: AtomicU64,
}

pub(super) fn measure(
    program: &Program,
    endpoint: &Endpoint,
    figures: &mut Figures,
    n_pods: usize,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut connection = endpoint.connect().await?;
        connection.send(Ask::write("POST", CONFIG_MAPS), config_map("small", 0)).await
    })?;
    let alone = small_requests(endpoint)?;
    figures.add("p99 of a small GET, nothing beside it", Unit::Millis, Goal::None, alone);
    for (n_lists, form) in [
        (1, Form::JSON),
        (1, Form::GZIP),
        (1, Form::YAML),
        (1, Form::TABLE),
        (FLOOD, Form::JSON),
        (FLOOD, Form::GZIP),
        (FLOOD, Form::YAML),
    ] {
        let (stop, lists) = (AtomicBool::new(false), Lists::default());
        let p99 = std::thread::scope(|scope| {
            let flood = scope.spawn(|| flood(endpoint, form, n_lists, &stop, &lists));
            std::thread::sleep(RETRY / 2);
            let p99 = small_requests(endpoint);
            stop.store(true, Ordering::Relaxed);
            flood.join().map_err(|_| anyhow::anyhow!("the flood panicked"))??;
            p99
        })?;
        let how = if n_lists == 1 { "a loop" } else { "a flood" };
        let name = format!("{how} of {n_lists} LIST of {n_pods} Pods at once, {}", form.name);
        figures.add(
            &format!("p99 of a small GET beside {name}"),
            Unit::Millis,
            Goal::Most(P99_GOAL),
            p99,
        );
        let count = |n: &AtomicU64| n.load(Ordering::Relaxed) as f64;
        figures.add(
            &format!("{name}: answered"),
            Unit::Count,
            Goal::None,
            count(&lists.n_answered),
        );
        figures.add(&format!("{name}: refused"), Unit::Count, Goal::None, count(&lists.n_refused));
    }
    let resident = program.resident_kib()? as f64 / 1024.0;
    figures.add("resident memory after the floods", Unit::Mebibytes, Goal::None, resident);
    Ok(())
}

/// The 99th percentile of small GETs, in milliseconds.
pub(super) fn small_requests(endpoint: &Endpoint) -> anyhow::Result<f64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut connection = endpoint.connect().await?;
        let path = format!("{CONFIG_MAPS}/small");
        let mut took = Vec::new();
        let started = Instant::now();
        while started.elapsed() < LOAD {
            let answer = connection.send(Ask::get(&path), Bytes::new()).await?.ok()?;
            took.push(answer.whole.as_secs_f64() * 1e3);
            tokio::time::sleep(PAUSE).await;
        }
        took.sort_unstable_by(f64::total_cmp);
        Ok(took[(took.len() - 1) * 99 / 100])
    })
}

/// Runs a flood of this duration.
pub(super) fn flood_for(endpoint: &Endpoint, form: Form, lasting: Duration) -> anyhow::Result<()> {
    let (stop, lists) = (AtomicBool::new(false), Lists::default());
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| flood(endpoint, form, FLOOD, &stop, &lists));
        std::thread::sleep(lasting);
        stop.store(true, Ordering::Relaxed);
        flood.join().map_err(|_| anyhow::anyhow!("the flood panicked"))?
    })
}

/// Sends lists until it is stopped.
fn flood(
    endpoint: &Endpoint,
    form: Form,
    n_lists: usize,
    stop: &AtomicBool,
    lists: &Lists,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let one = || async {
            let mut connection = endpoint.connect().await?;
            while !stop.load(Ordering::Relaxed) {
                let answer = connection.send(form.ask(), Bytes::new()).await?;
                if answer.status == 429 {
                    lists.n_refused.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(RETRY).await;
                } else {
                    answer.ok()?;
                    lists.n_answered.fetch_add(1, Ordering::Relaxed);
                }
            }
            anyhow::Ok(())
        };
        futures::future::try_join_all((0..n_lists).map(|_| one())).await?;
        Ok(())
    })
}
