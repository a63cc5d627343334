//! A search: many plays of one scenario, which go on after a failure.

use super::play::{self, Played};
use super::{Failing, Plan, Plans, Scenario, fault};
use serde_json::json;
use setpoint_object::panic;
use std::io::Write as _;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum number of failed plays of a search; then it ends.
const FAILURES_MAX: usize = 20;
/// Maximum characters of a failure in a report.
const WHY_CHARS_MAX: usize = 300;

/// What the environment asks for.
#[derive(Debug)]
pub(super) struct Search {
    /// The seed to begin with: an earlier search has played those below it.
    from: u64,
    n_storms: u64,
    time: Option<Duration>,
    report: Option<PathBuf>,
}

/// What was played, and what failed.
#[derive(Debug, Default)]
struct Outcome {
    n_crashes: u64,
    n_storms: u64,
    failures: Vec<(Plan, String)>,
}

impl Search {
    /// The search of `SEEDS`, `SEEDS_FROM`, `SEEDS_TIME` and `SEEDS_REPORT`; `None` without
    /// `SEEDS`.
    ///
    /// # Panics
    ///
    /// If one of the numbers is none.
    pub(super) fn requested() -> Option<Self> {
        let number = |name: &str| {
            let text = std::env::var(name).ok()?;
            Some(parse(name, &text))
        };
        let test = std::thread::current();
        let from = std::env::var("SEEDS_FROM").ok();
        let from = from.and_then(|text| from_of(&text, test.name().unwrap_or_default()));
        Some(Self {
            from: from.unwrap_or(0),
            n_storms: number("SEEDS")?,
            time: number("SEEDS_TIME").map(Duration::from_secs),
            report: std::env::var_os("SEEDS_REPORT").map(PathBuf::from),
        })
    }

    /// Plays all plans; returns their number.
    ///
    /// # Panics
    ///
    /// After the last play, if one has failed.
    pub(super) fn run<S: Scenario>(&self, scenario: &S, plans: &Plans, clean: &Played) -> usize {
        let began = Instant::now();
        let outcome = self.search(scenario, plans, clean);
        self.write(&outcome, began.elapsed());
        let Outcome { n_crashes, n_storms, failures } = outcome;
        let n_plays = n_crashes + n_storms;
        if let Some((plan, why)) = failures.first() {
            panic!("{} of {n_plays} plays failed; the first, PLAN='{plan}': {why}", failures.len());
        }
        usize::try_from(n_plays).unwrap_or(usize::MAX)
    }

    fn search<S: Scenario>(&self, scenario: &S, plans: &Plans, clean: &Played) -> Outcome {
        let began = Instant::now();
        // In turns, so that a search of a limited time has both.
        let first = usize::try_from(self.from).unwrap_or(usize::MAX);
        let crashes = plans.every_crash(clean.n_writes).skip(first).map(|plan| (plan, true));
        let mut crashes = crashes.fuse();
        let mut storms = (self.from..self.n_storms).map(|n| (plans.storm(n), false)).fuse();
        let turns = std::iter::from_fn(|| {
            let turn: Vec<_> = storms.next().into_iter().chain(crashes.next()).collect();
            Some(turn).filter(|turn| !turn.is_empty())
        });
        let mut outcome = Outcome::default();
        for turn in turns {
            let is_late = self.time.is_some_and(|time| began.elapsed() >= time);
            if is_late || outcome.failures.len() >= FAILURES_MAX {
                break;
            }
            // Whole turns: a search that begins at a seed passes over as many crashes.
            for (plan, is_crash) in turn {
                match is_crash {
                    true => outcome.n_crashes += 1,
                    false => outcome.n_storms += 1,
                }
                if let Some(why) = why(scenario, plan, clean) {
                    eprintln!("replay: PLAN='{plan}' cargo test … -- --nocapture\n{why}");
                    outcome.failures.push((plan, why));
                }
            }
        }
        outcome
    }

    fn write(&self, outcome: &Outcome, took: Duration) {
        let Some(path) = &self.report else { return };
        let failures = outcome.failures.iter().map(|(plan, why)| {
            let why: String = why.chars().take(WHY_CHARS_MAX).collect();
            json!({"plan": plan.to_string(), "why": why})
        });
        let line = json!({
            "test": std::thread::current().name(),
            "from": self.from,
            "crashes": outcome.n_crashes,
            "storms": outcome.n_storms,
            "seconds": took.as_secs(),
            "failures": failures.collect::<Vec<_>>(),
        });
        let file = std::fs::File::options().create(true).append(true).open(path);
        let written = file.and_then(|mut file| writeln!(file, "{line}"));
        written.unwrap_or_else(|error| panic!("write {}: {error}", path.display()));
    }
}

/// Plays a plan; returns why it failed.
fn why<S: Scenario>(scenario: &S, plan: Plan, clean: &Played) -> Option<String> {
    // A play owns all that it uses, except the scenario, which is data.
    let played = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let _failing = Failing(plan);
        let played = play::play(scenario, plan, false);
        let again = plan.is_played_twice().then(|| play::play(scenario, plan, false));
        (again.and_then(|again| played.difference(&again)), played)
    }));
    match played {
        Ok((Some(difference), _)) => Some(difference),
        Ok((None, played)) => fault(scenario, &played, clean),
        Err(panic) => Some(panic::message(&*panic).to_owned()),
    }
}

/// The seed for a test in `SEEDS_FROM`: one number for all, or `test=number` for some, with commas.
fn from_of(text: &str, test: &str) -> Option<u64> {
    if !text.contains('=') {
        return Some(parse("SEEDS_FROM", text));
    }
    let mut all = text.split(',').filter_map(|one| one.split_once('='));
    all.find(|(name, _)| *name == test).map(|(_, number)| parse("SEEDS_FROM", number))
}

fn parse(name: &str, text: &str) -> u64 {
    text.parse().unwrap_or_else(|error| panic!("{name} is {text:?}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::from_of;

    #[test]
    fn each_test_has_its_first_seed() {
        assert_eq!(from_of("7", "a::b"), Some(7));
        assert_eq!(from_of("a::b=7,c=8", "c"), Some(8));
        assert_eq!(from_of("a::b=7,c=8", "b"), None);
    }
}
