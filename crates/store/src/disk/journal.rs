//! The journal: a file of commits that are durable before they are in the engine's file.
//!
//! # Theory
//!
//! A commit of redb copies and syncs a page for each key, which costs several times what the commit
//! itself does. The journal makes a batch durable with one sequential write and one sync. The
//! commits of several batches are a *lap* of the journal, which one transaction moves into redb's
//! file ([`filing`](super::filing)).
//!
//! The file has a page with a header, and two halves that each have room for a lap. While one lap
//! is moved into redb's file, the writer fills the next one in the other half. A half is
//! overwritten once its lap is in redb's file.
//!
//! ```text
//!   store.redb      at 10 ─────────────▶ at 20 ─────────────▶ at 30
//!   first half      lap 10: 11 to 20     moved │ lap 30: 31 …
//!   second half     empty                lap 20: 21 to 30     moved │ …
//! ```
//!
//! A frame is a batch. It begins at a sector (512 bytes), so a torn write cannot damage an earlier
//! frame, and a sector of zeros follows, which is synced with it. If a power cut leaves the newest
//! frame without that sector, what is there from an earlier lap does not continue the chain of
//! checksums.
//!
//! | bytes | field |
//! |---|---|
//! | 8 | `setpjrn1` |
//! | 4 | CRC-32 of the header's fields below |
//! | 4 | CRC-32 of the content |
//! | 4, 4 | length of the content, number of commits |
//! | 8 | the lap: the revision after which its commits begin |
//! | 8 | revision of the first commit |
//! | 4 | CRC-32 of the content of the frame before it in the lap; 0 for the first |
//!
//! The content has, for each commit, the expiry time of its values in milliseconds since 1970 (0:
//! never) and the number of its records, then for each record its length and its bytes as in the
//! table `log`. All numbers are little endian.
//!
//! An opening reads the lap that begins at the revision of redb's file, in either half, and then
//! the lap that begins where that one ends. Revisions follow one another without a gap. So frames
//! of earlier laps have no effect. A lap that begins after the newest commit found is damage: it
//! began after the frames of the lap before it were synced.
//!
//! Formats before 4 had the first half only.
//!
//! # The mark
//!
//! A store that was not closed needs its journal. So the table `meta` of redb's file has a
//! [`Mark`], and the header has the id that the mark names: `setpjrnh`, the CRC-32 of the id, and
//! the id, a random number. An opening refuses a journal that is missing, or has another id.
//!
//! | step | journal | mark |
//! |---|---|---|
//! | before the first commit that is only in the journal | zeros; a new header, synced | unused |
//! | then | | the id, synced |
//! | commits, laps, kills, further openings | frames | the id |
//! | a clean close | | unused, in the transaction that has the last commits |
//!
//! So whatever the mark names was synced before it, and without a mark redb's file has everything.
//! Then only a lap of a newer file is refused, because redb's file was replaced with an old one.
//! Journals before format 5 have no header: frames begin at byte 0.

#[cfg(test)]
mod tests;

use redb::{StorageBackend, backends::FileBackend};
use std::{
    fs::{self, File},
    io,
    path::Path,
};

use super::{
    error::{DiskError, Fault},
    file::{io_error, sync_folder},
};

/// Name of the journal's file in a data folder.
pub(super) const FILE: &str = "store.journal";
/// Length of the header in bytes, and so the place of the first half: a page, so that frames do not
/// share one with it.
const HEADER_BYTES: u64 = 4096;
/// Length of a half in bytes.
const HALF_BYTES: u64 = 2 << 20;
/// Maximum length of a lap in bytes. Its first frame may exceed it, up to a half. On a full disk
/// the reserve must suffice to move both laps to redb's file.
const LAP_BYTES_MAX: u64 = 1 << 20;
/// Bytes by which a half grows. They are written once, so that a later sync need not also store
/// which blocks the file has.
const GROWTH_BYTES: u64 = 256 << 10;
/// The unit that a disk writes as a whole.
const SECTOR: usize = 512;
/// Bytes that are cleared at once.
const CLEARED_BYTES: usize = 64 * 1024;
const HEADER_MAGIC: [u8; 8] = *b"setpjrnh";
const MAGIC: [u8; 8] = *b"setpjrn1";
const HEAD: usize = 44;

/// What redb's file says of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// Everything is in redb's file.
    Unused,
    /// In use, by a program before format 5.
    Headless,
    /// In use, with this id in its header.
    Id(u64),
}

