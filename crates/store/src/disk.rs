//! The disk engine: a durable store in one folder, on [redb](https://www.redb.org).
//!
//! # Theory
//!
//! The file is a log that has a record for every version of every key, ordered by revision. A
//! second table maps each key to its newest record, and each record points to the one it replaced.
//! A read of the newest state is two lookups. A read of the past follows a key's chain of records.
//! A feed reads the log forwards. Compaction scans the log and drops replaced records. History is
//! in the file: after a restart a feed can continue from any retained revision.
//!
//! ```text
//!   commit ──▶ bounded channel ──▶ writer thread: many commits → one frame of the journal → one sync ──▶ publish ──▶ responses
//!                                        │ a full lap ──▶ filing thread: one transaction of redb ──▶ │
//!   get, range, changes ◀── the newest history in memory, else the file on a blocking thread ◀──────┘
//! ```
//!
//! Durable means that a sync has stored the commit, in the journal (`store.journal`) or in redb's
//! file. Only then does a commit return, and only then do readers see it. If the process dies at
//! any moment, the next opening finds exactly the transactions that were synced, each of them
//! whole: it moves what the journal has into the file before it serves. The journal has two laps,
//! so that commits continue while one of them is moved into the file.
//!
//! # Failures
//!
//! | failure | commits | reads and feeds |
//! |---|---|---|
//! | no room on the disk or in a quota | deletions continue with [`DiskOptions::reserve_bytes`]; others fail with [`StoreError::Full`], which means that nothing happened, until there is room again (`reserve.rs`) | continue; old history is dropped |
//! | a lap of the journal cannot be moved to the file | continue until the next lap is full; then it is tried again with them, and what follows is as for another failed write | as below |
//! | a failed write or sync of the journal | go to redb's file; if that fails too, and the journal's frame cannot be made invalid, [`StoreError::Unknown`] | continue |
//! | another failed write | [`StoreError::Unavailable`]: nothing happened; each later commit tries again | continue |
//! | a failed write after which the file cannot be opened | [`StoreError::Unknown`], then `Unavailable` until it can be opened | `Unavailable` until then |
//! | a failed sync, if pages are synced before the header ([`DiskOptions::quick_repair_bytes`]) | succeeds if found in the file, else `Unavailable` | continue |
//! | a failed sync otherwise | [`StoreError::Unknown`]; the store serves nothing until the process restarts | the same |
//! | a failed read | not affected | that read is `Unavailable`; the file is opened again for the next |
//! | a damaged record or page, found while serving | [`StoreError::Damaged`] if they would replace it | `Damaged` if they read it |
//! | the same, found at opening, which checks the checksum of every page | by [`DiskOptions::on_damage`]: the opening fails and names the damage, or the rest is served | the same |
//! | a journal that is missing, damaged or another store's, found at opening | the same: the newest commits are lost | the same |
//!
//! The writer opens the file again after a failed batch and checks whether the batch is in it
//! (`writer.rs` has the reasons). An expired value that cannot be deleted stays, and its deletion
//! is tried again every second. Opening and maintaining a folder fail with a [`DiskError`], which
//! names the path and a remedy, and leave the store unchanged.
//!
//! # Bounds
//!
//! | bound | effect |
//! |---|---|
//! | [`COMMANDS_MAX`] commits wait for the writer | the next one waits for a place |
//! | 512 records in a lap of the journal, 1 MiB of them, or 8 MiB of their changes in memory | the lap is moved to redb's file, and the next batch begins the other lap |
//! | both laps full: 1,024 records, 2 MiB of them, or 16 MiB of their changes in memory | commits wait until the older lap is in redb's file |
//! | history over [`DiskOptions::history_revisions_max`], `history_bytes_max` or `history_age_max` | each transaction of redb also compacts a bounded number of records, oldest first; until it, the journal's commits may exceed the bound |
//! | [`DiskOptions::cache_bytes`] of the file in memory, dirty pages included | redb evicts the least recently used |
//! | the newest 10,000 commits, or 16 MiB of them with the values they replaced, in memory | slower feeds read from the file |
//! | 2,000 values that were read one by one, or 2 MiB of them, in memory until they change | the least recently read are evicted |
//! | a slow reader | reads from the file; gets [`StoreError::Compacted`] once its position is compacted |
//!
//! Expiry times are stored in the time of [`DiskOptions::now_ms`], so that they survive restarts.
//! Expired values are deleted at the next call, or at their time if a feed is waiting.

