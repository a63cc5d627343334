//! Simulated runs of a queue on a paused clock: producers, and workers that fail, are slow, panic
//! or are cancelled, all from a seed.

use std::{collections::BTreeMap, num::NonZeroU32, sync::Arc, time::Duration};

use parking_lot::Mutex;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use setpoint_workqueue::{AddOptions, Builder, Exponential, Group, Priorities, Stats, WorkQueue};
use tokio::task::JoinSet;

const N_KEYS: u32 = 12;

/// Per key the newest change, the newest one at the start of a successful pass, and the holder.
#[derive(Debug, Default)]
struct Story {
    changes: BTreeMap<u32, u64>,
    served: BTreeMap<u32, u64>,
    held: BTreeMap<u32, usize>,
    trace: Vec<(u32, u64)>,
}

async fn work(worker: usize, queue: WorkQueue<u32>, story: Arc<Mutex<Story>>, mut rng: SmallRng) {
    loop {
        // Some waits are dropped, at any time.
        let patience = Duration::from_millis(rng.random_range(1..40));
        let Ok(item) = tokio::time::timeout(patience, queue.get()).await else { continue };
        let Some(item) = item else { return };
        let key = *item.key();
        let seen = {
            let mut story = story.lock();
            assert_eq!(story.held.insert(key, worker), None, "two workers hold {key}");
            let seen = story.changes.get(&key).copied().unwrap_or(0);
            story.trace.push((key, seen));
            seen
        };
        tokio::time::sleep(Duration::from_millis(rng.random_range(0..8))).await;
        let mut story = story.lock();
        story.held.remove(&key);
        match rng.random_range(0..10) {
            0..2 => queue.add_rate_limited(key),
            2 => {
                let options = AddOptions::default().rate_limited().priority(item.priority());
                queue.add_with(key, options.after(Duration::from_millis(3)));
            }
            _ => {
                queue.forget(&key);
                story.served.insert(key, seen);
            }
        }
        drop(story);
        drop(item);
    }
}

/// Runs one simulation from `seed` and returns its trace.
fn simulate(seed: u64, choose: fn(Builder<u32>) -> Builder<u32>) -> Vec<(u32, u64)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut rng = SmallRng::seed_from_u64(seed);
        let back_off =
            Exponential::new(Duration::from_millis(2), Duration::from_millis(50)).unwrap();
        let queue = choose(WorkQueue::builder().rate_limiter(back_off)).build();
        let story = Arc::new(Mutex::new(Story::default()));
        let mut workers = JoinSet::new();
        for worker in 0..3 {
            let rng = SmallRng::seed_from_u64(seed ^ (worker as u64 + 1));
            workers.spawn(work(worker, queue.clone(), story.clone(), rng));
        }
        for change in 1..300 {
            let key = rng.random_range(0..N_KEYS);
            story.lock().changes.insert(key, change);
            let options = AddOptions::default().priority(rng.random_range(-1..2) * 100);
            match rng.random_range(0..4) {
                0 => {
                    let delay = Duration::from_millis(rng.random_range(1..30));
                    queue.add_with(key, options.after(delay));
                }
                1 if queue.cancel_delayed(&key) => queue.add(key),
                _ => queue.add_with(key, options),
            }
            tokio::time::sleep(Duration::from_micros(rng.random_range(0..4000))).await;
        }
        // Every change is processed at its newest state, in bounded time.
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(queue.stats(), Stats::default(), "seed {seed}");
        {
            let story = story.lock();
            assert_eq!(story.served, story.changes, "seed {seed}: a change was lost");
            assert!(story.trace.len() < 1500, "seed {seed}: {} passes", story.trace.len());
        }
        queue.shut_down_with_drain().await;
        while let Some(ended) = workers.join_next().await {
            ended.unwrap();
        }
        std::mem::take(&mut story.lock().trace)
    })
}

/// Properties 1, 2 and 13 of the rules; the same seed gives the same run, with any order of
/// service.
#[test]
fn simulations_lose_nothing_and_are_deterministic() {
    let choices: [fn(Builder<u32>) -> Builder<u32>; 4] = [
        |builder| builder,
        |builder| builder.priorities(Priorities::Share { one_in: NonZeroU32::new(5).unwrap() }),
        |builder| builder.priorities(Priorities::Ageing { step: Duration::from_millis(1) }),
        |builder| {
            let builder = builder.groups(|key| Group::of(&(key % 3)));
            builder.group_in_flight_max(NonZeroU32::MIN)
        },
    ];
    for choose in choices {
        for seed in 0..8 {
            let once = simulate(seed, choose);
            assert_eq!(once, simulate(seed, choose), "seed {seed} gave two runs");
        }
    }
}
