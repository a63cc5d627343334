//! Reads your own writes: waits until the cache shows them, without asking the server and without
//! polling.
//!
//! # Theory
//!
//! A client and its clones share a record of the last write of each object: the version in the
//! server's answer, or that the object is gone. A read of own writes looks there, and waits for the
//! cache:
//!
//! | the last write left         | the read waits until the cache                                                       |
//! |-----------------------------|--------------------------------------------------------------------------------------|
//! | no record                   | (does not wait)                                                                      |
//! | an object at a version      | has the object at this or a later version, or has reached the version as a whole     |
//! | no object                   | has none, or one with another uid                                                    |
//!
//! A write of an object that the cache does not select, by labels or fields, leaves no record: the
//! cache never shows it.
//!
//! Answers may arrive in another order than the server wrote. A record is only replaced by a newer
//! version. That an object is gone stays recorded until a newer version of an object with another
//! uid is written.
//!
//! The record holds the last write of [`OWN_WRITES_MAX`] objects. For older ones it keeps the
//! newest version per type and namespace, so that a read may wait too long but never too short.
//! Namespaces are separate because a cache of one does not see the versions of another (CCH-4).
//! Beyond [`OWN_WRITES_MAX`] namespaces, one version per type stands for the rest. The cache wakes
//! the reader; the wait is bounded.
//!
//! A read of a list waits for the newest version per namespace, which is kept beside the record, so
//! its cost does not grow with the number of writes. A version that the cache has shown costs a
//! comparison.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
    time::Duration,
};

use hashbrown::HashMap;
use parking_lot::Mutex;
use setpoint_informer::{AtLeastError, Cacheable, Lister};
use setpoint_object::{Head, resource_version, skim};

use super::{Api, ClientError};
use crate::{
    cache::{CacheInformer, CacheLister},
    request::Request,
};

/// How many objects' last writes a client records. 4096: more than the running passes write. An
/// entry takes about 200 bytes.
pub const OWN_WRITES_MAX: usize = 4096;

/// How long a read waits for the cache to show a write, by default. 5 s: a watch is milliseconds
/// behind. If it takes longer the watch is broken, and the pass should be retried.
pub const OWN_WRITE_WAIT_MAX: Duration = Duration::from_secs(5);

/// The last writes of a client and its clones.
#[derive(Debug, Default)]
pub(crate) struct OwnWrites(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    by_key: HashMap<(Arc<str>, Request), (u64, OwnWrite)>,
    /// By age.
    by_age: BTreeMap<u64, (Arc<str>, Request)>,
    next_turn: u64,
    /// The newest version per resource and namespace among evicted entries; `None` stands for the
    /// namespaces beyond the limit.
    evicted: HashMap<Place, Arc<str>>,
    /// The same of all writes so far.
    newest: HashMap<Arc<str>, Versions>,
    /// Number of entries in `newest`.
    n_newest: usize,
    /// The keys of `by_key` whose objects are gone.
    deleted: HashMap<Arc<str>, BTreeSet<Request>>,
}

/// A resource, and one of its namespaces.
type Place = (Arc<str>, Option<Arc<str>>);

/// Versions by namespace.
type Versions = BTreeMap<Option<Arc<str>>, Arc<str>>;

/// The result of the last write of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OwnWrite {
    /// The object at this version.
    Version(Arc<str>),
    /// The object with this uid is gone, or any object if the uid is empty. `after` is the version
    /// of the last write before.
    Gone { uid: Arc<str>, after: Option<Arc<str>> },
}

