//! Every existing object and every change, for readers in this process.
//!
//! # Theory
//!
//! A reader has a mailbox. The watch cache's feed adds changes to it once they are in the caches. A
//! reader starts with [`ObjectChange::Resync`]. Then it gets every object of a snapshot of each
//! resource, an [`ObjectChange::Synced`], and the changes after the snapshots, each once and in the
//! order of revisions. A full mailbox, or a refill of the cache, leads to another resync. The feed
//! never waits for a reader, and without readers it costs nothing.
//!
//! One reader gets the objects of all resources, while an informer has one resource: for the
//! garbage collector's graph, for example. Bytes are shared with the cache. A reader that says
//! which changes it wants is not woken by others. Nobody gets the server's own records.
use super::{Index, Shared};
use bytes::Bytes;
use parking_lot::Mutex;
use setpoint_object::keys;
use setpoint_object::skim::{Skim, SkimError};
use setpoint_store::Change;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Weak};
use tokio::sync::Notify;

/// Maximum number of waiting changes per reader: some seconds of the writes of a busy server. A
/// reader that is further behind resyncs.
pub const MAILBOX_CHANGES_MAX: usize = 16_384;
/// Maximum bytes of waiting changes per reader. 64 MiB, as a window of the watch cache.
pub const MAILBOX_BYTES_MAX: usize = 64 << 20;

/// An object as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredObject {
    /// Its key in the store.
    pub key: Bytes,
    /// The revision of this state; for a deleted object, that of its deletion.
    pub revision: u64,
    /// In the stored version, without resourceVersion. For a deleted object, its last state.
    pub value: Bytes,
}
impl StoredObject {
    /// An object as it is stored at `revision`.
    pub fn new(key: Bytes, revision: u64, value: Bytes) -> Self {
        Self { key, revision, value }
    }
    /// Its metadata.
    ///
    /// # Errors
    ///
    /// The value is damaged, or encrypted with an unknown key.
    pub fn skim(&self) -> Result<Skim<'_>, SkimError> {
        Skim::of(&self.value)
    }
    /// The key prefix of its resource:
    /// [`Resource::storage_prefix`](crate::Resource::storage_prefix).
    pub fn prefix(&self) -> &str {
        keys::prefix_of(&self.key).unwrap_or_default()
    }
}

/// A change for a reader of all objects.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ObjectChange {
    /// Discard all state: every object follows, as `Put`.
    Resync,
    /// Every object that existed at the resync has been sent, at this revision or a later one.
    Synced(u64),
    /// A new or changed object.
    Put(StoredObject),
    /// A deleted object.
    Deleted(StoredObject),
}

/// A stream of every existing object and every change. Made by
/// [`Registry::object_changes`](crate::Registry::object_changes).
#[derive(Debug)]
pub struct ObjectChanges {
    shared: Arc<Shared>,
    mailbox: Arc<Mailbox>,
    /// The rest of the snapshots; `None` once they are sent.
    initial: Option<Initial>,
    /// By prefix, the revision of the snapshot: changes up to it have been sent.
    delivered: BTreeMap<Arc<str>, u64>,
}
#[derive(Debug)]
struct Initial {
    resources: VecDeque<Index>,
    /// The last sent key of the first snapshot.
    after: Option<Bytes>,
    revision: u64,
}
/// All mailboxes.
#[derive(Debug, Default)]
pub(super) struct Mailboxes {
    all: Mutex<Vec<Weak<Mailbox>>>,
}
struct Mailbox {
    /// Whether the reader wants the changes of an object, by its key and its bytes.
    is_wanted: Box<IsWanted>,
    state: Mutex<Mail>,
    changed: Notify,
}
/// Says of an object's key and bytes whether its change is wanted.
type IsWanted = dyn Fn(&[u8], &[u8]) -> bool + Send + Sync;
impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").field("state", &self.state).finish_non_exhaustive()
    }
}
#[derive(Debug)]
struct Mail {
    changes: VecDeque<Change>,
    n_bytes: usize,
    /// Changes were dropped: the reader must resync.
    needs_resync: bool,
}

