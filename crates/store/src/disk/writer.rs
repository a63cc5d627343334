//! The writer thread. It is the only thread that writes, except for the one that files laps.
//!
//! It takes the waiting commands, up to a bound, makes them durable with one sync, publishes, and
//! responds. Meanwhile the next batch gathers, so more writers share each sync. It never waits for
//! a batch to fill. A batch becomes durable in the journal ([`journaled`]). When a lap of the
//! journal is full, another thread moves it to redb's file ([`laps`]). What is not for the journal
//! becomes durable in a transaction of the engine, which also takes what is in the journal.
//!
//! # When the journal fails
//!
//! The batch goes to the engine, and the frame in the journal is made invalid. If that fails too,
//! the next opening may find the frame. So until the engine has done something, what it refuses
//! fails with [`StoreError::Unknown`].
//!
//! # When the engine fails
//!
//! After its first failed call redb refuses all others, so the writer opens the file again at once.
//! Readers continue, and the file shows how the batch ended. Either it is there as a whole (then it
//! is published and acknowledged), or not at all (then it fails with the reason). Only if the file
//! cannot be opened, or is in neither of the two states, do the batch's commits fail with
//! [`StoreError::Unknown`].
//!
//! A failed sync may have dropped data, and the next sync may succeed without it. With quick repair
//! ([`DiskOptions::quick_repair_bytes`]) opening again is still correct: redb syncs a commit's
//! pages before it syncs the header that points to them. So a failed sync leaves either a header
//! that points to the old pages, or a header whose pages are synced, and opening writes and syncs
//! the header again. Without quick repair one sync does both, so the engine stops serving after a
//! failed sync. A failed write, as on a full disk, comes before that header and leaves the file as
//! it was.

mod journaled;
mod laps;

use redb::{Database, ReadTransaction, ReadableDatabase, WriteTransaction};
use std::{
    panic::AssertUnwindSafe,
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
};
use tokio::{sync::mpsc, time::Instant};

use super::{
    DiskOptions,
    ages::Ages,
    apply::{Applied, Rows},
    batch::{BatchTables, Position, Scratch, Synced},
    command::{Answer, Command, Pending, Queued, makes_room},
    error::Fault,
    file::OpenFile,
    filing::{Filing, Laps},
    journal::Journal,
    published::Shared,
    read::View,
    reserve::{Reserve, Shortage},
    synced::SyncFailed,
    trim::Trim,
    unfiled::{FileTables, Unfiled},
};
use crate::contract::*;

/// Maximum number of commands in one batch, and of bytes of their values.
const BATCH_COMMANDS_MAX: usize = 1024;
const BATCH_BYTES_MAX: usize = 16 << 20;

/// The results of a batch, to publish and send once it is durable.
#[derive(Default)]
struct Work {
    pending: Vec<Pending>,
    done: Vec<(Arc<[Change]>, Option<Instant>)>,
    /// The position after the batch. Set before the engine's commit: from then on a failure may
    /// leave the batch done.
    committing: Option<Position>,
}

/// A requested compaction, done in steps.
struct Compaction {
    revision: u64,
    answer: Answer<()>,
}

/// State of the writer thread.
pub(super) struct Writer {
    // Helpers.
    options: DiskOptions,
    open: Box<OpenFile>,
    path: PathBuf,

    // Inputs.
    commands: mpsc::Receiver<Queued>,

    // State.
    /// `None` while a lap is being filed, and after the engine failed, until the file is open
    /// again.
    database: Option<Database>,
    filing: Box<dyn Filing>,
    /// Whether a lap is being filed.
    is_filing: bool,
    /// The file may point to pages that were never synced: it must not be read or written any more.
    is_broken: bool,
    /// Whether a sync has failed, or may have.
    sync_failed: SyncFailed,
    /// Whether the newest transaction used quick repair.
    is_quick: bool,
    journal: Journal,
    /// The journal may have a frame of commits that were not acknowledged.
    is_suspect: bool,
    /// The commits of the journal.
    unfiled: Unfiled,
    /// The file's tables in the published snapshot.
    tables: Option<FileTables>,
    compactions: Vec<Compaction>,
    /// Whether the next transaction is the last one, after which the journal is not needed.
    is_closing: bool,
    shortage: Shortage,
    ages: Ages,
    /// Time of the newest command.
    now: Instant,
    scratch: Scratch,
    shared: Arc<Shared>,
}

