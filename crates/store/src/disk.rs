//! The disk engine: a durable store in one folder, on [redb](https://www.redb.org).
//!
//! # Theory
//!
//! Every version of every key is a record of a log, ordered by revision; a second table says where
//! each key's newest record stands, and each record where the one it replaced stands. So a read of
//! the present is two look-ups, a read of the past follows a key's own chain, a feed reads the log
//! forwards, and compaction walks the log and drops what was replaced. History is in the file:
//! after a restart a feed goes on from any revision that is still kept.
//!
//! ```text
//!   commit ──▶ bounded channel ──▶ writer thread: many commits → one transaction → one sync ──▶ publish ──▶ answers
//!                                                                                                │
//!   get, range, changes ◀── the end of history in memory, else the file on a blocking thread ◀───┘
//! ```
//!
//! Durable means: redb's commit has synced the file. A commit is answered after that, and seen by
//! readers only after that. A process that dies at any moment leaves a file whose next opening
//! finds exactly the transactions that were synced, each whole.
//!
//! # When something fails
//!
//! | what | commits | reads and feeds |
//! |---|---|---|
//! | no room, by the disk or by a quota | deletions go on with [`DiskOptions::reserve_bytes`], others are [`StoreError::Full`]: nothing happened; they work again once there is room (`reserve.rs`) | go on; old history is given up |
//! | another write that fails | [`StoreError::Unavailable`]: nothing happened; each later one tries again | go on |
//! | a write that fails after which the file cannot be opened | [`StoreError::Unknown`], then `Unavailable` until it can be | `Unavailable` until then |
//! | a sync that fails | found in the file or refused where pages are synced before what leads to them ([`DiskOptions::quick_repair_bytes`]); else [`StoreError::Unknown`], and then nothing is served until the program is started again | the same |
//! | a read that fails | not touched | that one is `Unavailable`; the file is opened again for the next |
//! | a record or a page that is not what was written, met while serving | [`StoreError::Damaged`] where they would replace it | `Damaged` where they meet it |
//! | the same, found when the file is opened: every page is held to its checksum | by [`DiskOptions::on_damage`]: refused with the names of what is damaged, or served without it | the same |
//!
//! The writer opens the file anew after a failed batch and looks how the batch ended (`writer.rs`
//! has the reasons). A value whose time is over and that cannot be removed lives on, and is tried
//! again every second. What fails when a folder is opened or looked after is a [`DiskError`], which
//! names the path and what can be done; the store is as it was.
//!
//! # Bounds
//!
//! | bound | what happens there |
//! |---|---|
//! | [`COMMANDS_MAX`] commits wait for the writer | the next one waits to be taken in |
//! | history over [`DiskOptions::history_revisions_max`], `history_bytes_max` or `history_age_max` | compacted along with writing, oldest first, a bounded number of records with each sync |
//! | [`DiskOptions::cache_bytes`] of the file in memory, dirty pages included | redb drops what was used least |
//! | the newest 10,000 commits, or 16 MiB of them and what they replaced, in memory | a feed further behind reads from the file |
//! | 2,000 values that were read one by one, or 2 MiB of them, in memory until they change | what was not asked for longest goes |
//! | a reader that is far behind | reads from the file; once its position is compacted it is told so |
//!
//! Times to live are kept as moments of the clock in [`DiskOptions::now_ms`], so that they go on
//! over restarts; values die at the first call after their time, or when a feed waits for it.

mod ages;
mod backup;
mod batch;
mod damage;
mod defrag;
mod error;
mod feed;
mod file;
mod kept;
mod layout;
mod lock;
mod migrate;
mod pack;
mod pages;
mod published;
mod read;
mod reserve;
mod salvage;
mod stat;
mod synced;
#[cfg(test)]
mod tests;
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
    error::{Fault, guarded},
    feed::DiskFeed,
    file::OpenFile,
    published::Shared,
    read::View,
    reserve::{Reserve, ReserveFile},
    synced::{SyncFailed, SyncedFile},
    writer::{Asked, Command, Writer},
};
pub use self::{
    damage::{DAMAGED_NAMED_MAX, DAMAGED_PREFIX, Damage, OnDamage},
    error::DiskError,
    stat::DiskStat,
};
use crate::{contract::*, shape};

