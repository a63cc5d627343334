//! What happened, counted: a simulator that no longer brings a fault about would find nothing, and
//! look well.

use std::collections::BTreeMap;

/// How often each thing happened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tally(BTreeMap<&'static str, u64>);

impl Tally {
    pub(crate) fn note(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    pub(crate) fn note_n(&mut self, what: &'static str, n: u64) {
        *self.0.entry(what).or_default() += n;
    }

    /// Everything that was counted, together.
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

    /// Fails unless each of these happened at least `n` times. A replay of one seed asks for
    /// nothing.
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
