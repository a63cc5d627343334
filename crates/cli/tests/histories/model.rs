//! What an API server over a store promises to do, one request at a time.
//!
//! # Theory
//!
//! The state is what each key holds: a value, and the revision that wrote it. Every write that took
//! effect has a revision of its own, and revisions are in the order of the writes. Of most writes
//! the revision is known: their answer tells it, or a read has found the value, which no other
//! write writes. So the order of these is no matter of search ([`Objects::revisions`]); deletions
//! tell no revision, and writes whose answer was lost and that nobody has seen may have happened or
//! not.
//!
//! A list tells its revision, too: it has seen exactly the writes up to it.

use crate::checker::{Model, Timed};
use std::collections::BTreeMap;

/// Which object: its namespace and its name, by number.
pub(crate) type Key = (u8, u8);

/// What an object holds: a value that is written once, and the revision that wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Found {
    /// What was written.
    pub value: u32,
    /// When.
    pub revision: u64,
}

/// What must be so for a write to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guard {
    /// A create.
    Absent,
    /// An update or a delete of whatever is there.
    Present,
    /// One of this revision alone.
    At(u64),
}

/// A request and its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Call {
    /// A get, a list, or a write that was refused since its object was absent: what each key held.
    Read {
        /// Of every key that was asked for.
        found: BTreeMap<Key, Option<Found>>,
        /// The list's revision.
        revision: Option<u64>,
    },
    /// A create that was refused: the object was there.
    Exists(Key),
    /// A write that was refused: the object was there, at another revision.
    Moved(Key, u64),
    /// A write.
    Write {
        /// Of this object.
        key: Key,
        /// If this holds.
        guard: Guard,
        /// `None` deletes.
        value: Option<u32>,
        /// `None`: not known, which does not mean that it did not happen.
        revision: Option<u64>,
    },
    /// A write of this value that did not happen, by the server's word.
    Nothing(Option<u32>),
}

impl Call {
    /// The keys it speaks of.
    pub(crate) fn keys(&self) -> Vec<Key> {
        match self {
            Self::Read { found, .. } => found.keys().copied().collect(),
            Self::Exists(key) | Self::Moved(key, _) | Self::Write { key, .. } => vec![*key],
            Self::Nothing(_) => Vec::new(),
        }
    }
}

/// What the keys hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct State {
    /// A revision is `None` when nobody has learned it.
    objects: BTreeMap<Key, (u32, Option<u64>)>,
    /// How many writes of known revision have happened.
    n_known: usize,
}

/// The model of one history.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    /// All known ones, in order.
    revisions: Vec<u64>,
}

impl Objects {
    /// The model of a history whose revisions are [`resolve`]d.
    pub(crate) fn of<'a>(calls: impl IntoIterator<Item = &'a Call>) -> Self {
        let revision = |call: &Call| match call {
            Call::Write { revision, .. } => *revision,
            _ => None,
        };
        let mut revisions: Vec<u64> = calls.into_iter().filter_map(revision).collect();
        revisions.sort_unstable();
        Self { revisions }
    }

    /// Whether a state at which `n_known` known writes have happened can be the store's at this
    /// revision.
    fn is_at(&self, n_known: usize, revision: u64) -> bool {
        let last = n_known.checked_sub(1).map(|at| self.revisions[at]);
        let next = self.revisions.get(n_known);
        last.is_none_or(|last| last <= revision) && next.is_none_or(|next| revision < *next)
    }
}

impl Model for Objects {
    type Call = Call;
    type State = State;

    fn initial(&self) -> State {
        State::default()
    }

    fn is_read(&self, call: &Call) -> bool {
        !matches!(call, Call::Write { .. })
    }

