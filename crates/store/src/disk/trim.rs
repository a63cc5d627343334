//! Compaction of history to its bounds, as a part of each transaction of the engine.

use super::{
    batch::{BatchTables, Position},
    error::Fault,
    reserve::HISTORY_REVISIONS_MIN,
};

/// Minimum number of records that each batch may drop from history, so that compaction is spread
/// over writes.
const DROPPED_MIN: usize = 512;
/// Minimum number of records that one step of a requested compaction may drop. This takes some
/// milliseconds, in which no other commit runs.
const COMPACTED_MIN: usize = 4096;
/// If history exceeds its bytes: revisions dropped per step, and steps per batch.
const GIVEN_UP_REVISIONS: u64 = 4;
const GIVEN_UP_STEPS: usize = 256;

/// What a transaction drops from history.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trim {
    /// Maximum number of revisions in history.
    pub(super) revisions_max: u64,
    /// Maximum size of history in bytes.
    pub(super) bytes_max: u64,
    /// The revision up to which history is too old; 0 for none.
    pub(super) aged: u64,
    /// The revision up to which a compaction was requested; 0 for none.
    pub(super) requested: u64,
    /// Whether history is dropped to free space.
    pub(super) is_making_room: bool,
}

impl Trim {
    /// Compacts history. `n_added` is the number of commits in the transaction. Returns whether
    /// there is more to drop to free space.
    pub(super) fn run(&self, tables: &mut BatchTables<'_>, n_added: usize) -> Result<bool, Fault> {
        let Position { revision, oldest, .. } = tables.now;
        let mut target = revision.saturating_sub(self.revisions_max);
        target = target.max(self.aged.min(revision)).max(self.requested);
        let is_requested = self.requested > oldest && !self.is_making_room;
        let n_min = if is_requested { COMPACTED_MIN } else { DROPPED_MIN };
        if self.is_making_room {
            target = target.max(revision.saturating_sub(HISTORY_REVISIONS_MIN));
        }
        if target > oldest {
            tables.compact(target, n_min.max(2 * n_added))?;
        }
        let is_making_room = self.is_making_room && tables.now.oldest < target;
        for _ in 0..GIVEN_UP_STEPS {
            let Position { revision, oldest, superseded } = tables.now;
            if superseded <= self.bytes_max || oldest >= revision {
                break;
            }
            tables.compact(revision.min(oldest + GIVEN_UP_REVISIONS), DROPPED_MIN)?;
        }
        Ok(is_making_room)
    }
}
