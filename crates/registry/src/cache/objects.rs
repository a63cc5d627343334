//! Every object there is and every change of one, for readers in this process.
//!
//! # Theory
//!
//! A reader has a mailbox, which the watch cache's feed fills once what it holds is in the caches.
//! It begins with
//! [`ObjectChange::Resync`]: from then on it gets every object of a snapshot of each resource, a
//! [`ObjectChange::Synced`], and what came after the snapshots, each change once and in the order
//! of the revisions. A mailbox that is full, and a cache that is filled anew, lead back to a
//! resync. Nobody waits for a reader, and none costs anything while there is none.
//!
//! It takes one of these to know all objects, where an informer knows one resource: the garbage
//! collector's graph, say. Bytes are shared with the cache.
use super::{Index, Shared};
use bytes::Bytes;
use parking_lot::Mutex;
use setpoint_object::keys;
use setpoint_object::skim::{Skim, SkimError};
use setpoint_store::Change;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Weak};
use tokio::sync::Notify;

/// Changes that wait for one reader at most: some seconds of the writes of a busy server. One that
/// has more to catch up with starts over.
pub const MAILBOX_CHANGES_MAX: usize = 16_384;
/// Bytes that wait for one reader at most. 64 MiB, as much as a window of the watch cache.
pub const MAILBOX_BYTES_MAX: usize = 64 << 20;

/// An object as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredObject {
    /// Its key in the store.
    pub key: Bytes,
    /// When it became so; for a deleted one, when it was deleted.
    pub revision: u64,
    /// In the stored version, without resourceVersion. For a deleted one, as it was last.
    pub value: Bytes,
}
impl StoredObject {
    /// Its metadata.
    ///
    /// # Errors
    ///
    /// The value is encrypted under a key that is not known, or damaged.
    pub fn skim(&self) -> Result<Skim<'_>, SkimError> {
        Skim::of(&self.value)
    }
    /// What the keys of its resource start with:
    /// [`Resource::storage_prefix`](crate::Resource::storage_prefix).
    pub fn prefix(&self) -> &str {
        keys::prefix_of(&self.key).unwrap_or_default()
    }
}

/// What a reader of everything is told.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ObjectChange {
    /// What was told before is to be forgotten: every object follows, as `Put`.
    Resync,
    /// Every object there was at the resync, at this revision or a later one, has been told.
    Synced(u64),
    /// An object that is new, or has changed.
    Put(StoredObject),
    /// An object that is gone.
    Deleted(StoredObject),
}

/// Every object there is, and every change of one. Made by
/// [`Registry::object_changes`](crate::Registry::object_changes).
#[derive(Debug)]
pub struct ObjectChanges {
    shared: Arc<Shared>,
    mailbox: Arc<Mailbox>,
    /// What is left of the snapshots; `None` in between.
    initial: Option<Initial>,
    /// By prefix, the newest revision of the snapshot: what is not newer has been told.
    told: BTreeMap<Arc<str>, u64>,
}
#[derive(Debug)]
struct Initial {
    resources: VecDeque<Index>,
    /// The last key told of the first of them.
    after: Option<Bytes>,
    revision: u64,
}
/// Where the mailboxes are.
#[derive(Debug, Default)]
pub(super) struct Mailboxes {
    all: Mutex<Vec<Weak<Mailbox>>>,
}
#[derive(Debug)]
struct Mailbox {
    state: Mutex<Mail>,
    has_news: Notify,
}
#[derive(Debug)]
struct Mail {
    changes: VecDeque<Change>,
    n_bytes: usize,
    /// Something is missing.
    is_lost: bool,
}

