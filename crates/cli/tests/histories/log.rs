//! The store's own log of changes, and checks of weak reads and watches against it.

use crate::checker::Timed;
use crate::model::{Call, Found, Guard, Key};
use std::collections::BTreeMap;

/// A change in the store's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change {
    /// Its revision.
    pub revision: u64,
    /// Its key.
    pub key: Key,
    /// `None` for a deletion.
    pub value: Option<u32>,
}

/// All changes since the store was empty, in order.
#[derive(Debug)]
pub(crate) struct Log {
    /// The changes.
    pub changes: Vec<Change>,
    /// The last revision of the log. A write with a lost response may still happen later.
    pub until: u64,
}

/// A read that may be served from an old state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WeakRead {
    /// The requested keys.
    pub asked: Vec<Key>,
    /// The returned objects.
    pub found: BTreeMap<Key, Found>,
    /// The list's revision; `None` for a get.
    pub revision: Option<u64>,
    /// The minimum revision.
    pub at_least: u64,
    /// The exact revision, if requested.
    pub exactly: Option<u64>,
}

/// An event of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// ADDED.
    Added(Key, Found),
    /// MODIFIED.
    Modified(Key, Found),
    /// DELETED: the last value, and the revision of the deletion.
    Deleted(Key, Found),
}

/// A watch, or several of them of which each went on where the one before ended.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watched {
    /// What it watched.
    pub keys: Vec<Key>,
    /// The state it began with.
    pub initial: BTreeMap<Key, Found>,
    /// The revision of that state.
    pub from: u64,
    /// What came then.
    pub events: Vec<Event>,
    /// How far it came: the last event's or bookmark's revision.
    pub reached: u64,
    /// Whether its position was compacted, so that it started again.
    pub is_expired: bool,
}

impl Event {
    fn revision(&self) -> u64 {
        let (Self::Added(_, found) | Self::Modified(_, found) | Self::Deleted(_, found)) = self;
        found.revision
    }
}

impl Log {
    /// The state of some keys at a revision.
    fn at(&self, revision: u64, keys: &[Key]) -> BTreeMap<Key, Found> {
        let mut state = BTreeMap::new();
        let changes = self.changes.iter().take_while(|change| change.revision <= revision);
        for change in changes.filter(|change| keys.contains(&change.key)) {
            match change.value {
                Some(value) => {
                    state.insert(change.key, Found { value, revision: change.revision });
                }
                None => _ = state.remove(&change.key),
            }
        }
        state
    }

    /// The revision of the last change of some keys.
    pub(crate) fn end(&self, keys: &[Key]) -> u64 {
        let last = self.changes.iter().rfind(|change| keys.contains(&change.key));
        last.map_or(0, |change| change.revision)
    }

