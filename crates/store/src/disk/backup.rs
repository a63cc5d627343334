//! A copy of a store in one file, taken while the store serves.
//!
//! A backup is a header and frames. The header is `setpoint backup 2` and a line break. A frame is
//! its length (4 bytes, little endian), the SHA-256 of its content (32), and the content: one byte
//! for the kind, then rows. The last frame has the number of the others, so that a truncated copy
//! is detected.

use redb::{Database, ReadableTable};
use sha2::{Digest, Sha256};
use std::{
    fs,
    io::{self, Read, Write},
    path::Path,
};

use super::{
    DiskStore, FILE,
    damage::DAMAGED,
    error::{DiskError, Fault, damaged_copy, guarded},
    file::{self, NewFile},
    journal,
    layout::{Damaged, EXPIRING, KEYS, LOG, META, Place, Record, name},
    read::View,
};
use crate::contract::*;

const HEADER: &[u8; 18] = b"setpoint backup 2\n";
/// The header of copies without checksums in their records, from older programs. They can still be
/// read.
const HEADER_1: &[u8; 18] = b"setpoint backup 1\n";
const HEADER_NAME: &[u8] = b"setpoint backup ";
/// Name of the store's file during a restore.
const PARTIAL: &str = "restoring.redb";
/// Size at which a frame ends and the next one begins.
const FRAME_BYTES: usize = 256 << 10;
/// Maximum size of a frame. One row may exceed [`FRAME_BYTES`].
const FRAME_BYTES_MAX: usize = FRAME_BYTES + 2 * VALUE_BYTES_MAX + 1024;

/// How much [`DiskStore::restore`] should increase the revision: more than the commits between a
/// copy and its restore. The number that Kubernetes' documentation names for etcd's
/// `--bump-revision`: a week of 1,500 commits a second.
pub const BUMP_REVISION: u64 = 1_000_000_000;

/// Kinds of frames.
const POSITION: u8 = 1;
const RECORDS: u8 = 2;
const EXPIRING_ROWS: u8 = 3;
const END: u8 = 4;

impl DiskStore {
    /// Writes a copy of the current store with its history, while the store serves. Returns the
    /// revision of the copy.
    ///
    /// # Errors
    ///
    /// The store is closed or cannot be read, or `out` fails.
    pub async fn backup(
        &self,
        out: impl Write + Send + 'static,
    ) -> Result<Result<Revision, io::Error>, StoreError> {
        let view = self.inner.filed().await?;
        let revision = Revision(view.position.revision);
        match tokio::task::spawn_blocking(move || view.backup(out)).await {
            Ok(Ok(())) => Ok(Ok(revision)),
            Ok(Err(Broken::Out(error))) => Ok(Err(error)),
            Ok(Err(Broken::Store(fault))) => Err(fault.unavailable()),
            Err(error) => Err(Fault::of_join_error(&error).unavailable()),
        }
    }

    /// As [`DiskStore::backup`], for a folder that no process has open. Blocks.
    ///
    /// # Errors
    ///
    /// The folder is in use, has no store or is damaged, or `out` fails.
    pub fn backup_folder(folder: impl AsRef<Path>, out: impl Write) -> Result<Revision, DiskError> {
        let path = folder.as_ref().join(FILE);
        guarded(&path, || {
            let database = file::open_existing(&path)?;
            let (position, snapshot) =
                file::position(&database).map_err(|fault| fault.of_file(&path))?;
            let view = View::unserved(snapshot, position);
            match view.backup(out) {
                Ok(()) => Ok(Revision(position.revision)),
                Err(Broken::Out(source)) => {
                    Err(DiskError::Io { what: "write the copy of", path: path.clone(), source })
                }
                Err(Broken::Store(fault)) => Err(fault.of_file(&path)),
            }
        })
    }

