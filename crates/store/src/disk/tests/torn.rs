//! A simulated disk with the store's two files. It loses unsynced data, tears writes, and fails
//! like a real disk.

use rand::{Rng, SeedableRng, rngs::SmallRng};
use redb::StorageBackend;
use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, atomic::Ordering},
};

use super::super::error::DiskError;
use super::super::journal::OpenJournal;
use super::super::reserve::{Reserve, STEP_BYTES};
use super::super::synced::SyncFailed;

/// The unit of a write: a disk writes whole sectors.
const SECTOR: usize = 512;

/// A disk with two files, shared by every opening of them.
#[derive(Debug, Clone)]
pub(super) struct Disk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    files: [Content; 2],
    /// The current process. Calls of older processes fail.
    life: u64,
    fault: Option<Fault>,
    n_syncs: u64,
    /// Whether a sync of the store's file has failed.
    sync_failed: SyncFailed,
}

/// Numbers of the files.
const STORE: usize = 0;
const JOURNAL: usize = 1;

#[derive(Debug, Default, Clone)]
struct Content {
    /// The content that survives every crash.
    synced: Vec<u8>,
    /// The content that the process sees.
    seen: Vec<u8>,
    /// Sectors written and lengths set since the last sync, oldest first.
    unsynced: Vec<Unsynced>,
    /// Which sectors are allocated on the disk.
    allocated: Vec<bool>,
}

/// A fault after a number of calls. It lasts until [`Disk::heal`] or a crash, or as the variant
/// says.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    /// Every write and sync fails.
    Gone { after: u64 },
    /// One sync fails and loses some of its data, by the seed. The next syncs do not report it. The
    /// process may still see the lost data in memory; `is_forgotten`: it does not.
    Sync { after: u64, seed: u64, is_forgotten: bool },
    /// One read fails.
    Read { after: u64 },
    /// The disk is full after this many more sectors.
    Full { sectors: u64 },
}

#[derive(Debug, Clone)]
enum Unsynced {
    Sector(usize, Vec<u8>),
    Length(usize),
}

impl Disk {
    pub(super) fn new() -> Self {
        Self(Arc::default())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// A process's view of the store's file.
    pub(super) fn attach(&self) -> Attached {
        let life = self.state().life;
        Attached { disk: self.clone(), life, file: STORE }
    }

    /// Changes the journal on the disk.
    pub(super) fn change_journal(&self, change: impl FnOnce(&mut Vec<u8>)) {
        let content = &mut self.state().files[JOURNAL];
        change(&mut content.synced);
        content.unsynced.clear();
        content.forget();
    }

    /// Starts a fault.
    pub(super) fn fail(&self, fault: Fault) {
        self.state().fault = Some(fault);
    }

    /// Ends a fault without a crash.
    pub(super) fn heal(&self) {
        self.state().fault = None;
    }

    /// Reserves space, which is released in steps while the disk is full.
    pub(super) fn reserve(&self, bytes: u64) -> DiskReserve {
        let steps = bytes / STEP_BYTES;
        DiskReserve { disk: self.clone(), wanted: steps, steps }
    }

    /// Whether a sync of the store's file has failed in this life.
    pub(super) fn sync_failed(&self) -> SyncFailed {
        self.state().sync_failed.clone()
    }

    /// Number of syncs.
    pub(super) fn n_syncs(&self) -> u64 {
        self.state().n_syncs
    }

    /// Ends the process but not the machine.
    pub(super) fn kill(&self) {
        let mut state = self.state();
        state.life += 1;
        state.fault = None;
        state.sync_failed = SyncFailed::default();
    }

    /// The disk as it would be after a power cut now.
    pub(super) fn after_crash(&self, seed: u64) -> Self {
        let copy = State { files: self.state().files.clone(), ..State::default() };
        let copy = Self(Arc::new(Mutex::new(copy)));
        copy.crash(seed);
        copy
    }

    /// Cuts the power: each unsynced sector is written or not, at random and in any order.
    pub(super) fn crash(&self, seed: u64) {
        let mut state = self.state();
        for (seed, file) in (seed..).zip(&mut state.files) {
            file.lose(seed);
            file.forget();
        }
        state.life += 1;
        state.fault = None;
        state.sync_failed = SyncFailed::default();
    }
}

impl Content {
    /// Writes a random part of the unsynced data.
    fn lose(&mut self, seed: u64) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut newest = BTreeMap::new();
        for write in self.unsynced.drain(..) {
            match write {
                // A later write of a sector replaces an earlier one, if it reaches the disk.
                Unsynced::Sector(at, bytes) if rng.random_bool(0.5) => _ = newest.insert(at, bytes),
                Unsynced::Length(length) if rng.random_bool(0.5) => self.synced.resize(length, 0),
                Unsynced::Sector(..) | Unsynced::Length(_) => {}
            }
        }
        for (at, bytes) in newest {
            put(&mut self.synced, at, &bytes);
        }
    }

    /// Drops cached data, so that reads see the disk.
    fn forget(&mut self) {
        self.seen.clone_from(&self.synced);
        self.allocated.resize(self.seen.len().div_ceil(SECTOR), true);
    }
}