mod ages;
mod apply;
mod backup;
mod batch;
mod command;
mod damage;
mod defrag;
mod error;
mod feed;
mod file;
mod filing;
mod journal;
mod layout;
mod lock;
mod migrate;
mod pack;
mod pages;
mod published;
mod read;
mod read_cache;
mod reserve;
mod salvage;
mod stat;
mod synced;
#[cfg(test)]
mod tests;
mod trim;
mod unfiled;
mod writer;

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use parking_lot::Mutex;
use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use self::{
    ages::Ages,
    command::{Command, Queued},
    error::{Fault, guarded},
    feed::DiskFeed,
    file::OpenFile,
    filing::Laps,
    journal::{InFolder, OpenJournal},
    published::Shared,
    read::View,
    reserve::{Reserve, ReserveFile},
    synced::{SyncFailed, SyncedFile},
    writer::Writer,
};
pub use self::{
    backup::BUMP_REVISION,
    damage::{DAMAGED_NAMED_MAX, DAMAGED_PREFIX, Damage, OnDamage},
    error::DiskError,
    stat::DiskStat,
};
use crate::{contract::*, shape};

/// The file in a data folder.
pub const FILE: &str = "store.redb";
/// Maximum number of commands that wait for the writer. Further callers wait for a place.
pub const COMMANDS_MAX: usize = 4096;
/// Maximum number of expired values deleted in one step.
const EXPIRED_MAX: usize = 1000;
/// Delay before expired values are deleted again after a failure. A full disk stays full for a
/// while, and reads should not wait for it.
const EXPIRY_RETRY_PERIOD: Duration = Duration::from_secs(1);
/// Maximum attempts of a read, if the engine fails and is opened again.
const READS_MAX: usize = 3;

/// Options of a disk store.
#[derive(Clone)]
pub struct DiskOptions {
    /// Maximum number of revisions in history. 100,000 by default.
    pub history_revisions_max: usize,
    /// Maximum size of history: bytes of replaced values, as compressed in the file. 1 GiB by
    /// default.
    pub history_bytes_max: u64,
    /// Maximum age of a revision in history while the store is open, in tokio time. Ten minutes by
    /// default. Kubernetes compacts every five minutes to the revision of five minutes before, so
    /// its watches reach back ten minutes at most. History that is in the file at opening counts as
    /// new: watches from before a restart continue, however long the process was down.
    pub history_age_max: Duration,
    /// Size of the file's cache in memory. 64 MiB by default.
    pub cache_bytes: usize,
    /// File size from which each commit also writes what makes opening after a crash quick. Such a
    /// commit syncs twice and costs more. Without it, the first opening after a crash reads the
    /// whole file, which takes a second or two for each GiB. 1 GiB by default; 0 means always.
    pub quick_repair_bytes: u64,
    /// Disk space to reserve in a separate file, so that deletions and compaction can continue on a
    /// full disk. 8 MiB by default.
    pub reserve_bytes: u64,
    /// Whether to open a file in which objects are damaged. Refused by default.
    pub on_damage: OnDamage,
    /// The wall clock: milliseconds since 1970, for times to live that outlast the process. The
    /// default is a constant 0, so that each start restarts the times to live.
    pub now_ms: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// Random numbers, to tell a folder's journal from others. The operating system's by default.
    pub random: Arc<dyn Fn() -> u64 + Send + Sync>,
}

impl Default for DiskOptions {
    fn default() -> Self {
        Self {
            history_revisions_max: 100_000,
            history_bytes_max: 1 << 30,
            history_age_max: shape::HISTORY_AGE_MAX,
            cache_bytes: 64 << 20,
            quick_repair_bytes: 1 << 30,
            reserve_bytes: 8 << 20,
            on_damage: OnDamage::default(),
            now_ms: Arc::new(|| 0),
            // If the system has none, journals look alike, and only a missing one is noticed.
            random: Arc::new(|| getrandom::u64().unwrap_or(1)),
        }
    }
}

impl fmt::Debug for DiskOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskOptions")
            .field("history_revisions_max", &self.history_revisions_max)
            .field("history_bytes_max", &self.history_bytes_max)
            .field("history_age_max", &self.history_age_max)
            .field("cache_bytes", &self.cache_bytes)
            .field("quick_repair_bytes", &self.quick_repair_bytes)
            .field("reserve_bytes", &self.reserve_bytes)
            .field("on_damage", &self.on_damage)
            .finish_non_exhaustive()
    }
}

/// The disk engine. A handle is cheap to clone. Dropping the last handle writes the commits that
/// were already submitted, and closes the file.
#[derive(Clone)]
pub struct DiskStore {
    inner: Arc<Inner>,
}

