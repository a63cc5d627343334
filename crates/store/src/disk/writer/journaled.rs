//! Batches that become durable in the journal.
//!
//! A batch is evaluated over the file and the commits that are not in it ([`Draft`]), appended to
//! the journal, synced, published and answered. If the lap has no room for it, the lap is given
//! away to be filed, and the batch is the first of the next one ([`laps`](super::laps)). The
//! writer's other way, a transaction of the engine, takes over for everything that is not an
//! ordinary batch: large ones, compactions, a full disk, failures. That transaction first moves the
//! journal's commits into the file.

use std::{panic::AssertUnwindSafe, sync::Arc};
use tokio::time::Instant;

use super::Writer;
use crate::contract::*;
use crate::disk::{
    apply::{Applied, Rows},
    batch::Position,
    command::{Command, Pending},
    error::Fault,
    journal::{Entry, Failed},
    published,
    unfiled::{Draft, Drafted, FileTables},
};

/// Maximum bytes of keys and values in a batch of the journal. Larger batches are not cheaper in
/// it.
const BYTES_MAX: usize = 1 << 20;

/// An evaluated batch.
struct Evaluated {
    drafted: Drafted,
    outcomes: Vec<Result<Applied, StoreError>>,
    revision: u64,
    /// Bytes of the changes in memory.
    n_bytes: usize,
}

/// Why a batch is not for the current lap.
enum Misfit {
    /// The lap has no room for it.
    NoRoom,
    /// It is for the engine, which reports the failure if there is one.
    Engine,
}

impl From<Fault> for Misfit {
    fn from(_: Fault) -> Self {
        Self::Engine
    }
}

impl Writer {
    /// Writes a batch to the journal, publishes it and responds. Returns the commands, with nothing
    /// done, if they are for the engine.
    pub(super) fn journal(&mut self, commands: Vec<Command>) -> Result<(), Vec<Command>> {
        let n_records: usize = commands.iter().map(Command::n_records_max).sum();
        let n_bytes: usize = commands.iter().map(Command::size).sum();
        let is_for_journal = self.may_journal()
            && commands.iter().all(Command::is_journaled)
            && n_bytes <= BYTES_MAX
            && self.unfiled.may_have_room(n_records)
            && (self.unfiled.has_room(n_records) || self.turn());
        if !is_for_journal {
            return Err(commands);
        }
        let evaluated = match self.evaluate(&commands) {
            Err(Misfit::NoRoom) if self.turn() => self.evaluate(&commands),
            evaluated => evaluated,
        };
        let Ok(evaluated) = evaluated else { return Err(commands) };
        let Evaluated { drafted, outcomes, revision, n_bytes } = evaluated;
        match self.append(&drafted.0) {
            Ok(true) => {}
            Ok(false) => return Err(commands),
            Err(Failed { is_gone }) => {
                self.is_suspect = !is_gone;
                return Err(commands);
            }
        }
        let before = self.shared.with(|published| published.position);
        self.unfiled.add(drafted, n_bytes);
        let (mut done, mut pending) = (Vec::new(), Vec::new());
        for (command, outcome) in commands.into_iter().zip(outcomes) {
            answer(command, outcome, &mut done, &mut pending);
        }
        if !done.is_empty() {
            self.ages.pass(self.now, before.revision);
            self.shared.publish_journaled(Position { revision, ..before }, done.into_iter());
        }
        pending.into_iter().for_each(|pending| pending.send(None));
        Ok(())
    }

    /// Appends to the lap, or to the next one if it has no room.
    fn append(&mut self, entries: &[Entry]) -> Result<bool, Failed> {
        Ok(self.journal.append(entries)? || self.turn() && self.journal.append(entries)?)
    }

    fn evaluate(&mut self, commands: &[Command]) -> Result<Evaluated, Misfit> {
        // redb can panic on damaged pages.
        let evaluate = AssertUnwindSafe(|| self.evaluate_unguarded(commands));
        std::panic::catch_unwind(evaluate).unwrap_or(Err(Misfit::Engine))
    }

    fn evaluate_unguarded(&mut self, commands: &[Command]) -> Result<Evaluated, Misfit> {
        let (revision, snapshot) =
            self.shared.with(|published| (published.position.revision, published.snapshot.clone()));
        let Some(snapshot) = snapshot else { return Err(Misfit::Engine) };
        let file = match &mut self.tables {
            Some(tables) => tables,
            none => none.insert(FileTables::of(&snapshot)?),
        };
        let mut draft = Draft::new(file, &self.unfiled, &mut self.scratch, revision);
        let latest = |key: &[u8], at| self.shared.with(|published| published.written_at(key, at));
        let (mut outcomes, mut n_bytes) = (Vec::with_capacity(commands.len()), 0);
        for command in commands {
            let applied = match command {
                Command::Commit { txn, expires, .. } => {
                    draft.apply(txn, expires.map_or(0, |(_, ms)| ms), latest)
                }
                Command::Expire { keys, .. } => {
                    draft.expiry(keys).and_then(|txn| draft.apply(&txn, 0, latest))
                }
                Command::Compact { .. } | Command::Reopen { .. } | Command::File { .. } => {
                    return Err(Misfit::Engine);
                }
            };
            outcomes.push(match applied {
                Ok(applied) => {
                    n_bytes += applied.changes.iter().map(published::size).sum::<usize>();
                    Ok(applied)
                }
                Err(fault) => {
                    let error = self.shared.fail(&fault);
                    fault.not_of_a_record()?;
                    Err(error)
                }
            });
        }
        if !self.unfiled.has_room_for(&draft, n_bytes) {
            return Err(Misfit::NoRoom);
        }
        let revision = draft.revision();
        Ok(Evaluated { drafted: draft.into_drafted(), outcomes, revision, n_bytes })
    }
}

/// Adds what a command did to what is published, and its response to those that are sent then.
fn answer(
    command: Command,
    outcome: Result<Applied, StoreError>,
    done: &mut Vec<(Arc<[Change]>, Option<Instant>)>,
    pending: &mut Vec<Pending>,
) {
    match (command, outcome) {
        (Command::Commit { answer, expires, .. }, Ok(Applied { committed, changes })) => {
            if !changes.is_empty() {
                done.push((changes, expires.map(|(at, _)| at)));
            }
            pending.push(Pending::Commit(answer, committed, None));
        }
        (Command::Expire { answer, .. }, Ok(Applied { changes, .. })) => {
            if !changes.is_empty() {
                done.push((changes, None));
            }
            pending.push(Pending::Unit(answer, Ok(())));
        }
        (command, Err(error)) => command.refuse(error),
        // Others are not journaled.
        (command, Ok(_)) => {
            command.refuse(StoreError::Unknown("the batch ended in between".into()));
        }
    }
}