impl OwnWrite {
    /// The record after this one and a further answer, which may be older. `uid` is that of the
    /// object in the answer, and may be empty.
    fn joined(&self, answer: Self, uid: &str) -> Self {
        match (self, answer) {
            (Self::Version(known), Self::Version(version)) if !is_newer(&version, known) => {
                self.clone()
            }
            (Self::Version(known), Self::Gone { after: Some(after), .. })
                if is_newer(known, &after) =>
            {
                self.clone()
            }
            // An object that is gone never comes back; one of its name has another uid.
            (Self::Gone { uid: gone, after }, Self::Version(version))
                if !uid.is_empty() && **gone == *uid =>
            {
                let after = after.clone().into_iter().fold(version, newest_of);
                Self::Gone { uid: gone.clone(), after: Some(after) }
            }
            (Self::Gone { after: Some(after), .. }, Self::Version(version))
                if !is_newer(&version, after) =>
            {
                self.clone()
            }
            (_, answer) => answer,
        }
    }
}

impl State {
    /// Records an answer; `uid` is that of its object, and may be empty.
    fn set(&mut self, id: (Arc<str>, Request), answer: OwnWrite, uid: &str) {
        self.note_newest(&id, &answer);
        let write = match self.by_key.get(&id) {
            Some((_, known)) => known.joined(answer, uid),
            None => answer,
        };
        let turn = self.next_turn;
        self.next_turn += 1;
        self.note_deleted(&id, matches!(write, OwnWrite::Gone { .. }));
        self.by_age.insert(turn, id.clone());
        if let Some((earlier, _)) = self.by_key.insert(id, (turn, write)) {
            self.by_age.remove(&earlier);
        }
        if self.by_key.len() <= OWN_WRITES_MAX {
            return;
        }
        let Some((_, id)) = self.by_age.pop_first() else { return };
        self.note_deleted(&id, false);
        if let Some((_, OwnWrite::Version(version))) = self.by_key.remove(&id) {
            let mut place = (id.0, Some(id.1.namespace));
            if self.evicted.len() >= OWN_WRITES_MAX && !self.evicted.contains_key(&place) {
                place.1 = None;
            }
            let newest = self.evicted.entry(place).or_insert_with(|| version.clone());
            if is_newer(&version, newest) {
                *newest = version;
            }
        }
    }

    fn note_newest(&mut self, (resource, key): &(Arc<str>, Request), write: &OwnWrite) {
        let version = match write {
            OwnWrite::Version(version) => Some(version),
            OwnWrite::Gone { after, .. } => after.as_ref(),
        };
        let Some(version) = version else { return };
        let of_resource = self.newest.entry(resource.clone()).or_default();
        let mut place = Some(key.namespace.clone());
        if self.n_newest >= OWN_WRITES_MAX && !of_resource.contains_key(&place) {
            place = None;
        }
        match of_resource.entry(place) {
            Entry::Vacant(vacant) => {
                vacant.insert(version.clone());
                self.n_newest += 1;
            }
            Entry::Occupied(mut newest) if is_newer(version, newest.get()) => {
                newest.insert(version.clone());
            }
            Entry::Occupied(_) => {}
        }
    }

    fn note_deleted(&mut self, (resource, key): &(Arc<str>, Request), is_gone: bool) {
        match (self.deleted.get_mut(resource), is_gone) {
            (Some(deleted), true) => _ = deleted.insert(key.clone()),
            (Some(deleted), false) => _ = deleted.remove(key),
            (None, true) => {
                self.deleted.insert(resource.clone(), BTreeSet::from([key.clone()]));
            }
            (None, false) => {}
        }
    }
}

fn newest_of(a: Arc<str>, b: Arc<str>) -> Arc<str> {
    if is_newer(&b, &a) { b } else { a }
}

fn is_newer(version: &str, than: &str) -> bool {
    resource_version::compare(version, than).is_some_and(std::cmp::Ordering::is_gt)
}

