//! Batches that become durable in the journal.
//!
//! A batch is evaluated over the file and the commits that are not in it ([`Draft`]), appended to
//! the journal, synced, published and answered. The writer's other way, a transaction of the
//! engine, takes over when the journal has no room, and for everything that is not an ordinary
//! batch: large ones, compactions, a full disk, failures. That transaction first moves the
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
    journal::Failed,
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

impl Writer {
    /// Writes a batch to the journal, publishes it and responds. Returns the commands, with nothing
    /// done, if they are for the engine.
    pub(super) fn journal(&mut self, commands: Vec<Command>) -> Result<(), Vec<Command>> {
        if !self.may_journal(&commands) {
            return Err(commands);
        }
        // redb can panic on damaged pages. The engine's way reports it.
        let evaluate = AssertUnwindSafe(|| self.evaluate(&commands));
        let Ok(Ok(Some(evaluated))) = std::panic::catch_unwind(evaluate) else {
            return Err(commands);
        };
        let Evaluated { drafted, outcomes, revision, n_bytes } = evaluated;
        match self.journal.append(&drafted.0) {
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

    fn may_journal(&self, commands: &[Command]) -> bool {
        let n_records: usize = commands.iter().map(Command::n_records_max).sum();
        let n_bytes: usize = commands.iter().map(Command::size).sum();
        !self.is_suspect
            && !self.is_broken
            && self.database.is_some()
            && self.compactions.is_empty()
            && !self.shortage.is_short()
            && commands.iter().all(Command::is_journaled)
            && n_bytes <= BYTES_MAX
            && self.unfiled.has_room(n_records)
    }

    /// `None` if the batch is for the engine.
    fn evaluate(&mut self, commands: &[Command]) -> Result<Option<Evaluated>, Fault> {
        let (revision, snapshot) =
            self.shared.with(|published| (published.position.revision, published.snapshot.clone()));
        let Some(snapshot) = snapshot else { return Ok(None) };
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
                    return Ok(None);
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
            return Ok(None);
        }
        let revision = draft.revision();
        Ok(Some(Evaluated { drafted: draft.into_drafted(), outcomes, revision, n_bytes }))
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
