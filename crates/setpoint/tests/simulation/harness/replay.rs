//! Which seeds are run, and how one is run again.

use std::ops::Range;

/// The seeds to try: `SEED` alone, or as many as `SEEDS` says, or `n`.
pub(crate) fn seeds(n: u64) -> Range<u64> {
    let asked = |name| std::env::var(name).ok().map(|number| number.parse::<u64>().unwrap());
    match asked("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..asked("SEEDS").unwrap_or(n),
    }
}

/// Says how to run a seed again when the test fails with it.
pub(crate) struct Replay {
    seed: u64,
    test: &'static str,
}

impl Replay {
    pub(crate) fn of(seed: u64, test: &'static str) -> Self {
        Self { seed, test }
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { seed, test } = self;
            eprintln!(
                "replay: SEED={seed} cargo test -p setpoint --test simulation {test} -- --nocapture"
            );
        }
    }
}