impl OwnWrites {
    /// Records the answer to a write: an object, which may be gone with this write, or something
    /// else. Returns the uid of an object that is gone.
    ///
    /// `is_selected`: whether the cache holds the object or will. If not, it is recorded only after
    /// an earlier write that the cache has not shown: the object was selected then, and it leaves
    /// the cache at this version.
    pub(super) fn note_answer(
        &self,
        resource: &Arc<str>,
        key: &Request,
        answer: &[u8],
        is_selected: bool,
    ) -> Option<Arc<str>> {
        let head = Head::of(answer).ok()?;
        let version = head.resource_version(answer);
        if !resource_version::has_order(&version) {
            return None;
        }
        let (uid, version) = (Arc::<str>::from(head.uid(answer)), Arc::from(&*version));
        let gone = is_gone(answer).then(|| uid.clone());
        let write = match &gone {
            Some(uid) => OwnWrite::Gone { uid: uid.clone(), after: Some(version) },
            None => OwnWrite::Version(version),
        };
        let id = (resource.clone(), key.clone());
        let mut state = self.0.lock();
        if is_selected || state.by_key.contains_key(&id) {
            state.set(id, write, &uid);
        }
        gone
    }

    /// Records that the object with this uid is gone; any object if the uid is empty.
    pub(super) fn note_gone(&self, resource: &Arc<str>, key: &Request, uid: &str) {
        let id = (resource.clone(), key.clone());
        let mut state = self.0.lock();
        let after = match state.by_key.get(&id) {
            Some((_, OwnWrite::Version(version))) => Some(version.clone()),
            Some((_, OwnWrite::Gone { after, .. })) => after.clone(),
            None => None,
        };
        state.set(id, OwnWrite::Gone { uid: uid.into(), after }, uid);
    }

    /// Whether an object from a cache is known to be older than the last write of its key.
    pub(super) fn is_outdated(
        &self,
        resource: &Arc<str>,
        key: &Request,
        (uid, version): (&str, &str),
    ) -> bool {
        let state = self.0.lock();
        match state.by_key.get(&(resource.clone(), key.clone())) {
            None => false,
            Some((_, OwnWrite::Version(written))) => is_newer(written, version),
            Some((_, OwnWrite::Gone { uid: gone, .. })) => gone.is_empty() || **gone == *uid,
        }
    }

    fn of(&self, resource: &Arc<str>, key: &Request) -> Option<OwnWrite> {
        let state = self.0.lock();
        if let Some((_, write)) = state.by_key.get(&(resource.clone(), key.clone())) {
            return Some(write.clone());
        }
        if state.evicted.is_empty() {
            return None;
        }
        let of_namespace = (resource.clone(), Some(key.namespace.clone()));
        let of_any = (resource.clone(), None);
        let evicted = [of_namespace, of_any].map(|place| state.evicted.get(&place).cloned());
        let newest = evicted.into_iter().flatten().reduce(newest_of);
        newest.map(OwnWrite::Version)
    }

    /// The newest written version of a resource per namespace; `None` stands for any namespace.
    fn newest(&self, resource: &Arc<str>) -> Versions {
        self.0.lock().newest.get(resource).cloned().unwrap_or_default()
    }

    /// The deleted objects of a resource, with their uids, by key.
    fn deleted(&self, resource: &Arc<str>) -> Vec<(Request, Arc<str>, OwnWrite)> {
        let state = self.0.lock();
        let keys = state.deleted.get(resource).into_iter().flatten();
        keys.filter_map(|key| match &state.by_key.get(&(resource.clone(), key.clone()))?.1 {
            write @ OwnWrite::Gone { uid, .. } => Some((key.clone(), uid.clone(), write.clone())),
            OwnWrite::Version(_) => None,
        })
        .collect()
    }

    /// Removes a write that the cache shows.
    fn forget(&self, resource: &Arc<str>, key: &Request, write: &OwnWrite) {
        let id = (resource.clone(), key.clone());
        let mut state = self.0.lock();
        if let Some((turn, _)) = state.by_key.get(&id).filter(|(_, newest)| newest == write) {
            let turn = *turn;
            state.by_age.remove(&turn);
            state.by_key.remove(&id);
            state.note_deleted(&id, false);
        }
    }
}

