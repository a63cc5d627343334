//! A record of passes, as reported by their processes, and of writes, as observed by the network.

use super::process::ProcessId;
use http::{Method, StatusCode};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A write that left a process. Times are simulation time.
#[derive(Debug, Clone)]
pub(crate) struct WriteEntry {
    pub process: ProcessId,
    /// The process's name.
    pub who: Arc<str>,
    pub method: Method,
    /// The path, without the query.
    pub path: Arc<str>,
    pub body: bytes::Bytes,
    /// The controller and the key of the reconcile that sent it, if any.
    pub origin: Option<(Arc<str>, Arc<str>)>,
    /// When the connection took it, by the process's own clock: the last moment at which the
    /// process could have stopped it.
    pub left: Duration,
    /// When the server received it.
    pub arrived: Option<Duration>,
    /// When and how the server answered.
    pub answered: Option<(Duration, StatusCode)>,
}

/// One pass of a reconciler. Times are simulation time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PassEntry {
    pub process: ProcessId,
    /// The process's name.
    pub who: Arc<str>,
    pub controller: Arc<str>,
    pub key: Arc<str>,
    pub began: Duration,
    /// When it ended, or its process was killed.
    pub ended: Option<Duration>,
    /// Positions of its start and end among all starts and ends: finer than time within one
    /// process.
    pub order: (usize, Option<usize>),
}

impl PassEntry {
    fn end(&mut self, at: Duration, turn: usize) {
        if self.ended.is_none() {
            (self.ended, self.order.1) = (Some(at), Some(turn));
        }
    }

    /// Whether it was still running when `later` started. Between processes only time counts,
    /// because the order in which they run has no meaning.
    fn reaches_into(&self, later: &Self) -> bool {
        if self.process == later.process {
            self.order.1.is_none_or(|ended| ended > later.order.0)
        } else {
            self.ended.is_none_or(|ended| ended > later.began)
        }
    }
}

/// The records. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Journal(Arc<Mutex<Entries>>);

/// A span in which a process was stalled. Times are simulation time.
#[derive(Debug, Clone, Copy)]
struct Stall {
    process: ProcessId,
    from: Duration,
    to: Option<Duration>,
}

#[derive(Debug, Default)]
struct Entries {
    writes: Vec<WriteEntry>,
    passes: Vec<PassEntry>,
    stalls: Vec<Stall>,
    n_turns: usize,
}

impl Entries {
    fn turn(&mut self) -> usize {
        self.n_turns += 1;
        self.n_turns
    }
}

impl Journal {
    /// All mutating requests that have left a process, in the order in which they left.
    pub(crate) fn writes(&self) -> Vec<WriteEntry> {
        self.0.lock().unwrap().writes.clone()
    }

    /// The writes to paths that contain `part`.
    pub(crate) fn writes_to(&self, part: &str) -> Vec<WriteEntry> {
        let entries = self.0.lock().unwrap();
        entries.writes.iter().filter(|write| write.path.contains(part)).cloned().collect()
    }

    /// The writes that left one process.
    pub(crate) fn writes_of(&self, process: ProcessId) -> Vec<WriteEntry> {
        let entries = self.0.lock().unwrap();
        entries.writes.iter().filter(|write| write.process == process).cloned().collect()
    }

    pub(crate) fn passes(&self) -> Vec<PassEntry> {
        self.0.lock().unwrap().passes.clone()
    }

    /// Number of started passes.
    pub(crate) fn n_passes(&self) -> usize {
        self.0.lock().unwrap().passes.len()
    }