impl Writer {
    pub(super) fn new(
        (options, path): (DiskOptions, PathBuf),
        (open, sync_failed): (Box<OpenFile>, SyncFailed),
        (commands, laps): (mpsc::Receiver<Queued>, Laps),
        (database, journal): (Database, Journal),
        ages: (Ages, Instant),
        reserve: Box<dyn Reserve>,
        shared: Arc<Shared>,
    ) -> Self {
        let database = Some(database);
        let (compactions, scratch) = (Vec::new(), Scratch::default());
        let (ages, now) = ages;
        Self {
            options,
            open,
            path,
            commands,
            database,
            filing: laps.filing,
            is_filing: false,
            is_broken: false,
            sync_failed,
            is_quick: false,
            journal,
            is_suspect: false,
            unfiled: Unfiled::new(laps.records_max),
            tables: None,
            compactions,
            is_closing: false,
            shortage: Shortage::new(reserve, now),
            ages,
            now,
            scratch,
            shared,
        }
    }

    /// Writes until every handle of the store is dropped and all submitted commands are done.
    pub(super) fn run(mut self) {
        loop {
            let (mut batch, mut n_bytes) = (Vec::new(), 0);
            if self.compactions.is_empty() && !self.shortage.is_making_room {
                match self.commands.blocking_recv() {
                    Some(Queued::Command(now, first)) => {
                        self.now = now;
                        n_bytes += first.size();
                        batch.push(first);
                    }
                    Some(Queued::Wake) => {}
                    None => break,
                }
            }
            while batch.len() < BATCH_COMMANDS_MAX
                && n_bytes < BATCH_BYTES_MAX
                && let Ok(queued) = self.commands.try_recv()
            {
                let Queued::Command(now, command) = queued else { continue };
                self.now = self.now.max(now);
                n_bytes += command.size();
                batch.push(command);
            }
            self.collect();
            let (batch, refused) = self.shortage.admit(batch, self.now);
            if let Some((refused, error)) = refused {
                refused.into_iter().for_each(|command| command.refuse(error.clone()));
            }
            let is_idle = self.compactions.is_empty() && !self.shortage.is_making_room;
            if batch.is_empty() && is_idle {
                continue;
            }
            if let Err(batch) = self.journal(batch) {
                self.write_all(batch);
            }
        }
        self.settle();
        // If that fails, the next opening does it, with the journal.
        self.is_closing = true;
        self.write_all(Vec::new());
        self.tables = None;
        // Drops the snapshot before the file is closed, so that it closes cleanly.
        self.shared.with(|published| published.snapshot = None);
    }

    /// Writes a batch in a transaction of the engine.
    fn write_all(&mut self, mut batch: Vec<Command>) {
        self.settle();
        // Each round releases one step of the reserve.
        while let Some(again) = self.write(batch) {
            batch = again;
        }
    }

    /// The error of a batch that the engine refused.
    fn refusal(&self, error: StoreError) -> StoreError {
        if self.is_suspect { StoreError::Unknown(error.to_string()) } else { error }
    }

    /// Writes a batch. Returns the commands to repeat, if a step of the reserve was released for
    /// them.
    fn write(&mut self, commands: Vec<Command>) -> Option<Vec<Command>> {
        let with_others =
            commands.iter().any(|command| !command.makes_room() && !command.is_small_update());
        let transaction = match self.begin() {
            Ok(transaction) => transaction,
            Err(error @ StoreError::Full(_)) => return self.make_room(commands, error),
            Err(error) => {
                let refusal = self.refusal(error.clone());
                commands.into_iter().for_each(|command| command.refuse(refusal.clone()));
                self.refuse_compactions(&error);
                self.shortage.is_making_room = false;
                return None;
            }
        };
        let mut work = Work::default();
        let mut commands = commands.into_iter();
        // redb can panic on damaged pages. Treated as any other failure.
        let batch = AssertUnwindSafe(|| self.batch(transaction, &mut commands, &mut work));
        let written = std::panic::catch_unwind(batch).unwrap_or(Err(Fault::Panicked));
        match written {
            Ok(synced) => {
                if let Some((position, snapshot)) = synced {
                    self.filed(position, snapshot, work.done);
                }
                work.pending.into_iter().for_each(|answer| answer.send(None));
                self.answer_compactions();
                self.shortage.written(with_others, self.now);
                None
            }
            Err(fault) => {
                let error = self.recover(&fault, &mut work);
                let refusal = self.refusal(self.shared.fail(&fault));
                if let Some(error @ StoreError::Full(_)) = &error {
                    let (mut again, mut others) = (Vec::new(), Vec::new());
                    for pending in work.pending {
                        match pending.again() {
                            Ok(command) => again.push(command),
                            Err(pending) => others.push(pending),
                        }
                    }
                    let refusal = self.refusal(error.clone());
                    others.into_iter().for_each(|answer| answer.send(Some(refusal.clone())));
                    again.extend(commands);
                    return self.make_room(again, error.clone());
                }
                commands.for_each(|command| command.refuse(refusal.clone()));
                let error = error.map(|error| self.refusal(error));
                work.pending.into_iter().for_each(|answer| answer.send(error.clone()));
                self.refuse_compactions(&error.unwrap_or(refusal));
                self.shortage.is_making_room = false;
                None
            }
        }
    }