/// The file in a data folder.
pub const FILE: &str = "store.redb";
/// How many commands may wait for the writer; the next one waits to be taken in.
pub const COMMANDS_MAX: usize = 4096;
/// How many values die in one step.
const DEATHS_MAX: usize = 1000;
/// How long values whose time is over stay before it is tried again to remove them, when that
/// failed: a disk that is full stays so for a while, and reads are not to wait for it.
const DEATHS_PERIOD: Duration = Duration::from_secs(1);
/// How often a read is begun, when the engine fails under it and is opened again.
const READS_MAX: usize = 3;

/// Limits and habits of a disk store.
#[derive(Clone)]
pub struct DiskOptions {
    /// How many revisions of history are kept at most. 100,000 by default.
    pub history_revisions_max: usize,
    /// How many bytes of replaced values, as packed in the file, history may hold. 1 GiB by
    /// default.
    pub history_bytes_max: u64,
    /// How old a revision of history may become while the store is open, by tokio's time. Ten
    /// minutes by default: Kubernetes compacts every five minutes to where it stood five minutes
    /// before, so that is how far back its watches reach at most. What is in the file when it is
    /// opened counts as new: watches of before a restart go on, however long the program was away.
    pub history_age_max: Duration,
    /// How many bytes of the file are kept in memory. 64 MiB by default.
    pub cache_bytes: usize,
    /// From which size of the file on each commit also writes what makes the opening after a crash
    /// quick. Such a commit syncs twice and costs more; without it a crash has the next opening
    /// read the whole file, which takes a second or two for each GiB. 1 GiB by default; 0 is
    /// always.
    pub quick_repair_bytes: u64,
    /// How many bytes beside the file are kept free on the disk: when that is full, deletions and
    /// compaction go on with them. 8 MiB by default.
    pub reserve_bytes: u64,
    /// What happens when objects in the file are damaged. It is refused by default.
    pub on_damage: OnDamage,
    /// The wall clock: milliseconds since 1970, for times to live that outlast the process. The
    /// default stands still at 0, so that times to live begin anew with each start.
    pub now_ms: Arc<dyn Fn() -> u64 + Send + Sync>,
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

/// The disk engine. A handle is cheap to clone; when the last one goes, what was asked before is
/// written, and the file is closed.
#[derive(Clone)]
pub struct DiskStore {
    inner: Arc<Inner>,
}

struct Inner {
    options: DiskOptions,
    path: PathBuf,
    shared: Arc<Shared>,
    /// What was damaged when the store was opened.
    damage: Option<Damage>,
    /// `None` once it is closed.
    commands: Mutex<Option<mpsc::Sender<Asked>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for DiskStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskStore")
            .field("path", &self.inner.path)
            .field("standing", &self.inner.shared.look(|published| published.standing))
            .finish()
    }
}

impl DiskStore {
    /// Opens the store in a folder, which is made if it is missing. Blocks while it reads the file:
    /// call it before serving, or on a blocking thread.
    ///
    /// # Errors
    ///
    /// Another process has it open; the folder cannot be written; the file is newer than this
    /// program; it is damaged, and [`DiskOptions::on_damage`] does not say to serve what can be
    /// read, or nothing can.
    pub fn open(folder: impl AsRef<Path>, options: DiskOptions) -> Result<Self, DiskError> {
        let folder = folder.as_ref();
        file::make_missing(folder)?;
        let path = folder.join(FILE);
        let on_damage = options.on_damage;
        salvage::settle(folder, &path, on_damage)?;
        match Self::open_file(folder, &path, options.clone()) {
            // What a crash left is brought in order, for which there may be no room.
            Err(refusal) if refusal.is_full() => {
                let mut reserve = ReserveFile::of(folder, options.reserve_bytes);
                if !reserve.release() {
                    return Err(refusal);
                }
                Self::open_file(folder, &path, options)
            }
            Err(refusal) => {
                salvage::settle_refused(folder, &path, refusal, on_damage)?;
                Self::open_file(folder, &path, options)
            }
            opened => opened,
        }
    }

