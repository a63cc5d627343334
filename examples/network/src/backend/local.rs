//! A back end that allocates addresses from a registry on disk.
//!
//! # Theory
//!
//! The registry is one JSON file: uid → range, gateway, name. It is read when the back end is
//! opened. Every change writes a new file beside it, syncs that, and renames it over the old one,
//! so a crash leaves the old registry or the new one. A call returns after the rename: acknowledged
//! changes survive. Memory changes only after the disk has.

use super::{Allocation, Backend, BackendError, Desired, Existing, Owner};
use crate::subnet::Subnet;
use futures::future::{BoxFuture, FutureExt};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use tokio::io::AsyncWriteExt;
use tokio::sync::Mutex;

/// The address registry.
#[derive(Debug)]
pub struct LocalBackend {
    path: PathBuf,
    /// Held during the write, so that changes reach the disk one after the other. Asynchronous,
    /// because it is held across an `await`.
    entries: Mutex<BTreeMap<String, Entry>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    name: String,
    cidr: String,
    gateway: Ipv4Addr,
}

impl LocalBackend {
    /// Opens a registry; a missing file is an empty one.
    ///
    /// # Errors
    ///
    /// The file exists and cannot be read, or is not a registry.
    pub async fn open(path: impl Into<PathBuf>) -> Result<Self, BackendError> {
        let path = path.into();
        let entries = match tokio::fs::read(&path).await {
            Ok(bytes) => parse(&bytes).map_err(|source| failed("read", &path, source))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(failed("read", &path, error)),
        };
        Ok(Self { path, entries: Mutex::new(entries) })
    }

    /// All networks as `(owner's name, range)`, in the order of their uids.
    pub async fn all(&self) -> Vec<(String, String)> {
        self.entries
            .lock()
            .await
            .values()
            .map(|entry| (entry.name.clone(), entry.cidr.clone()))
            .collect()
    }

    async fn write(&self, entries: &BTreeMap<String, Entry>) -> Result<(), BackendError> {
        replace(&self.path, entries).await.map_err(|source| failed("write", &self.path, source))
    }
}

fn failed(what: &'static str, path: &Path, source: io::Error) -> BackendError {
    BackendError::Registry { what, path: path.display().to_string(), source }
}

fn device(owner: &Owner) -> String {
    format!("registry/{}", owner.uid)
}

/// Reads a registry; an entry whose range does not parse makes it no registry.
fn parse(bytes: &[u8]) -> io::Result<BTreeMap<String, Entry>> {
    let entries: BTreeMap<String, Entry> = serde_json::from_slice(bytes)?;
    for entry in entries.values() {
        entry
            .cidr
            .parse::<Subnet>()
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    }
    Ok(entries)
}

/// Writes beside the file, syncs, renames over it, syncs the folder.
async fn replace(path: &Path, entries: &BTreeMap<String, Entry>) -> io::Result<()> {
    let folder =
        path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    tokio::fs::create_dir_all(folder).await?;
    let beside = path.with_extension("new");
    let mut file = tokio::fs::File::create(&beside).await?;
    file.write_all(&serde_json::to_vec_pretty(entries)?).await?;
    file.sync_all().await?;
    tokio::fs::rename(&beside, path).await?;
    tokio::fs::File::open(folder).await?.sync_all().await
}

