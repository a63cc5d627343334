//! Reading back what was written: of one object, without asking the server and without polling.
//!
//! # Theory
//!
//! A client remembers, for its clones too, the last write of each object: the version that the
//! server answered, or that it is gone. A read that demands it looks there, and then waits for the
//! cache:
//!
//! | the last write left         | the read waits until the cache                                                       |
//! |-----------------------------|--------------------------------------------------------------------------------------|
//! | nothing that is remembered  | not at all                                                                           |
//! | an object of a version      | holds the object at it or later, or has come that far as a whole                     |
//! | no object                   | holds none, or one with another uid                                                  |
//!
//! The first that is needed is remembered for [`OWN_WRITES_MAX`] objects; of those forgotten, the
//! newest version of the type in the namespace stands for each, so that a read may wait for too
//! much but never for too little. Namespaces are told apart because a cache of one of them sees no
//! version of another (CCH-4); beyond [`OWN_WRITES_MAX`] of them the newest of the type stands for
//! the rest. The cache wakes who waits; the wait is bounded.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use hashbrown::HashMap;
use parking_lot::Mutex;
use setpoint_informer::{AtLeastError, Cacheable, Lister};
use setpoint_object::{Head, resource_version, skim};

use super::{Api, ClientError};
use crate::{
    cache::{CacheInformer, CacheLister},
    request::Request,
};

/// Of how many objects a client remembers its last write. 4096: more than any set of passes has in
/// flight; an entry is about 200 bytes.
pub const OWN_WRITES_MAX: usize = 4096;

/// How long a read waits for the cache to show a write, unless told otherwise. 5 s: a watch shows a
/// write within milliseconds; one that takes longer has broken, and the pass had better come back.
pub const OWN_WRITE_WAIT_MAX: Duration = Duration::from_secs(5);

/// The last writes through a client and its clones.
#[derive(Debug, Default)]
pub(crate) struct OwnWrites(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    by_key: HashMap<(Arc<str>, Request), (u64, OwnWrite)>,
    /// By age.
    by_turn: BTreeMap<u64, (Arc<str>, Request)>,
    next_turn: u64,
    /// The newest version of each resource in each namespace among those that are forgotten; no
    /// namespace is any of too many.
    forgotten: HashMap<Place, Arc<str>>,
}

/// A resource, and a namespace of it.
type Place = (Arc<str>, Option<Arc<str>>);

/// What the last write of one object left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OwnWrite {
    /// The object, in this version.
    Version(Arc<str>),
    /// Nothing: the object of this uid is gone, or of any, if it is empty. Before, it may have had
    /// a version.
    Gone { uid: Arc<str>, after: Option<Arc<str>> },
}

