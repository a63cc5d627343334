//! The engines that run in this process.

use crate::at_once::AtOnce;
use crate::client::Place;
use crate::log::{Change, Log};
use setpoint::store::{DiskOptions, DiskStore, MemoryStore, Revision, Store, StoreError};
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

/// The engine of a history.
#[derive(Debug)]
pub(crate) enum Engine {
    /// In memory: survives the servers over it.
    Memory(AtOnce),
    /// A file, in a folder with one copy for each time the machine was killed.
    Disk {
        /// Its folders, by number.
        folder: TempDir,
        /// How often it was opened.
        n_opened: u32,
        /// The open store.
        store: DiskStore,
        /// The same, as used by the servers.
        at_once: AtOnce,
    },
}

impl Engine {
    /// Creates one in memory.
    pub(crate) fn memory() -> Self {
        Self::Memory(AtOnce::new(Arc::new(MemoryStore::default())))
    }

    /// Creates one on disk.
    pub(crate) fn disk() -> Self {
        // On a RAM disk if possible: the subject is the engine, not the disk.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let store = open(&folder.path().join("0"));
        let at_once = AtOnce::new(Arc::new(store.clone()));
        Self::Disk { folder, n_opened: 1, store, at_once }
    }

    /// The store as its users see it.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::Memory(store) => Arc::new(store.clone()),
            Self::Disk { at_once, .. } => Arc::new(at_once.clone()),
        }
    }

    /// Whether it can be closed and opened again.
    pub(crate) fn is_durable(&self) -> bool {
        matches!(self, Self::Disk { .. })
    }

    /// Closes or kills it, and opens it again, while nobody uses it.
    pub(crate) async fn reopen(&mut self, is_killed: bool) {
        let Self::Disk { folder, n_opened, store, at_once } = self else { return };
        let name = |n: u32| folder.path().join(n.to_string());
        let (old, new) = (name(*n_opened - 1), name(*n_opened));
        if is_killed {
            // The state that a killed process leaves: the files as they are.
            std::fs::create_dir(&new).unwrap();
            for file in std::fs::read_dir(&old).unwrap() {
                let file = file.unwrap();
                std::fs::copy(file.path(), new.join(file.file_name())).unwrap();
            }
            store.close().await;
        } else {
            store.close().await;
            std::fs::rename(&old, &new).unwrap();
        }
        *n_opened += 1;
        *store = open(&new);
        *at_once = AtOnce::new(Arc::new(store.clone()));
    }
}

fn open(folder: &Path) -> DiskStore {
    let options = DiskOptions { cache_bytes: 1 << 20, ..DiskOptions::default() };
    DiskStore::open(folder, options).unwrap()
}

/// All changes of the clients' objects after a revision, with keys of a prefix.
pub(crate) async fn log(
    store: &dyn Store,
    place: &Place,
    prefix: &str,
    after: Revision,
) -> Result<Log, StoreError> {
    let end = store.revision().await?;
    let mut feed = store.changes(prefix.to_owned().into(), after).await?;
    let (mut log, mut reached) = (Log { changes: Vec::new(), until: end.0 }, after);
    while reached < end {
        let batch = feed.next().await?;
        reached = batch.revision;
        for change in batch.changes.into_iter().filter(|change| change.revision <= end) {
            let key = String::from_utf8(change.key.to_vec()).unwrap();
            let Some(key) = place.key(&key) else { continue };
            let value = change.value.map(|value| {
                let object: serde_json::Value = serde_json::from_slice(&value).unwrap();
                object["data"]["v"].as_str().unwrap().parse().unwrap()
            });
            log.changes.push(Change { revision: change.revision.0, key, value });
        }
    }
    Ok(log)
}