impl Mark {
    /// From the row in `meta`.
    pub(super) fn of_row(row: Option<u64>) -> Self {
        match row {
            None => Self::Unused,
            Some(0) => Self::Headless,
            Some(id) => Self::Id(id),
        }
    }
}

/// A commit in the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) revision: u64,
    /// Expiry time of the values in milliseconds since 1970; 0 for never.
    pub(super) expires_ms: u64,
    /// The records of its keys, in the order of their places.
    pub(super) records: Vec<Vec<u8>>,
}

/// Why a batch is not in the journal.
#[derive(Debug)]
pub(super) struct Failed {
    /// Whether the batch is certainly not in the journal. Otherwise the next opening may find it.
    pub(super) is_gone: bool,
}

/// What an opening finds in the journal.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The commits that are not in redb's file, in order.
    pub(super) entries: Vec<Entry>,
    /// Damage: what is wrong with the file, after its name. Commits that were acknowledged, behind
    /// these, cannot be read.
    pub(super) damage: Option<String>,
    /// The half of the newest frame.
    half: usize,
}

impl Found {
    /// The commits after a revision may be lost, and it is unknown how many.
    fn lost(what: &str, filed: u64) -> Self {
        let damage = format!(
            "{what}, and the store was not closed: the newest commits, after revision {filed}, are \
             lost"
        );
        Self { damage: Some(damage), ..Self::default() }
    }

    /// What is found without a file.
    pub(super) fn missing(mark: Mark, filed: u64) -> Self {
        match mark {
            // There may have been none.
            Mark::Unused | Mark::Headless => Self::default(),
            Mark::Id(_) => Self::lost("is missing", filed),
        }
    }
}

/// The journal of an open store.
#[derive(Debug)]
pub(super) struct Journal {
    file: Box<dyn StorageBackend>,
    lap: u64,
    /// The half of the lap: 0 or 1.
    half: usize,
    /// Where the next frame begins in the half.
    at: u64,
    /// Checksum of the content of the frame before.
    before: u32,
    /// How many bytes of each half were written once.
    grown: [u64; 2],
    /// The file's length.
    length: u64,
    frame: Vec<u8>,
}

/// Opens a store's journal. Tests have their own.
pub(super) trait OpenJournal {
    /// The file. `None` if it is missing.
    fn existing(&self) -> Result<Option<Box<dyn StorageBackend>>, DiskError>;
    /// The file, which is created if it is missing. Its name is synced.
    fn created(&self) -> Result<Box<dyn StorageBackend>, DiskError>;
}

/// The journal of a folder.
pub(super) struct InFolder<'a>(pub(super) &'a Path);

impl InFolder<'_> {
    fn open(&self, is_created: bool) -> Result<Option<Box<dyn StorageBackend>>, DiskError> {
        let path = self.0.join(FILE);
        let mut options = File::options();
        options.read(true).write(true).create(is_created);
        // Only the owner may read it, because it holds Secrets.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = match options.open(&path) {
            Err(error) if !is_created && error.kind() == io::ErrorKind::NotFound => {
                return Ok(None);
            }
            file => file.map_err(io_error("open", &path))?,
        };
        let file = FileBackend::new(file).map_err(|error| Fault::from(error).of_file(&path))?;
        Ok(Some(Box::new(file)))
    }
}

impl OpenJournal for InFolder<'_> {
    fn existing(&self) -> Result<Option<Box<dyn StorageBackend>>, DiskError> {
        self.open(false)
    }

    fn created(&self) -> Result<Box<dyn StorageBackend>, DiskError> {
        let file = self.open(true)?;
        // A sync of the file need not store its name. An existing file may be that of a program
        // that was killed before it synced the name.
        sync_folder(self.0)?;
        let path = self.0.join(FILE);
        file.ok_or_else(|| io_error("open", &path)(io::ErrorKind::NotFound.into()))
    }
}

/// Removes the journal of a folder, before the folder gets another store.
pub(super) fn remove(folder: &Path) -> Result<(), DiskError> {
    let path = folder.join(FILE);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(io_error("remove", &path)(error))
        }
        _ => Ok(()),
    }
}

