//! Reserved disk space, for operations that free space.
//!
//! redb writes a changed page to a new place, so a deletion needs space before it frees any. A file
//! beside the store reserves that space. When the disk is full, the file is shortened by a step and
//! the deletion is repeated. Once there is room, the file grows again.
//!
//! | operation | while the disk is full |
//! |---|---|
//! | a commit that only deletes, expiry, a compaction | done, with the reserve if necessary |
//! | an update of existing keys of at most [`UPDATE_BYTES_MAX`], because a deletion may begin with one | tried, while at least half of the reserve is left |
//! | every other commit | [`StoreError::Full`]; once in [`TRY_PERIOD`] they are tried, to detect free space |
//! | history | dropped except for the newest [`HISTORY_REVISIONS_MIN`] revisions, to free space in the file |

use super::command::Command;
use crate::contract::StoreError;
use std::{
    fmt,
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::time::Instant;

/// Name of the reserve's file in a data folder.
const RESERVE: &str = "reserve";
/// Bytes released at once. A deletion writes about ten pages of 4 KiB, a batch of a thousand some
/// megabytes.
pub(super) const STEP_BYTES: u64 = 1 << 20;

/// How often other commits are tried, and how often refilling the reserve is tried. After a failure
/// the file is opened again, which takes a second or two for each GiB.
const TRY_PERIOD: Duration = Duration::from_secs(5);
/// Maximum size in bytes of the values of an update that may use the reserve: a few pages.
pub(super) const UPDATE_BYTES_MAX: usize = 16 << 10;
/// Revisions of history to retain when space is short. Watches that keep up are only seconds
/// behind.
pub(super) const HISTORY_REVISIONS_MIN: u64 = 1000;

/// Disk space that can be released and reserved again.
pub(super) trait Reserve: Send + fmt::Debug {
    /// Releases one step. `false` if nothing is left.
    fn release(&mut self) -> bool;
    /// Reserves the released space again, as far as there is room. Returns whether all of it is
    /// there.
    fn refill(&mut self) -> bool;
    /// Whether at least half of it is left, so that updates may also continue.
    fn is_high(&self) -> bool;
}

/// A file that only occupies space.
#[derive(Debug)]
pub(super) struct ReserveFile {
    path: PathBuf,
    /// The wanted and the actual length, in bytes.
    wanted: u64,
    length: u64,
}

impl ReserveFile {
    /// The reserve of a folder, in its current state.
    pub(super) fn of(folder: &Path, wanted: u64) -> Self {
        let path = folder.join(RESERVE);
        let length = fs::metadata(&path).map_or(0, |file| file.len());
        Self { path, wanted, length }
    }

    fn cut(&mut self, length: u64) -> bool {
        let cut = match length {
            0 => fs::remove_file(&self.path),
            _ => File::options().write(true).open(&self.path).and_then(|file| file.set_len(length)),
        };
        if cut.is_ok() {
            self.length = length;
        }
        cut.is_ok()
    }

    /// Appends the missing bytes. They are noise, not zeros, so that the file system cannot
    /// compress them.
    fn append(&self) -> std::io::Result<()> {
        let mut file = File::options().append(true).create(true).open(&self.path)?;
        let (mut left, mut noise) = (self.wanted - self.length, self.length | 1);
        while left > 0 {
            let n_bytes = STEP_BYTES.min(left);
            let mut bytes = Vec::new();
            while (bytes.len() as u64) < n_bytes {
                // Xorshift: data that cannot be compressed.
                noise ^= noise << 13;
                noise ^= noise >> 7;
                noise ^= noise << 17;
                bytes.extend_from_slice(&noise.to_le_bytes());
            }
            file.write_all(&bytes)?;
            left -= n_bytes;
        }
        // File systems with delayed allocation report missing space here.
        file.sync_data()
    }
}

impl Reserve for ReserveFile {
    fn release(&mut self) -> bool {
        self.length > 0 && self.cut(self.length.saturating_sub(STEP_BYTES))
    }

    fn refill(&mut self) -> bool {
        if self.length >= self.wanted {
            // The program that created it may have reserved more.
            return self.length == self.wanted || self.cut(self.wanted);
        }
        let is_whole = self.append().is_ok();
        if is_whole {
            self.length = self.wanted;
        } else {
            // The store needs the space more than half a reserve does.
            self.cut(self.length);
        }
        is_whole
    }

    fn is_high(&self) -> bool {
        self.length * 2 >= self.wanted && self.length > 0
    }
}

/// State of the writer while there is no room.
#[derive(Debug)]
pub(super) struct Shortage {
    reserve: Box<dyn Reserve>,
    /// The error for commits that free no space. `None` while there is room.
    refusal: Option<StoreError>,
    /// When all commits were last tried, to detect free space.
    tried_at: Instant,
    /// When refilling the reserve was last tried. `None` if it is complete.
    refilled_at: Option<Instant>,
    /// Whether history is being dropped to free space.
    pub(super) is_making_room: bool,
}

impl Shortage {
    pub(super) fn new(reserve: Box<dyn Reserve>, now: Instant) -> Self {
        let (refusal, refilled_at) = (None, Some(now));
        Self { reserve, refusal, tried_at: now, refilled_at, is_making_room: false }
    }

    /// Whether there is no room for all commits.
    pub(super) fn is_short(&self) -> bool {
        self.refusal.is_some() || self.is_making_room
    }

    /// Splits commands into those to run and those to refuse, with the error.
    pub(super) fn admit(
        &mut self,
        commands: Vec<Command>,
        now: Instant,
    ) -> (Vec<Command>, Option<(Vec<Command>, StoreError)>) {
        let Some(refusal) = self.refusal.clone() else { return (commands, None) };
        if now.saturating_duration_since(self.tried_at) >= TRY_PERIOD {
            self.tried_at = now;
            return (commands, None);
        }
        let is_high = self.reserve.is_high();
        let (admitted, refused) = commands
            .into_iter()
            .partition(|command| command.makes_room() || is_high && command.is_small_update());
        (admitted, Some((refused, refusal)))
    }

    /// Records a successful batch. `with_others`: it had commits that free no space.
    pub(super) fn written(&mut self, with_others: bool, now: Instant) {
        if with_others {
            self.refusal = None;
        }
        let is_due = self.refilled_at.is_some_and(|tried| now >= tried + TRY_PERIOD);
        if is_due && self.refusal.is_none() {
            self.refilled_at = if self.reserve.refill() { None } else { Some(now) };
        }
    }

    /// Records a batch that found no room.
    pub(super) fn refused(&mut self, error: StoreError, now: Instant) {
        if self.refusal.is_none() {
            self.is_making_room = true;
        }
        self.refusal = Some(error);
        self.tried_at = now;
    }

    /// Releases one step of the reserve.
    pub(super) fn release(&mut self, now: Instant) -> bool {
        self.refilled_at.get_or_insert(now);
        let is_released = self.reserve.release();
        self.is_making_room &= is_released;
        is_released
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserve_is_released_in_steps_and_refilled() {
        let folder = tempfile::tempdir().unwrap();
        let length = || fs::metadata(folder.path().join(RESERVE)).map_or(0, |file| file.len());
        let mut reserve = ReserveFile::of(folder.path(), 4 * STEP_BYTES);
        assert!(reserve.refill());
        assert_eq!(length(), 4 * STEP_BYTES);
        let mut seen = Vec::new();
        while reserve.release() {
            seen.push((length() / STEP_BYTES, reserve.is_high()));
        }
        assert_eq!(seen, [(3, true), (2, true), (1, false), (0, false)]);
        assert!(reserve.refill() && length() == 4 * STEP_BYTES);
        drop(reserve);
        // After a restart a shortened file is complete again, and a file that is too long is cut.
        assert!(ReserveFile::of(folder.path(), STEP_BYTES).refill());
        assert_eq!(length(), STEP_BYTES);
        assert!(ReserveFile::of(folder.path(), 2 * STEP_BYTES).refill());
        assert_eq!(length(), 2 * STEP_BYTES);
    }
}
