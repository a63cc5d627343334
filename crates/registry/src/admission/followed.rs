//! Stored objects that configure admission, from the watch cache, compiled once per version.
use crate::admission::Review;
use crate::cache::ResourceCache;
use crate::shared::Inner;
use crate::stored::tree;
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;
use setpoint_object::ApiError;
use setpoint_object::error::chain;
use setpoint_object::keys::{self, Scope};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

/// The group of the objects that configure admission.
pub(super) const GROUP: &str = "admissionregistration.k8s.io";

/// What the objects of one resource are compiled to, in the order of their names.
#[derive(Debug)]
pub(super) struct Followed<T> {
    prefix: String,
    /// The cache of the resource, which stays the same.
    cache: OnceLock<Arc<ResourceCache>>,
    state: Mutex<State<T>>,
}
#[derive(Debug)]
struct State<T> {
    /// The revision of the newest change that is compiled.
    at: Option<u64>,
    /// By the key of the object; with its revision.
    compiled: BTreeMap<Bytes, (u64, Vec<T>)>,
    all: Arc<[T]>,
    /// The name of an object of which no version could be read.
    unread: Option<Arc<str>>,
}
impl<T: Clone> Followed<T> {
    /// Of a resource of [`GROUP`].
    pub(super) fn new(resource: &str) -> Self {
        let (compiled, all) = (BTreeMap::new(), Arc::new([]));
        let state = State { at: None, compiled, all, unread: None };
        let prefix = keys::built_in_prefix(GROUP, resource);
        Self { prefix, cache: OnceLock::new(), state: Mutex::new(state) }
    }
    /// The present objects of a registry, always the same one. `compile` is called for those that
    /// are new or have changed. The same list is returned until one changes.
    pub(super) fn all(&self, inner: &Inner, compile: impl Fn(Value) -> Vec<T>) -> Arc<[T]> {
        let cache = self.cache.get_or_init(|| inner.cache.resource(&self.prefix));
        // A cache that is filled again may lack objects for a moment.
        let is_filled = inner.cache.reached().is_filled;
        let newest = cache.newest();
        let known = {
            let state = self.state.lock();
            if !is_filled || state.at == Some(newest) {
                return state.all.clone();
            }
            state.compiled.clone()
        };
        let (index, newest) = cache.snapshot();
        let (mut compiled, mut unread) = (BTreeMap::new(), None);
        for item in index.range(Bound::Unbounded, Bound::Unbounded) {
            let entry = match known.get(&item.key) {
                Some((revision, all)) if *revision == item.revision => (*revision, all.clone()),
                _ => match tree(&item.value) {
                    Ok(object) => (item.revision, compile(object)),
                    Err(error) => {
                        tracing::warn!(
                            error = chain(&error),
                            key = ?item.key,
                            "an object that configures admission cannot be read"
                        );
                        let Some((_, all)) = known.get(&item.key) else {
                            let (_, name) =
                                keys::names(self.prefix.len(), Scope::Cluster, &item.key);
                            unread.get_or_insert_with(|| name.into());
                            continue;
                        };
                        (item.revision, all.clone())
                    }
                },
            };
            compiled.insert(item.key.clone(), entry);
        }
        let all: Arc<[T]> = compiled.values().flat_map(|(_, all)| all.iter().cloned()).collect();
        let mut state = self.state.lock();
        // Another request may have been faster, with a newer state.
        if state.at.is_none_or(|at| at <= newest) {
            *state = State { at: Some(newest), compiled, all, unread };
        }
        state.all.clone()
    }
    /// Whether all of them could be read, by the last [`Followed::all`].
    ///
    /// # Errors
    ///
    /// 403, as of the reference while it has not read them: nobody knows which requests the one
    /// that cannot be read would refuse.
    pub(super) fn are_known(&self, review: &Review<'_>) -> Result<(), ApiError> {
        let Some(name) = self.state.lock().unread.clone() else { return Ok(()) };
        let resource = self.prefix.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        let why = format!("not yet ready to handle request: {resource} {name:?} cannot be read");
        Err(ApiError::forbidden(&review.group_resource(), review.name, &why))
    }
}