impl Backend for LocalBackend {
    fn ensure<'a>(
        &'a self,
        owner: &'a Owner,
        desired: Desired,
    ) -> BoxFuture<'a, Result<Allocation, BackendError>> {
        async move {
            let mut entries = self.entries.lock().await;
            for (_, entry) in entries.iter().filter(|(uid, _)| **uid != owner.uid) {
                let held: Option<Subnet> = entry.cidr.parse().ok();
                if let Some(held) = held.filter(|held| held.overlaps(&desired.subnet)) {
                    return Err(BackendError::Overlap {
                        wanted: desired.subnet,
                        held,
                        holder: entry.name.clone(),
                    });
                }
            }
            let entry = Entry {
                name: owner.name.clone(),
                cidr: desired.subnet.to_string(),
                gateway: desired.gateway,
            };
            let changed = entries.get(&owner.uid) != Some(&entry);
            if changed {
                let mut next = entries.clone();
                next.insert(owner.uid.clone(), entry);
                self.write(&next).await?;
                *entries = next;
            }
            Ok(Allocation { device: device(owner), changed })
        }
        .boxed()
    }

    fn get<'a>(
        &'a self,
        owner: &'a Owner,
    ) -> BoxFuture<'a, Result<Option<Existing>, BackendError>> {
        async move {
            let entries = self.entries.lock().await;
            // Every entry's range parses: it was checked when it was read, or made of one.
            let held = entries.get(&owner.uid).and_then(|entry| {
                let desired = Desired { subnet: entry.cidr.parse().ok()?, gateway: entry.gateway };
                Some(Existing { desired, device: device(owner) })
            });
            Ok(held)
        }
        .boxed()
    }

    fn release<'a>(&'a self, owner: &'a Owner) -> BoxFuture<'a, Result<bool, BackendError>> {
        async move {
            let mut entries = self.entries.lock().await;
            let mut next = entries.clone();
            let held = next.remove(&owner.uid).is_some();
            if held {
                self.write(&next).await?;
                *entries = next;
            }
            Ok(held)
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(uid: &str) -> Owner {
        Owner { uid: uid.into(), name: format!("default/{uid}") }
    }

    fn desired(cidr: &str, gateway: &str) -> Desired {
        Desired { subnet: cidr.parse().unwrap(), gateway: gateway.parse().unwrap() }
    }

    #[tokio::test]
    async fn overlapping_range_is_refused_and_says_whose_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let backend = LocalBackend::open(folder.path().join("networks.json")).await.unwrap();
        backend.ensure(&owner("a"), desired("192.168.0.0/16", "192.168.0.1")).await.unwrap();
        let refused = backend
            .ensure(&owner("b"), desired("192.168.1.0/24", "192.168.1.1"))
            .await
            .unwrap_err();
        assert_eq!(
            refused.to_string(),
            "192.168.1.0/24 overlaps 192.168.0.0/16, which default/a holds"
        );
        assert!(backend.release(&owner("a")).await.unwrap());
        backend.ensure(&owner("b"), desired("192.168.1.0/24", "192.168.1.1")).await.unwrap();
    }

    #[tokio::test]
    async fn own_range_may_shrink_and_repeating_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let backend = LocalBackend::open(folder.path().join("networks.json")).await.unwrap();
        let first =
            backend.ensure(&owner("a"), desired("192.168.0.0/16", "192.168.0.1")).await.unwrap();
        let again =
            backend.ensure(&owner("a"), desired("192.168.0.0/16", "192.168.0.1")).await.unwrap();
        let smaller =
            backend.ensure(&owner("a"), desired("192.168.1.0/24", "192.168.1.1")).await.unwrap();
        assert_eq!((first.changed, again.changed, smaller.changed), (true, false, true));
        assert_eq!(backend.all().await, [("default/a".to_owned(), "192.168.1.0/24".to_owned())]);
        let held = backend.get(&owner("a")).await.unwrap().unwrap();
        assert_eq!(
            (held.desired.subnet.to_string(), held.device),
            ("192.168.1.0/24".to_owned(), "registry/a".to_owned())
        );
    }

    #[tokio::test]
    async fn what_was_acknowledged_is_there_after_reopening() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/networks.json");
        let backend = LocalBackend::open(&path).await.unwrap();
        backend.ensure(&owner("a"), desired("10.0.0.0/8", "10.0.0.1")).await.unwrap();
        drop(backend);
        // A half-written file of a crash beside it does not count.
        std::fs::write(path.with_extension("new"), "{").unwrap();
        let backend = LocalBackend::open(&path).await.unwrap();
        assert_eq!(backend.all().await.len(), 1);
        assert!(backend.release(&owner("a")).await.unwrap());
        assert!(!backend.release(&owner("a")).await.unwrap());
        assert!(LocalBackend::open(&path).await.unwrap().all().await.is_empty());
    }

    #[tokio::test]
    async fn damaged_registry_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("networks.json");
        for damaged in ["{", r#"{"a": {"name": "x", "cidr": "10.0.0.1/8", "gateway": "10.0.0.1"}}"#]
        {
            std::fs::write(&path, damaged).unwrap();
            assert!(matches!(
                LocalBackend::open(&path).await,
                Err(BackendError::Registry { what: "read", .. })
            ));
            assert_eq!(std::fs::read_to_string(&path).unwrap(), damaged);
        }
    }

    #[tokio::test]
    async fn failed_write_leaves_memory_as_the_disk_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("networks.json");
        let backend = LocalBackend::open(&path).await.unwrap();
        backend.ensure(&owner("a"), desired("10.0.0.0/8", "10.0.0.1")).await.unwrap();
        // A folder in the way of the temporary file makes every write fail, for root too.
        std::fs::create_dir(path.with_extension("new")).unwrap();
        assert!(backend.release(&owner("a")).await.is_err());
        assert_eq!(backend.all().await.len(), 1);
    }
}
