//! What clients and watchers of one history write down.

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
    /// Counts beginnings and ends.
    now: u64,
    n_values: u32,
    calls: Vec<Timed<Call>>,
    weak: Vec<WeakRead>,
    watches: Vec<Watched>,
    tally: BTreeMap<&'static str, u64>,
}

/// How often each thing happened.
pub(crate) type Tally = BTreeMap<&'static str, u64>;

/// A history that is as it should be.
#[derive(Debug)]
pub(crate) struct Played {
    /// What was asked and told.
    pub calls: Vec<Timed<Call>>,
    /// What happened how often.
    pub tally: Tally,
}

impl Record {
    fn with<T>(&self, act: impl FnOnce(&mut Written) -> T) -> T {
        act(&mut self.written.lock().unwrap())
    }

    /// A moment, later than all before.
    pub(crate) fn moment(&self) -> u64 {
        self.with(|written| {
            written.now += 1;
            written.now
        })
    }

    /// A value that is written once in this history.
    pub(crate) fn value(&self) -> u32 {
        self.with(|written| {
            written.n_values += 1;
            written.n_values
        })
    }

    /// A call that was answered now, or never will be.
    pub(crate) fn call(&self, call: Call, began: u64, is_answered: bool) {
        let ended = is_answered.then(|| self.moment());
        self.with(|written| written.calls.push(Timed { call, began, ended }));
    }

    /// A call that was answered then.
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

    /// What happened how often, so far.
    #[cfg(feature = "real-clients")]
    pub(crate) fn tally(&self) -> Tally {
        self.with(|written| written.tally.clone())
    }

    /// Checks everything; what happened when all is well.
    ///
    /// # Errors
    ///
    /// The first thing that cannot be, with what was around it.
    pub(crate) fn judge(&self, log: &Log) -> Result<Played, String> {
        self.with(|written| {
            let Written { calls, weak, watches, tally, .. } = written;
            calls.sort_by_key(|timed| timed.began);
            resolve(calls)?;
            linearize(calls)?;
            log.agrees_with(calls)?;
            weak.iter().try_for_each(|read| log.explains(read))?;
            watches.iter().try_for_each(|watched| log.is_told_by(watched))?;
            Ok(Played { calls: calls.clone(), tally: tally.clone() })
        })
    }
}

/// Searches an order for each part of a history.
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
