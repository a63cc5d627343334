//! The faults of one play.

use crate::wire::{Crash, Faults};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Probability that a request of a storm meets a fault.
const STORM_CHANCE: f64 = 0.25;
/// Maximum number of faults of a storm.
const STORM_FAULTS_MAX: usize = 40;
/// Probability that a store call fails, in storms that affect the store.
const STORE_CHANCE: f64 = 0.05;
/// Storms kill the process at one of the first this many writes.
const STORM_WRITES: u64 = 14;
/// Maximum clock difference of a storm, in seconds.
const SKEW_SECS: u64 = 30;

/// The faults of one play of a scenario. Formatted as one line, `seed=3 crash=before:2
/// faults=0.25x40 store=0.05 skew=-7`, of which only the seed is required, and parsed from it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct Plan {
    /// The seed of the control plane, the process, and the faults.
    pub seed: u64,
    /// When the process is killed.
    pub crash: Option<Crash>,
    /// Probability that a request of the process meets a fault.
    pub fault_chance: f64,
    /// Maximum number of faults. After that everything works.
    pub faults_max: usize,
    /// Probability that a store call fails while users act.
    pub store_chance: f64,
    /// How many seconds the clock of the process is ahead of the server's.
    pub skew_secs: i64,
}

impl Plan {
    /// A plan without faults.
    pub fn clean(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// A storm: random faults of every kind, derived from a seed.
    pub fn storm(seed: u64) -> Self {
        // The writes are counted from 1.
        let n = match seed / 3 % STORM_WRITES {
            0 => STORM_WRITES,
            n => n,
        };
        let n = usize::try_from(n).unwrap_or_default();
        let skew = i64::try_from(seed.wrapping_mul(7) % (2 * SKEW_SECS + 1)).unwrap_or_default();
        Self {
            seed,
            crash: match seed % 3 {
                0 => None,
                1 => Some(Crash::Before(n)),
                _ => Some(Crash::After(n)),
            },
            fault_chance: STORM_CHANCE,
            faults_max: STORM_FAULTS_MAX,
            store_chance: if seed % 5 == 4 { STORE_CHANCE } else { 0.0 },
            skew_secs: if seed % 4 == 3 { skew - SKEW_SECS.cast_signed() } else { 0 },
        }
    }

    /// Whether a play of it is repeated and compared: where the store fails, the order of the
    /// server's tasks shows in the faults.
    pub(super) fn is_played_twice(&self) -> bool {
        self.store_chance > 0.0
    }

    pub(super) fn faults(&self) -> Faults {
        Faults { seed: self.seed, chance: self.fault_chance, faults_max: self.faults_max }
    }

    /// A time as read by the process's clock.
    pub(super) fn skewed(&self, since_epoch: Duration) -> Duration {
        let skew = Duration::from_secs(self.skew_secs.unsigned_abs());
        match self.skew_secs < 0 {
            true => since_epoch.saturating_sub(skew),
            false => since_epoch.saturating_add(skew),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed={}", self.seed)?;
        match self.crash {
            Some(Crash::Before(n)) => write!(f, " crash=before:{n}")?,
            Some(Crash::After(n)) => write!(f, " crash=after:{n}")?,
            None => {}
        }
        if self.fault_chance > 0.0 {
            write!(f, " faults={}x{}", self.fault_chance, self.faults_max)?;
        }
        if self.store_chance > 0.0 {
            write!(f, " store={}", self.store_chance)?;
        }
        if self.skew_secs != 0 {
            write!(f, " skew={}", self.skew_secs)?;
        }
        Ok(())
    }
}

/// Why a text is not a plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{word:?} is not one of seed=N, crash=before:N, crash=after:N, faults=PxN, store=P, skew=SECONDS"
)]
pub struct ParsePlanError {
    word: String,
}

impl FromStr for Plan {
    type Err = ParsePlanError;

