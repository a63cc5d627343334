//! Moving a lap of the journal into redb's file, beside the writer.
//!
//! # Theory
//!
//! The transaction that files a lap copies and syncs hundreds of pages. The writer does not wait
//! for it: it gives the file and the lap to a thread as a [`Job`], and writes the next commits to
//! the journal's other half. It takes the file back between two batches. There is one job at a
//! time. The writer waits for it only if the next lap is full too, or before it writes to the file
//! itself.
//!
//! | while a job runs | comes from |
//! |---|---|
//! | the place of a key | the batch, the current lap, the sealed lap, the file before the job |
//! | values and feeds | memory, which has the commits of both laps; the file before the job |
//! | commits after a crash | redb's file before or after the job, and the laps that follow it |
//!
//! A job that fails leaves its lap sealed and in the journal. Nothing of it was lost, and nobody
//! waits for it. The writer then opens the file again as after any failure of the engine, and the
//! next transaction of the engine takes both laps.

use redb::{Database, ReadableDatabase};
use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, mpsc as channel},
    thread::JoinHandle,
};
use tokio::sync::mpsc;

use super::{
    batch::{BatchTables, Position, Scratch, Synced},
    command::Queued,
    error::Fault,
    trim::Trim,
    unfiled::{Lap, RECORDS_MAX},
};

/// A lap to move into the file.
pub(super) struct Job {
    pub(super) database: Database,
    pub(super) lap: Arc<Lap>,
    /// The position of the file.
    pub(super) before: Position,
    pub(super) trim: Trim,
    pub(super) is_quick: bool,
}

/// A job that has ended.
pub(super) struct Filed {
    /// `None` if it was lost with its thread.
    pub(super) database: Option<Database>,
    pub(super) outcome: Result<Synced, Fault>,
    /// The position after the transaction. Set before the engine's commit: from then on a failure
    /// may leave the lap in the file.
    pub(super) committing: Option<Position>,
}

impl Job {
    /// Files the lap, and compacts history.
    pub(super) fn run(self) -> Filed {
        let mut committing = None;
        // redb can panic on damaged pages. Treated as any other failure.
        let file = AssertUnwindSafe(|| self.file(&mut committing));
        let outcome = std::panic::catch_unwind(file).unwrap_or(Err(Fault::Panicked));
        Filed { database: Some(self.database), outcome, committing }
    }

    fn file(&self, committing: &mut Option<Position>) -> Result<Synced, Fault> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_quick_repair(self.is_quick);
        let mut scratch = Scratch::default();
        let mut tables = BatchTables::open(&transaction, self.before, &mut scratch)?;
        for entry in &self.lap.entries {
            tables.file(entry)?;
        }
        // Unreadable history is retained, and writes continue.
        let trimmed = self.trim.run(&mut tables, self.lap.entries.len());
        trimmed.map(drop).or_else(Fault::not_of_a_record)?;
        let position = tables.close()?;
        *committing = Some(position);
        transaction.commit()?;
        Ok((position, self.database.begin_read()?))
    }
}

/// What runs jobs, one at a time.
pub(super) trait Filing: Send {
    /// Starts a job. None is running.
    fn start(&mut self, job: Job);
    /// The job, if it has ended. Does not wait.
    fn poll(&mut self) -> Option<Filed>;
    /// Waits for the job, which was started.
    fn wait(&mut self) -> Filed;
}

/// The bound of a lap, and what files laps.
pub(super) struct Laps {
    /// Maximum number of records.
    pub(super) records_max: usize,
    pub(super) filing: Box<dyn Filing>,
}

impl Laps {
    /// Laps that a thread files. It starts with the first job, and `wake`s the writer after each.
    pub(super) fn of_thread(wake: mpsc::WeakSender<Queued>) -> Self {
        let filing = FilingThread { wake, thread: None, here: None };
        Self { records_max: RECORDS_MAX, filing: Box::new(filing) }
    }
}

/// A thread that runs jobs. Joined when dropped.
struct FilingThread {
    wake: mpsc::WeakSender<Queued>,
    /// `None` until the first job.
    thread: Option<Running>,
    /// A job that was run here, because the system has no more threads.
    here: Option<Filed>,
}

struct Running {
    jobs: channel::Sender<Job>,
    ended: channel::Receiver<Filed>,
    thread: JoinHandle<()>,
}

impl FilingThread {
    fn spawn(wake: mpsc::WeakSender<Queued>) -> std::io::Result<Running> {
        let (jobs, received) = channel::channel::<Job>();
        let (send, ended) = channel::channel();
        let thread = std::thread::Builder::new().name("setpoint-filing".into());
        let thread = thread.spawn(move || {
            for job in received {
                if send.send(job.run()).is_err() {
                    break;
                }
                // If the queue is full, the writer looks anyway. If it is closed, the writer waits
                // for the job.
                if let Some(wake) = wake.upgrade() {
                    drop(wake.try_send(Queued::Wake));
                }
            }
        })?;
        Ok(Running { jobs, ended, thread })
    }
}

impl Filing for FilingThread {
    fn start(&mut self, job: Job) {
        if self.thread.is_none() {
            self.thread = Self::spawn(self.wake.clone()).ok();
        }
        let refused = match &self.thread {
            Some(running) => running.jobs.send(job).err().map(|refused| refused.0),
            None => Some(job),
        };
        self.here = refused.map(Job::run);
    }

    fn poll(&mut self) -> Option<Filed> {
        self.here.take().or_else(|| self.thread.as_ref()?.ended.try_recv().ok())
    }

    fn wait(&mut self) -> Filed {
        let here = self.here.take();
        let ended = here.or_else(|| self.thread.as_ref()?.ended.recv().ok());
        // The thread has ended: what it did is in the file.
        let lost = || Filed { database: None, outcome: Err(Fault::Panicked), committing: None };
        ended.unwrap_or_else(lost)
    }
}

impl Drop for FilingThread {
    fn drop(&mut self) {
        let Some(Running { jobs, ended, thread }) = self.thread.take() else { return };
        drop((jobs, ended));
        // The thread has already reported a panic.
        drop(thread.join());
    }
}
