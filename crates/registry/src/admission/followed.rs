//! Stored objects that configure admission, from the watch cache, compiled once per version.
use crate::cache::ResourceCache;
use crate::shared::Inner;
use crate::stored::tree;
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;
use setpoint_object::error::chain;
use setpoint_object::keys;
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
}
impl<T: Clone> Followed<T> {
    /// Of a resource of [`GROUP`].
    pub(super) fn new(resource: &str) -> Self {
        let state = State { at: None, compiled: BTreeMap::new(), all: Arc::new([]) };
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
        let mut compiled = BTreeMap::new();
        for item in index.range(Bound::Unbounded, Bound::Unbounded) {
            let entry = match known.get(&item.key) {
                Some((revision, all)) if *revision == item.revision => (*revision, all.clone()),
                _ => match tree(&item.value) {
                    Ok(object) => (item.revision, compile(object)),
                    Err(error) => {
                        tracing::warn!(
                            error = chain(&error),
                            "an object that configures admission cannot be read"
                        );
                        (item.revision, Vec::new())
                    }
                },
            };
            compiled.insert(item.key.clone(), entry);
        }
        let all: Arc<[T]> = compiled.values().flat_map(|(_, all)| all.iter().cloned()).collect();
        let mut state = self.state.lock();
        // Another request may have been faster, with a newer state.
        if state.at.is_none_or(|at| at <= newest) {
            *state = State { at: Some(newest), compiled, all };
        }
        state.all.clone()
    }
}