    /// Reads a whole copy and verifies its checksums. `source` is its name in errors.
    ///
    /// # Errors
    ///
    /// The copy is damaged or truncated. The message has the frame and the byte.
    pub fn check_backup(backup: impl Read, source: &Path) -> Result<(), DiskError> {
        let mut copy = CopyReader::new(backup, source)?;
        while let Some(frame) = copy.next()? {
            copy.passed(&frame);
        }
        Ok(())
    }

    /// Creates a store from a copy, in a folder without a store. `source` is the copy's name in
    /// errors. Blocks. If the copy is damaged or truncated, or the process dies, no store is left
    /// behind. Returns the store's revision.
    ///
    /// `bump` is added to the copy's revision, and the history before is compacted: a watch of a
    /// client that has seen later revisions than the copy has must end, because it would miss the
    /// commits that get these revisions again. [`BUMP_REVISION`] is more than any client has seen.
    /// With 0, the store has the copy's revision and history.
    ///
    /// # Errors
    ///
    /// The folder has a store or cannot be written. The copy is damaged or truncated: the message
    /// has the frame and the byte.
    pub fn restore(
        folder: impl AsRef<Path>,
        backup: impl Read,
        source: &Path,
        bump: u64,
    ) -> Result<Revision, DiskError> {
        let folder = folder.as_ref();
        let path = folder.join(FILE);
        file::make_folder(folder)?;
        if fs::symlink_metadata(&path).is_ok() {
            let error = io::Error::from(io::ErrorKind::AlreadyExists);
            return Err(file::io_error("restore over", &path)(error));
        }
        let copy = CopyReader::new(backup, source)?;
        let place = NewFile::new(folder, PARTIAL)?;
        let of_file = |fault: Fault| fault.of_file(place.path());
        let database =
            Database::create(place.path()).map_err(|error| of_file(Fault::from(error)))?;
        Restore::over(database, copy, place.path())?.run()?;
        let database = file::open(place.path(), None).map_err(of_file)?;
        if bump > 0 {
            file::write(&database, |tables| tables.skip_revisions(bump)).map_err(of_file)?;
        }
        // A copy with valid frames may come from an inconsistent store.
        let (position, snapshot) = file::position(&database).map_err(of_file)?;
        let view = View::unserved(snapshot, position);
        view.check_records().map_err(|fault| damaged_copy(source, fault.to_string()))?;
        drop((view, database));
        journal::remove(folder)?;
        place.rename_to(&path)?;
        Ok(Revision(position.revision))
    }
}

#[cfg(test)]
impl DiskStore {
    /// As [`DiskStore::restore`], into an open and empty file.
    pub(super) fn restore_into(
        database: Database,
        backup: impl Read,
        source: &Path,
    ) -> Result<Revision, DiskError> {
        Restore::over(database, CopyReader::new(backup, source)?, source)?.run()
    }
}

/// Why a backup failed.
enum Broken {
    Out(io::Error),
    Store(Fault),
}

impl<E: Into<Fault>> From<E> for Broken {
    fn from(error: E) -> Self {
        Self::Store(error.into())
    }
}

/// Writes frames.
struct Frames<W> {
    out: W,
    frame: Vec<u8>,
    n_frames: u64,
}

impl<W: Write> Frames<W> {
    fn begin(&mut self, kind: u8) {
        self.frame.clear();
        self.frame.push(kind);
    }

    fn end(&mut self) -> Result<(), Broken> {
        let length = u32::try_from(self.frame.len()).unwrap_or(u32::MAX);
        let write = |out: &mut W, bytes: &[u8]| out.write_all(bytes).map_err(Broken::Out);
        write(&mut self.out, &length.to_le_bytes())?;
        write(&mut self.out, &Sha256::digest(&self.frame))?;
        write(&mut self.out, &self.frame)?;
        self.n_frames += 1;
        Ok(())
    }