/// Whether the object in the answer to a write is gone: it is marked for deletion and has no
/// finalizers left.
pub(super) fn is_gone(object: &[u8]) -> bool {
    let member = |name| skim::scalar(object, &["metadata", name]);
    member("deletionTimestamp").is_some()
        && member("deletionGracePeriodSeconds").is_none_or(|seconds| seconds == "0")
        && skim::Skim::of(object).is_ok_and(|skim| skim.finalizers.is_empty())
}

/// Reads from the cache that wait until it shows this client's writes.
impl<K: Cacheable> Api<K> {
    /// [`get`](Self::get), at least as new as the last write of this client and its clones (CLI-2).
    ///
    /// Works after a create and after a delete too. The type must be cached; the controller need
    /// not watch it. Writes of other clients may or may not be visible. Does not wait if there was
    /// no write. Cancel safe.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get); [`ClientError::Behind`] if the cache does not show the write within
    /// [`OWN_WRITE_WAIT_MAX`].
    pub async fn get_own(&self, key: &Request) -> Result<Option<Arc<K>>, ClientError> {
        self.get_own_within(key, OWN_WRITE_WAIT_MAX).await
    }

    /// [`get_own`](Self::get_own) with another time-out.
    ///
    /// # Errors
    ///
    /// As [`get_own`](Self::get_own).
    pub async fn get_own_within(
        &self,
        key: &Request,
        max: Duration,
    ) -> Result<Option<Arc<K>>, ClientError> {
        if let Some(write) = self.client.own.of(&self.resource, key) {
            let lister = self.lister_of(&key.namespace)?;
            let wanted = match &write {
                OwnWrite::Version(version) => format!("at version {version}"),
                OwnWrite::Gone { .. } => "gone".to_owned(),
            };
            let shown = async {
                match &write {
                    OwnWrite::Version(version) => lister.at_least_for(key, version).await,
                    OwnWrite::Gone { uid, after } => {
                        if let Some(version) = after {
                            lister.at_least_for(key, version).await?;
                        }
                        gone(&lister, key, uid, None).await
                    }
                }
            };
            self.within(max, key, wanted, shown).await?;
            self.client.own.forget(&self.resource, key, &write);
        }
        self.get(key)
    }

    /// [`get`](Self::get), at this version or a later one; for the version in the answer to a
    /// write.
    ///
    /// # Errors
    ///
    /// As [`get_own`](Self::get_own). Versions without an order cannot be waited for.
    pub async fn get_at_least(
        &self,
        key: &Request,
        resource_version: &str,
    ) -> Result<Option<Arc<K>>, ClientError> {
        let lister = self.lister_of(&key.namespace)?;
        let wanted = format!("at version {resource_version}");
        let shown = lister.at_least_for(key, resource_version);
        self.within(OWN_WRITE_WAIT_MAX, key, wanted, shown).await?;
        self.get(key)
    }

    /// The cache, once it shows all writes and deletions of this type by this client and its
    /// clones: for lists. Does not wait for namespaces that are not cached.
    ///
    /// # Errors
    ///
    /// As [`get_own`](Self::get_own).
    pub async fn lister_own(&self) -> Result<CacheLister<K>, ClientError> {
        let lister = self.lister()?;
        self.shown_own(lister.informer(), |_| true).await?;
        Ok(lister)
    }

    /// [`lister_own`](Self::lister_own) for the writes of one namespace, or of all.
    pub(crate) async fn shown_own_in(&self, namespace: Option<&str>) -> Result<(), ClientError> {
        let Some(namespace) = namespace else { return self.lister_own().await.map(drop) };
        self.lister_of(namespace)?;
        self.shown_own(&self.known()?, |of| of.is_none_or(|of| of == namespace)).await
    }

