//! Finds the watchers that a change may concern.
//!
//! # Theory
//!
//! Watchers with the same kind of interest share a *bucket*. Its id is the hash of the property
//! that its changes have in common.
//!
//! | a watcher of             | is in the bucket of                   |
//! |--------------------------|---------------------------------------|
//! | one object               | its key                               |
//! | objects of one name      | the name                              |
//! | `k=v`, `k in (v, w)`     | label and value; in one for each value |
//! | `field=v`                | row, field and value                  |
//! | anything else            | everything                            |
//!
//! All but the first are buckets of one namespace, or of all namespaces. If several buckets fit, a
//! watcher joins the one with the fewest watchers. A change looks up its buckets: its key's; and,
//! for its namespace and for all namespaces, those of everything, of its name, and of the labels
//! and fields of the object before and after. So the cost of a change does not depend on the
//! watchers in other buckets, and a watcher is woken both when an object starts and when it stops
//! matching its selector. Two interests with the same hash share a bucket and see each other's
//! changes: a watcher checks every change before it makes an event from it.
//!
//! A bucket has a *chain*: the sequence numbers of its changes in the window, from `since` on. A
//! watcher before `since` checks the window's changes one by one until it reaches `since`.
use super::field_values::{FieldValues, NumberedField};
use super::{Change, Field, Interest, Item, Term, WatcherId};
use crate::catalog::Resource;
use crate::convert;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::task::Waker;

/// Maximum number of values of one label selector that a watcher is indexed by. A watcher with more
/// checks every change.
pub(super) const TERM_VALUES_MAX: usize = 16;

/// The watchers of one resource, indexed by their interest.
#[derive(Debug)]
pub(super) struct Fanout {
    /// The length of the key prefix that names the resource.
    prefix_len: usize,
    buckets: HashMap<u64, Bucket, BuildHasherDefault<IdentityHasher>>,
    /// Number of watchers that are indexed by a label.
    n_by_label: usize,
    /// The fields that watchers are indexed by, with the number of watchers each.
    fields: Vec<IndexedField>,
    n_fields: u64,
}
#[derive(Debug)]
struct IndexedField {
    of: NumberedField,
    n_watchers: usize,
}
#[derive(Debug, Default)]
struct Bucket {
    n_watchers: usize,
    /// Every change of this bucket from this sequence number on is, or was, in the chain.
    since: u64,
    /// Changes before this sequence number have left the chain.
    gone: u64,
    chain: VecDeque<u64>,
    /// Watchers that have taken all changes.
    waiting: BTreeMap<WatcherId, Waker>,
}
/// The buckets of a watcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placement {
    buckets: Vec<u64>,
    by: By,
}
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Other,
    Label,
    Field(u64),
}
/// The watchers to wake, in the order in which they joined, so that a run is a function of its
/// seed.
pub(super) type Woken = BTreeMap<WatcherId, Waker>;

impl Fanout {
    pub(super) fn new(prefix_len: usize) -> Self {
        let (buckets, fields) = (HashMap::default(), Vec::new());
        Self { prefix_len, buckets, n_by_label: 0, fields, n_fields: 0 }
    }

    /// Adds a watcher that starts at `end`, the end of the window.
    pub(super) fn join(&mut self, interest: &Interest, end: u64) -> Placement {
        let placement = self.choose(interest);
        for number in &placement.buckets {
            let new = || Bucket { since: end, gone: end, ..Bucket::default() };
            self.buckets.entry(*number).or_insert_with(new).n_watchers += 1;
        }
        match placement.by {
            By::Label => self.n_by_label += 1,
            By::Field(number) => {
                if let Some(indexed) = self.fields.iter_mut().find(|f| f.of.number == number) {
                    indexed.n_watchers += 1;
                }
            }
            By::Other => {}
        }
        placement
    }
    /// Removes a watcher.
    pub(super) fn leave(&mut self, id: WatcherId, placement: &Placement) {
        for number in &placement.buckets {
            let Some(bucket) = self.buckets.get_mut(number) else { continue };
            bucket.waiting.remove(&id);
            bucket.n_watchers -= 1;
            if bucket.n_watchers == 0 {
                self.buckets.remove(number);
            }
        }
        match placement.by {
            By::Label => self.n_by_label -= 1,
            By::Field(number) => {
                if let Some(at) = self.fields.iter().position(|f| f.of.number == number) {
                    self.fields[at].n_watchers -= 1;
                    if self.fields[at].n_watchers == 0 {
                        self.fields.swap_remove(at);
                    }
                }
            }
            By::Other => {}
        }
    }

