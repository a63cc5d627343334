//! Reads of own writes: objects that this process has just written, over those of an informer.
//!
//! # Theory
//!
//! A write is not in the cache before the watch delivers it. A controller that must not act twice
//! meanwhile passes the answers to its writes to a [`MutationCache`]
//! ([`written`](MutationCache::written)) and reads through it. For each key a read returns the
//! newer, by resourceVersion, of the stored and the written object; versions without an order never
//! win over the stored one. Also known as an assume cache.
//!
//! A written object is forgotten when the store has caught up, when it is the least recently used
//! of [`WRITTEN_MAX`], and after [`WRITTEN_TTL`].
//!
//! | the store has | was written       | a read returns                                                     |
//! |---------------|-------------------|--------------------------------------------------------------------|
//! | an object     | a newer version   | the written object                                                 |
//! | an object     | anything else     | the stored object; the written one is forgotten                    |
//! | nothing       | an object         | nothing; the written object, with [`show_unstored`](MutationCache::show_unstored) |
//!
//! For the last row, it must also be a [`Handler`] of the informer: an object that is not stored
//! was either just created or deleted. A deletion leaves a tombstone, so that a late call of
//! `written` for the same incarnation, or for an older version, is ignored.

use crate::event::{Event, Tombstone};
use crate::handler::Handler;
use crate::indexer::{Lister, Snapshot, UnknownIndex};
use crate::key::Key;
use crate::object::{DecodeError, Object};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use setpoint_object::bounded::Expiring;
use setpoint_object::resource_version::compare;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The largest number of written objects, and of tombstones: 100, as client-go's `MutationCache`.
pub const WRITTEN_MAX: usize = 100;

/// How long written objects and tombstones are kept: 5 min, as users of client-go's `MutationCache`
/// choose.
pub const WRITTEN_TTL: Duration = Duration::from_secs(300);

/// Written objects over stored ones. Cheap to clone; clones share their content. See the
/// [module's theory](self).
///
/// ```no_run
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use setpoint_informer::mutation::MutationCache;
/// # use setpoint_informer::{HandlerOptions, Object, SharedInformer, Stopped};
/// # fn example(informer: &SharedInformer<ConfigMap>, answer: Object<ConfigMap>) -> Result<(), Stopped> {
/// let cache = MutationCache::new(informer.lister()).show_unstored();
/// informer.add_handler(cache.clone(), HandlerOptions::default())?;
/// // The server has answered a create with `answer`:
/// cache.written(answer.clone());
/// assert!(cache.object(answer.key()).is_some());
/// # Ok(())
/// # }
/// ```
pub struct MutationCache<K> {
    lister: Lister<K>,
    shows_unstored: bool,
    state: Arc<Mutex<State<K>>>,
}

struct State<K> {
    written: Expiring<Key, Object<K>, Instant>,
    deleted: Expiring<Key, Incarnation, Instant>,
}

/// A deleted incarnation of a name.
struct Incarnation {
    uid: Box<str>,
    resource_version: Box<str>,
}

impl<K> Clone for MutationCache<K> {
    fn clone(&self) -> Self {
        let Self { lister, shows_unstored, state } = self;
        Self { lister: lister.clone(), shows_unstored: *shows_unstored, state: state.clone() }
    }
}

impl<K> fmt::Debug for MutationCache<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MutationCache")
            .field("shows_unstored", &self.shows_unstored)
            .finish_non_exhaustive()
    }
}

impl<K> MutationCache<K> {
    /// A cache over the store of an informer, without written objects.
    pub fn new(lister: Lister<K>) -> Self {
        let written = Expiring::new(WRITTEN_MAX);
        let deleted = Expiring::new(WRITTEN_MAX);
        Self {
            lister,
            shows_unstored: false,
            state: Arc::new(Mutex::new(State { written, deleted })),
        }
    }

    /// Makes reads return written objects that the store does not have. Needs the informer's events
    /// ([`observe`](Self::observe)), or a deleted object comes back for a while.
    pub fn show_unstored(mut self) -> Self {
        self.shows_unstored = true;
        self
    }

    /// Adds the object of the server's answer to a write.
    pub fn written(&self, object: Object<K>) {
        let mut state = self.state.lock();
        let (key, now) = (object.key().clone(), Instant::now());
        if state.deleted.get(&key, now).is_some_and(|gone| gone.covers(&object)) {
            return;
        }
        // The answers to two writes may come in any order.
        if state.written.get(&key, now).is_some_and(|held| !is_newer(&object, held)) {
            return;
        }
        state.written.put(key, object, now + WRITTEN_TTL);
    }