impl State {
    fn set(&mut self, id: (Arc<str>, Request), write: OwnWrite) {
        let turn = self.next_turn;
        self.next_turn += 1;
        self.by_turn.insert(turn, id.clone());
        if let Some((earlier, _)) = self.by_key.insert(id, (turn, write)) {
            self.by_turn.remove(&earlier);
        }
        if self.by_key.len() > OWN_WRITES_MAX
            && let Some((_, id)) = self.by_turn.pop_first()
            && let Some((_, OwnWrite::Version(version))) = self.by_key.remove(&id)
        {
            let mut place = (id.0, Some(id.1.namespace));
            if self.forgotten.len() >= OWN_WRITES_MAX && !self.forgotten.contains_key(&place) {
                place.1 = None;
            }
            let newest = self.forgotten.entry(place).or_insert_with(|| version.clone());
            if is_newer(&version, newest) {
                *newest = version;
            }
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
    /// Remembers what the answer to a write says: an object, which may be gone with this write, or
    /// anything else.
    pub(super) fn note_answer(&self, resource: &Arc<str>, key: &Request, answer: &[u8]) {
        let Ok(head) = Head::of(answer) else { return };
        let version = head.resource_version(answer);
        if resource_version::has_order(&version) {
            let id = (resource.clone(), key.clone());
            let write = if is_gone(answer) {
                let after = Some(Arc::from(&*version));
                OwnWrite::Gone { uid: head.uid(answer).into(), after }
            } else {
                OwnWrite::Version(Arc::from(&*version))
            };
            self.0.lock().set(id, write);
        }
    }

    /// Remembers that the object of this uid, or whichever it was, is gone.
    pub(super) fn note_gone(&self, resource: &Arc<str>, key: &Request, uid: &str) {
        let id = (resource.clone(), key.clone());
        let mut state = self.0.lock();
        let after = match state.by_key.get(&id) {
            Some((_, OwnWrite::Version(version))) => Some(version.clone()),
            Some((_, OwnWrite::Gone { after, .. })) => after.clone(),
            None => None,
        };
        state.set(id, OwnWrite::Gone { uid: uid.into(), after });
    }

    fn of(&self, resource: &Arc<str>, key: &Request) -> Option<OwnWrite> {
        let state = self.0.lock();
        if let Some((_, write)) = state.by_key.get(&(resource.clone(), key.clone())) {
            return Some(write.clone());
        }
        if state.forgotten.is_empty() {
            return None;
        }
        let of_namespace = (resource.clone(), Some(key.namespace.clone()));
        let of_any = (resource.clone(), None);
        let forgotten = [of_namespace, of_any].map(|place| state.forgotten.get(&place).cloned());
        let newest = forgotten.into_iter().flatten().reduce(newest_of);
        newest.map(OwnWrite::Version)
    }

    /// The newest version written of a resource in each namespace; no namespace is any.
    fn newest(&self, resource: &Arc<str>) -> BTreeMap<Option<Arc<str>>, Arc<str>> {
        let state = self.0.lock();
        let versions = state.by_key.iter().filter(|((of, _), _)| of == resource);
        let versions = versions.filter_map(|((_, key), (_, write))| {
            let version = match write {
                OwnWrite::Version(version) => Some(version),
                OwnWrite::Gone { after, .. } => after.as_ref(),
            };
            Some((Some(&key.namespace), version?))
        });
        let forgotten = state.forgotten.iter().filter(|((of, _), _)| of == resource);
        let forgotten = forgotten.map(|((_, namespace), version)| (namespace.as_ref(), version));
        let mut newest = BTreeMap::new();
        for (namespace, version) in versions.chain(forgotten) {
            let newest = newest.entry(namespace.cloned()).or_insert_with(|| version.clone());
            if is_newer(version, newest) {
                newest.clone_from(version);
            }
        }
        newest
    }

    /// The objects of a resource that are gone, with their uids.
    fn deleted(&self, resource: &Arc<str>) -> Vec<(Request, Arc<str>, OwnWrite)> {
        let state = self.0.lock();
        let of_resource = state.by_key.iter().filter(|((of, _), _)| of == resource);
        let mut deleted: Vec<_> = of_resource
            .filter_map(|((_, key), (_, write))| match write {
                OwnWrite::Gone { uid, .. } => Some((key.clone(), uid.clone(), write.clone())),
                OwnWrite::Version(_) => None,
            })
            .collect();
        deleted.sort_by(|a, b| a.0.cmp(&b.0));
        deleted
    }

    /// The cache shows this write: it need not be remembered.
    fn forget(&self, resource: &Arc<str>, key: &Request, write: &OwnWrite) {
        let id = (resource.clone(), key.clone());
        let mut state = self.0.lock();
        if let Some((turn, _)) = state.by_key.get(&id).filter(|(_, newest)| newest == write) {
            let turn = *turn;
            state.by_turn.remove(&turn);
            state.by_key.remove(&id);
        }
    }
}

/// Whether an object in the answer to a write is gone with it: it was to be deleted, and nothing
/// holds it any more.
pub(super) fn is_gone(object: &[u8]) -> bool {
    let member = |name| skim::scalar(object, &["metadata", name]);
    member("deletionTimestamp").is_some()
        && member("deletionGracePeriodSeconds").is_none_or(|seconds| seconds == "0")
        && skim::Skim::of(object).is_ok_and(|skim| skim.finalizers.is_empty())
}

/// Reads from the cache that wait until it shows what was written.
impl<K: Cacheable> Api<K> {
    /// [`get`](Self::get), of the object as this client and its clones last wrote it, or newer
    /// (CLI-2).
    ///
    /// Also after a create, which the cache has not seen yet, and after a delete. The type must be
    /// cached; the controller need not watch it. What others wrote meanwhile may or may not be
    /// seen. Nothing waits if nothing was written. Dropping the future leaves nothing.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get); and [`ClientError::Behind`] when the cache does not show it within
    /// [`OWN_WRITE_WAIT_MAX`].
    pub async fn get_own(&self, key: &Request) -> Result<Option<Arc<K>>, ClientError> {
        self.get_own_within(key, OWN_WRITE_WAIT_MAX).await
    }

    /// [`get_own`](Self::get_own), waiting for so long at most.
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
                        gone(&lister, key, uid).await
                    }
                }
            };
            self.within(max, key, wanted, shown).await?;
            self.client.own.forget(&self.resource, key, &write);
        }
        self.get(key)
    }

    /// [`get`](Self::get), of the object at this version or a later one, as the answer to a write
    /// gave it.
    ///
    /// # Errors
    ///
    /// As [`get_own`](Self::get_own); a version that has no order cannot be waited for.
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

    /// The cache, as soon as it shows everything of this type that this client and its clones
    /// wrote, and nothing that they deleted: for lists. What was written to namespaces that are not
    /// cached is not waited for.
    ///
    /// # Errors
    ///
    /// As [`get_own`](Self::get_own).
    pub async fn lister_own(&self) -> Result<CacheLister<K>, ClientError> {
        let lister = self.lister()?;
        self.shown_own(lister.informer(), |_| true).await?;
        Ok(lister)
    }

    /// [`lister_own`](Self::lister_own), of what was written in one namespace, or in all.
    pub(crate) async fn shown_own_in(&self, namespace: Option<&str>) -> Result<(), ClientError> {
        let Some(namespace) = namespace else { return self.lister_own().await.map(drop) };
        self.lister_of(namespace)?;
        self.shown_own(&self.known()?, |of| of.is_none_or(|of| of == namespace)).await
    }

    /// Waits until the informers show what was written in the namespaces that count; no namespace
    /// is any.
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
                    // Nobody shows what is not cached.
                    Some(namespace) => informer.of_namespace(namespace).into_iter().collect(),
                    None => informer.informers().map(|(_, informer)| informer).collect::<Vec<_>>(),
                };
                for holding in holding {
                    holding.lister().at_least(version).await?;
                }
            }
            for (key, uid, _) in &deleted {
                if let Ok(holding) = informer.of_namespace(&key.namespace) {
                    gone(&holding.lister(), key, uid).await?;
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

    /// What `key`'s object is, as far as the cache knows.
    pub(super) fn cached_uid(&self, key: &Request) -> Option<Arc<str>> {
        let informer = self.client.cache.known::<K>(&self.dynamic_type)?;
        let held = informer.of_namespace(&key.namespace).ok()?.lister().object(key);
        held.map(|object| object.uid().into())
    }
}

/// Waits until the cache does not hold the object of this uid. Each change of the cache wakes it.
async fn gone<K>(lister: &Lister<K>, key: &Request, uid: &str) -> Result<(), AtLeastError> {
    loop {
        // The version first: what comes behind it is waited for.
        let version = lister.resource_version();
        if lister.object(key).is_none_or(|held| !uid.is_empty() && held.uid() != uid) {
            return Ok(());
        }
        lister.at_least(&successor(&version)).await?;
    }
}

/// The decimal number behind this one; the text itself if it is none.
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