/// Reads the journal beside a damaged file. With a mark, the commits that follow a revision of
/// redb's file without a gap. Without, those of all laps that begin there or later: the newest mark
/// is unknown.
pub(super) fn of_damaged(path: &Path, filed: u64, mark: Option<Mark>) -> io::Result<Found> {
    let bytes = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Found::missing(mark.unwrap_or(Mark::Unused), filed));
        }
        bytes => bytes?,
    };
    if let Some(mark) = mark {
        return Ok(marked(&bytes, mark, filed));
    }
    let lap_of = |half| Some((Head::of(half)?.chain.0, half));
    let mut found: Vec<_> = halves(content(&bytes).1).into_iter().filter_map(lap_of).collect();
    found.retain(|(lap, _)| *lap >= filed);
    found.sort_unstable_by_key(|(lap, _)| *lap);
    let laps: Vec<_> = found.into_iter().map(|(lap, half)| frames(half, lap)).collect();
    let is_whole = laps.iter().all(|lap| lap.damage.is_none());
    let damage = (!is_whole).then(|| "is damaged".to_owned());
    let entries = laps.into_iter().flat_map(|lap| lap.entries).collect();
    Ok(Found { entries, damage, half: 0 })
}

/// Reads a journal with a mark: the commits that follow a revision of redb's file.
pub(super) fn read(file: &dyn StorageBackend, mark: Mark, filed: u64) -> io::Result<Found> {
    let length_max = HEADER_BYTES + 2 * HALF_BYTES;
    let length = usize::try_from(file.len()?.min(length_max)).unwrap_or(usize::MAX);
    let mut bytes = vec![0; length];
    file.read(0, &mut bytes)?;
    Ok(marked(&bytes, mark, filed))
}

impl Journal {
    /// Overwrites all frames, syncs a header with an id, and begins a lap behind a
    /// revision. The mark must not name the file before. The file keeps its length: on a full disk
    /// there is no other room for the next commits.
    pub(super) fn create(file: Box<dyn StorageBackend>, id: u64, filed: u64) -> io::Result<Self> {
        let length = file.len()?;
        if length < HEADER_BYTES {
            file.set_len(HEADER_BYTES)?;
        }
        let mut header = vec![0; SECTOR];
        header[..8].copy_from_slice(&HEADER_MAGIC);
        header[8..12].copy_from_slice(&crc32fast::hash(&id.to_le_bytes()).to_le_bytes());
        header[12..20].copy_from_slice(&id.to_le_bytes());
        file.write(0, &header)?;
        for at in (HEADER_BYTES..length).step_by(CLEARED_BYTES) {
            let n_bytes = (length - at).min(CLEARED_BYTES as u64);
            let mut part = vec![0; n_bytes as usize];
            file.read(at, &mut part)?;
            // A hole is not written, because that takes room.
            if part.iter().any(|byte| *byte != 0) {
                part.fill(0);
                file.write(at, &part)?;
            }
        }
        file.sync_data()?;
        Self::continued(file, &Found::default(), filed)
    }

    /// Begins a lap behind a revision, in a file whose commits are in redb's file.
    pub(super) fn continued(
        file: Box<dyn StorageBackend>,
        found: &Found,
        filed: u64,
    ) -> io::Result<Self> {
        let (length, half) = (file.len()?, found.half);
        let content = length.saturating_sub(HEADER_BYTES);
        // There may be a hole between the halves. Then the next syncs take somewhat longer.
        let grown = [content.min(HALF_BYTES), content.saturating_sub(HALF_BYTES)];
        let (lap, at, before, frame) = (filed, 0, 0, Vec::new());
        Ok(Self { file, lap, half, at, before, grown, length, frame })
    }

    /// The revision after which the lap's commits begin.
    pub(super) fn lap(&self) -> u64 {
        self.lap
    }

    /// Begins a lap: everything up to a revision is in redb's file. Writes nothing.
    pub(super) fn begin(&mut self, filed: u64) {
        self.lap = filed;
        self.at = 0;
        self.before = 0;
    }

    /// Begins a lap in the other half, whose lap is in redb's file. `end` is the last revision of
    /// the present lap. Writes nothing.
    pub(super) fn turn(&mut self, end: u64) {
        self.half = 1 - self.half;
        self.begin(end);
    }

    /// Adds a batch and syncs it. The entries follow those of the lap. `Ok(false)` if the lap has
    /// no room for it.
    pub(super) fn append(&mut self, entries: &[Entry]) -> Result<bool, Failed> {
        let Some(first) = entries.first() else { return Ok(true) };
        let sum = encode(&mut self.frame, (self.lap, first.revision, self.before), entries);
        let end = self.at + self.frame.len() as u64;
        let bytes_max = if self.at == 0 { HALF_BYTES } else { LAP_BYTES_MAX };
        if end > bytes_max {
            return Ok(false);
        }
        if self.grow(end).is_err() {
            // Only zeros were written, behind the frames.
            return Err(Failed { is_gone: true });
        }
        if self.write().is_ok() {
            // The next frame replaces the sector of zeros.
            self.at = end - SECTOR as u64;
            self.before = sum;
            return Ok(true);
        }
        // Whatever reached the disk, the frame is no frame without its header. The sync covers
        // this write even if an earlier sync has failed.
        let at = self.start() + self.at;
        let cut = || {
            if self.file.len()? > at {
                self.file.write(at, &[0; SECTOR])?;
            }
            self.file.sync_data()
        };
        Err(Failed { is_gone: cut().is_ok() })
    }