    /// Handles an event of the informer: a deletion leaves a tombstone, and a written object is
    /// forgotten when the store has caught up with it.
    pub fn observe(&self, event: &Event<K>) {
        let mut state = self.state.lock();
        match event {
            Event::Added { object, .. } | Event::Updated { new: object, .. } => {
                let held = state.written.get(object.key(), Instant::now());
                if held.is_some_and(|held| !is_newer(held, object)) {
                    state.written.remove(object.key());
                }
            }
            Event::Deleted { tombstone } => state.delete(tombstone),
        }
    }

    /// The newer of the stored and the written object, not decoded.
    pub fn object(&self, key: &Key) -> Option<Object<K>> {
        let mut state = self.state.lock();
        // Under the lock: a deletion is in the store before it is observed.
        let stored = self.lister.object(key);
        state.newest(key, stored, self.shows_unstored)
    }

    /// The objects of a value in an index, by key, not decoded. A written object is listed under
    /// its own values, not under those of the stored one.
    ///
    /// # Errors
    /// If there is no such index.
    pub fn objects_by_index(
        &self,
        index: &str,
        value: &str,
    ) -> Result<Vec<Object<K>>, UnknownIndex> {
        let (snapshot, written) = {
            let mut state = self.state.lock();
            let snapshot = self.lister.snapshot();
            let written = state.all_written(&snapshot, self.shows_unstored);
            (snapshot, written)
        };
        let stored = snapshot.by_index(index, value)?;
        let mut objects: BTreeMap<Key, Object<K>> =
            stored.map(|object| (object.key().clone(), object)).collect();
        for object in written {
            // If the index function fails for the written object, the stored one is read.
            match snapshot.would_list(index, value, &object) {
                Some(true) => _ = objects.insert(object.key().clone(), object),
                Some(false) => _ = objects.remove(object.key()),
                None => {}
            }
        }
        Ok(objects.into_values().collect())
    }
}

impl<K: DeserializeOwned + Send + Sync + 'static> MutationCache<K> {
    /// The newer of the stored and the written object. The namespace of a cluster-scoped object is
    /// empty.
    ///
    /// # Errors
    /// If the object does not fit `K`.
    pub fn get(&self, namespace: &str, name: &str) -> Result<Option<Arc<K>>, DecodeError> {
        self.object(&Key::new(namespace, name)).map(|object| object.get()).transpose()
    }
}

impl<K: Send + Sync + 'static> Handler<K> for MutationCache<K> {
    fn handle(&mut self, event: Event<K>) -> impl Future<Output = ()> + Send {
        self.observe(&event);
        std::future::ready(())
    }
}

impl<K> State<K> {
    fn newest(
        &mut self,
        key: &Key,
        stored: Option<Object<K>>,
        shows_unstored: bool,
    ) -> Option<Object<K>> {
        let Some(written) = self.written.get(key, Instant::now()) else { return stored };
        match stored {
            None => shows_unstored.then(|| written.clone()),
            Some(stored) if is_newer(written, &stored) => Some(written.clone()),
            Some(stored) => {
                self.written.remove(key);
                Some(stored)
            }
        }
    }

    /// All written objects that reads return instead of the stored ones.
    fn all_written(&mut self, snapshot: &Snapshot<K>, shows_unstored: bool) -> Vec<Object<K>> {
        let mut written = Vec::new();
        // Uses all of them in turn, which keeps their order.
        let keys: Vec<Key> = self.written.keys().cloned().collect();
        for key in keys {
            let stored = snapshot.get(&key);
            if let Some(newest) = self.newest(&key, stored.clone(), shows_unstored)
                && !stored.is_some_and(|stored| stored.same(&newest))
            {
                written.push(newest);
            }
        }
        written
    }

    fn delete(&mut self, tombstone: &Tombstone<K>) {
        let key = tombstone.key();
        let Some(object) = tombstone.object() else {
            // The incarnation is unknown.
            self.written.remove(key);
            return;
        };
        let gone = Incarnation {
            uid: object.uid().into(),
            resource_version: object.resource_version().into(),
        };
        let now = Instant::now();
        if self.written.get(key, now).is_some_and(|written| gone.covers(written)) {
            self.written.remove(key);
        }
        self.deleted.put(key.clone(), gone, now + WRITTEN_TTL);
    }
}

impl Incarnation {
    /// Whether a version is of this incarnation or an earlier one. A version without an order
    /// counts as one.
    fn covers<K>(&self, object: &Object<K>) -> bool {
        let is_later =
            compare(object.resource_version(), &self.resource_version) == Some(Ordering::Greater);
        !is_later || (!self.uid.is_empty() && *self.uid == *object.uid())
    }
}

/// Whether a version is known to be newer than another.
fn is_newer<K>(object: &Object<K>, than: &Object<K>) -> bool {
    compare(object.resource_version(), than.resource_version()) == Some(Ordering::Greater)
}

#[cfg(test)]
mod tests;
