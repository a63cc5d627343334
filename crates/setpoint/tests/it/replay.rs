//! Compares traces, selects seeds, and prints how to replay a failure.

use setpoint::testenv::wire::Trace;

/// A trace, printed as it is written if one seed is replayed.
pub(crate) fn trace() -> Trace {
    Trace::new(std::env::var_os("SEED").is_some())
}

/// Fails at the first line in which two traces differ.
pub(crate) fn assert_same(left: &str, right: &str) {
    for (n, (left, right)) in left.lines().zip(right.lines()).enumerate() {
        assert_eq!(left, right, "line {n}");
    }
    assert_eq!(left.lines().count(), right.lines().count());
}

/// Prints how to replay a seed if the test fails with it.
pub(crate) struct Replay {
    pub(crate) seed: u64,
    pub(crate) test: &'static str,
}

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { seed, test } = self;
            let package = env!("CARGO_PKG_NAME");
            eprintln!(
                "replay: SEED={seed} cargo test -p {package} --test it {test} -- --nocapture"
            );
        }
    }
}

/// The seeds to try: `SEED` alone, or the first `SEEDS`, or the first `n`.
pub(crate) fn seeds(n: u64) -> std::ops::Range<u64> {
    let asked = |name| std::env::var(name).ok().map(|number| number.parse::<u64>().unwrap());
    match asked("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..asked("SEEDS").unwrap_or(n),
    }
}