    /// Where the lap's half begins.
    fn start(&self) -> u64 {
        HEADER_BYTES + HALF_BYTES * self.half as u64
    }

    /// Makes room for frames up to `end` in the half.
    fn grow(&mut self, end: u64) -> io::Result<()> {
        let (start, grown) = (self.start(), self.grown[self.half]);
        if end > grown {
            let wanted = end.next_multiple_of(GROWTH_BYTES).min(HALF_BYTES);
            if start + wanted > self.length {
                self.file.set_len(start + wanted)?;
                self.length = start + wanted;
            }
            let missing = usize::try_from(wanted - grown).unwrap_or(usize::MAX);
            self.file.write(start + grown, &vec![0; missing])?;
            self.grown[self.half] = wanted;
        }
        Ok(())
    }

    fn write(&self) -> io::Result<()> {
        self.file.write(self.start() + self.at, &self.frame)?;
        self.file.sync_data()
    }
}

/// What a frame's header must say: the lap, the first revision, the checksum of the frame before.
type Chain = (u64, u64, u32);

/// Encodes a frame and the sector of zeros behind it. Returns the checksum of its content.
fn encode(frame: &mut Vec<u8>, (lap, first, before): Chain, entries: &[Entry]) -> u32 {
    let number = |length: usize| u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
    frame.clear();
    frame.resize(HEAD, 0);
    for entry in entries {
        frame.extend_from_slice(&entry.expires_ms.to_le_bytes());
        frame.extend_from_slice(&number(entry.records.len()));
        for record in &entry.records {
            frame.extend_from_slice(&number(record.len()));
            frame.extend_from_slice(record);
        }
    }
    let (head, content) = frame.split_at_mut(HEAD);
    head[..8].copy_from_slice(&MAGIC);
    let content_sum = crc32fast::hash(content);
    head[12..16].copy_from_slice(&content_sum.to_le_bytes());
    head[16..20].copy_from_slice(&number(content.len()));
    head[20..24].copy_from_slice(&number(entries.len()));
    head[24..32].copy_from_slice(&lap.to_le_bytes());
    head[32..40].copy_from_slice(&first.to_le_bytes());
    head[40..44].copy_from_slice(&before.to_le_bytes());
    let sum = crc32fast::hash(&head[12..]);
    head[8..12].copy_from_slice(&sum.to_le_bytes());
    frame.resize(frame.len().next_multiple_of(SECTOR) + SECTOR, 0);
    content_sum
}

/// A valid header.
struct Head {
    chain: Chain,
    sum: u32,
    length: usize,
    n_commits: u32,
}

impl Head {
    fn of(frame: &[u8]) -> Option<Self> {
        let head = frame.get(..HEAD).filter(|head| head[..8] == MAGIC)?;
        let u32_at = |at: usize| Some(u32::from_le_bytes(*head.get(at..)?.first_chunk()?));
        let u64_at = |at: usize| Some(u64::from_le_bytes(*head.get(at..)?.first_chunk()?));
        if u32_at(8)? != crc32fast::hash(&head[12..]) {
            return None;
        }
        Some(Self {
            chain: (u64_at(24)?, u64_at(32)?, u32_at(40)?),
            sum: u32_at(12)?,
            length: usize::try_from(u32_at(16)?).ok()?,
            n_commits: u32_at(20)?,
        })
    }

    /// Length of the frame without the sector behind it.
    fn frame_length(&self) -> usize {
        (HEAD + self.length).next_multiple_of(SECTOR)
    }
}

/// The id in the header, and the halves. Without a header, `None` and the whole file.
fn content(bytes: &[u8]) -> (Option<u64>, &[u8]) {
    let id = || {
        let id = bytes.strip_prefix(&HEADER_MAGIC)?.get(..12)?;
        let (sum, id) = id.split_first_chunk::<4>()?;
        let is_valid = crc32fast::hash(id) == u32::from_le_bytes(*sum);
        Some(u64::from_le_bytes(*id.first_chunk()?)).filter(|_| is_valid)
    };
    match id() {
        Some(id) => (Some(id), bytes.get(HEADER_BYTES as usize..).unwrap_or_default()),
        None => (None, bytes),
    }
}