struct Inner {
    options: DiskOptions,
    path: PathBuf,
    shared: Arc<Shared>,
    /// Damage found when the store was opened.
    damage: Option<Damage>,
    /// `None` once closed.
    commands: Mutex<Option<mpsc::Sender<Queued>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for DiskStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskStore")
            .field("path", &self.inner.path)
            .field("position", &self.inner.shared.with(|published| published.position))
            .finish()
    }
}

impl DiskStore {
    /// Opens the store in a folder, and creates the folder if it is missing. Blocks while it reads
    /// the file: call it before serving, or on a blocking thread.
    ///
    /// # Errors
    ///
    /// Another process has the store open. The folder cannot be written. The file is of a newer
    /// program. It is damaged, and [`DiskOptions::on_damage`] refuses that, or nothing can be read.
    pub fn open(folder: impl AsRef<Path>, options: DiskOptions) -> Result<Self, DiskError> {
        let folder = folder.as_ref();
        file::make_missing(folder)?;
        let path = folder.join(FILE);
        let on_damage = options.on_damage;
        let found = salvage::recover_damaged(folder, &path, on_damage)?;
        let open = |options, found| Self::open_file(folder, &path, options, found, Laps::of_thread);
        match open(options.clone(), found.clone()) {
            // Repair after a crash may fail for lack of room.
            Err(refusal) if refusal.is_full() => {
                let mut reserve = ReserveFile::of(folder, options.reserve_bytes);
                if !reserve.release() {
                    return Err(refusal);
                }
                open(options, found)
            }
            Err(refusal) => {
                let found = salvage::recover_refused(folder, &path, refusal, on_damage)?;
                open(options, Some(found))
            }
            opened => opened,
        }
    }

    fn open_file(
        folder: &Path,
        path: &Path,
        options: DiskOptions,
        found: Option<Damage>,
        laps: impl FnOnce(mpsc::WeakSender<Queued>) -> Laps,
    ) -> Result<Self, DiskError> {
        guarded(path, || file::check_openable(path))?;
        let cache_bytes = options.cache_bytes;
        let sync_failed = SyncFailed::default();
        let noted = sync_failed.clone();
        let open = move |path: &Path| {
            let file = SyncedFile::open(path, noted.clone())?;
            let mut builder = redb::Database::builder();
            Ok(builder.set_cache_size(cache_bytes).create_with_backend(file)?)
        };
        let reserve = || -> Box<dyn Reserve> {
            let mut reserve = ReserveFile::of(folder, options.reserve_bytes);
            reserve.refill();
            Box::new(reserve)
        };
        let open = (Box::new(open) as Box<OpenFile>, sync_failed);
        let journal = InFolder(folder);
        let with = (path.to_owned(), options.clone());
        guarded(path, || Self::open_with(with, found, open, &journal, reserve, laps))
    }

    /// `found` is damage that was repaired before. `sync_failed` stays true if it is unknown
    /// whether a failure was a sync's. `journal` and `reserve` are used after the file is open.
    fn open_with(
        (path, options): (PathBuf, DiskOptions),
        found: Option<Damage>,
        (open, sync_failed): (Box<OpenFile>, SyncFailed),
        journal: &dyn OpenJournal,
        reserve: impl FnOnce() -> Box<dyn Reserve>,
        laps: impl FnOnce(mpsc::WeakSender<Queued>) -> Laps,
    ) -> Result<Self, DiskError> {
        let database = open(&path).map_err(|fault| fault.of_file(&path))?;
        file::prepare(&database, &path)?;
        let moved = file::file_journal(&database, journal, &path, options.on_damage)?;
        let (position, snapshot) =
            file::position(&database).map_err(|fault| fault.of_file(&path))?;
        let found = match (found, moved.damage) {
            (found, None) => found,
            (found, journal) => Some(Damage { journal, ..found.unwrap_or_default() }),
        };
        let damage = damage::marked(&snapshot, found).map_err(|fault| fault.of_file(&path))?;
        let damage = match (damage, options.on_damage) {
            (Some(damage), OnDamage::Refuse) => {
                return Err(DiskError::DamagedObjects { path, damage: Box::new(damage) });
            }
            (damage, _) => damage,
        };
        // Last, so that a folder that is refused is not changed.
        let journal = match moved.journal {
            Some(journal) => journal,
            None => file::begin_journal(&database, journal, &path, (options.random)().max(1))?,
        };
        let shared = Arc::new(Shared::new(position, snapshot));
        let view = shared.with(|published| View::of(published)).ok_or_else(|| {
            DiskError::Damaged { path: path.clone(), what: "it was closed during opening".into() }
        })?;
        let expiring = view.expiring().map_err(|fault| fault.of_file(&path))?;
        drop(view);
        let now = (Instant::now(), (options.now_ms)());
        shared.with(|published| published.restart(expiring, now));
        let ages = (Ages::new(options.history_age_max, now.0, position.revision), now.0);
        let (commands, received) = mpsc::channel(COMMANDS_MAX);
        let writer = Writer::new(
            (options.clone(), path.clone()),
            (open, sync_failed),
            (received, laps(commands.downgrade())),
            (database, journal),
            ages,
            reserve(),
            shared.clone(),
        );
        let thread = std::thread::Builder::new().name("setpoint-store".into());
        let writer = thread.spawn(move || writer.run()).map_err(|source| DiskError::Io {
            what: "start the writer of",
            path: path.clone(),
            source,
        })?;
        Ok(Self {
            inner: Arc::new(Inner {
                options,
                path,
                shared,
                damage,
                commands: Mutex::new(Some(commands)),
                writer: Mutex::new(Some(writer)),
            }),
        })
    }