    /// If the frame is long enough, ends it and begins another of its kind.
    fn wrap(&mut self) -> Result<(), Broken> {
        if self.frame.len() >= FRAME_BYTES {
            let kind = self.frame[0];
            self.end()?;
            self.begin(kind);
        }
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.frame.extend_from_slice(&length.to_le_bytes());
        self.frame.extend_from_slice(bytes);
    }

    fn number(&mut self, number: u64) {
        self.frame.extend_from_slice(&number.to_le_bytes());
    }
}

impl View {
    fn backup(&self, mut out: impl Write) -> Result<(), Broken> {
        out.write_all(HEADER).map_err(Broken::Out)?;
        let mut frames = Frames { out, frame: Vec::new(), n_frames: 0 };
        frames.begin(POSITION);
        frames.number(self.position.revision);
        frames.number(self.position.oldest);
        frames.number(self.position.superseded);
        frames.end()?;
        frames.begin(RECORDS);
        for row in self.snapshot.open_table(LOG)?.iter()? {
            let (at, record) = row?;
            let at = at.value();
            // A damaged record must not look valid in the copy.
            Record::decode(record.value()).map_err(|damage| damage.at(at))?;
            frames.number(at.0);
            frames.number(at.1.into());
            frames.put(record.value());
            frames.wrap()?;
        }
        frames.end()?;
        frames.begin(EXPIRING_ROWS);
        for row in self.snapshot.open_table(EXPIRING)?.iter()? {
            let (place, written) = row?;
            let (expires_ms, key) = place.value();
            frames.number(expires_ms);
            frames.number(written.value());
            frames.put(key);
            frames.wrap()?;
        }
        frames.end()?;
        frames.begin(END);
        frames.number(frames.n_frames);
        frames.end()?;
        frames.out.flush().map_err(Broken::Out)
    }
}

/// Reads the frames of a copy.
struct CopyReader<'a, R> {
    copy: R,
    source: &'a Path,
    /// Bytes and frames read so far.
    at: u64,
    n_frames: u64,
}

impl<'a, R: Read> CopyReader<'a, R> {
    fn new(mut copy: R, source: &'a Path) -> Result<Self, DiskError> {
        let mut header = [0; HEADER.len()];
        let read = copy.read_exact(&mut header);
        if read.is_err() || !header.starts_with(HEADER_NAME) {
            return Err(damaged_copy(source, "it is not a backup of a store".to_owned()));
        }
        if header != *HEADER && header != *HEADER_1 {
            let what = "it was written by a newer program: restore it with that program".to_owned();
            return Err(damaged_copy(source, what));
        }
        Ok(Self { copy, source, at: HEADER.len() as u64, n_frames: 0 })
    }

    /// The error for damage in the current frame.
    fn damaged(&self, what: &str) -> DiskError {
        let what = format!("{what}, in frame {} at byte {}", self.n_frames + 1, self.at);
        damaged_copy(self.source, what)
    }

    /// The next frame. `None` after the last frame, which is checked.
    fn next(&mut self) -> Result<Option<Vec<u8>>, DiskError> {
        let mut head = [0; 36];
        self.copy.read_exact(&mut head).map_err(|_| self.damaged("it is truncated"))?;
        let length = usize::from(head[0])
            | usize::from(head[1]) << 8
            | usize::from(head[2]) << 16
            | usize::from(head[3]) << 24;
        if length == 0 || length > FRAME_BYTES_MAX {
            return Err(self.damaged("its length is invalid"));
        }
        let mut frame = vec![0; length];
        self.copy.read_exact(&mut frame).map_err(|_| self.damaged("it is truncated"))?;
        if Sha256::digest(&frame)[..] != head[4..] {
            return Err(self.damaged("the content does not match its checksum"));
        }
        if frame[0] != END {
            return Ok(Some(frame));
        }
        if Rows(&frame[1..]).number() != Some(self.n_frames) {
            return Err(self.damaged("frames are missing"));
        }
        match self.copy.read(&mut [0]) {
            Ok(0) => Ok(None),
            _ => Err(self.damaged("there is data after the end")),
        }
    }