fn marked(bytes: &[u8], mark: Mark, filed: u64) -> Found {
    let (id, content) = content(bytes);
    let first = bytes.len() - content.len();
    match (mark, id) {
        (Mark::Id(marked), Some(id)) if id != marked => {
            Found::lost("is another store's, or of another time", filed)
        }
        (Mark::Id(_), None) if bytes.is_empty() => Found::lost("is empty", filed),
        (Mark::Id(_), None) => Found::lost("has no valid header", filed),
        (Mark::Headless, Some(_)) => Found::lost("is another store's", filed),
        (Mark::Id(_), Some(_)) | (Mark::Headless, None) => laps(content, first, filed),
        (Mark::Unused, _) => Found { damage: newer(&halves(content), filed), ..Found::default() },
    }
}

fn halves(bytes: &[u8]) -> [&[u8]; 2] {
    let (first, second) = bytes.split_at(bytes.len().min(HALF_BYTES as usize));
    [first, second]
}

/// Reads the laps that follow a revision of redb's file. `first` is the first half's place.
fn laps(bytes: &[u8], first: usize, filed: u64) -> Found {
    let halves = halves(bytes);
    let (mut found, mut end) = (Found::default(), filed);
    // The second lap begins where the first one ends.
    while found.damage.is_none()
        && let Some((half, lap)) = (0..).zip(halves.map(|half| frames(half, end))).find(is_there)
    {
        end += lap.entries.len() as u64;
        found.entries.extend(lap.entries);
        found.damage = lap.damage.map(|at| {
            let at = first + half * HALF_BYTES as usize + at;
            format!("is damaged: the frame at byte {at} does not match its checksum")
        });
        found.half = half;
    }
    if found.damage.is_none() {
        found.damage = newer(&halves, end);
    }
    found
}

/// The damage if a lap begins after the newest commit.
fn newer(halves: &[&[u8]; 2], end: u64) -> Option<String> {
    let lap_of = |half: &&[u8]| Some(Head::of(half)?.chain.0).filter(|lap| *lap > end);
    let lap = halves.iter().find_map(lap_of)?;
    Some(format!("is damaged: the commits after revision {end}, up to {lap}, are missing"))
}

/// The frames of a lap.
#[derive(Default)]
struct Lap {
    entries: Vec<Entry>,
    /// Where damage is, if commits behind it were acknowledged.
    damage: Option<usize>,
}

fn is_there((_, lap): &(usize, Lap)) -> bool {
    !lap.entries.is_empty() || lap.damage.is_some()
}

/// Reads the frames of a lap in a half.
fn frames(bytes: &[u8], lap: u64) -> Lap {
    let mut found = Lap::default();
    let (mut at, mut chain) = (0, (lap, lap + 1, 0));
    let head_at = |at: usize| Head::of(bytes.get(at..)?);
    while let Some(head) = head_at(at).filter(|head| head.chain == chain) {
        let content = bytes.get(at + HEAD..at + HEAD + head.length);
        let content = content.filter(|content| crc32fast::hash(content) == head.sum);
        let Some(entries) = content.and_then(|content| decode(content, chain.1, head.n_commits))
        else {
            break;
        };
        found.entries.extend(entries);
        at += head.frame_length();
        chain = (lap, chain.1 + u64::from(head.n_commits), head.sum);
    }
    // The newest frame may be torn. A frame is written after the one before it was synced, so one
    // that has a successor was whole.
    let is_successor = |head: Head| head.chain.0 == lap && head.chain.1 > chain.1;
    let mut sectors = bytes.get(at..).unwrap_or_default().chunks(SECTOR);
    let has_successor = sectors.any(|sector| Head::of(sector).is_some_and(is_successor));
    found.damage = has_successor.then_some(at);
    found
}

fn decode(mut content: &[u8], first: u64, n_commits: u32) -> Option<Vec<Entry>> {
    let mut entries = Vec::new();
    for n in 0..u64::from(n_commits) {
        let expires_ms = u64::from_le_bytes(*content.split_off(..8)?.first_chunk()?);
        let mut records = Vec::new();
        for _ in 0..length(&mut content)? {
            let length = length(&mut content)?;
            records.push(content.split_off(..length)?.to_vec());
        }
        entries.push(Entry { revision: first + n, expires_ms, records });
    }
    content.is_empty().then_some(entries)
}

fn length(content: &mut &[u8]) -> Option<usize> {
    usize::try_from(u32::from_le_bytes(*content.split_off(..4)?.first_chunk()?)).ok()
}