    /// Handles a full disk, where nothing happened. Commands that free space are repeated with some
    /// of the reserve; the others fail.
    fn make_room(&mut self, commands: Vec<Command>, error: StoreError) -> Option<Vec<Command>> {
        self.shortage.refused(error.clone(), self.now);
        let (again, others): (Vec<_>, Vec<_>) = commands.into_iter().partition(Command::makes_room);
        let refusal = self.refusal(error.clone());
        others.into_iter().for_each(|command| command.refuse(refusal.clone()));
        let is_needed = !again.is_empty()
            || !self.unfiled.is_empty()
            || !self.compactions.is_empty()
            || self.shortage.is_making_room
            || self.database.is_none();
        if is_needed && self.shortage.release(self.now) {
            return Some(again);
        }
        again.into_iter().for_each(|command| command.refuse(refusal.clone()));
        if is_needed {
            self.refuse_compactions(&error);
        }
        None
    }

    /// Begins a transaction. If the engine has failed, opens the file again first.
    fn begin(&mut self) -> Result<WriteTransaction, StoreError> {
        self.reopen().map_err(|fault| fault.unavailable())?;
        match self.database.as_ref().map(Database::begin_write) {
            Some(Ok(transaction)) => return Ok(transaction),
            // A reader's call has failed, so redb refuses all others.
            Some(Err(_)) | None => self.shut(),
        }
        self.reopen().map_err(|fault| fault.unavailable())?;
        let database = self.database.as_ref().ok_or(StoreError::Closed)?;
        database.begin_write().map_err(|error| Fault::from(error).unavailable())
    }

    /// Applies the commands and a step of compaction in one transaction. `None` if nothing changed.
    fn batch(
        &mut self,
        mut transaction: WriteTransaction,
        commands: &mut impl Iterator<Item = Command>,
        work: &mut Work,
    ) -> Result<Option<Synced>, Fault> {
        let before = self.shared.with(|published| published.file());
        self.is_quick = self.must_be_quick();
        transaction.set_quick_repair(self.is_quick);
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut tables = BatchTables::open(&transaction, before, &mut scratch)?;
        let mut n_unfiled = 0;
        for entry in self.unfiled.entries() {
            tables.file(entry)?;
            n_unfiled += 1;
        }
        for command in commands {
            self.one(&mut tables, command, work)?;
        }
        match self.trim().run(&mut tables, work.done.len() + n_unfiled) {
            Ok(is_making_room) => self.shortage.is_making_room = is_making_room,
            // Unreadable history is retained, and writes continue.
            Err(fault) => {
                self.refuse_compactions(&fault.unavailable());
                self.shortage.is_making_room = false;
                fault.not_of_a_record()?;
            }
        }
        if self.is_closing {
            tables.unmark_journal()?;
        } else if tables.now == before {
            drop(tables);
            transaction.abort()?;
            return Ok(None);
        }
        let position = tables.close()?;
        self.scratch = scratch;
        work.committing = Some(position);
        transaction.commit()?;
        let database = self.database.as_ref().ok_or(StoreError::Closed)?;
        Ok(Some((position, database.begin_read()?)))
    }

    /// Whether the next transaction uses quick repair.
    fn must_be_quick(&self) -> bool {
        let length = std::fs::metadata(&self.path).map_or(0, |file| file.len());
        length >= self.options.quick_repair_bytes
    }