impl Mailboxes {
    fn open(&self) -> Arc<Mailbox> {
        let mail = Mail { changes: VecDeque::new(), n_bytes: 0, is_lost: true };
        let mailbox = Arc::new(Mailbox { state: Mutex::new(mail), has_news: Notify::new() });
        self.all.lock().push(Arc::downgrade(&mailbox));
        mailbox
    }
    fn readers(&self) -> Vec<Arc<Mailbox>> {
        let mut all = self.all.lock();
        all.retain(|mailbox| mailbox.strong_count() > 0);
        all.iter().filter_map(Weak::upgrade).collect()
    }
    /// Whether nobody reads.
    pub(super) fn is_empty(&self) -> bool {
        self.all.lock().is_empty()
    }
    /// Tells every reader of changes that are in the caches.
    pub(super) fn send(&self, changes: &[Change]) {
        for mailbox in self.readers() {
            let mut mail = mailbox.state.lock();
            for change in changes {
                mail.push(change);
            }
            drop(mail);
            mailbox.has_news.notify_one();
        }
    }
    /// Has every reader start over, or look whether the cache has stopped.
    pub(super) fn lose(&self) {
        for mailbox in self.readers() {
            mailbox.state.lock().lose();
            mailbox.has_news.notify_one();
        }
    }
}
impl Mail {
    fn push(&mut self, change: &Change) {
        if self.is_lost {
            return;
        }
        self.n_bytes += weight(change);
        self.changes.push_back(change.clone());
        if self.changes.len() > MAILBOX_CHANGES_MAX || self.n_bytes > MAILBOX_BYTES_MAX {
            self.lose();
        }
    }
    fn lose(&mut self) {
        (self.changes, self.n_bytes, self.is_lost) = (VecDeque::new(), 0, true);
    }
}
fn weight(change: &Change) -> usize {
    let before = change.previous.as_ref().map_or(0, |before| before.value.len());
    change.key.len() + change.value.as_ref().map_or(0, Bytes::len) + before
}

impl ObjectChanges {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let mailbox = shared.mailboxes.open();
        Self { shared, mailbox, initial: None, told: BTreeMap::new() }
    }
    /// What comes next. `None`: the server has stopped.
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
            let (is_lost, change) = {
                let mut mail = self.mailbox.state.lock();
                let change = mail.changes.pop_front();
                mail.n_bytes -= change.as_ref().map_or(0, weight);
                (mail.is_lost, change)
            };
            if self.shared.reached.get().is_stopped && change.is_none() {
                return None;
            }
            if is_lost {
                self.shared.reached.wait_for(|r| r.is_filled || r.is_stopped).await;
                if self.shared.reached.get().is_filled {
                    self.resync();
                    return Some(ObjectChange::Resync);
                }
                continue;
            }
            match change {
                Some(change) => {
                    if let Some(change) = self.told_of(change) {
                        return Some(change);
                    }
                }
                None => self.mailbox.has_news.notified().await,
            }
        }
    }
    /// Takes snapshots. What is in the mailbox from here on may be in one of them.
    fn resync(&mut self) {
        {
            let mut mail = self.mailbox.state.lock();
            mail.lose();
            mail.is_lost = false;
        }
        let revision = self.shared.reached.get().revision;
        let resources: Vec<_> = {
            let resources = self.shared.resources.read();
            resources.by_prefix.iter().map(|(p, r)| (p.clone(), r.clone())).collect()
        };
        self.told.clear();
        let mut indexes = VecDeque::with_capacity(resources.len());
        for (prefix, resource) in resources {
            let (index, newest) = resource.snapshot();
            self.told.insert(prefix, newest);
            indexes.push_back(index);
        }
        self.initial = Some(Initial { resources: indexes, after: None, revision });
    }
    fn told_of(&self, change: Change) -> Option<ObjectChange> {
        let revision = change.revision.0;
        let prefix = keys::prefix_of(&change.key).unwrap_or_default();
        if self.told.get(prefix).is_some_and(|told| revision <= *told) {
            return None;
        }
        let key = change.key;
        match (change.value, change.previous) {
            (Some(value), _) => Some(ObjectChange::Put(StoredObject { key, revision, value })),
            (None, Some(before)) => {
                let value = before.value;
                Some(ObjectChange::Deleted(StoredObject { key, revision, value }))
            }
            // A key that was not there was deleted: nothing has changed.
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
