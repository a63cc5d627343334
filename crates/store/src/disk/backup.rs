//! A copy of a store in one file, taken while the store serves.
//!
//! A backup is a header and frames. The header is `setpoint backup 2` and a line break. A frame is
//! its length (4 bytes, little endian), the SHA-256 of its content (32) and the content: one kind
//! byte and rows. The last frame counts the others, so that a copy that was cut is told from one
//! that is whole.

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
    file::{self, Place as Partial},
    layout::{Damaged, KEYS, LOG, META, MORTAL, Place, Record, name},
    read::View,
};
use crate::contract::*;

const HEADER: &[u8; 18] = b"setpoint backup 2\n";
/// Copies of older programs, which are read all the same: their records have no checksums.
const HEADER_1: &[u8; 18] = b"setpoint backup 1\n";
const HEADER_NAME: &[u8] = b"setpoint backup ";
/// The store's name while it is restored.
const PARTIAL: &str = "restoring.redb";
/// How long a frame becomes before the next one begins, in bytes.
const FRAME_BYTES: usize = 256 << 10;
/// The longest frame that is read: one row may be beyond [`FRAME_BYTES`].
const FRAME_BYTES_MAX: usize = FRAME_BYTES + 2 * VALUE_BYTES_MAX + 1024;

/// Kinds of frames.
const STANDING: u8 = 1;
const RECORDS: u8 = 2;
const MORTALS: u8 = 3;
const END: u8 = 4;

impl DiskStore {
    /// Writes a copy of the store as it is now, with its history, while it goes on serving. Gives
    /// the revision that the copy stands at.
    ///
    /// # Errors
    ///
    /// The store is closed or cannot be read; `out` takes nothing more.
    pub async fn backup(
        &self,
        out: impl Write + Send + 'static,
    ) -> Result<Result<Revision, io::Error>, StoreError> {
        let view = self.inner.view().await?;
        let revision = Revision(view.standing.revision);
        match tokio::task::spawn_blocking(move || view.backup(out)).await {
            Ok(Ok(())) => Ok(Ok(revision)),
            Ok(Err(Broken::Out(error))) => Ok(Err(error)),
            Ok(Err(Broken::Store(fault))) => Err(fault.unavailable()),
            Err(error) => Err(Fault::of_thread(&error).unavailable()),
        }
    }

    /// As [`DiskStore::backup`], of a folder that nobody has open. Blocks.
    ///
    /// # Errors
    ///
    /// The folder is in use, has no store or is damaged; `out` takes nothing more.
    pub fn backup_folder(folder: impl AsRef<Path>, out: impl Write) -> Result<Revision, DiskError> {
        let path = folder.as_ref().join(FILE);
        guarded(&path, || {
            let database = file::open_existing(&path)?;
            let (standing, snapshot) =
                file::standing(&database).map_err(|fault| fault.of_file(&path))?;
            let view = View::alone(snapshot, standing);
            match view.backup(out) {
                Ok(()) => Ok(Revision(standing.revision)),
                Err(Broken::Out(source)) => {
                    Err(DiskError::Io { what: "write the copy of", path: path.clone(), source })
                }
                Err(Broken::Store(fault)) => Err(fault.of_file(&path)),
            }
        })
    }

    /// Reads a copy to its end and holds it to its checksums. `source` names it in errors.
    ///
    /// # Errors
    ///
    /// The copy is not whole: the message says which frame, and at which byte.
    pub fn check_backup(backup: impl Read, source: &Path) -> Result<(), DiskError> {
        let mut copy = CopyReader::new(backup, source)?;
        while let Some(frame) = copy.next()? {
            copy.passed(&frame);
        }
        Ok(())
    }

    /// Makes a store in a folder that has none out of a copy. `source` names the copy in errors.
    /// Blocks. A copy that is damaged or cut leaves no store behind, and a program that dies in the
    /// middle neither.
    ///
    /// # Errors
    ///
    /// The folder has a store; it cannot be written; the copy is not whole: the message says which
    /// frame, and at which byte.
    pub fn restore(
        folder: impl AsRef<Path>,
        backup: impl Read,
        source: &Path,
    ) -> Result<Revision, DiskError> {
        let folder = folder.as_ref();
        let path = folder.join(FILE);
        file::make_folder(folder)?;
        if fs::symlink_metadata(&path).is_ok() {
            let error = io::Error::from(io::ErrorKind::AlreadyExists);
            return Err(file::io_error("restore over", &path)(error));
        }
        let copy = CopyReader::new(backup, source)?;
        let place = Partial::new(folder, PARTIAL)?;
        let of_file = |fault: Fault| fault.of_file(place.path());
        let database =
            Database::create(place.path()).map_err(|error| of_file(Fault::from(error)))?;
        let revision = Restore::over(database, copy, place.path())?.run()?;
        // A copy whose frames are right may still have been made of a store that was not.
        let database = file::open(place.path(), None).map_err(of_file)?;
        let (standing, snapshot) = file::standing(&database).map_err(of_file)?;
        let view = View::alone(snapshot, standing);
        view.check_records().map_err(|fault| damaged_copy(source, fault.to_string()))?;
        drop((view, database));
        place.settle(&path)?;
        Ok(revision)
    }
}