    fn from_str(text: &str) -> Result<Self, ParsePlanError> {
        fn read(plan: &mut Plan, word: &str) -> Option<()> {
            let chance =
                |text: &str| text.parse::<f64>().ok().filter(|chance| (0.0..=1.0).contains(chance));
            let (name, value) = word.split_once('=')?;
            match name {
                "seed" => plan.seed = value.parse().ok()?,
                "crash" => {
                    let (side, n) = value.split_once(':')?;
                    let n = n.parse().ok()?;
                    plan.crash = Some(match side {
                        "before" => Crash::Before(n),
                        "after" => Crash::After(n),
                        _ => return None,
                    });
                }
                "faults" => {
                    let (of, n) = value.split_once('x')?;
                    (plan.fault_chance, plan.faults_max) = (chance(of)?, n.parse().ok()?);
                }
                "store" => plan.store_chance = chance(value)?,
                "skew" => plan.skew_secs = value.parse().ok()?,
                _ => return None,
            }
            Some(())
        }
        let mut plan = Self::default();
        for word in text.split_whitespace() {
            read(&mut plan, word).ok_or_else(|| ParsePlanError { word: word.to_owned() })?;
        }
        Ok(plan)
    }
}

/// The plans to play.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Plans {
    first_seed: u64,
    crashes: bool,
    storms: u64,
    has_one_clock: bool,
    others: Vec<Plan>,
}

impl Plans {
    /// No plans.
    pub fn new() -> Self {
        Self::default()
    }

    /// The seed of the clean play and of crashes, and the first seed of the storms. Default: 0.
    pub fn seed(mut self, seed: u64) -> Self {
        self.first_seed = seed;
        self
    }

    /// Adds plans that kill the process before and after each write of the clean play.
    pub fn crashes(mut self) -> Self {
        self.crashes = true;
        self
    }

    /// Adds `n` [storms](Plan::storm).
    pub fn storms(mut self, n: u64) -> Self {
        self.storms = n;
        self
    }

    /// The clock of the process never differs from the server's in storms: for what cannot work
    /// otherwise, or runs on the server's machine.
    pub fn one_clock(mut self) -> Self {
        self.has_one_clock = true;
        self
    }

    /// Adds a plan.
    pub fn plan(mut self, plan: Plan) -> Self {
        self.others.push(plan);
        self
    }

    pub(super) fn first_seed(&self) -> u64 {
        self.first_seed
    }

    /// All plans, given the number of writes of the clean play.
    pub(super) fn of(&self, n_writes: usize) -> Vec<Plan> {
        let mut plans = self.others.clone();
        if self.crashes {
            plans.extend(self.every_crash(n_writes));
        }
        plans.extend((0..self.storms).map(|n| self.storm(n)));
        plans
    }

    /// Plans that kill the process before and after each of the writes of the clean play.
    pub(super) fn every_crash(&self, n_writes: usize) -> impl Iterator<Item = Plan> {
        let clean = Plan::clean(self.first_seed);
        let crashes = (1..=n_writes).flat_map(|n| [Crash::Before(n), Crash::After(n)]);
        crashes.map(move |crash| Plan { crash: Some(crash), ..clean })
    }

    /// The n-th storm.
    pub(super) fn storm(&self, n: u64) -> Plan {
        let storm = Plan::storm(self.first_seed.wrapping_add(n));
        if self.has_one_clock { Plan { skew_secs: 0, ..storm } } else { storm }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn displayed_plan_parses_to_the_same_plan() {
        let crashes = (1..4).flat_map(|n| [Crash::Before(n), Crash::After(n)]);
        let crashes = crashes.map(|crash| Plan { crash: Some(crash), ..Plan::clean(7) });
        for plan in (0..200).map(Plan::storm).chain(crashes).chain([Plan::default()]) {
            assert_eq!(plan.to_string().parse(), Ok(plan));
        }
    }

    #[test]
    fn invalid_word_is_named() {
        for word in ["seed", "seed=x", "crash=during:1", "faults=2x3", "store=-1", "moon=full"] {
            let refused = format!("seed=1 {word}").parse::<Plan>().unwrap_err();
            assert_eq!(refused.word, word);
        }
    }

    #[test]
    fn storms_differ_in_everything() {
        let storms: Vec<Plan> = (0..120).map(Plan::storm).collect();
        assert!(storms.iter().any(|plan| plan.crash.is_none()));
        let writes: BTreeSet<_> = storms
            .iter()
            .filter_map(|plan| match plan.crash? {
                Crash::Before(n) | Crash::After(n) => Some(n),
            })
            .collect();
        assert_eq!(writes, (1..=14).collect(), "a storm with a crash at no write has none");
        assert!(storms.iter().any(|plan| plan.store_chance > 0.0));
        assert!(storms.iter().any(|plan| plan.skew_secs > 0));
        assert!(storms.iter().any(|plan| plan.skew_secs < 0));
        let plans = Plans::new().storms(100).one_clock().of(0);
        assert!(plans.iter().all(|plan| plan.skew_secs == 0));
    }
}
