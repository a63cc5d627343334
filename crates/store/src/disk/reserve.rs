//! Room on the disk that is kept free for what makes room.
//!
//! redb writes a changed page to another place, so a deletion needs room before it gives any. A
//! file beside the store holds that room: when the disk is full it becomes shorter by a step, and
//! the deletion is done again. Once there is room it is filled again.
//!
//! | while the disk is full | |
//! |---|---|
//! | a commit that only deletes, values that die, a compaction | done, by the reserve if it must be |
//! | an update of at most [`UPDATE_BYTES_MAX`] of what is there: a deletion may begin with one | tried, while at least half of the reserve is left |
//! | every other commit | [`StoreError::Full`]; once in [`TRY_PERIOD`] they are tried, to see whether there is room again |
//! | history | given up but for the newest [`HISTORY_REVISIONS_MIN`] revisions, for the room that it takes in the file |

use super::writer::Command;
use crate::contract::StoreError;
use std::{
    fmt,
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::time::Instant;

/// The reserve's name in a data folder.
const RESERVE: &str = "reserve";
/// How many bytes are given back at once. A deletion touches some ten pages of 4 KiB, a batch of a
/// thousand some megabytes.
pub(super) const STEP_BYTES: u64 = 1 << 20;

/// How often commits are tried that make no room, and how often it is tried to fill the reserve.
/// After one that fails the file is opened again, which takes a second or two for each GiB of it.
const TRY_PERIOD: Duration = Duration::from_secs(5);
/// The values of an update that the reserve is used for, in bytes: a few pages.
pub(super) const UPDATE_BYTES_MAX: usize = 16 << 10;
/// How much history stays when it is given up for room: watches that keep up are seconds behind,
/// not more.
pub(super) const HISTORY_REVISIONS_MIN: u64 = 1000;

/// Room that can be given to the disk and taken back.
pub(super) trait Reserve: Send + fmt::Debug {
    /// Gives a step of it to the disk; `false`: nothing is left.
    fn release(&mut self) -> bool;
    /// Takes back what was given, as far as there is room for it; whether all of it is there.
    fn refill(&mut self) -> bool;
    /// At least half of it is there: also updates may go on.
    fn is_high(&self) -> bool;
}

/// A file that is there only for its length.
#[derive(Debug)]
pub(super) struct ReserveFile {
    path: PathBuf,
    /// How long it should be, and how long it is.
    wanted: u64,
    length: u64,
}

impl ReserveFile {
    /// The reserve of a folder as it is.
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

    /// Appends what is missing. The file system must not be able to keep it in less room, so it is
    /// not zeros.
    fn append(&self) -> std::io::Result<()> {
        let mut file = File::options().append(true).create(true).open(&self.path)?;
        let (mut left, mut noise) = (self.wanted - self.length, self.length | 1);
        while left > 0 {
            let n_bytes = STEP_BYTES.min(left);
            let mut bytes = Vec::new();
            while (bytes.len() as u64) < n_bytes {
                // Xorshift: nothing that packs.
                noise ^= noise << 13;
                noise ^= noise >> 7;
                noise ^= noise << 17;
                bytes.extend_from_slice(&noise.to_le_bytes());
            }
            file.write_all(&bytes)?;
            left -= n_bytes;
        }
        // Where blocks are given out late, this is when it turns out that there are none.
        file.sync_data()
    }
}

impl Reserve for ReserveFile {
    fn release(&mut self) -> bool {
        self.length > 0 && self.cut(self.length.saturating_sub(STEP_BYTES))
    }

    fn refill(&mut self) -> bool {
        if self.length >= self.wanted {
            // The program that made it may have been told to keep more.
            return self.length == self.wanted || self.cut(self.wanted);
        }
        let is_whole = self.append().is_ok();
        if is_whole {
            self.length = self.wanted;
        } else {
            // The store needs the room more than half a reserve does.
            self.cut(self.length);
        }
        is_whole
    }

    fn is_high(&self) -> bool {
        self.length * 2 >= self.wanted && self.length > 0
    }
}

/// What the writer does differently while there is no room.
#[derive(Debug)]
pub(super) struct Shortage {
    reserve: Box<dyn Reserve>,
    /// What commits are answered that make no room; `None` while there is room.
    refusal: Option<StoreError>,
    /// When all commits were let through last, to see whether there is room again.
    tried_at: Instant,
    /// The reserve is not whole, and when it was last tried to fill it.
    refilled_at: Option<Instant>,
    /// History is being given up, for the room that it takes.
    pub(super) is_making_room: bool,
}

impl Shortage {
    pub(super) fn new(reserve: Box<dyn Reserve>, now: Instant) -> Self {
        let (refusal, refilled_at) = (None, Some(now));
        Self { reserve, refusal, tried_at: now, refilled_at, is_making_room: false }
    }

    /// Divides commands into those that are done and those that are refused, with the reason.
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

    /// A batch was written; `with_others`: with commits in it that make no room.
    pub(super) fn written(&mut self, with_others: bool, now: Instant) {
        if with_others {
            self.refusal = None;
        }
        let is_due = self.refilled_at.is_some_and(|tried| now >= tried + TRY_PERIOD);
        if is_due && self.refusal.is_none() {
            self.refilled_at = if self.reserve.refill() { None } else { Some(now) };
        }
    }

    /// A batch found no room.
    pub(super) fn refused(&mut self, error: StoreError, now: Instant) {
        if self.refusal.is_none() {
            self.is_making_room = true;
        }
        self.refusal = Some(error);
        self.tried_at = now;
    }

    /// Gives a step of the reserve to the disk.
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
    fn a_reserve_is_given_in_steps_and_taken_back_whole() {
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
        // One that was made shorter is whole after the next start, one that is too long is cut.
        assert!(ReserveFile::of(folder.path(), STEP_BYTES).refill());
        assert_eq!(length(), STEP_BYTES);
        assert!(ReserveFile::of(folder.path(), 2 * STEP_BYTES).refill());
        assert_eq!(length(), 2 * STEP_BYTES);
    }
}
