//! Selects seeds, and prints how to replay one.

use std::ops::Range;

/// The seeds to try: `SEED` alone, or the first `SEEDS`, or the first `n`.
pub(crate) fn seeds(n: u64) -> Range<u64> {
    let asked = |name| std::env::var(name).ok().map(|number| number.parse::<u64>().unwrap());
    match asked("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..asked("SEEDS").unwrap_or(n),
    }
}

/// Prints how to replay a seed if the test fails with it.
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