    /// Counts a valid frame.
    fn passed(&mut self, frame: &[u8]) {
        self.at += 36 + frame.len() as u64;
        self.n_frames += 1;
    }
}

/// Reads a copy into a new file.
struct Restore<'a, R> {
    path: &'a Path,
    database: Database,
    copy: CopyReader<'a, R>,
}

impl<'a, R: Read> Restore<'a, R> {
    fn over(
        database: Database,
        copy: CopyReader<'a, R>,
        path: &'a Path,
    ) -> Result<Self, DiskError> {
        file::prepare(&database, path)?;
        Ok(Self { path, database, copy })
    }

    fn run(mut self) -> Result<Revision, DiskError> {
        let mut revision = None;
        while let Some(frame) = self.copy.next()? {
            match self.take(frame[0], Rows(&frame[1..])) {
                Ok(found) => revision = found.or(revision),
                Err(Fault::Record(Damaged(what))) => return Err(self.copy.damaged(what)),
                Err(fault) => return Err(fault.of_file(self.path)),
            }
            self.copy.passed(&frame);
        }
        let synced = || {
            let mut transaction = self.database.begin_write()?;
            transaction.set_quick_repair(true);
            Ok(transaction.commit()?)
        };
        synced().map_err(|fault: Fault| fault.of_file(self.path))?;
        revision.ok_or_else(|| self.copy.damaged("its revision is missing"))
    }

    /// Writes a frame's rows in one transaction of the new file.
    fn take(&self, kind: u8, mut rows: Rows<'_>) -> Result<Option<Revision>, Fault> {
        const CUT: Damaged = Damaged("a row is truncated");
        let mut transaction = self.database.begin_write()?;
        // The last transaction syncs all of them. The file is not used before.
        transaction.set_durability(redb::Durability::None)?;
        let mut revision = None;
        {
            let mut meta = transaction.open_table(META)?;
            let mut keys = transaction.open_table(KEYS)?;
            let mut log = transaction.open_table(LOG)?;
            let mut expiring = transaction.open_table(EXPIRING)?;
            while !rows.0.is_empty() {
                match kind {
                    POSITION => {
                        for name in [name::REVISION, name::OLDEST, name::SUPERSEDED] {
                            let number = rows.number().ok_or(CUT)?;
                            meta.insert(name, number)?;
                            revision = revision.or(Some(Revision(number)));
                        }
                    }
                    RECORDS => {
                        let at = (rows.number().ok_or(CUT)?, rows.number().ok_or(CUT)?);
                        let at = (at.0, u32::try_from(at.1).map_err(|_| CUT)?);
                        let bytes = rows.bytes().ok_or(CUT)?;
                        let record = Record::decode(bytes)?;
                        log.insert(at, bytes)?;
                        if record.is_mark() {
                            transaction.open_table(DAMAGED)?.insert(record.key, at.0)?;
                        }
                        // Rows are in order of revisions, so the last row of a key is its newest.
                        let place = Place { at, created: record.created, expires_ms: 0 };
                        keys.insert(record.key, place.row())?;
                    }
                    EXPIRING_ROWS => {
                        let expires_ms = rows.number().ok_or(CUT)?;
                        let written = rows.number().ok_or(CUT)?;
                        let key = rows.bytes().ok_or(CUT)?;
                        let place = keys.get(key)?.map(|row| Place::of(row.value()));
                        let place = place.ok_or(Damaged("a value that expires is missing"))?;
                        keys.insert(key, Place { expires_ms, ..place }.row())?;
                        expiring.insert((expires_ms, key), written)?;
                    }
                    _ => return Err(Damaged("its kind is unknown").into()),
                }
            }
        }
        transaction.commit()?;
        Ok(revision)
    }
}

/// The remaining rows of a frame.
struct Rows<'a>(&'a [u8]);

impl<'a> Rows<'a> {
    fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let (length, rest) = self.0.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let (bytes, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }
}