    /// Pairs of passes of one controller over one key, in any processes, that ran at the same time.
    pub(crate) fn overlaps(&self) -> Vec<(PassEntry, PassEntry)> {
        let mut passes = self.passes();
        passes.sort_by_key(|pass| {
            (pass.controller.clone(), pass.key.clone(), pass.began, pass.order.0)
        });
        let mut overlaps = Vec::new();
        // The latest end so far among the passes of one key.
        let mut last: Option<PassEntry> = None;
        for pass in passes {
            if let Some(before) = &last {
                let is_same = before.controller == pass.controller && before.key == pass.key;
                if is_same && before.reaches_into(&pass) {
                    overlaps.push((before.clone(), pass.clone()));
                }
                let outlives = before.ended.is_none_or(|a| pass.ended.is_some_and(|b| b < a));
                if is_same && outlives {
                    continue;
                }
            }
            last = Some(pass);
        }
        overlaps
    }

    /// As [`Journal::overlaps`], without passes in which a process was stalled, because it did
    /// nothing meanwhile.
    pub(crate) fn overlaps_awake(&self) -> Vec<(PassEntry, PassEntry)> {
        let mut overlaps = self.overlaps();
        let entries = self.0.lock().unwrap();
        overlaps.retain(|(before, after)| {
            !entries.stalls.iter().any(|stall| {
                stall.process == before.process
                    && stall.from <= after.began
                    && stall.to.is_none_or(|to| after.began <= to)
            })
        });
        overlaps
    }

    pub(super) fn stall(&self, process: ProcessId, from: Duration) {
        self.0.lock().unwrap().stalls.push(Stall { process, from, to: None });
    }

    pub(super) fn resume(&self, process: ProcessId, at: Duration) {
        let mut entries = self.0.lock().unwrap();
        let stalls = entries.stalls.iter_mut().filter(|stall| stall.process == process);
        for stall in stalls {
            stall.to.get_or_insert(at);
        }
    }

    /// Passes and writes in the order of their start, one line each, for replays.
    pub(crate) fn render(&self) -> String {
        let entries = self.0.lock().unwrap();
        let mut lines: Vec<(Duration, String)> = Vec::new();
        for pass in &entries.passes {
            let PassEntry { who, controller, key, began, ended, .. } = pass;
            lines.push((*began, format!("{who} {controller} {key}: pass until {ended:?}")));
        }
        for write in &entries.writes {
            let WriteEntry { who, method, path, left, arrived, answered, .. } = write;
            let line = format!("{who} {method} {path}: arrived {arrived:?}, answered {answered:?}");
            lines.push((*left, line));
        }
        lines.sort_by_key(|(at, _)| *at);
        lines.iter().map(|(at, line)| format!("{at:?} {line}\n")).collect()
    }

    pub(super) fn leave(&self, write: WriteEntry) -> usize {
        let mut entries = self.0.lock().unwrap();
        entries.writes.push(write);
        entries.writes.len() - 1
    }

    pub(super) fn arrive(&self, write: usize, at: Duration) {
        self.0.lock().unwrap().writes[write].arrived = Some(at);
    }

    pub(super) fn answer(&self, write: usize, at: Duration, status: StatusCode) {
        self.0.lock().unwrap().writes[write].answered = Some((at, status));
    }

    pub(super) fn begin(
        &self,
        process: ProcessId,
        who: &Arc<str>,
        (controller, key): (&str, &str),
        began: Duration,
    ) -> usize {
        let mut entries = self.0.lock().unwrap();
        let order = (entries.turn(), None);
        let (controller, key) = (controller.into(), key.into());
        let who = who.clone();
        entries.passes.push(PassEntry { process, who, controller, key, began, ended: None, order });
        entries.passes.len() - 1
    }

    pub(super) fn end(&self, pass: usize, at: Duration) {
        let mut entries = self.0.lock().unwrap();
        let turn = entries.turn();
        entries.passes[pass].end(at, turn);
    }

    /// Ends all passes of a killed process.
    pub(super) fn end_all(&self, process: ProcessId, at: Duration) {
        let mut entries = self.0.lock().unwrap();
        let turn = entries.turn();
        let passes = entries.passes.iter_mut();
        passes.filter(|pass| pass.process == process).for_each(|pass| pass.end(at, turn));
    }
}
