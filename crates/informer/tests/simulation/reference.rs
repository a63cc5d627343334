//! What the cache has to be, delivered frame by delivered frame: a second, plain way to compute it.
//!
//! The informer may be behind by what waits in its queue, but it goes through these states in this
//! order and through no others.
use crate::world::{Flavor, Name, Thing, Things, Verb};
use std::collections::BTreeSet;
use std::sync::Arc;

/// One state of the cache: its resourceVersion and what it holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Cache {
    pub(crate) version: String,
    pub(crate) things: Arc<Things>,
}

pub(crate) struct Reference {
    /// Every state so far; the first is the empty cache before the first list.
    states: Vec<Cache>,
    /// The items so far of a list that is being read.
    pub(crate) listing: Vec<(Name, Thing)>,
    /// Where the first list is.
    first_list: Option<usize>,
    /// An index function over typed objects rejects what does not fit.
    pub(crate) rejects_misfits: bool,
    /// The transform fails for what is poisoned.
    pub(crate) rejects_poison: bool,
    /// How many deletions of keys were delivered that the cache did not hold.
    pub(crate) unknown_deletions: u64,
    /// How many objects an index function rejected; those that a list repeats are counted once, and
    /// each time.
    pub(crate) rejected: (u64, u64),
    /// How many objects were delivered that a transform has to see (FIFO-24); none when one of them
    /// was poisoned, as what stood behind that one was not looked at.
    pub(crate) entered: Option<u64>,
    /// How many of them were of a list and in the cache already, so that it need not see them.
    pub(crate) known: u64,
    /// A write was not taken in, or may have been missed: only another list mends that.
    pub(crate) needs_list: bool,
    is_replaying: bool,
}

impl Reference {
    pub(crate) fn new(rejects_misfits: bool, rejects_poison: bool) -> Self {
        Self {
            states: vec![Cache { version: String::new(), things: Arc::default() }],
            listing: Vec::new(),
            first_list: None,
            rejects_misfits,
            rejects_poison,
            unknown_deletions: 0,
            rejected: (0, 0),
            entered: Some(0),
            known: 0,
            needs_list: false,
            is_replaying: false,
        }
    }

    pub(crate) fn last(&self) -> &Cache {
        &self.states[self.states.len() - 1]
    }

    /// Where the first list is among the states.
    pub(crate) fn first_list(&self) -> Option<usize> {
        self.first_list
    }

    /// Whether the transform fails for it.
    pub(crate) fn is_poison(&self, thing: Thing) -> bool {
        self.rejects_poison && thing.flavor == Flavor::Poison
    }

    /// Whether an index function fails for it.
    pub(crate) fn is_misfit(&self, thing: Thing) -> bool {
        self.rejects_misfits && thing.flavor == Flavor::Misfit
    }

    /// The initial events of a streamed list are over: they are handed on by name.
    pub(crate) fn streamed(&mut self, version: &str) {
        self.listing.sort_by_key(|(name, _)| *name);
        self.listed(version);
    }

    /// A whole list is there, in its order; of two items with one name the later counts.
    pub(crate) fn listed(&mut self, version: &str) {
        let items = std::mem::take(&mut self.listing);
        let held = self.last().things.clone();
        let mut things = Things::new();
        let mut rejected = BTreeSet::new();
        for (name, thing) in items {
            if !self.is_misfit(thing) {
                things.insert(name, thing);
                continue;
            }
            self.rejected.0 += u64::from(rejected.insert(name));
            self.rejected.1 += 1;
            // The version that is held already stays, with what the index said of it.
            if let Some(held) = held.get(&name) {
                things.insert(name, *held);
            }
        }
        self.reach(Cache { version: version.to_owned(), things: Arc::new(things) });
        self.first_list.get_or_insert(self.states.len() - 1);
        // Without a version nothing says what happens between this list and the watch.
        self.needs_list = version.is_empty();
        self.is_replaying = version.is_empty();
    }

    /// An event that was taken in.
    pub(crate) fn event(&mut self, verb: Verb, name: Name, thing: Thing) {
        // REF-21: what a watch from nowhere replays says nothing of how far the cache is.
        self.is_replaying &= verb == Verb::Added;
        if verb != Verb::Deleted && self.is_misfit(thing) {
            self.rejected.0 += 1;
            self.rejected.1 += 1;
            return;
        }
        let mut things = Things::clone(&self.last().things);
        if verb == Verb::Deleted {
            self.unknown_deletions += u64::from(things.remove(&name).is_none());
        } else {
            things.insert(name, thing);
        }
        let version = match self.is_replaying {
            true => self.last().version.clone(),
            false => thing.version.to_string(),
        };
        self.reach(Cache { version, things: Arc::new(things) });
    }

    pub(crate) fn bookmark(&mut self, version: u64) {
        self.is_replaying = false;
        let things = self.last().things.clone();
        self.reach(Cache { version: version.to_string(), things });
    }

    /// A state that does not differ from the one before cannot be told from it.
    fn reach(&mut self, cache: Cache) {
        if *self.last() != cache {
            self.states.push(cache);
        }
    }

    /// An object is delivered that a transform has to see.
    pub(crate) fn enters(&mut self, name: Name, thing: Thing, is_listed: bool) {
        let is_known = self.last().things.get(&name) == Some(&thing);
        self.known += u64::from(is_listed && is_known);
        let is_poison = self.is_poison(thing);
        self.entered = self.entered.filter(|_| !is_poison).map(|n| n + 1);
    }

    /// Where a state of the cache is, looking from an earlier place on.
    pub(crate) fn find(&self, from: usize, cache: &Cache) -> Option<usize> {
        (from..self.states.len()).find(|at| self.states[*at] == *cache)
    }

    /// Whether the state at a place is the last one.
    pub(crate) fn is_last(&self, at: usize) -> bool {
        self.states[at] == *self.last()
    }
}
