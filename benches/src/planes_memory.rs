//! Memory of idle control planes, with counted allocations.

use serde::{Deserialize, Serialize};
use setpoint::ControlPlane;
use setpoint::prelude::CancellationToken;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Maximum number of control planes.
pub(crate) const PLANES: usize = 1000;
/// Idle time until controllers sleep.
const SETTLE: Duration = Duration::from_secs(5);

/// The cost of idle control planes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Planes {
    /// Heap of the first, including the state that a process has only once.
    pub(crate) first_heap_bytes: u64,
    /// Heap of each further one, on average.
    pub(crate) heap_bytes: f64,
    /// Resident memory of each further one, on average.
    pub(crate) resident_bytes: f64,
    /// Time from the first `build` until the last was ready.
    pub(crate) wall_seconds: f64,
    /// Processor time of all of them in an idle second.
    pub(crate) idle_cpu_seconds: f64,
}

/// Measures. `heap` returns the allocated bytes.
#[allow(dead_code, reason = "only one of the two programs counts")]
pub(crate) fn weigh(controllers: bool, heap: fn() -> u64) -> anyhow::Result<Planes> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (before, began) = (heap(), Instant::now());
        let stop = CancellationToken::new();
        let mut running = JoinSet::new();
        start(&mut running, controllers, &stop).await;
        tokio::time::sleep(SETTLE).await;
        let (first, resident) = (heap(), resident_bytes()?);
        for _ in 1..PLANES {
            start(&mut running, controllers, &stop).await;
        }
        let wall_seconds = began.elapsed().saturating_sub(SETTLE).as_secs_f64();
        tokio::time::sleep(SETTLE).await;
        let n_more = (PLANES - 1) as f64;
        let heap_bytes = heap().saturating_sub(first) as f64 / n_more;
        let resident_bytes = resident_bytes()?.saturating_sub(resident) as f64 / n_more;
        let cpu = cpu_seconds()?;
        tokio::time::sleep(SETTLE).await;
        let idle_cpu_seconds = (cpu_seconds()? - cpu) / SETTLE.as_secs_f64();
        stop.cancel();
        while let Some(ended) = running.join_next().await {
            ended??;
        }
        Ok(Planes {
            first_heap_bytes: first.saturating_sub(before),
            heap_bytes,
            resident_bytes,
            wall_seconds,
            idle_cpu_seconds,
        })
    })
}

type Running = JoinSet<Result<(), setpoint::control_plane::ControlPlaneError>>;

async fn start(running: &mut Running, controllers: bool, stop: &CancellationToken) {
    let plane = ControlPlane::builder().controllers(controllers).build();
    let mut ready = plane.ready();
    running.spawn(plane.run(stop.clone()));
    let _ = ready.wait_for(|ready| *ready).await;
}

/// Resident memory of this process.
fn resident_bytes() -> anyhow::Result<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = pages.split(' ').nth(1).unwrap_or_default().parse()?;
    // The measured Linux machines have pages of 4 KiB.
    Ok(pages * 4096)
}

/// Processor time of this process, user and system.
fn cpu_seconds() -> anyhow::Result<f64> {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF)?;
    let seconds =
        |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}
