//! Selects the seeds, runs them on threads, and prints how to replay one.

use crate::record::{Played, Tally};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Threads that play histories concurrently.
const THREADS: usize = 2;

/// A number from an environment variable.
pub(crate) fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|number| number.parse().unwrap())
}

/// The seeds to play: `SEED` alone, or the first `SEEDS`, or the first `n`.
pub(crate) fn seeds(n: u64) -> Range<u64> {
    match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SEEDS").unwrap_or(n),
    }
}

/// Plays a history for each seed and sums up the counts.
///
/// # Panics
///
/// If a history fails, with how to replay it.
#[track_caller]
pub(crate) fn play_all(
    test: &'static str,
    seeds: Range<u64>,
    history: impl Fn(u64) -> Result<Played, String> + Sync,
) -> Tally {
    let (next, sum) = (AtomicU64::new(seeds.start), Mutex::new(Tally::new()));
    let failed = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while failed.lock().unwrap().is_none() {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let _replay = Replay { seed, test };
                    match history(seed) {
                        Ok(played) => {
                            let mut sum = sum.lock().unwrap();
                            played
                                .tally
                                .iter()
                                .for_each(|(what, n)| *sum.entry(what).or_default() += n);
                        }
                        Err(fault) => *failed.lock().unwrap() = Some((seed, fault)),
                    }
                }
            });
        }
    });
    if let Some((seed, fault)) = failed.into_inner().unwrap() {
        let _replay = Replay { seed, test };
        panic!("{fault}");
    }
    sum.into_inner().unwrap()
}

/// Prints how to replay a seed if the test fails with it.
struct Replay {
    seed: u64,
    test: &'static str,
}

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { seed, test } = self;
            eprintln!(
                "replay: SEED={seed} cargo test -p setpoint-cli --test histories {test} -- --nocapture"
            );
        }
    }
}
