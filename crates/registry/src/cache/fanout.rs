//! Which watchers a change may concern.
//!
//! # Theory
//!
//! Watchers of the same kind of interest share a *bucket*, named by a number: the hash of what its
//! changes have in common.
//!
//! | a watcher of             | is in the bucket of                   |
//! |--------------------------|---------------------------------------|
//! | one object               | its key                               |
//! | objects of one name      | the name                              |
//! | `k=v`, `k in (v, w)`     | label and value; in one for each value |
//! | `field=v`                | row, field and value                  |
//! | anything else            | everything                            |
//!
//! All but the first are buckets of one namespace, or of all. A watcher that could be in several is
//! put where the fewest are. A change looks up the few buckets that it can be in: its key's; and in
//! its namespace and in all of them, everything, its name, and the labels and fields of the object
//! before and now. So its cost does not depend on the watchers in other buckets, and who leaves a
//! selector is told as well as who enters it. Two interests with one number share a bucket and see
//! each other's changes: a watcher looks at every change itself before it makes an event of it.
//!
//! A bucket is a *chain*: the sequence numbers of its changes in the window, from some number on
//! (`since`). A watcher in front of that looks at the window's changes one by one until it is
//! there.
use super::{Change, Field, Interest, Item, Term, WatcherId};
use crate::catalog::Resource;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::task::Waker;

/// How many values of one label a watcher is looked up by; one that names more looks at every
/// change.
pub(super) const TERM_VALUES_MAX: usize = 16;

/// The watchers of one resource, by what they are interested in.
#[derive(Debug)]
pub(super) struct Fanout {
    /// The bytes of a key that name the resource.
    prefix_len: usize,
    buckets: HashMap<u64, Bucket, BuildHasherDefault<Numbered>>,
    /// How many watchers are found by a label.
    n_by_label: usize,
    /// The fields by which watchers are found, each with how many.
    fields: Vec<Indexed>,
    n_fields: u64,
}
#[derive(Debug)]
struct Indexed {
    number: u64,
    resource: Arc<Resource>,
    field: Field,
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
    /// Who has taken everything there is.
    waiting: BTreeMap<WatcherId, Waker>,
}
/// Where a watcher is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seat {
    buckets: Vec<u64>,
    by: By,
}
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Other,
    Label,
    Field(u64),
}
/// Those who are to be woken, in the order in which they came, so that a run is a function of its
/// seed.
pub(super) type Woken = BTreeMap<WatcherId, Waker>;

impl Fanout {
    pub(super) fn new(prefix_len: usize) -> Self {
        let (buckets, fields) = (HashMap::default(), Vec::new());
        Self { prefix_len, buckets, n_by_label: 0, fields, n_fields: 0 }
    }

    /// A seat for a watcher that comes when the window ends at `end`.
    pub(super) fn join(&mut self, interest: &Interest, end: u64) -> Seat {
        let seat = self.choose(interest);
        for number in &seat.buckets {
            let new = || Bucket { since: end, gone: end, ..Bucket::default() };
            self.buckets.entry(*number).or_insert_with(new).n_watchers += 1;
        }
        match seat.by {
            By::Label => self.n_by_label += 1,
            By::Field(number) => {
                if let Some(indexed) = self.fields.iter_mut().find(|f| f.number == number) {
                    indexed.n_watchers += 1;
                }
            }
            By::Other => {}
        }
        seat
    }
    /// Gives a seat up.
    pub(super) fn leave(&mut self, id: WatcherId, seat: &Seat) {
        for number in &seat.buckets {
            let Some(bucket) = self.buckets.get_mut(number) else { continue };
            bucket.waiting.remove(&id);
            bucket.n_watchers -= 1;
            if bucket.n_watchers == 0 {
                self.buckets.remove(number);
            }
        }
        match seat.by {
            By::Label => self.n_by_label -= 1,
            By::Field(number) => {
                if let Some(at) = self.fields.iter().position(|f| f.number == number) {
                    self.fields[at].n_watchers -= 1;
                    if self.fields[at].n_watchers == 0 {
                        self.fields.swap_remove(at);
                    }
                }
            }
            By::Other => {}
        }
    }

