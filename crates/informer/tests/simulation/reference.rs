//! The expected states of the cache, computed from the delivered frames in a simple second way.
//!
//! The informer may lag behind by its queued deltas, but its cache has exactly these states, in
//! this order.
use crate::history::{Defect, ModelObject, ModelObjects, Name, Verb};
use std::collections::BTreeSet;
use std::sync::Arc;

/// One state of the cache: its resourceVersion and its objects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Cache {
    pub(crate) version: String,
    pub(crate) objects: Arc<ModelObjects>,
}

pub(crate) struct Reference {
    /// Every state so far; the first is the empty cache before the first list.
    states: Vec<Cache>,
    /// The items so far of the list in progress.
    pub(crate) listing: Vec<(Name, ModelObject)>,
    /// The position of the first list.
    first_list: Option<usize>,
    /// Whether there is an index function over typed objects.
    pub(crate) has_typed_index: bool,
    /// Whether the transform fails for poisoned objects.
    pub(crate) rejects_poison: bool,
    /// The number of delivered deletions of keys that were not in the cache.
    pub(crate) unknown_deletions: u64,
    /// The minimum number of objects that did not fit the type of an index function: repetitions in
    /// a list are counted once.
    pub(crate) unindexed: u64,
    /// The number of delivered objects that must be transformed (FIFO-24). `None` if one was
    /// poisoned, because the objects after it may not have been read.
    pub(crate) to_transform: Option<u64>,
    /// The number of these that were in a list and already cached, so that they need not be
    /// transformed.
    pub(crate) already_cached: u64,
    /// A change was rejected or may have been missed. Only another list repairs that.
    pub(crate) needs_list: bool,
    is_replaying: bool,
}

impl Reference {
    pub(crate) fn new(has_typed_index: bool, rejects_poison: bool) -> Self {
        Self {
            states: vec![Cache { version: String::new(), objects: Arc::default() }],
            listing: Vec::new(),
            first_list: None,
            has_typed_index,
            rejects_poison,
            unknown_deletions: 0,
            unindexed: 0,
            to_transform: Some(0),
            already_cached: 0,
            needs_list: false,
            is_replaying: false,
        }
    }

    pub(crate) fn at(&self, position: usize) -> &Cache {
        &self.states[position]
    }

    pub(crate) fn last(&self) -> &Cache {
        &self.states[self.states.len() - 1]
    }

    /// The position of the first list among the states.
    pub(crate) fn first_list(&self) -> Option<usize> {
        self.first_list
    }

    /// Whether the transform fails for an object.
    pub(crate) fn is_poison(&self, model: ModelObject) -> bool {
        self.rejects_poison && model.defect == Defect::Poison
    }

    /// Whether an object does not fit the type of an index function.
    pub(crate) fn is_undecodable(&self, model: ModelObject) -> bool {
        self.has_typed_index && model.defect == Defect::Undecodable
    }

    /// Ends the initial events of a streamed list. They are queued in the order of their names.
    pub(crate) fn streamed(&mut self, version: &str) {
        self.listing.sort_by_key(|(name, _)| *name);
        self.listed(version);
    }

    /// Applies a complete list in its order. Of two items with one name the later counts.
    pub(crate) fn listed(&mut self, version: &str) {
        let items = std::mem::take(&mut self.listing);
        let cached = self.last().objects.clone();
        let mut objects = ModelObjects::new();
        let mut unindexed = BTreeSet::new();
        for (name, model) in items {
            // An object that is cached in this version keeps its index values.
            if self.is_undecodable(model) && cached.get(&name) != Some(&model) {
                self.unindexed += u64::from(unindexed.insert(name));
            }
            objects.insert(name, model);
        }
        self.reach(Cache { version: version.to_owned(), objects: Arc::new(objects) });
        self.first_list.get_or_insert(self.states.len() - 1);
        // Without a version, changes between this list and the watch may be missed.
        self.needs_list = version.is_empty();
        self.is_replaying = version.is_empty();
    }

    /// Applies an accepted event.
    pub(crate) fn event(&mut self, verb: Verb, name: Name, model: ModelObject) {
        // REF-21: the versions of replayed objects are not the cache's version.
        self.is_replaying &= verb == Verb::Added;
        self.unindexed += u64::from(verb != Verb::Deleted && self.is_undecodable(model));
        let mut objects = ModelObjects::clone(&self.last().objects);
        if verb == Verb::Deleted {
            self.unknown_deletions += u64::from(objects.remove(&name).is_none());
        } else {
            objects.insert(name, model);
        }
        let version = match self.is_replaying {
            true => self.last().version.clone(),
            false => model.version.to_string(),
        };
        self.reach(Cache { version, objects: Arc::new(objects) });
    }

    pub(crate) fn bookmark(&mut self, version: u64) {
        self.is_replaying = false;
        let objects = self.last().objects.clone();
        self.reach(Cache { version: version.to_string(), objects });
    }

    /// Adds a state, unless it equals the last one.
    fn reach(&mut self, cache: Cache) {
        if *self.last() != cache {
            self.states.push(cache);
        }
    }

    /// Counts a delivered object that must be transformed.
    pub(crate) fn count_delivered(&mut self, name: Name, model: ModelObject, is_listed: bool) {
        let is_known = self.last().objects.get(&name) == Some(&model);
        self.already_cached += u64::from(is_listed && is_known);
        let is_poison = self.is_poison(model);
        self.to_transform = self.to_transform.filter(|_| !is_poison).map(|n| n + 1);
    }

    /// The position of a state of the cache, searched from an earlier position on.
    pub(crate) fn find(&self, from: usize, cache: &Cache) -> Option<usize> {
        (from..self.states.len()).find(|at| self.states[*at] == *cache)
    }

    /// Whether the state at a position equals the last one.
    pub(crate) fn is_last(&self, at: usize) -> bool {
        self.states[at] == *self.last()
    }
}
