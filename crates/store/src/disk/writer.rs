//! The one thread that writes.
//!
//! It takes what waits, up to a bound, does it in one transaction of the engine, syncs once,
//! publishes, and answers. While it syncs, the next batch gathers: the more writers, the fewer
//! syncs each of them pays for. Nobody waits for a batch to fill.
//!
//! # When the engine fails
//!
//! redb refuses everything after its first failed call, so the file is opened anew at once: readers
//! go on, and what was found tells how the batch ended. It is there as a whole (then it is
//! published and acknowledged) or not at all (then it is refused with the reason). Only when the
//! file cannot be opened, or stands at neither of the two, are the batch's commits answered
//! [`StoreError::Unknown`].
//!
//! A sync that failed once may have dropped what it should have written, and the next one may
//! succeed without it. Opening anew is right all the same: with quick repair
//! ([`DiskOptions::quick_repair_bytes`]) redb syncs a commit's pages before it syncs the header
//! that leads to them, so a failed sync leaves either a header that leads to the former pages, or a
//! header whose pages have been synced; and opening writes the header again and syncs it. Without
//! it one sync does both, so the engine serves no more after a sync that failed. A write that
//! failed, as on a full disk, came before that header, and the file is as it was.

use bytes::Bytes;
use redb::{Database, ReadTransaction, ReadableDatabase, WriteTransaction};
use std::{
    panic::AssertUnwindSafe,
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::{
    DiskOptions,
    ages::Ages,
    batch::{Applied, BatchTables, Desk, Standing},
    error::Fault,
    file::OpenFile,
    published::Shared,
    read::View,
    reserve::{HISTORY_REVISIONS_MIN, Reserve, Shortage, UPDATE_BYTES_MAX},
    synced::SyncFailed,
};
use crate::contract::*;

/// How many commands one batch takes in at most, and how many bytes of values.
const BATCH_COMMANDS_MAX: usize = 1024;
const BATCH_BYTES_MAX: usize = 16 << 20;
/// How many records one batch drops from history besides as many as it adds: compaction goes along
/// with writing, a little at a time.
const DROPPED_MIN: usize = 512;
/// How many records one step of a compaction that was asked for drops: some milliseconds, in which
/// nobody else's commit is done.
const COMPACTED_MIN: usize = 4096;
/// How many revisions history over its bytes gives up at once, and how many times in one batch.
const GIVEN_UP_REVISIONS: u64 = 4;
const GIVEN_UP_STEPS: usize = 256;

/// What the writer is asked for.
pub(super) enum Command {
    Commit {
        txn: Txn,
        dies: Option<(Instant, u64)>,
        answer: Answer<Committed>,
    },
    /// Deletes those of these keys, whose time is over, that were not written again since.
    Expire {
        keys: Vec<(Bytes, Revision)>,
        answer: Answer<()>,
    },
    Compact {
        revision: Revision,
        answer: Answer<()>,
    },
    /// Opens the file again if the engine has failed.
    Mend {
        answer: Answer<()>,
    },
}

/// A command, and when it was asked for: the writer's thread is in no runtime, and has no time of
/// its own.
pub(super) type Asked = (Instant, Command);
/// Where a batch left the store, and the file as it then is.
type Synced = (Standing, ReadTransaction);
type Answer<T> = oneshot::Sender<Result<T, StoreError>>;

/// An answer that is sent once the batch is durable.
enum Pending {
    /// With the transaction, if it makes room and is done again where there was none.
    Commit(Answer<Committed>, Committed, Option<Txn>),
    /// It broke the batch.
    Broken(Answer<Committed>, Option<Txn>),
    Unit(Answer<()>, Result<(), StoreError>),
}

impl Pending {
    fn send(self, failure: Option<StoreError>) {
        // Whoever no longer waits does not hear of it.
        match self {
            Self::Commit(answer, committed, _) => {
                drop(answer.send(failure.map_or(Ok(committed), Err)))
            }
            Self::Broken(answer, _) => {
                let unknown = || StoreError::Unknown("the batch ended in between".into());
                drop(answer.send(Err(failure.unwrap_or_else(unknown))));
            }
            Self::Unit(answer, result) => drop(answer.send(failure.map_or(result, Err))),
        }
    }
}

impl Pending {
    /// What is done again once there is some room, if it is.
    fn again(self) -> Result<Command, Self> {
        match self {
            Self::Commit(answer, _, Some(txn)) | Self::Broken(answer, Some(txn)) => {
                Ok(Command::Commit { txn, dies: None, answer })
            }
            other => Err(other),
        }
    }
}

impl Command {
    /// Whether the store is smaller for it, sooner or later.
    pub(super) fn makes_room(&self) -> bool {
        match self {
            Self::Commit { txn, .. } => makes_room(txn),
            Self::Expire { .. } | Self::Compact { .. } | Self::Mend { .. } => true,
        }
    }

    /// A little more of what is there.
    pub(super) fn is_small_update(&self) -> bool {
        let Self::Commit { txn, .. } = self else { return false };
        let is_there = |key: &Bytes| {
            let mut compares = txn.compares.iter();
            compares.any(|compare| matches!(compare, Compare::Modified(at, _) if at == key))
        };
        self.size() <= UPDATE_BYTES_MAX
            && txn.ops.iter().all(|op| op.value().is_none() || is_there(op.key()))
    }

    fn size(&self) -> usize {
        let Self::Commit { txn, .. } = self else { return 0 };
        txn.ops.iter().map(|op| op.key().len() + op.value().map_or(0, Bytes::len)).sum()
    }

    fn refuse(self, error: StoreError) {
        match self {
            Self::Commit { answer, .. } => drop(answer.send(Err(error))),
            Self::Expire { answer, .. } | Self::Compact { answer, .. } | Self::Mend { answer } => {
                drop(answer.send(Err(error)));
            }
        }
    }
}

fn makes_room(txn: &Txn) -> bool {
    !txn.ops.is_empty() && txn.ops.iter().all(|op| op.value().is_none())
}

/// What a batch has done so far: to be published and answered once it is durable.
#[derive(Default)]
struct Work {
    pending: Vec<Pending>,
    done: Vec<(Arc<[Change]>, Option<Instant>)>,
    /// Where the batch leaves the store, from the moment at which nobody can say any more that
    /// nothing happened.
    committing: Option<Standing>,
}

/// A compaction that was asked for and is done step by step.
struct Compaction {
    revision: u64,
    answer: Answer<()>,
}

/// The writer's own.
pub(super) struct Writer {
    // Helpers.
    options: DiskOptions,
    open: Box<OpenFile>,
    path: PathBuf,

    // Inputs.
    commands: mpsc::Receiver<Asked>,

    // State.
    /// `None` after the engine failed, until it could be opened again.
    database: Option<Database>,
    /// The file may lead to what was never synced: nothing is read or written any more.
    is_broken: bool,
    /// A sync has failed, or may have.
    sync_failed: SyncFailed,
    /// The newest transaction was one with quick repair.
    is_quick: bool,
    compactions: Vec<Compaction>,
    shortage: Shortage,
    ages: Ages,
    /// When the newest command was asked for.
    now: Instant,
    desk: Desk,
    shared: Arc<Shared>,
}

impl Writer {
    pub(super) fn new(
        (options, path): (DiskOptions, PathBuf),
        (open, sync_failed): (Box<OpenFile>, SyncFailed),
        commands: mpsc::Receiver<Asked>,
        database: Database,
        ages: (Ages, Instant),
        reserve: Box<dyn Reserve>,
        shared: Arc<Shared>,
    ) -> Self {
        let database = Some(database);
        let (compactions, desk) = (Vec::new(), Desk::default());
        let (ages, now) = ages;
        Self {
            options,
            open,
            path,
            commands,
            database,
            is_broken: false,
            sync_failed,
            is_quick: false,
            compactions,
            shortage: Shortage::new(reserve, now),
            ages,
            now,
            desk,
            shared,
        }
    }

    /// Writes until every handle of the store is gone and all that was asked before is done.
    pub(super) fn run(mut self) {
        loop {
            let (mut batch, mut n_bytes) = (Vec::new(), 0);
            if self.compactions.is_empty() && !self.shortage.is_making_room {
                let Some((now, first)) = self.commands.blocking_recv() else { break };
                self.now = now;
                n_bytes += first.size();
                batch.push(first);
            }
            while batch.len() < BATCH_COMMANDS_MAX
                && n_bytes < BATCH_BYTES_MAX
                && let Ok((now, command)) = self.commands.try_recv()
            {
                self.now = self.now.max(now);
                n_bytes += command.size();
                batch.push(command);
            }
            let (mut batch, refused) = self.shortage.admit(batch, self.now);
            if let Some((refused, error)) = refused {
                refused.into_iter().for_each(|command| command.refuse(error.clone()));
            }
            let is_idle = self.compactions.is_empty() && !self.shortage.is_making_room;
            if batch.is_empty() && is_idle {
                continue;
            }
            // Each time with a step of the reserve less.
            while let Some(again) = self.write(batch) {
                batch = again;
            }
        }
        // The last readers go before the file is closed, so that it is closed as a clean end.
        self.shared.look(|published| published.snapshot = None);
    }

    /// Writes a batch. Gives what is to be done again, with a step of the reserve given to the
    /// disk.
    fn write(&mut self, commands: Vec<Command>) -> Option<Vec<Command>> {
        let with_others =
            commands.iter().any(|command| !command.makes_room() && !command.is_small_update());
        let transaction = match self.begin() {
            Ok(transaction) => transaction,
            Err(error @ StoreError::Full(_)) => return self.make_room(commands, error),
            Err(error) => {
                commands.into_iter().for_each(|command| command.refuse(error.clone()));
                self.refuse_compactions(&error);
                self.shortage.is_making_room = false;
                return None;
            }
        };
        let mut work = Work::default();
        let mut commands = commands.into_iter();
        // A file whose pages were damaged behind redb's back can make it panic: that is a failure
        // like another.
        let batch = AssertUnwindSafe(|| self.batch(transaction, &mut commands, &mut work));
        let written = std::panic::catch_unwind(batch).unwrap_or(Err(Fault::Panicked));
        match written {
            Ok(synced) => {
                if let Some((standing, snapshot)) = synced {
                    self.shared.publish(standing, snapshot, work.done.into_iter());
                }
                work.pending.into_iter().for_each(|answer| answer.send(None));
                self.answer_compactions();
                self.shortage.written(with_others, self.now);
                None
            }
            Err(fault) => {
                let error = self.recover(&fault, &mut work);
                let refusal = self.shared.fail(&fault);
                if let Some(error @ StoreError::Full(_)) = &error {
                    let (mut again, mut others) = (Vec::new(), Vec::new());
                    for pending in work.pending {
                        match pending.again() {
                            Ok(command) => again.push(command),
                            Err(pending) => others.push(pending),
                        }
                    }
                    others.into_iter().for_each(|answer| answer.send(Some(error.clone())));
                    again.extend(commands);
                    return self.make_room(again, error.clone());
                }
                commands.for_each(|command| command.refuse(refusal.clone()));
                work.pending.into_iter().for_each(|answer| answer.send(error.clone()));
                self.refuse_compactions(&error.unwrap_or(refusal));
                self.shortage.is_making_room = false;
                None
            }
        }
    }

    /// There was no room, and nothing happened: what makes room is done again with some of the
    /// reserve, the rest is refused.
    fn make_room(&mut self, commands: Vec<Command>, error: StoreError) -> Option<Vec<Command>> {
        self.shortage.refused(error.clone(), self.now);
        let (again, others): (Vec<_>, Vec<_>) = commands.into_iter().partition(Command::makes_room);
        others.into_iter().for_each(|command| command.refuse(error.clone()));
        let is_needed = !again.is_empty()
            || !self.compactions.is_empty()
            || self.shortage.is_making_room
            || self.database.is_none();
        if is_needed && self.shortage.release(self.now) {
            return Some(again);
        }
        again.into_iter().for_each(|command| command.refuse(error.clone()));
        if is_needed {
            self.refuse_compactions(&error);
        }
        None
    }

    /// Begins a transaction; opens the file again if the engine has failed.
    fn begin(&mut self) -> Result<WriteTransaction, StoreError> {
        self.reopen().map_err(|fault| fault.unavailable())?;
        match self.database.as_ref().map(Database::begin_write) {
            Some(Ok(transaction)) => return Ok(transaction),
            // A reader's call has failed, and redb refuses all that come after.
            Some(Err(_)) | None => self.shut(),
        }
        self.reopen().map_err(|fault| fault.unavailable())?;
        let database = self.database.as_ref().ok_or(StoreError::Closed)?;
        database.begin_write().map_err(|error| Fault::from(error).unavailable())
    }

    /// Does the commands, and a step of compaction, in one transaction. `None`: they changed
    /// nothing.
    fn batch(
        &mut self,
        mut transaction: WriteTransaction,
        commands: &mut impl Iterator<Item = Command>,
        work: &mut Work,
    ) -> Result<Option<Synced>, Fault> {
        let before = self.shared.look(|published| published.standing);
        self.is_quick = std::fs::metadata(&self.path).map_or(0, |file| file.len())
            >= self.options.quick_repair_bytes;
        transaction.set_quick_repair(self.is_quick);
        let mut desk = std::mem::take(&mut self.desk);
        let mut tables = BatchTables::open(&transaction, before, &mut desk)?;
        for command in commands {
            self.one(&mut tables, command, work)?;
        }
        if let Err(fault) = self.trim(&mut tables, work.done.len()) {
            // History that cannot be read stays as it is; what is written goes on.
            self.refuse_compactions(&fault.unavailable());
            self.shortage.is_making_room = false;
            fault.not_of_a_record()?;
        }
        if tables.now == before {
            drop(tables);
            transaction.abort()?;
            return Ok(None);
        }
        let standing = tables.close()?;
        self.desk = desk;
        work.committing = Some(standing);
        transaction.commit()?;
        let database = self.database.as_ref().ok_or(StoreError::Closed)?;
        Ok(Some((standing, database.begin_read()?)))
    }

    fn one(
        &mut self,
        tables: &mut BatchTables<'_>,
        command: Command,
        work: &mut Work,
    ) -> Result<(), Fault> {
        let latest = |key: &[u8], at| self.shared.look(|published| published.written_at(key, at));
        // An answer is owed from here on, also when this command breaks the batch.
        match command {
            Command::Commit { txn, dies, answer } => {
                let dies_ms = dies.map_or(0, |(_, ms)| ms);
                let again = makes_room(&txn).then(|| txn.clone());
                match tables.apply(txn, dies_ms, latest) {
                    Ok(Applied { committed, changes }) => {
                        if !changes.is_empty() {
                            work.done.push((changes, dies.map(|(at, _)| at)));
                        }
                        work.pending.push(Pending::Commit(answer, committed, again));
                    }
                    Err(fault) => {
                        let error = self.shared.fail(&fault);
                        let broken = fault.not_of_a_record();
                        match broken {
                            Ok(()) => drop(answer.send(Err(error))),
                            Err(_) => work.pending.push(Pending::Broken(answer, again)),
                        }
                        return broken;
                    }
                }
            }
            Command::Expire { keys, answer } => {
                let expired = tables.unchanged(keys).and_then(|keys| {
                    let ops = keys.into_iter().map(Op::Delete).collect();
                    tables.apply(Txn { ops, ..Txn::default() }, 0, latest)
                });
                match expired {
                    Ok(Applied { changes, .. }) => {
                        if !changes.is_empty() {
                            work.done.push((changes, None));
                        }
                        work.pending.push(Pending::Unit(answer, Ok(())));
                    }
                    Err(fault) => {
                        drop(answer.send(Err(self.shared.fail(&fault))));
                        return fault.not_of_a_record();
                    }
                }
            }
            Command::Compact { revision, answer } => {
                let Standing { revision: current, oldest, .. } = tables.now;
                let refusal = if revision.0 > current {
                    Some(StoreError::Future { asked: revision, current: Revision(current) })
                } else if revision.0 < oldest {
                    Some(StoreError::Compacted { asked: revision, oldest: Revision(oldest) })
                } else {
                    None
                };
                match refusal {
                    Some(error) => work.pending.push(Pending::Unit(answer, Err(error))),
                    None => self.compactions.push(Compaction { revision: revision.0, answer }),
                }
            }
            Command::Mend { answer } => work.pending.push(Pending::Unit(answer, Ok(()))),
        }
        Ok(())
    }

    /// Holds history to its bounds, and goes on with a compaction that was asked for.
    fn trim(&mut self, tables: &mut BatchTables<'_>, n_added: usize) -> Result<(), Fault> {
        let Standing { revision, oldest, .. } = tables.now;
        let before = self.shared.look(|published| published.standing.revision);
        let mut target = revision.saturating_sub(self.options.history_revisions_max as u64);
        target = target.max(self.ages.pass(self.now, before).min(revision));
        let asked = self.compactions.iter().map(|asked| asked.revision).max().unwrap_or(0);
        let is_asked = asked > oldest && !self.shortage.is_making_room;
        let n_min = if is_asked { COMPACTED_MIN } else { DROPPED_MIN };
        let mut target = target.max(asked);
        if self.shortage.is_making_room {
            target = target.max(revision.saturating_sub(HISTORY_REVISIONS_MIN));
        }
        if target > oldest {
            tables.compact(target, n_min.max(2 * n_added))?;
        }
        self.shortage.is_making_room &= tables.now.oldest < target;
        for _ in 0..GIVEN_UP_STEPS {
            let Standing { revision, oldest, superseded } = tables.now;
            if superseded <= self.options.history_bytes_max || oldest >= revision {
                break;
            }
            tables.compact(revision.min(oldest + GIVEN_UP_REVISIONS), DROPPED_MIN)?;
        }
        Ok(())
    }

    /// Answers the compactions that are done and durable.
    fn answer_compactions(&mut self) {
        let oldest = self.shared.look(|published| published.standing.oldest);
        for asked in self.compactions.extract_if(.., |asked| asked.revision <= oldest) {
            drop(asked.answer.send(Ok(())));
        }
    }

    fn refuse_compactions(&mut self, error: &StoreError) {
        for asked in self.compactions.drain(..) {
            drop(asked.answer.send(Err(error.clone())));
        }
    }

    // Failures.

    /// Opens the file anew after a failed batch, and says how the batch ended: `None` when it is
    /// there after all.
    fn recover(&mut self, fault: &Fault, work: &mut Work) -> Option<StoreError> {
        let before = self.shared.look(|published| published.standing);
        self.shut();
        if !self.is_quick && self.sync_failed.load(Ordering::Acquire) {
            self.is_broken = true;
        }
        let unknown = || match work.committing {
            Some(_) => StoreError::Unknown(fault.to_string()),
            None => fault.unavailable(),
        };
        let Ok((database, (standing, snapshot))) = self.open_file() else { return Some(unknown()) };
        let error = if Some(standing) == work.committing {
            let done = std::mem::take(&mut work.done);
            self.shared.publish(standing, snapshot, done.into_iter());
            None
        } else if standing == before {
            self.shared.publish(standing, snapshot, std::iter::empty());
            Some(fault.unavailable())
        } else {
            let error = unknown();
            if self.restart(standing, snapshot).is_err() {
                return Some(error);
            }
            Some(error)
        };
        self.database = Some(database);
        error
    }

    /// Closes the file: readers find it failed.
    fn shut(&mut self) {
        let old = self.shared.look(|published| published.snapshot.take());
        drop(old);
        self.database = None;
    }

    fn open_file(&self) -> Result<(Database, Synced), Fault> {
        if self.is_broken {
            return Err(Fault::Broken);
        }
        let open = AssertUnwindSafe(|| {
            let database = (self.open)(&self.path)?;
            let synced = super::file::standing(&database)?;
            Ok((database, synced))
        });
        std::panic::catch_unwind(open).unwrap_or(Err(Fault::Panicked))
    }

    /// Opens the file again after a failure: once for each batch that comes.
    fn reopen(&mut self) -> Result<(), Fault> {
        if self.database.is_some() {
            return Ok(());
        }
        let (database, (standing, snapshot)) = self.open_file()?;
        self.restart(standing, snapshot)?;
        self.database = Some(database);
        Ok(())
    }

    /// Publishes what a file that was opened again has. Commits whose outcome was unknown may be
    /// there after all: what is in memory of the end of history, and of times to live, is read
    /// again.
    fn restart(&self, standing: Standing, snapshot: ReadTransaction) -> Result<(), Fault> {
        let is_elsewhere = self.shared.look(|published| published.standing != standing);
        if is_elsewhere {
            let view = View::alone(snapshot, standing);
            let mortals = view.mortals()?;
            let now = (self.now, (self.options.now_ms)());
            let View { snapshot, .. } = view;
            self.shared.look(|published| published.restart(mortals, now));
            self.shared.publish_view(standing, snapshot, std::iter::empty());
        } else {
            self.shared.publish(standing, snapshot, std::iter::empty());
        }
        Ok(())
    }
}