impl Mailboxes {
    fn open(&self, is_wanted: Box<IsWanted>) -> Arc<Mailbox> {
        let mail = Mail { changes: VecDeque::new(), n_bytes: 0, needs_resync: true };
        let (state, changed) = (Mutex::new(mail), Notify::new());
        let mailbox = Arc::new(Mailbox { is_wanted, state, changed });
        self.all.lock().push(Arc::downgrade(&mailbox));
        mailbox
    }
    fn readers(&self) -> Vec<Arc<Mailbox>> {
        let mut all = self.all.lock();
        all.retain(|mailbox| mailbox.strong_count() > 0);
        all.iter().filter_map(Weak::upgrade).collect()
    }
    /// Sends changes that are in the caches to the readers that want them.
    pub(super) fn send(&self, changes: &[Change]) {
        for mailbox in self.readers() {
            let wanted: Vec<_> = changes.iter().filter(|change| mailbox.wants(change)).collect();
            if wanted.is_empty() {
                continue;
            }
            let mut mail = mailbox.state.lock();
            wanted.into_iter().for_each(|change| mail.push(change));
            drop(mail);
            mailbox.changed.notify_one();
        }
    }
    /// Makes every reader resync, or check whether the cache is stopped.
    pub(super) fn require_resync(&self) {
        for mailbox in self.readers() {
            mailbox.state.lock().require_resync();
            mailbox.changed.notify_one();
        }
    }
}
impl Mailbox {
    /// Of a deleted object, the last state counts.
    fn wants(&self, change: &Change) -> bool {
        let before = change.previous.as_ref().map(|before| &before.value);
        let bytes = change.value.as_ref().or(before);
        !keys::is_record(&change.key)
            && bytes.is_some_and(|bytes| (self.is_wanted)(&change.key, bytes))
    }
}
impl Mail {
    fn push(&mut self, change: &Change) {
        if self.needs_resync {
            return;
        }
        self.n_bytes += weight(change);
        self.changes.push_back(change.clone());
        if self.changes.len() > MAILBOX_CHANGES_MAX || self.n_bytes > MAILBOX_BYTES_MAX {
            self.require_resync();
        }
    }
    fn require_resync(&mut self) {
        (self.changes, self.n_bytes, self.needs_resync) = (VecDeque::new(), 0, true);
    }
}
fn weight(change: &Change) -> usize {
    let before = change.previous.as_ref().map_or(0, |before| before.value.len());
    change.key.len() + change.value.as_ref().map_or(0, Bytes::len) + before
}

impl ObjectChanges {
    pub(super) fn new(
        shared: Arc<Shared>,
        is_wanted: impl Fn(&[u8], &[u8]) -> bool + Send + Sync + 'static,
    ) -> Self {
        let mailbox = shared.mailboxes.open(Box::new(is_wanted));
        Self { shared, mailbox, initial: None, delivered: BTreeMap::new() }
    }
    /// The next change. `None`: the server has stopped.
    ///
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<ObjectChange> {
        loop {
            if let Some(initial) = &mut self.initial {
                let next = initial.next();
                if !matches!(next, ObjectChange::Put(_)) {
                    self.initial = None;
                }
                return Some(next);
            }
            let (needs_resync, change) = {
                let mut mail = self.mailbox.state.lock();
                let change = mail.changes.pop_front();
                mail.n_bytes -= change.as_ref().map_or(0, weight);
                (mail.needs_resync, change)
            };
            if self.shared.reached.get().is_stopped && change.is_none() {
                return None;
            }
            if needs_resync {
                self.shared.reached.wait_for(|r| r.is_filled || r.is_stopped).await;
                if self.shared.reached.get().is_filled {
                    self.resync();
                    return Some(ObjectChange::Resync);
                }
                continue;
            }
            match change {
                Some(change) => {
                    if let Some(change) = self.undelivered(change) {
                        return Some(change);
                    }
                }
                None => self.mailbox.changed.notified().await,
            }
        }
    }
    /// Takes snapshots. Changes in the mailbox from here on may be in a snapshot.
    fn resync(&mut self) {
        {
            let mut mail = self.mailbox.state.lock();
            mail.require_resync();
            mail.needs_resync = false;
        }
        let revision = self.shared.reached.get().revision;
        let resources: Vec<_> = {
            let resources = self.shared.resources.read();
            let all = resources.by_prefix.iter().map(|(p, r)| (p.clone(), r.clone()));
            all.filter(|(prefix, _)| !keys::is_record(prefix.as_bytes())).collect()
        };
        self.delivered.clear();
        let mut indexes = VecDeque::with_capacity(resources.len());
        for (prefix, resource) in resources {
            let (index, newest) = resource.snapshot();
            self.delivered.insert(prefix, newest);
            indexes.push_back(index);
        }
        self.initial = Some(Initial { resources: indexes, after: None, revision });
    }
    /// Converts a change for the reader; `None` if it was in a snapshot.
    fn undelivered(&self, change: Change) -> Option<ObjectChange> {
        let revision = change.revision.0;
        let prefix = keys::prefix_of(&change.key).unwrap_or_default();
        if self.delivered.get(prefix).is_some_and(|delivered| revision <= *delivered) {
            return None;
        }
        let key = change.key;
        match (change.value, change.previous) {
            (Some(value), _) => Some(ObjectChange::Put(StoredObject { key, revision, value })),
            (None, Some(before)) => {
                let value = before.value;
                Some(ObjectChange::Deleted(StoredObject { key, revision, value }))
            }
            // A delete of a missing key changes nothing.
            (None, None) => None,
        }
    }
}
impl Initial {
    fn next(&mut self) -> ObjectChange {
        while let Some(index) = self.resources.front() {
            let from = self.after.as_ref().map_or(Bound::Unbounded, |key| Bound::Excluded(&**key));
            if let Some(item) = index.range(from, Bound::Unbounded).next() {
                self.after = Some(item.key.clone());
                let (key, revision, value) = (item.key.clone(), item.revision, item.value.clone());
                return ObjectChange::Put(StoredObject { key, revision, value });
            }
            self.resources.pop_front();
            self.after = None;
        }
        ObjectChange::Synced(self.revision)
    }
}