    /// Damage found when the store was opened, if it serves a damaged file.
    pub fn damage(&self) -> Option<&Damage> {
        self.inner.damage.as_ref()
    }

    /// The first damage found since the store was opened.
    pub fn damage_met(&self) -> Option<DiskError> {
        let what = self.inner.shared.with(|published| published.damage_met.clone())?;
        Some(DiskError::Damaged { path: self.inner.path.clone(), what })
    }

    /// Accepts no more calls, waits until all submitted commits are durable, and closes the file.
    /// Every later call on any handle fails with [`StoreError::Closed`].
    pub async fn close(&self) {
        let inner = self.inner.clone();
        // The thread may be in the middle of a sync.
        let joined = tokio::task::spawn_blocking(move || inner.end()).await;
        drop(joined);
    }
}

impl Inner {
    /// Stops the writer and waits for it.
    fn end(&self) {
        drop(self.commands.lock().take());
        self.shared.with(|published| published.is_closed = true);
        // Wakes the feeds, so that they end.
        self.shared.moved.send_modify(|_| {});
        let writer = self.writer.lock().take();
        if let Some(writer) = writer {
            // The thread has already reported a panic.
            drop(writer.join());
        }
    }

    async fn execute<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Command,
    ) -> Result<T, StoreError> {
        let Some(commands) = self.commands.lock().clone() else { return Err(StoreError::Closed) };
        let (answer, answered) = oneshot::channel();
        commands
            .send(Queued::Command(Instant::now(), command(answer)))
            .await
            .map_err(|_| StoreError::Closed)?;
        drop(commands);
        answered
            .await
            .unwrap_or_else(|_| Err(StoreError::Unknown("the writer ended in between".into())))
    }

    /// The newest state. If the engine has failed, opens the file again first.
    async fn view(&self) -> Result<View, StoreError> {
        let now = || self.shared.with(|published| View::of(published));
        if let Some(view) = now() {
            return Ok(view);
        }
        self.execute(|answer| Command::Reopen { answer }).await?;
        now().ok_or_else(|| StoreError::Unavailable("the file could not be opened again".into()))
    }

    /// The newest state, as a whole in the file.
    async fn filed(&self) -> Result<View, StoreError> {
        self.execute(|answer| Command::File { answer }).await?;
        let view = self.shared.with(|published| View::of_file(published));
        view.ok_or_else(|| StoreError::Unavailable("the file could not be opened again".into()))
    }

    /// Reads the newest state on a blocking thread.
    async fn read<T: Send + 'static>(
        &self,
        read: impl Fn(&View) -> Result<T, Fault> + Send + Sync + 'static,
    ) -> Result<Snapshot<T>, StoreError> {
        self.read_view(false, read).await
    }

    /// As [`Inner::read`]. `is_filed`: of a state that is in the file as a whole.
    async fn read_view<T: Send + 'static>(
        &self,
        is_filed: bool,
        read: impl Fn(&View) -> Result<T, Fault> + Send + Sync + 'static,
    ) -> Result<Snapshot<T>, StoreError> {
        let read = Arc::new(read);
        let mut n_read = 0;
        loop {
            n_read += 1;
            let view = if is_filed { self.filed().await? } else { self.view().await? };
            let revision = Revision(view.position.revision);
            let read = read.clone();
            match tokio::task::spawn_blocking(move || read(&view)).await {
                Ok(Ok(value)) => return Ok(Snapshot { revision, value }),
                // An earlier failure of another call: open the file again and repeat this read.
                Ok(Err(fault)) if fault.is_from_earlier_failure() && n_read < READS_MAX => {
                    self.execute(|answer| Command::Reopen { answer }).await?;
                }
                Ok(Err(fault)) => return Err(self.shared.fail(&fault)),
                Err(error) => return Err(self.shared.fail(&Fault::of_join_error(&error))),
            }
        }
    }

    /// Deletes the expired values. If that fails, it is tried again [`EXPIRY_RETRY_PERIOD`] later.
    async fn expire(&self) -> Result<(), StoreError> {
        loop {
            let now = Instant::now();
            let keys = self.shared.with(|published| published.expired(now, EXPIRED_MAX));
            if keys.is_empty() {
                return Ok(());
            }
            let (tried, n) = (keys.clone(), keys.len());
            let outcome = self.execute(|answer| Command::Expire { keys, answer }).await;
            if let Err(StoreError::Closed) = outcome {
                return Err(StoreError::Closed);
            }
            self.shared.with(|published| match outcome {
                Ok(()) => published.forget_expired(&tried, now),
                Err(_) => published.expiry_retry_at = Some(now + EXPIRY_RETRY_PERIOD),
            });
            if n < EXPIRED_MAX {
                return Ok(());
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.end();
    }
}

impl Store for DiskStore {
    fn revision(&self) -> BoxFuture<'_, Result<Revision, StoreError>> {
        async move {
            self.inner.expire().await?;
            Ok(self.inner.shared.with(|published| Revision(published.position.revision)))
        }
        .boxed()
    }

    fn get<'a>(
        &'a self,
        key: &'a [u8],
        at: At,
    ) -> BoxFuture<'a, Result<Snapshot<Option<KeyValue>>, StoreError>> {
        async move {
            self.inner.expire().await?;
            let recent = self.inner.shared.with(|published| {
                let value = published.recent(key).filter(|_| at == At::Latest)?;
                Some(Snapshot { revision: Revision(published.position.revision), value })
            });
            if let Some(found) = recent {
                found.value.as_ref().map_or(Ok(()), damage::check_mark)?;
                return Ok(found);
            }
            let key = Bytes::copy_from_slice(key);
            let found = self.inner.read(move |view| view.get(&key, at)).await?;
            if let (At::Latest, Some(entry)) = (at, &found.value) {
                self.inner.shared.with(|published| published.keep(entry, found.revision));
            }
            found.value.as_ref().map_or(Ok(()), damage::check_mark)?;
            Ok(found)
        }
        .boxed()
    }

    fn range<'a>(
        &'a self,
        request: RangeRequest,
    ) -> BoxFuture<'a, Result<Snapshot<Range>, StoreError>> {
        async move {
            self.inner.expire().await?;
            self.inner.read(move |view| view.range(&request)).await
        }
        .boxed()
    }

    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<Committed, StoreError>> {
        async move {
            shape::check(&txn)?;
            self.inner.expire().await?;
            let now = Instant::now();
            let expires = txn.ttl.map(|ttl| {
                let ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
                // In the file, 0 means "never".
                (shape::expiry(now, ttl), (self.inner.options.now_ms)().saturating_add(ms).max(1))
            });
            let committed =
                self.inner.execute(|answer| Command::Commit { txn, expires, answer }).await?;
            if let Committed::Refused { found, .. } = &committed {
                found.iter().flatten().try_for_each(damage::check_mark)?;
            }
            Ok(committed)
        }
        .boxed()
    }

    fn changes(
        &self,
        prefix: Bytes,
        after: Revision,
    ) -> BoxFuture<'_, Result<Box<dyn ChangeFeed>, StoreError>> {
        async move {
            self.inner.expire().await?;
            self.inner.shared.with(|published| published.check_retained(after))?;
            Ok(Box::new(DiskFeed::new(self.inner.clone(), prefix, after)) as Box<dyn ChangeFeed>)
        }
        .boxed()
    }

    fn divide<'a>(
        &'a self,
        start: &'a [u8],
        end: &'a [u8],
        part_keys: usize,
    ) -> BoxFuture<'a, Result<Vec<Bytes>, StoreError>> {
        let (start, end) = (Bytes::copy_from_slice(start), Bytes::copy_from_slice(end));
        async move {
            let read = self.inner.read(move |view| view.divide(&start, &end, part_keys));
            Ok(read.await?.value)
        }
        .boxed()
    }

    fn size_bytes(&self) -> Option<u64> {
        std::fs::metadata(&self.inner.path).ok().map(|file| file.len())
    }

    fn keeps_history(&self) -> bool {
        true
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), StoreError>> {
        async move {
            self.inner.expire().await?;
            self.inner.execute(|answer| Command::Compact { revision, answer }).await
        }
        .boxed()
    }
}
