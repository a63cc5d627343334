//! The measurements of this queue; the Go program next to it makes the same.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::bail;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use setpoint::workqueue::{Exponential, Group, Priorities, WorkQueue};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use super::Figure;

/// Number of passes over recurring keys.
const CYCLES: u64 = 2_000_000;
/// Number of distinct keys; number of timers.
const KEYS: u64 = 1_000_000;
/// Timers expire this long after their add, plus up to half a second.
const TIMER_MIN: Duration = Duration::from_secs(8);
/// All timers have expired this long after the start.
const TIMER_END: Duration = Duration::from_secs(10);

/// Runs one measurement.
pub(super) fn take(measure: &str) -> anyhow::Result<Figure> {
    let one = Builder::new_current_thread().enable_time().build()?;
    let strict = || WorkQueue::builder().priorities(Priorities::Strict).build();
    match measure {
        "cycle" => cycles(&one, &WorkQueue::builder().build(), 1),
        "cycle-1024" => cycles(&one, &WorkQueue::builder().build(), 1024),
        "priorities" => cycles(&one, &strict(), 1024),
        "groups" => {
            let queue = WorkQueue::builder().groups(|key: &u64| Group::of(&(key % 16))).build();
            cycles(&one, &queue, 1024)
        }
        "ages" => cycles(&one, &WorkQueue::builder().ages(true).build(), 1024),
        "fill" => fill(&one),
        "pairs" => pairs(),
        "limited" => limited(&one),
        "timers" => timers(&one),
        _ => bail!("no such measure: {measure}"),
    }
}

struct Stopwatch {
    cpu: Duration,
    wall: Instant,
}

impl Stopwatch {
    fn start() -> anyhow::Result<Self> {
        Ok(Self { cpu: processor()?, wall: Instant::now() })
    }

    fn each(&self, n: u64) -> anyhow::Result<Figure> {
        let each = |spent: Duration| spent.as_nanos() as f64 / n as f64;
        let (cpu, wall) = (processor()? - self.cpu, self.wall.elapsed());
        Ok(Figure { cpu: each(cpu), wall: each(wall), ..Figure::default() })
    }
}

/// Processor time of this process.
fn processor() -> anyhow::Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(Duration::from_micros(micros.unsigned_abs()))
}

/// Resident memory of this process.
fn resident() -> anyhow::Result<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = statm.split(' ').nth(1).unwrap_or_default().parse()?;
    Ok(pages * 4096)
}

fn cycles(one: &Runtime, queue: &WorkQueue<u64>, n_keys: u64) -> anyhow::Result<Figure> {
    one.block_on(async {
        let watch = Stopwatch::start()?;
        for cycle in 0..CYCLES {
            queue.add(cycle % n_keys);
            black_box(queue.get().await);
        }
        watch.each(CYCLES)
    })
}

async fn drain(queue: &WorkQueue<u64>) {
    for _ in 0..KEYS {
        black_box(queue.get().await);
    }
}

fn fill(one: &Runtime) -> anyhow::Result<Figure> {
    one.block_on(async {
        let queue = WorkQueue::builder().build();
        let watch = Stopwatch::start()?;
        (0..KEYS).for_each(|key| queue.add(key));
        drain(&queue).await;
        watch.each(KEYS)
    })
}

/// Tasks on a runtime of two threads.
fn pairs() -> anyhow::Result<Figure> {
    let two = Builder::new_multi_thread().worker_threads(2).enable_time().build()?;
    two.block_on(async {
        let queue = WorkQueue::<u64>::builder().build();
        let (mut producers, mut workers) = (JoinSet::new(), JoinSet::new());
        let watch = Stopwatch::start()?;
        for _ in 0..2 {
            let queue = queue.clone();
            workers.spawn(async move {
                while let Some(item) = queue.get().await {
                    item.done();
                }
            });
        }
        for producer in 0..2 {
            let queue = queue.clone();
            producers.spawn(async move {
                for key in 0..KEYS / 2 {
                    queue.add(key * 2 + producer);
                    tokio::task::consume_budget().await;
                }
            });
        }
        while producers.join_next().await.is_some() {}
        queue.shut_down();
        while workers.join_next().await.is_some() {}
        watch.each(KEYS)
    })
}

fn limited(one: &Runtime) -> anyhow::Result<Figure> {
    let limiter = Exponential::new(Duration::from_nanos(1), Duration::from_nanos(1))?;
    let queue = WorkQueue::<u64>::builder().rate_limiter(limiter).build();
    one.block_on(async {
        let watch = Stopwatch::start()?;
        for key in 0..KEYS {
            queue.add_rate_limited(key);
            if let Some(item) = queue.get().await {
                queue.forget(item.key());
            }
        }
        watch.each(KEYS)
    })
}

fn timers(one: &Runtime) -> anyhow::Result<Figure> {
    let begun = Instant::now();
    one.block_on(async {
        let queue = WorkQueue::<u64>::builder().build();
        let before = resident()?;
        let watch = Stopwatch::start()?;
        let mut scatter = 1_u64;
        for key in 0..KEYS {
            scatter = scatter
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            queue.add_after(key, TIMER_MIN + Duration::from_nanos(scatter >> 35));
        }
        let added = watch.each(KEYS)?;
        let bytes = resident()?.saturating_sub(before) as f64 / KEYS as f64;
        let watch = Stopwatch::start()?;
        tokio::time::sleep_until((begun + TIMER_END).into()).await;
        drain(&queue).await;
        Ok(Figure { fire: watch.each(KEYS)?.cpu, bytes, ..added })
    })
}
