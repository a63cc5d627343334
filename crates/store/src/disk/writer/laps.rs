//! Laps of the journal: when they end, and how the writer goes on after they were filed.

use super::{Work, Writer};
use crate::{
    contract::StoreError,
    disk::filing::{Filed, Job},
};

impl Writer {
    /// Whether batches may go to the journal.
    pub(super) fn may_journal(&self) -> bool {
        !self.is_suspect
            && !self.is_broken
            && (self.database.is_some() || self.is_filing)
            && self.compactions.is_empty()
            && !self.shortage.is_short()
    }

    /// Gives the current lap away to be filed, and begins the next one. Waits for the lap before
    /// it. `false` if the next batch is for the engine.
    pub(super) fn turn(&mut self) -> bool {
        self.settle();
        if !self.may_journal() {
            return false;
        }
        let is_quick = self.must_be_quick();
        let Some(database) = self.database.take() else { return false };
        let Some((lap, end)) = self.unfiled.seal() else {
            self.database = Some(database);
            return false;
        };
        self.journal.turn(end);
        self.is_quick = is_quick;
        self.is_filing = true;
        let before = self.shared.with(|published| published.file());
        let trim = self.trim();
        self.filing.start(Job { database, lap, before, trim, is_quick });
        true
    }

    /// Takes the file back if the lap was filed, or that failed.
    pub(super) fn collect(&mut self) {
        if self.is_filing
            && let Some(filed) = self.filing.poll()
        {
            self.end_filing(filed);
        }
    }

    /// Waits for the lap that is being filed.
    pub(super) fn settle(&mut self) {
        if self.is_filing {
            let filed = self.filing.wait();
            self.end_filing(filed);
        }
    }

    fn end_filing(&mut self, Filed { database, outcome, committing }: Filed) {
        self.is_filing = false;
        self.database = database;
        let fault = match outcome {
            Ok((position, snapshot)) => return self.filed(position, snapshot, Vec::new()),
            Err(fault) => fault,
        };
        let mut work = Work { committing, ..Work::default() };
        let error = self.recover(&fault, &mut work);
        self.shared.fail(&fault);
        // The lap stays in the journal, so there is no error to report. Room is made at once,
        // because the journal cannot go on for long.
        if let Some(error @ StoreError::Full(_)) = error
            && let Some(again) = self.make_room(Vec::new(), error)
        {
            self.write_all(again);
        }
    }
}