    fn choose(&mut self, interest: &Interest) -> Placement {
        if let Some(key) = &interest.only {
            return Placement { buckets: vec![bucket_id(&Criterion::Key(key))], by: By::Other };
        }
        let scope = interest.namespace.as_deref();
        let mut best: Option<(usize, Placement)> = None;
        for term in &interest.terms {
            let placement = match term {
                Term::Name(name) => Placement {
                    buckets: vec![bucket_id(&Criterion::Name(scope, name))],
                    by: By::Other,
                },
                Term::Label(_, values) if values.len() > TERM_VALUES_MAX => continue,
                Term::Label(key, values) => {
                    let criteria = values.iter().map(|value| Criterion::Label(scope, key, value));
                    let mut buckets: Vec<_> =
                        criteria.map(|criterion| bucket_id(&criterion)).collect();
                    buckets.sort_unstable();
                    buckets.dedup();
                    Placement { buckets, by: By::Label }
                }
                Term::Field(resource, field, value) => {
                    let indexed = self.indexed(resource, field);
                    let criterion = Criterion::Field(scope, indexed, value);
                    Placement { buckets: vec![bucket_id(&criterion)], by: By::Field(indexed) }
                }
            };
            let n_there: usize = placement.buckets.iter().map(|b| self.n_watchers(*b)).sum();
            // The first of equals.
            if best.as_ref().is_none_or(|(least, _)| n_there < *least) {
                best = Some((n_there, placement));
            }
        }
        self.fields.retain(|f| {
            f.n_watchers > 0
                || matches!(&best, Some((_, placement)) if placement.by == By::Field(f.of.number))
        });
        let everything =
            || Placement { buckets: vec![bucket_id(&Criterion::All(scope))], by: By::Other };
        best.map_or_else(everything, |(_, placement)| placement)
    }
    /// The number of a field. Assigns a new one, without watchers, if it has none.
    fn indexed(&mut self, resource: &Arc<Resource>, field: &Field) -> u64 {
        let known =
            |f: &&IndexedField| Arc::ptr_eq(&f.of.resource, resource) && f.of.field == *field;
        if let Some(indexed) = self.fields.iter().find(known) {
            return indexed.of.number;
        }
        let number = self.n_fields;
        self.n_fields += 1;
        let (resource, field) = (resource.clone(), field.clone());
        let of = NumberedField { number, resource, field };
        self.fields.push(IndexedField { of, n_watchers: 0 });
        number
    }
    fn n_watchers(&self, bucket: u64) -> usize {
        self.buckets.get(&bucket).map_or(0, |bucket| bucket.n_watchers)
    }

    /// Whether watchers are indexed by fields.
    pub(super) fn has_fields(&self) -> bool {
        !self.fields.is_empty()
    }
    /// Whether an object is converted to find its watchers.
    pub(super) fn converts(&self, value: &[u8], revision: u64) -> bool {
        let is_as_stored =
            |f: &IndexedField| convert::is_served_as_stored(&f.of.resource, value, revision);
        !self.fields.iter().all(is_as_stored)
    }
    /// The fields that watchers are indexed by.
    pub(super) fn numbered_fields(&self) -> Vec<NumberedField> {
        self.fields.iter().map(|indexed| indexed.of.clone()).collect()
    }