    /// Waits until the informers show the writes to the given namespaces; `None` stands for any.
    async fn shown_own(
        &self,
        informer: &CacheInformer<K>,
        counts: impl Fn(Option<&str>) -> bool,
    ) -> Result<(), ClientError> {
        let own = &self.client.own;
        let newest = own.newest(&self.resource);
        let mut deleted = own.deleted(&self.resource);
        deleted.retain(|(key, ..)| counts(Some(&key.namespace)));
        let shown = async {
            for (namespace, version) in &newest {
                let namespace = namespace.as_deref();
                if !counts(namespace) {
                    continue;
                }
                let holding = match namespace {
                    // A namespace that is not cached is skipped.
                    Some(namespace) => informer.of_namespace(namespace).into_iter().collect(),
                    None => informer.informers().map(|(_, informer)| informer).collect::<Vec<_>>(),
                };
                for holding in holding {
                    holding.lister().at_least(version).await?;
                }
            }
            for (key, uid, _) in &deleted {
                if let Ok(holding) = informer.of_namespace(&key.namespace) {
                    gone(&holding.lister(), key, uid, None).await?;
                }
            }
            Ok(())
        };
        let wanted = "as it was written".to_owned();
        self.within(OWN_WRITE_WAIT_MAX, &Request::cluster(""), wanted, shown).await?;
        for (key, _, write) in &deleted {
            own.forget(&self.resource, key, write);
        }
        Ok(())
    }

    async fn within(
        &self,
        max: Duration,
        key: &Request,
        wanted: String,
        shown: impl Future<Output = Result<(), AtLeastError>>,
    ) -> Result<(), ClientError> {
        let (resource, object) = (self.resource.clone(), key.to_string());
        match tokio::time::timeout(max, shown).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(source)) => Err(ClientError::Unordered { resource, object, source }),
            Err(_) => Err(ClientError::Behind { resource, object, wanted, waited: max }),
        }
    }

    /// Records the answer to a write, as [`OwnWrites::note_answer`].
    pub(super) fn note_answer(&self, key: &Request, answer: &[u8]) -> Option<Arc<str>> {
        let is_selected = || {
            let informer = self.client.cache.known::<K>(&self.dynamic_type)?;
            let holding = informer.of_namespace(&key.namespace).ok()?;
            let selection = holding.selection();
            let is_selected = selection.is_whole() || selection.matches(answer);
            Some(is_selected || holding.lister().object(key).is_some())
        };
        let is_selected = is_selected().unwrap_or(true);
        self.client.own.note_answer(&self.resource, key, answer, is_selected)
    }

    /// The uid of `key`'s object in the cache.
    pub(super) fn cached_uid(&self, key: &Request) -> Option<Arc<str>> {
        let informer = self.client.cache.known::<K>(&self.dynamic_type)?;
        let held = informer.of_namespace(&key.namespace).ok()?.lister().object(key);
        held.map(|object| object.uid().into())
    }
}

/// Waits until the cache does not [hold](holds) the object. Each change of the cache wakes it.
pub(crate) async fn gone<K>(
    lister: &Lister<K>,
    key: &Request,
    uid: &str,
    up_to: Option<&str>,
) -> Result<(), AtLeastError> {
    loop {
        // Read before the object, so that no later change is missed.
        let version = lister.resource_version();
        if !holds(lister, key, uid, up_to) {
            return Ok(());
        }
        lister.at_least(&successor(&version)).await?;
    }
}

/// Whether the cache has the object with this uid, or any if it is empty; with `up_to`: at this
/// version or an earlier one.
pub(crate) fn holds<K>(lister: &Lister<K>, key: &Request, uid: &str, up_to: Option<&str>) -> bool {
    lister.object(key).is_some_and(|held| {
        (uid.is_empty() || held.uid() == uid)
            && up_to.is_none_or(|up_to| !is_newer(held.resource_version(), up_to))
    })
}

/// The next decimal number; the text itself if it is not a number.
fn successor(version: &str) -> String {
    let mut digits = version.as_bytes().to_vec();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return version.to_owned();
    }
    for digit in digits.iter_mut().rev() {
        if *digit < b'9' {
            *digit += 1;
            return String::from_utf8_lossy(&digits).into_owned();
        }
        *digit = b'0';
    }
    format!("1{}", String::from_utf8_lossy(&digits))
}

#[cfg(test)]
mod tests;
