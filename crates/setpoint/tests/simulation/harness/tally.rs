//! Counts of events: a simulator that no longer injects a fault would find nothing, and appear to
//! pass.

use std::collections::BTreeMap;

/// How often each event happened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tally(BTreeMap<&'static str, u64>);

impl Tally {
    pub(crate) fn note(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    pub(crate) fn note_n(&mut self, what: &'static str, n: u64) {
        *self.0.entry(what).or_default() += n;
    }

    /// The sum of all counts.
    pub(crate) fn total(&self) -> u64 {
        self.0.values().sum()
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (what, n) in &other.0 {
            *self.0.entry(what).or_default() += n;
        }
    }

    pub(crate) fn count(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or_default()
    }

    /// Fails unless each of these happened at least `n` times. Checks nothing in a replay of one
    /// seed.
    #[track_caller]
    pub(crate) fn assert_seen(&self, what: &[&str], n: u64) {
        if std::env::var_os("SEED").is_some() || std::env::var_os("SEEDS").is_some() {
            return;
        }
        let rare: Vec<_> = what.iter().filter(|what| self.count(what) < n).collect();
        assert!(
            rare.is_empty(),
            "the simulator goes blind: fewer than {n} of {rare:?} in {self:?}"
        );
    }
}