    /// Compares the store's log with the clients' responses.
    ///
    /// # Errors
    ///
    /// If an acknowledged write is missing or differs; if a change was not requested, was requested
    /// later, or was reported as not applied; or if its guard forbids it.
    pub(crate) fn agrees_with(&self, history: &[Timed<Call>]) -> Result<(), String> {
        let mut writes: BTreeMap<u32, &Timed<Call>> = BTreeMap::new();
        let mut n_deletes: BTreeMap<Key, (usize, usize)> = BTreeMap::new();
        for timed in history {
            match &timed.call {
                Call::Write { value: Some(value), .. } => _ = writes.insert(*value, timed),
                Call::Write { key, .. } => {
                    let (acknowledged, asked) = n_deletes.entry(*key).or_default();
                    *acknowledged += usize::from(timed.ended.is_some());
                    *asked += 1;
                }
                _ => {}
            }
        }
        let mut state: BTreeMap<Key, Found> = BTreeMap::new();
        let mut last = 0;
        for change in &self.changes {
            if change.revision <= last {
                return Err(format!("{change:?} comes after revision {last}"));
            }
            last = change.revision;
            let before = state.remove(&change.key);
            let Some(value) = change.value else {
                let Some((_, asked)) = n_deletes.get_mut(&change.key).filter(|(_, n)| *n > 0)
                else {
                    return Err(format!("nobody, or nobody again, asked for {change:?}"));
                };
                *asked -= 1;
                if before.is_none() {
                    return Err(format!("nothing was there before {change:?}"));
                }
                if let Some((acknowledged, _)) = n_deletes.get_mut(&change.key) {
                    *acknowledged = acknowledged.saturating_sub(1);
                }
                continue;
            };
            state.insert(change.key, Found { value, revision: change.revision });
            let Some(timed) = writes.remove(&value) else {
                return Err(format!("nobody, or nobody again, asked for {change:?}"));
            };
            let Call::Write { key, guard, revision, .. } = &timed.call else { unreachable!() };
            let may = match (guard, before) {
                (Guard::Absent, before) => before.is_none(),
                (Guard::Present, before) => before.is_some(),
                (Guard::At(expected), before) => before.is_some_and(|b| b.revision == *expected),
            };
            if *key != change.key || revision.is_some_and(|told| told != change.revision) || !may {
                return Err(format!("{change:?} over {before:?} is no effect of {timed:?}"));
            }
        }
        if let Some(lost) = writes.values().find(|timed| timed.ended.is_some()) {
            return Err(format!("an acknowledged write is lost: {lost:?}"));
        }
        if let Some((key, _)) = n_deletes.iter().find(|(_, (acknowledged, _))| *acknowledged > 0) {
            return Err(format!("an acknowledged deletion of {key:?} is lost"));
        }
        Ok(())
    }

    /// Checks that a weak read returned one state as a whole, not older than requested.
    pub(crate) fn explains(&self, read: &WeakRead) -> Result<(), String> {
        let is_so = match (read.revision, read.exactly) {
            (Some(revision), exactly) => {
                revision >= read.at_least
                    && exactly.is_none_or(|exactly| exactly == revision)
                    && self.at(revision, &read.asked) == read.found
            }
            // A get: one of the revisions from there on.
            (None, _) => {
                let later = self.changes.iter().map(|c| c.revision).filter(|r| *r > read.at_least);
                std::iter::once(read.at_least)
                    .chain(later)
                    .any(|revision| self.at(revision, &read.asked) == read.found)
            }
        };
        let then = read.revision.map(|revision| self.at(revision, &read.asked));
        if is_so {
            Ok(())
        } else {
            Err(format!("there was never this: {read:?}; there was {then:?}"))
        }
    }

    /// Checks that a watch received each change once, in order and without gaps, up to the last.
    pub(crate) fn explains_watch(&self, watched: &Watched) -> Result<(), String> {
        let keys = &watched.keys;
        if !watched.is_expired && watched.reached < self.end(keys) {
            let (from, reached, end) = (watched.from, watched.reached, self.end(keys));
            return Err(format!("a watch from {from} ended at {reached}, not at {end}"));
        }
        let mut state = self.at(watched.from, keys);
        if state != watched.initial {
            let (from, initial) = (watched.from, &watched.initial);
            return Err(format!("a watch began at {from} with {initial:?}; there was {state:?}"));
        }
        let expected_changes = self.changes.iter().filter(|change| {
            keys.contains(&change.key)
                && watched.from < change.revision
                && change.revision <= watched.reached
        });
        let mut received = watched.events.iter().filter(|event| event.revision() <= self.until);
        for change in expected_changes {
            let (key, revision) = (change.key, change.revision);
            let expected = match (state.remove(&key), change.value) {
                (None, Some(value)) => Event::Added(key, Found { value, revision }),
                (Some(_), Some(value)) => Event::Modified(key, Found { value, revision }),
                (before, None) => {
                    Event::Deleted(key, Found { value: before.map_or(0, |b| b.value), revision })
                }
            };
            if let Event::Added(_, found) | Event::Modified(_, found) = expected {
                state.insert(key, found);
            }
            let event = received.next();
            if event != Some(&expected) {
                return Err(format!(
                    "a watch from {} brought {event:?} for {expected:?}",
                    watched.from
                ));
            }
        }
        match received.next() {
            Some(event) => Err(format!(
                "a watch from {} brought {event:?}, which did not happen",
                watched.from
            )),
            None => Ok(()),
        }
    }
}