#[cfg(test)]
impl DiskStore {
    /// As [`DiskStore::restore`], into a file that is open and empty.
    pub(super) fn restore_into(
        database: Database,
        backup: impl Read,
        source: &Path,
    ) -> Result<Revision, DiskError> {
        Restore::over(database, CopyReader::new(backup, source)?, source)?.run()
    }
}

/// What broke a backup.
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

    /// Ends the frame and begins another of its kind, if it has become long.
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
        frames.begin(STANDING);
        frames.number(self.standing.revision);
        frames.number(self.standing.oldest);
        frames.number(self.standing.superseded);
        frames.end()?;
        frames.begin(RECORDS);
        for row in self.snapshot.open_table(LOG)?.iter()? {
            let (at, record) = row?;
            let at = at.value();
            // What is damaged is not to look whole in the copy.
            Record::decode(record.value()).map_err(|damage| damage.at(at))?;
            frames.number(at.0);
            frames.number(at.1.into());
            frames.put(record.value());
            frames.wrap()?;
        }
        frames.end()?;
        frames.begin(MORTALS);
        for row in self.snapshot.open_table(MORTAL)?.iter()? {
            let (place, written) = row?;
            let (dies_ms, key) = place.value();
            frames.number(dies_ms);
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
    /// How many bytes and how many frames have been read.
    at: u64,
    n_frames: u64,
}

impl<'a, R: Read> CopyReader<'a, R> {
    fn new(mut copy: R, source: &'a Path) -> Result<Self, DiskError> {
        let mut header = [0; HEADER.len()];
        let read = copy.read_exact(&mut header);
        if read.is_err() || !header.starts_with(HEADER_NAME) {
            return Err(damaged_copy(source, "it is no backup of a store".to_owned()));
        }
        if header != *HEADER && header != *HEADER_1 {
            let what = "it is a newer program's: restore it with that one".to_owned();
            return Err(damaged_copy(source, what));
        }
        Ok(Self { copy, source, at: HEADER.len() as u64, n_frames: 0 })
    }

    /// Something is wrong with the frame that is being read.
    fn damaged(&self, what: &str) -> DiskError {
        let what = format!("{what}, in frame {} at byte {}", self.n_frames + 1, self.at);
        damaged_copy(self.source, what)
    }

    /// The next frame that is not the last; `None` when the copy has ended as it should.
    fn next(&mut self) -> Result<Option<Vec<u8>>, DiskError> {
        let mut head = [0; 36];
        self.copy.read_exact(&mut head).map_err(|_| self.damaged("it is cut"))?;
        let length = usize::from(head[0])
            | usize::from(head[1]) << 8
            | usize::from(head[2]) << 16
            | usize::from(head[3]) << 24;
        if length == 0 || length > FRAME_BYTES_MAX {
            return Err(self.damaged("its length cannot be"));
        }
        let mut frame = vec![0; length];
        self.copy.read_exact(&mut frame).map_err(|_| self.damaged("it is cut"))?;
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
            _ => Err(self.damaged("something follows the end")),
        }
    }

    /// The frame was right.
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
        revision.ok_or_else(|| self.copy.damaged("it does not say at which revision it stands"))
    }

    /// Writes a frame's rows, in one transaction of the new file.
    fn take(&self, kind: u8, mut rows: Rows<'_>) -> Result<Option<Revision>, Fault> {
        const CUT: Damaged = Damaged("a row is cut");
        let mut transaction = self.database.begin_write()?;
        // The last one syncs them all; before that nobody asks for the file.
        transaction.set_durability(redb::Durability::None)?;
        let mut revision = None;
        {
            let mut meta = transaction.open_table(META)?;
            let mut keys = transaction.open_table(KEYS)?;
            let mut log = transaction.open_table(LOG)?;
            let mut mortal = transaction.open_table(MORTAL)?;
            while !rows.0.is_empty() {
                match kind {
                    STANDING => {
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
                        // In order of revisions: the last one stays.
                        let place = Place { at, created: record.created, dies_ms: 0 };
                        keys.insert(record.key, place.row())?;
                    }
                    MORTALS => {
                        let dies_ms = rows.number().ok_or(CUT)?;
                        let written = rows.number().ok_or(CUT)?;
                        let key = rows.bytes().ok_or(CUT)?;
                        let place = keys.get(key)?.map(|row| Place::of(row.value()));
                        let place = place.ok_or(Damaged("a value that dies is missing"))?;
                        keys.insert(key, Place { dies_ms, ..place }.row())?;
                        mortal.insert((dies_ms, key), written)?;
                    }
                    _ => return Err(Damaged("its kind is unknown").into()),
                }
            }
        }
        transaction.commit()?;
        Ok(revision)
    }
}

/// The rows of a frame that are left.
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
