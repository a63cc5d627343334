//! What the requests of a chore have shown, and how its threads share the work.

use super::answer::Class;
use super::both::Sides;
use crate::servers::Servers;
use anyhow::{Context, Result, anyhow, bail};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most classes of differences that are kept.
const CLASSES_MAX: usize = 20_000;

/// A kind of requests and a class of differences.
pub(super) type Key = (String, Class);

/// What is known of a class.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) count: usize,
    /// The number of the first case that was seen with it.
    pub(super) case: usize,
    pub(super) example: String,
}

/// What the cases have shown.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) cases: usize,
    pub(super) accepted: usize,
    pub(super) differing: usize,
    pub(super) classes: BTreeMap<Key, Found>,
    /// Cases and differing ones by kind.
    pub(super) kinds: BTreeMap<&'static str, [usize; 2]>,
}

impl Report {
    /// Counts a request of a kind. Of a difference it keeps the first `example`, whose number is
    /// `case`. Returns whether it is the first of its class.
    pub(super) fn add(
        &mut self,
        kind: &'static str,
        accepted: bool,
        (case, example): (usize, String),
        difference: Option<Key>,
    ) -> bool {
        self.cases += 1;
        self.accepted += usize::from(accepted);
        self.kinds.entry(kind).or_default()[0] += 1;
        if self.cases.is_multiple_of(10_000) {
            println!("{} requests, {} differ", self.cases, self.differing);
        }
        difference.is_some_and(|key| self.differ(kind, (case, example), key))
    }

    /// Counts a request that differs, as [`Report::add`] does, but not the request itself: what
    /// follows from it differs.
    pub(super) fn differ(
        &mut self,
        kind: &'static str,
        (case, example): (usize, String),
        key: Key,
    ) -> bool {
        self.differing += 1;
        self.kinds.entry(kind).or_default()[1] += 1;
        if let Some(found) = self.classes.get_mut(&key) {
            found.count += 1;
            return false;
        }
        let is_kept = self.classes.len() < CLASSES_MAX;
        if is_kept {
            self.classes.insert(key, Found { count: 1, case, example });
        }
        is_kept
    }
}

/// A report that threads share.
#[derive(Debug, Default)]
pub(super) struct Findings(Mutex<Report>);

impl Findings {
    /// [`Report::add`].
    pub(super) fn add(
        &self,
        kind: &'static str,
        accepted: bool,
        example: (usize, String),
        difference: Option<Key>,
    ) -> Result<bool> {
        Ok(self.0.lock().map_err(|_| panicked())?.add(kind, accepted, example, difference))
    }

    /// [`Report::differ`].
    pub(super) fn differ(
        &self,
        kind: &'static str,
        example: (usize, String),
        key: Key,
    ) -> Result<bool> {
        Ok(self.0.lock().map_err(|_| panicked())?.differ(kind, example, key))
    }

    /// Gives a class a better example.
    pub(super) fn exemplify(&self, key: &Key, example: String) -> Result<()> {
        let mut report = self.0.lock().map_err(|_| panicked())?;
        if let Some(found) = report.classes.get_mut(key) {
            found.example = example;
        }
        Ok(())
    }

    /// What all have shown.
    pub(super) fn into_report(self) -> Result<Report> {
        self.0.into_inner().map_err(|_| panicked())
    }
}

fn panicked() -> anyhow::Error {
    anyhow!("a thread panicked")
}

/// Works through numbers below a bound on several threads, at most 256, each with connections of
/// its own. Returns the first error.
pub(super) fn on_numbers(
    servers: &Servers,
    threads: usize,
    bound: usize,
    one: impl Fn(usize, &mut Sides) -> Result<()> + Sync,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut sides = servers.connect();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= bound {
                return Ok(());
            }
            one(number, &mut sides).with_context(|| format!("number {number}"))?;
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.clamp(1, 256)).map(|_| scope.spawn(work)).collect();
        let lost = || bail!("a thread panicked");
        workers.into_iter().try_for_each(|worker| worker.join().unwrap_or_else(|_| lost()))
    })
}