    fn choose(&mut self, interest: &Interest) -> Seat {
        if let Some(key) = &interest.only {
            return Seat { buckets: vec![number(&Place::Key(key))], by: By::Other };
        }
        let scope = interest.namespace.as_deref();
        let mut best: Option<(usize, Seat)> = None;
        for term in &interest.terms {
            let seat = match term {
                Term::Name(name) => {
                    Seat { buckets: vec![number(&Place::Name(scope, name))], by: By::Other }
                }
                Term::Label(_, values) if values.len() > TERM_VALUES_MAX => continue,
                Term::Label(key, values) => {
                    let places = values.iter().map(|value| Place::Label(scope, key, value));
                    let mut buckets: Vec<_> = places.map(|place| number(&place)).collect();
                    buckets.sort_unstable();
                    buckets.dedup();
                    Seat { buckets, by: By::Label }
                }
                Term::Field(resource, field, value) => {
                    let indexed = self.indexed(resource, field);
                    let place = Place::Field(scope, indexed, value);
                    Seat { buckets: vec![number(&place)], by: By::Field(indexed) }
                }
            };
            let n_there: usize = seat.buckets.iter().map(|b| self.n_watchers(*b)).sum();
            // The first of equals.
            if best.as_ref().is_none_or(|(least, _)| n_there < *least) {
                best = Some((n_there, seat));
            }
        }
        self.fields.retain(|f| {
            f.n_watchers > 0 || matches!(&best, Some((_, seat)) if seat.by == By::Field(f.number))
        });
        let everything = || Seat { buckets: vec![number(&Place::All(scope))], by: By::Other };
        best.map_or_else(everything, |(_, seat)| seat)
    }
    /// The number of a field; a new one, without watchers, when it has none.
    fn indexed(&mut self, resource: &Arc<Resource>, field: &Field) -> u64 {
        let known = |f: &&Indexed| Arc::ptr_eq(&f.resource, resource) && f.field == *field;
        if let Some(indexed) = self.fields.iter().find(known) {
            return indexed.number;
        }
        let number = self.n_fields;
        self.n_fields += 1;
        let (resource, field) = (resource.clone(), field.clone());
        self.fields.push(Indexed { number, resource, field, n_watchers: 0 });
        number
    }
    fn n_watchers(&self, bucket: u64) -> usize {
        self.buckets.get(&bucket).map_or(0, |bucket| bucket.n_watchers)
    }

    /// Adds a change to the chains it belongs to, and takes who waits for it. The window starts at
    /// `first`.
    pub(super) fn add(&mut self, sequence: u64, change: &Change, first: u64, woken: &mut Woken) {
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
        let mut hit = |place: &Place<'_>| {
            if let Some(bucket) = buckets.get_mut(&number(place)) {
                bucket.add(sequence, first, woken);
            }
        };
        hit(&Place::Key(key));
        let scopes = [Some(None), namespace.map(Some)].into_iter().flatten();
        for scope in scopes.clone() {
            hit(&Place::All(scope));
            hit(&Place::Name(scope, name));
        }
        if self.n_by_label > 0 {
            let (now, before) = (change.now.as_deref(), change.before.as_deref());
            let is_same = now.map(Item::labels_text) == before.map(Item::labels_text);
            for item in now.into_iter().chain(before.filter(|_| !is_same)) {
                for (key, value) in item.labels() {
                    scopes.clone().for_each(|scope| hit(&Place::Label(scope, &key, &value)));
                }
            }
        }
        let mut is_unknown = false;
        for Indexed { number, resource, field, .. } in &self.fields {
            let mut last = None;
            for item in change.now.iter().chain(&change.before) {
                match field.value(resource, item) {
                    Ok(value) if last.as_ref() == Some(&value) => {}
                    Ok(value) => {
                        let place = |scope| Place::Field(scope, *number, &value);
                        scopes.clone().for_each(|scope| hit(&place(scope)));
                        last = Some(value);
                    }
                    // The watchers find the fault themselves.
                    Err(_) => is_unknown = true,
                }
            }
        }
        if is_unknown {
            self.buckets.values_mut().for_each(|bucket| bucket.add(sequence, first, woken));
        }
    }

    /// The sequence number from which on a seat's chains are complete.
    pub(super) fn since(&self, seat: &Seat) -> u64 {
        self.buckets_of(seat).map(|bucket| bucket.since).max().unwrap_or(0)
    }
    /// The sequence number before which a seat's changes may have left its chains.
    pub(super) fn gone(&self, seat: &Seat) -> u64 {
        self.buckets_of(seat).map(|bucket| bucket.gone).max().unwrap_or(0)
    }
    /// The first of a seat's changes from a sequence number on.
    pub(super) fn next(&self, seat: &Seat, from: u64) -> Option<u64> {
        self.buckets_of(seat).filter_map(|bucket| bucket.next(from)).min()
    }
    /// Leaves a waker: its owner has taken everything up to `end`.
    pub(super) fn wait(&mut self, id: WatcherId, seat: &Seat, waker: &Waker, end: u64, first: u64) {
        for number in &seat.buckets {
            let Some(bucket) = self.buckets.get_mut(number) else { continue };
            if bucket.n_watchers == 1 {
                // Nobody else needs it.
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
    /// Everybody who waits.
    pub(super) fn take_waiting(&mut self) -> Woken {
        let waiting = self.buckets.values_mut().map(|bucket| std::mem::take(&mut bucket.waiting));
        waiting.flatten().collect()
    }
    fn buckets_of(&self, seat: &Seat) -> impl Iterator<Item = &Bucket> {
        seat.buckets.iter().filter_map(|number| self.buckets.get(number))
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
    /// Forgets what has left the window.
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

/// The hash of a number that is one already. Nothing depends on the order of the buckets.
#[derive(Debug, Default)]
struct Numbered(u64);
impl Hasher for Numbered {
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

/// What the changes of a bucket have in common. The namespace, where there is one, is `None` for
/// all.
#[derive(Debug, Hash)]
enum Place<'a> {
    Key(&'a [u8]),
    All(Option<&'a str>),
    Name(Option<&'a str>, &'a str),
    Label(Option<&'a str>, &'a str, &'a str),
    Field(Option<&'a str>, u64, &'a str),
}
fn number(place: &Place<'_>) -> u64 {
    // Its keys are fixed: the same places have the same numbers in every run.
    let mut hasher = DefaultHasher::new();
    place.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