    fn one(
        &mut self,
        tables: &mut BatchTables<'_>,
        command: Command,
        work: &mut Work,
    ) -> Result<(), Fault> {
        let latest = |key: &[u8], at| self.shared.with(|published| published.written_at(key, at));
        // From here on the caller must get a response, also if this command fails the batch.
        match command {
            Command::Commit { txn, expires, answer } => {
                let expires_ms = expires.map_or(0, |(_, ms)| ms);
                let again = makes_room(&txn).then(|| txn.clone());
                match tables.apply(&txn, expires_ms, latest) {
                    Ok(Applied { committed, changes }) => {
                        if !changes.is_empty() {
                            work.done.push((changes, expires.map(|(at, _)| at)));
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
                let expired = tables.expiry(&keys).and_then(|txn| tables.apply(&txn, 0, latest));
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
                let Position { revision: current, oldest, .. } = tables.now;
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
            // Before the commands, the commits of the journal were written.
            Command::Reopen { answer } | Command::File { answer } => {
                work.pending.push(Pending::Unit(answer, Ok(())))
            }
        }
        Ok(())
    }

    /// What the next transaction drops from history: what exceeds its bounds, and a step of the
    /// requested compactions.
    fn trim(&mut self) -> Trim {
        let before = self.shared.with(|published| published.position.revision);
        let requested = self.compactions.iter().map(|compaction| compaction.revision).max();
        Trim {
            revisions_max: self.options.history_revisions_max as u64,
            bytes_max: self.options.history_bytes_max,
            aged: self.ages.pass(self.now, before),
            requested: requested.unwrap_or(0),
            is_making_room: self.shortage.is_making_room,
        }
    }

    /// Responds to the compactions that are done and durable.
    fn answer_compactions(&mut self) {
        let oldest = self.shared.with(|published| published.position.oldest);
        for compaction in
            self.compactions.extract_if(.., |compaction| compaction.revision <= oldest)
        {
            drop(compaction.answer.send(Ok(())));
        }
    }

    fn refuse_compactions(&mut self, error: &StoreError) {
        for compaction in self.compactions.drain(..) {
            drop(compaction.answer.send(Err(error.clone())));
        }
    }

    // Failures.

    /// Opens the file again after a failed batch. Returns `None` if the batch is in the file, else
    /// the error.
    fn recover(&mut self, fault: &Fault, work: &mut Work) -> Option<StoreError> {
        let before = self.shared.with(|published| published.file());
        self.shut();
        if !self.is_quick && self.sync_failed.load(Ordering::Acquire) {
            self.is_broken = true;
        }
        let unknown = || match work.committing {
            Some(_) => StoreError::Unknown(fault.to_string()),
            None => fault.unavailable(),
        };
        let Ok((database, (position, snapshot))) = self.open_file() else { return Some(unknown()) };
        let error = if Some(position) == work.committing {
            self.filed(position, snapshot, std::mem::take(&mut work.done));
            None
        } else {
            let error = if position == before { fault.unavailable() } else { unknown() };
            if self.restart(position, snapshot).is_err() {
                return Some(error);
            }
            Some(error)
        };
        self.database = Some(database);
        error
    }

    /// Publishes what a transaction did: a sealed lap alone, or all that the journal has and a
    /// batch.
    fn filed(
        &mut self,
        position: Position,
        snapshot: ReadTransaction,
        done: Vec<(Arc<[Change]>, Option<Instant>)>,
    ) {
        if self.forget_filed(position.revision) {
            self.shared.publish_lap(position, snapshot);
        } else {
            self.shared.publish(position, snapshot, done.into_iter());
        }
    }

    /// Forgets the commits of the journal that are in the file, which is at a revision. If those
    /// are all, begins a lap. Returns whether some are left.
    fn forget_filed(&mut self, filed: u64) -> bool {
        self.tables = None;
        let is_left = self.unfiled.filed(filed);
        // A lap that has only a frame of commits that were not acknowledged is not over.
        if !is_left && self.journal.lap() < filed {
            self.is_suspect = false;
            self.journal.begin(filed);
        }
        is_left
    }

    /// Closes the file. Readers see that it has failed.
    fn shut(&mut self) {
        self.tables = None;
        let old = self.shared.with(|published| published.snapshot.take());
        drop(old);
        self.database = None;
    }

    fn open_file(&self) -> Result<(Database, Synced), Fault> {
        if self.is_broken {
            return Err(Fault::Broken);
        }
        let open = AssertUnwindSafe(|| {
            let database = (self.open)(&self.path)?;
            let synced = super::file::position(&database)?;
            Ok((database, synced))
        });
        std::panic::catch_unwind(open).unwrap_or(Err(Fault::Panicked))
    }

    /// Opens the file again after a failure. Called once per batch.
    fn reopen(&mut self) -> Result<(), Fault> {
        if self.database.is_some() {
            return Ok(());
        }
        let (database, (position, snapshot)) = self.open_file()?;
        self.restart(position, snapshot)?;
        self.database = Some(database);
        Ok(())
    }

    /// Publishes the state of a file that was opened again. Commits with an unknown outcome may be
    /// in it, so the tail and the expiry times are read again.
    fn restart(&mut self, file: Position, snapshot: ReadTransaction) -> Result<(), Fault> {
        let (before, newest) =
            self.shared.with(|published| (published.file(), published.position.revision));
        if file == before {
            self.shared.publish_file(snapshot);
            return Ok(());
        }
        if self.unfiled.is_sealed_up_to(file.revision) {
            self.filed(file, snapshot, Vec::new());
            return Ok(());
        }
        if !self.unfiled.is_empty() && file.revision < newest {
            // The file has some commits of a lap.
            self.is_broken = true;
            return Err(Fault::Broken);
        }
        let view = View::unserved(snapshot, file);
        let expiring = view.expiring()?;
        let now = (self.now, (self.options.now_ms)());
        let View { snapshot, .. } = view;
        self.shared.with(|published| published.restart(expiring, now));
        self.forget_filed(file.revision);
        self.shared.publish_view(file, snapshot, std::iter::empty());
        Ok(())
    }
}