    /// Adds a change to its chains, and moves the watchers that wait for it to `woken`. The window
    /// starts at `first`. A change whose values need a conversion and are not in `values` may
    /// concern every watcher.
    pub(super) fn add(
        &mut self,
        sequence: u64,
        change: &Change,
        values: &FieldValues,
        first: u64,
        woken: &mut Woken,
    ) {
        if self.buckets.is_empty() {
            return;
        }
        let key = change.key();
        let rest = key.get(self.prefix_len..).unwrap_or_default();
        let rest = std::str::from_utf8(rest).unwrap_or_default();
        let (namespace, name) = match rest.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, rest),
        };
        let buckets = &mut self.buckets;
        let mut hit = |criterion: &Criterion<'_>| {
            if let Some(bucket) = buckets.get_mut(&bucket_id(criterion)) {
                bucket.add(sequence, first, woken);
            }
        };
        hit(&Criterion::Key(key));
        let scopes = [Some(None), namespace.map(Some)].into_iter().flatten();
        for scope in scopes.clone() {
            hit(&Criterion::All(scope));
            hit(&Criterion::Name(scope, name));
        }
        if self.n_by_label > 0 {
            let (now, before) = (change.now.as_deref(), change.before.as_deref());
            let is_same = now.map(Item::labels_text) == before.map(Item::labels_text);
            for item in now.into_iter().chain(before.filter(|_| !is_same)) {
                for (key, value) in item.labels() {
                    scopes.clone().for_each(|scope| hit(&Criterion::Label(scope, &key, &value)));
                }
            }
        }
        let mut is_unknown = false;
        for IndexedField { of, .. } in &self.fields {
            let mut last = None;
            for item in change.now.iter().chain(&change.before) {
                match values.get(of, item) {
                    Some(Ok(value)) if last.as_ref() == Some(&value) => {}
                    Some(Ok(value)) => {
                        let criterion = |scope| Criterion::Field(scope, of.number, &value);
                        scopes.clone().for_each(|scope| hit(&criterion(scope)));
                        last = Some(value);
                    }
                    // Each watcher reports the error itself.
                    Some(Err(_)) | None => is_unknown = true,
                }
            }
        }
        if is_unknown {
            self.buckets.values_mut().for_each(|bucket| bucket.add(sequence, first, woken));
        }
    }

    /// The sequence number from which on a placement's chains are complete.
    pub(super) fn since(&self, placement: &Placement) -> u64 {
        self.buckets_of(placement).map(|bucket| bucket.since).max().unwrap_or(0)
    }
    /// The sequence number before which a placement's changes may have left its chains.
    pub(super) fn gone(&self, placement: &Placement) -> u64 {
        self.buckets_of(placement).map(|bucket| bucket.gone).max().unwrap_or(0)
    }
    /// The first of a placement's changes at or after a sequence number.
    pub(super) fn next(&self, placement: &Placement, from: u64) -> Option<u64> {
        self.buckets_of(placement).filter_map(|bucket| bucket.next(from)).min()
    }
    /// Registers a waker of a watcher that has taken every change before `end`.
    pub(super) fn wait(
        &mut self,
        id: WatcherId,
        placement: &Placement,
        waker: &Waker,
        end: u64,
        first: u64,
    ) {
        for number in &placement.buckets {
            let Some(bucket) = self.buckets.get_mut(number) else { continue };
            if bucket.n_watchers == 1 {
                // No other watcher needs it.
                bucket.chain.clear();
                (bucket.since, bucket.gone) = (end, end);
            } else {
                bucket.trim(first);
            }
            match bucket.waiting.get_mut(&id) {
                Some(known) => known.clone_from(waker),
                None => _ = bucket.waiting.insert(id, waker.clone()),
            }
        }
    }
    /// Takes all waiting watchers.
    pub(super) fn take_waiting(&mut self) -> Woken {
        let waiting = self.buckets.values_mut().map(|bucket| std::mem::take(&mut bucket.waiting));
        waiting.flatten().collect()
    }
    fn buckets_of(&self, placement: &Placement) -> impl Iterator<Item = &Bucket> {
        placement.buckets.iter().filter_map(|number| self.buckets.get(number))
    }
}

impl Bucket {
    fn add(&mut self, sequence: u64, first: u64, woken: &mut Woken) {
        if self.chain.back() == Some(&sequence) {
            return;
        }
        self.trim(first);
        self.chain.push_back(sequence);
        woken.append(&mut self.waiting);
    }
    /// Drops the changes that have left the window.
    fn trim(&mut self, first: u64) {
        while let Some(sequence) = self.chain.front().filter(|sequence| **sequence < first) {
            self.gone = sequence + 1;
            self.chain.pop_front();
        }
        if self.chain.capacity() > 4 * self.chain.len().max(16) {
            self.chain.shrink_to(2 * self.chain.len());
        }
    }
    fn next(&self, from: u64) -> Option<u64> {
        self.chain.get(self.chain.partition_point(|sequence| *sequence < from)).copied()
    }
}

/// A hasher for keys that are hashes already. No behavior depends on the order of buckets.
#[derive(Debug, Default)]
struct IdentityHasher(u64);
impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }
    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

/// The property that a bucket's changes have in common. A namespace of `None` means all namespaces.
#[derive(Debug, Hash)]
enum Criterion<'a> {
    Key(&'a [u8]),
    All(Option<&'a str>),
    Name(Option<&'a str>, &'a str),
    Label(Option<&'a str>, &'a str, &'a str),
    Field(Option<&'a str>, u64, &'a str),
}
fn bucket_id(criterion: &Criterion<'_>) -> u64 {
    // `DefaultHasher::new` has fixed keys: the ids are the same in every run.
    let mut hasher = DefaultHasher::new();
    criterion.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