    fn open_file(folder: &Path, path: &Path, options: DiskOptions) -> Result<Self, DiskError> {
        guarded(path, || file::look(path))?;
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
        guarded(path, || Self::open_with(path.to_owned(), options.clone(), open, reserve))
    }

    /// `sync_failed` stays true where nobody can say whether a failure was a sync's. The reserve is
    /// made once the file is open.
    fn open_with(
        path: PathBuf,
        options: DiskOptions,
        (open, sync_failed): (Box<OpenFile>, SyncFailed),
        reserve: impl FnOnce() -> Box<dyn Reserve>,
    ) -> Result<Self, DiskError> {
        let database = open(&path).map_err(|fault| fault.of_file(&path))?;
        file::prepare(&database, &path)?;
        let (standing, snapshot) =
            file::standing(&database).map_err(|fault| fault.of_file(&path))?;
        let damage = damage::marked(&snapshot).map_err(|fault| fault.of_file(&path))?;
        let damage = match (damage, options.on_damage) {
            (Some(damage), OnDamage::Refuse) => {
                return Err(DiskError::DamagedObjects { path, damage: Box::new(damage) });
            }
            (damage, _) => damage,
        };
        let shared = Arc::new(Shared::new(standing, snapshot));
        let view = shared.look(|published| View::of(published)).ok_or_else(|| {
            DiskError::Damaged { path: path.clone(), what: "it closed while it was opened".into() }
        })?;
        let mortals = view.mortals().map_err(|fault| fault.of_file(&path))?;
        drop(view);
        let now = (Instant::now(), (options.now_ms)());
        shared.look(|published| published.restart(mortals, now));
        let ages = (Ages::new(options.history_age_max, now.0, standing.revision), now.0);
        let (commands, received) = mpsc::channel(COMMANDS_MAX);
        let writer = Writer::new(
            (options.clone(), path.clone()),
            (open, sync_failed),
            received,
            database,
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

    /// What is damaged in a store that is served all the same, as it was when it was opened.
    pub fn damage(&self) -> Option<&Damage> {
        self.inner.damage.as_ref()
    }

    /// Damage that was met since the store was opened, if any was: the first of it.
    pub fn damage_met(&self) -> Option<DiskError> {
        let what = self.inner.shared.look(|published| published.damage_met.clone())?;
        Some(DiskError::Damaged { path: self.inner.path.clone(), what })
    }

    /// Takes nothing more in, waits until all that was asked before is durable, and closes the
    /// file. Every call after it, on any handle, is answered [`StoreError::Closed`].
    pub async fn close(&self) {
        let inner = self.inner.clone();
        // The thread may be in the middle of a sync.
        let joined = tokio::task::spawn_blocking(move || inner.end()).await;
        drop(joined);
    }
}

impl Inner {
    /// Ends the writer and waits for it.
    fn end(&self) {
        drop(self.commands.lock().take());
        self.shared.look(|published| published.is_closed = true);
        // Feeds wake, and find it closed.
        self.shared.moved.send_modify(|_| {});
        let writer = self.writer.lock().take();
        if let Some(writer) = writer {
            // A panic of the writer has been reported by its thread.
            drop(writer.join());
        }
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Command,
    ) -> Result<T, StoreError> {
        let Some(commands) = self.commands.lock().clone() else { return Err(StoreError::Closed) };
        let (answer, answered) = oneshot::channel();
        commands.send((Instant::now(), command(answer))).await.map_err(|_| StoreError::Closed)?;
        drop(commands);
        answered
            .await
            .unwrap_or_else(|_| Err(StoreError::Unknown("the writer ended in between".into())))
    }

    /// The newest state. An engine that has failed is opened again for it.
    async fn view(&self) -> Result<View, StoreError> {
        let now = || self.shared.look(|published| View::of(published));
        if let Some(view) = now() {
            return Ok(view);
        }
        self.ask(|answer| Command::Mend { answer }).await?;
        now().ok_or_else(|| StoreError::Unavailable("the file could not be opened again".into()))
    }

    /// Reads the file as it is now, on a thread that may wait for it.
    async fn read<T: Send + 'static>(
        &self,
        read: impl Fn(&View) -> Result<T, Fault> + Send + Sync + 'static,
    ) -> Result<Snapshot<T>, StoreError> {
        let read = Arc::new(read);
        let mut n_read = 0;
        loop {
            n_read += 1;
            let view = self.view().await?;
            let revision = Revision(view.standing.revision);
            let read = read.clone();
            match tokio::task::spawn_blocking(move || read(&view)).await {
                Ok(Ok(value)) => return Ok(Snapshot { revision, value }),
                // Somebody else's call has failed before this one: the file is opened again, and
                // this read is done again.
                Ok(Err(fault)) if fault.is_of_before() && n_read < READS_MAX => {
                    self.ask(|answer| Command::Mend { answer }).await?;
                }
                Ok(Err(fault)) => return Err(self.shared.fail(&fault)),
                Err(error) => return Err(self.shared.fail(&Fault::of_thread(&error))),
            }
        }
    }

    /// Has the values removed whose time is over. One that cannot be removed lives on, and is tried
    /// again [`DEATHS_PERIOD`] later.
    async fn expire(&self) -> Result<(), StoreError> {
        loop {
            let now = Instant::now();
            let keys = self.shared.look(|published| published.dead(now, DEATHS_MAX));
            if keys.is_empty() {
                return Ok(());
            }
            let (tried, n) = (keys.clone(), keys.len());
            let asked = self.ask(|answer| Command::Expire { keys, answer }).await;
            if let Err(StoreError::Closed) = asked {
                return Err(StoreError::Closed);
            }
            self.shared.look(|published| match asked {
                Ok(()) => published.died(&tried, now),
                Err(_) => published.deaths_tried = Some(now + DEATHS_PERIOD),
            });
            if n < DEATHS_MAX {
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
            Ok(self.inner.shared.look(|published| Revision(published.standing.revision)))
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
            let lately = self.inner.shared.look(|published| {
                let value = published.lately(key).filter(|_| at == At::Latest)?;
                Some(Snapshot { revision: Revision(published.standing.revision), value })
            });
            if let Some(found) = lately {
                found.value.as_ref().map_or(Ok(()), damage::check_mark)?;
                return Ok(found);
            }
            let key = Bytes::copy_from_slice(key);
            let found = self.inner.read(move |view| view.get(&key, at)).await?;
            if let (At::Latest, Some(entry)) = (at, &found.value) {
                self.inner.shared.look(|published| published.keep(entry, found.revision));
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
            let dies = txn.ttl.map(|ttl| {
                let ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
                // 0 says "never" in the file.
                (shape::death(now, ttl), (self.inner.options.now_ms)().saturating_add(ms).max(1))
            });
            let committed = self.inner.ask(|answer| Command::Commit { txn, dies, answer }).await?;
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
            self.inner.shared.look(|published| published.check_retained(after))?;
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

    fn keeps_history(&self) -> bool {
        true
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), StoreError>> {
        async move {
            self.inner.expire().await?;
            self.inner.ask(|answer| Command::Compact { revision, answer }).await
        }
        .boxed()
    }
}