impl State {
    fn sync(&mut self, file: usize) -> io::Result<()> {
        self.n_syncs += 1;
        let content = &mut self.files[file];
        if let Some(Fault::Sync { after, seed, is_forgotten }) = self.fault {
            if after == 0 {
                self.fault = None;
                content.lose(seed);
                // The length of a file is stored apart from its content.
                content.synced.resize(content.seen.len(), 0);
                if is_forgotten {
                    content.forget();
                }
                return Err(io::Error::from_raw_os_error(5));
            }
            self.fault = Some(Fault::Sync { after: after - 1, seed, is_forgotten });
        }
        for write in content.unsynced.drain(..) {
            match write {
                Unsynced::Sector(at, bytes) => put(&mut content.synced, at, &bytes),
                Unsynced::Length(length) => content.synced.resize(length, 0),
            }
        }
        Ok(())
    }

    fn write(&mut self, file: usize, mut at: usize, data: &[u8]) -> io::Result<()> {
        let content = &mut self.files[file];
        for bytes in data.chunks(SECTOR) {
            let sector = at / SECTOR;
            if !content.allocated[sector] {
                if let Some(Fault::Full { sectors }) = &mut self.fault {
                    // The sectors before it are written.
                    *sectors = sectors.checked_sub(1).ok_or(io::ErrorKind::StorageFull)?;
                }
                content.allocated[sector] = true;
            }
            put(&mut content.seen, at, bytes);
            content.unsynced.push(Unsynced::Sector(at, bytes.to_vec()));
            at += bytes.len();
        }
        Ok(())
    }
}

fn put(file: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    let end = at + bytes.len();
    if file.len() < end {
        file.resize(end, 0);
    }
    file[at..end].copy_from_slice(bytes);
}

/// Its name is always there.
impl OpenJournal for Disk {
    fn existing(&self) -> Result<Option<Box<dyn StorageBackend>>, DiskError> {
        self.created().map(Some)
    }

    fn created(&self) -> Result<Box<dyn StorageBackend>, DiskError> {
        Ok(Box::new(Attached { file: JOURNAL, ..self.attach() }))
    }
}

/// See [`Disk::reserve`].
#[derive(Debug)]
pub(super) struct DiskReserve {
    disk: Disk,
    wanted: u64,
    steps: u64,
}

impl Reserve for DiskReserve {
    fn release(&mut self) -> bool {
        if self.steps == 0 {
            return false;
        }
        self.steps -= 1;
        if let Some(Fault::Full { sectors }) = &mut self.disk.state().fault {
            *sectors += STEP_BYTES / SECTOR as u64;
        }
        true
    }

    fn refill(&mut self) -> bool {
        let n_sectors = (self.wanted - self.steps) * (STEP_BYTES / SECTOR as u64);
        if let Some(Fault::Full { sectors }) = &mut self.disk.state().fault {
            let Some(left) = sectors.checked_sub(n_sectors) else { return false };
            *sectors = left;
        }
        self.steps = self.wanted;
        true
    }

    fn is_high(&self) -> bool {
        self.steps > 0 && 2 * self.steps >= self.wanted
    }
}

/// A file as one process opened it.
#[derive(Debug)]
pub(super) struct Attached {
    disk: Disk,
    life: u64,
    file: usize,
}

impl Attached {
    fn with<T>(&self, call: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.disk.state();
        if state.life != self.life {
            return Err(io::Error::other("this process has died"));
        }
        call(&mut state)
    }

    fn change<T>(&self, call: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        self.with(|state| {
            if let Some(Fault::Gone { after }) = &mut state.fault {
                *after =
                    after.checked_sub(1).ok_or_else(|| io::Error::other("the disk is gone"))?;
            }
            call(state)
        })
    }
}

impl StorageBackend for Attached {
    fn len(&self) -> io::Result<u64> {
        self.with(|state| Ok(state.files[self.file].seen.len() as u64))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.with(|state| {
            if let Some(Fault::Read { after }) = state.fault {
                state.fault = after.checked_sub(1).map(|after| Fault::Read { after });
                if after == 0 {
                    return Err(io::Error::from_raw_os_error(5));
                }
            }
            let at = usize::try_from(offset).unwrap();
            let seen = &state.files[self.file].seen;
            let bytes = seen.get(at..at + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
            out.copy_from_slice(bytes);
            Ok(())
        })
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.change(|state| {
            let length = usize::try_from(length).unwrap();
            let content = &mut state.files[self.file];
            content.seen.resize(length, 0);
            content.allocated.resize(length.div_ceil(SECTOR), false);
            content.unsynced.push(Unsynced::Length(length));
            Ok(())
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        let synced = self.change(|state| state.sync(self.file));
        let state = self.disk.state();
        if synced.is_err() && state.life == self.life && self.file == STORE {
            state.sync_failed.store(true, Ordering::Relaxed);
        }
        synced
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.change(|state| state.write(self.file, usize::try_from(offset).unwrap(), data))
    }
}
