//! The record of the clients and watchers of one history.

use crate::checker::{self, Timed, Verdict};
use crate::log::{Log, Watched, WeakRead};
use crate::model::{Call, Objects, resolve};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Mutex;

/// The record of one history.
#[derive(Debug, Default)]
pub(crate) struct Record {
    written: Mutex<Written>,
}

#[derive(Debug, Default)]
struct Written {
    /// Counts starts and ends.
    now: u64,
    n_values: u32,
    calls: Vec<Timed<Call>>,
    weak: Vec<WeakRead>,
    watches: Vec<Watched>,
    tally: BTreeMap<&'static str, u64>,
}

/// How often each kind of event happened.
pub(crate) type Tally = BTreeMap<&'static str, u64>;

/// A history that passed all checks.
#[derive(Debug)]
pub(crate) struct Played {
    /// The calls and their responses.
    pub calls: Vec<Timed<Call>>,
    /// How often each kind of event happened.
    pub tally: Tally,
}

impl Record {
    fn with<T>(&self, act: impl FnOnce(&mut Written) -> T) -> T {
        act(&mut self.written.lock().unwrap())
    }

    /// A moment later than all before.
    pub(crate) fn moment(&self) -> u64 {
        self.with(|written| {
            written.now += 1;
            written.now
        })
    }

    /// A value that is used once in this history.
    pub(crate) fn value(&self) -> u32 {
        self.with(|written| {
            written.n_values += 1;
            written.n_values
        })
    }

    /// Records a call that was answered now, or never will be.
    pub(crate) fn call(&self, call: Call, began: u64, is_answered: bool) {
        let ended = is_answered.then(|| self.moment());
        self.with(|written| written.calls.push(Timed { call, began, ended }));
    }

    /// Records a call that was answered at that moment.
    pub(crate) fn call_until(&self, call: Call, began: u64, ended: u64) {
        self.with(|written| written.calls.push(Timed { call, began, ended: Some(ended) }));
    }

    pub(crate) fn weak(&self, read: WeakRead) {
        self.with(|written| written.weak.push(read));
    }

    pub(crate) fn watched(&self, watched: Watched) {
        self.with(|written| written.watches.push(watched));
    }

    pub(crate) fn note(&self, what: &'static str) {
        self.with(|written| *written.tally.entry(what).or_default() += 1);
    }

    /// How often each kind of event has happened so far.
    #[cfg(feature = "real-clients")]
    pub(crate) fn tally(&self) -> Tally {
        self.with(|written| written.tally.clone())
    }

    /// Runs all checks; returns the history if it passes.
    ///
    /// # Errors
    ///
    /// The first failed check, with its context.
    pub(crate) fn judge(&self, log: &Log) -> Result<Played, String> {
        self.with(|written| {
            let Written { calls, weak, watches, tally, .. } = written;
            calls.sort_by_key(|timed| timed.began);
            resolve(calls)?;
            linearize(calls)?;
            log.agrees_with(calls)?;
            weak.iter().try_for_each(|read| log.explains(read))?;
            watches.iter().try_for_each(|watched| log.explains_watch(watched))?;
            Ok(Played { calls: calls.clone(), tally: tally.clone() })
        })
    }
}

/// Searches for an order of each part of a history.
fn linearize(calls: &[Timed<Call>]) -> Result<(), String> {
    for part in checker::partition(calls, Call::keys) {
        let part: Vec<Timed<Call>> = part.into_iter().map(|at| calls[at].clone()).collect();
        let model = Objects::of(part.iter().map(|timed| &timed.call));
        match checker::check(&model, &part) {
            Verdict::Linearizable(_) => {}
            Verdict::Undecided => {
                return Err(format!("{} calls need too long a search", part.len()));
            }
            Verdict::Impossible { placed, stuck } => {
                let mut text =
                    String::from("no order explains this history. It goes well up to:\n");
                let last = placed.len().saturating_sub(12);
                for at in &placed[last..] {
                    let _ = writeln!(text, "  {:?}", part[*at]);
                }
                text += "and then one of these is next:\n";
                for at in &stuck {
                    let _ = writeln!(text, "  {:?}", part[*at]);
                }
                return Err(text);
            }
        }
    }
    Ok(())
}