    fn step(&self, state: &State, call: &Call) -> Option<State> {
        let at = |key: &Key| state.objects.get(key).copied();
        match call {
            Call::Read { found, revision } => {
                let is_so = found.iter().all(|(key, found)| {
                    at(key) == found.map(|found| (found.value, Some(found.revision)))
                });
                (is_so && revision.is_none_or(|revision| self.is_at(state.n_known, revision)))
                    .then(|| state.clone())
            }
            Call::Exists(key) => at(key).is_some().then(|| state.clone()),
            Call::Moved(key, expected) => {
                let is_so = at(key).is_some_and(|(_, revision)| revision != Some(*expected));
                is_so.then(|| state.clone())
            }
            Call::Nothing(_) => Some(state.clone()),
            Call::Write { key, guard, value, revision } => {
                let may = match (guard, at(key)) {
                    (Guard::Absent, found) => found.is_none(),
                    (Guard::Present, found) => found.is_some(),
                    (Guard::At(expected), found) => {
                        found.is_some_and(|(_, revision)| revision == Some(*expected))
                    }
                };
                if !may
                    || revision.is_some() && self.revisions.get(state.n_known) != revision.as_ref()
                {
                    return None;
                }
                let mut state = state.clone();
                match value {
                    Some(value) => state.objects.insert(*key, (*value, *revision)),
                    None => state.objects.remove(key),
                };
                state.n_known += usize::from(revision.is_some());
                Some(state)
            }
        }
    }
}

/// Gives writes of unknown outcome the revisions at which their values were found.
///
/// # Errors
///
/// What cannot be, in whatever order: a value found that nobody wrote or whose write did not
/// happen; one value at two revisions, or two writes at one; a revision that is lower than one that
/// was known before the write began.
pub(crate) fn resolve(history: &mut [Timed<Call>]) -> Result<(), String> {
    let mut seen: BTreeMap<u32, (Key, u64)> = BTreeMap::new();
    for timed in &*history {
        let found: Vec<(Key, Found)> = match &timed.call {
            Call::Read { found, .. } => {
                found.iter().filter_map(|(key, found)| Some((*key, (*found)?))).collect()
            }
            Call::Write { key, value: Some(value), revision: Some(revision), .. } => {
                vec![(*key, Found { value: *value, revision: *revision })]
            }
            _ => continue,
        };
        for (key, found) in found {
            let first = *seen.entry(found.value).or_insert((key, found.revision));
            if first != (key, found.revision) {
                return Err(format!("{found:?} of {key:?} was {first:?} elsewhere: {timed:?}"));
            }
        }
    }
    let mut by_revision = BTreeMap::new();
    for timed in &mut *history {
        match &mut timed.call {
            Call::Nothing(Some(value)) if seen.contains_key(value) => {
                return Err(format!("the server said that this did not happen: {timed:?}"));
            }
            Call::Write { key, value: Some(value), revision, .. } => {
                let found = seen.remove(value);
                if found.is_some_and(|(other, _)| other != *key) {
                    return Err(format!("found as {found:?}: {timed:?}"));
                }
                *revision = found.map(|(_, revision)| revision);
            }
            _ => continue,
        }
        if let Call::Write { revision: Some(revision), .. } = timed.call
            && let Some(other) = by_revision.insert(revision, timed.clone())
        {
            return Err(format!("one revision for two writes: {other:?} and {timed:?}"));
        }
    }
    if let Some((value, at)) = seen.first_key_value() {
        return Err(format!("nobody wrote the value {value}, found as {at:?}"));
    }
    revisions_follow_time(history)
}

/// What is known of revisions across keys: those of writes that begin later are higher than all
/// that was known before.
fn revisions_follow_time(history: &[Timed<Call>]) -> Result<(), String> {
    // The highest revision that an answer has told by each moment.
    let mut told: Vec<(u64, u64)> = history
        .iter()
        .filter_map(|timed| match timed.call {
            Call::Read { revision, .. } | Call::Write { revision, .. } => {
                Some((timed.ended?, revision?))
            }
            _ => None,
        })
        .collect();
    told.sort_unstable();
    let mut highest = 0;
    for (_, revision) in &mut told {
        highest = highest.max(*revision);
        *revision = highest;
    }
    for timed in history {
        let before = told.partition_point(|(ended, _)| *ended < timed.began);
        let highest = before.checked_sub(1).map_or(0, |at| told[at].1);
        match timed.call {
            Call::Write { revision: Some(revision), .. } if revision <= highest => {
                return Err(format!("{highest} was told before {timed:?}"));
            }
            Call::Read { revision: Some(revision), .. } if revision < highest => {
                return Err(format!("{highest} was told before {timed:?}"));
            }
            _ => {}
        }
    }
    Ok(())
}
