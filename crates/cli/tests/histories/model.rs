//! The sequential behavior of an API server over a store.
//!
//! # Theory
//!
//! The state is the content of each key: a value, and the revision that wrote it. Every applied
//! write has its own revision, and revisions are in the order of the writes. The revision of most
//! writes is known, from their response, or from a read that returned the value, which no other
//! write writes. So the order of these writes need not be searched ([`Objects::revisions`]).
//! Deletions do not return a revision, and a write with a lost response whose value was never read
//! may have happened or not.
//!
//! A list returns its revision, too: it contains exactly the writes up to it.

use crate::checker::{Model, Timed};
use std::collections::BTreeMap;

/// An object: the numbers of its namespace and its name.
pub(crate) type Key = (u8, u8);

/// The content of an object: a value that is written once, and the revision that wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Found {
    /// The value.
    pub value: u32,
    /// The revision.
    pub revision: u64,
}

/// The precondition of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guard {
    /// A create.
    Absent,
    /// An update or delete of any existing state.
    Present,
    /// An update or delete of exactly this revision.
    At(u64),
}

/// A request and its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Call {
    /// A get, a list, or a write that was refused because its object was absent: the content of
    /// each key.
    Read {
        /// The content of every requested key.
        found: BTreeMap<Key, Option<Found>>,
        /// The list's revision.
        revision: Option<u64>,
    },
    /// A create that was refused because the object existed.
    Exists(Key),
    /// A write that was refused because the object had another revision.
    Moved(Key, u64),
    /// A write.
    Write {
        /// The object.
        key: Key,
        /// The precondition.
        guard: Guard,
        /// The new value; `None` deletes.
        value: Option<u32>,
        /// `None` if unknown; the write may have happened.
        revision: Option<u64>,
    },
    /// A write of this value that did not happen, according to the server.
    Nothing(Option<u32>),
}

impl Call {
    /// The keys of the call.
    pub(crate) fn keys(&self) -> Vec<Key> {
        match self {
            Self::Read { found, .. } => found.keys().copied().collect(),
            Self::Exists(key) | Self::Moved(key, _) | Self::Write { key, .. } => vec![*key],
            Self::Nothing(_) => Vec::new(),
        }
    }
}

/// The content of the keys.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct State {
    /// A revision is `None` if it is unknown.
    objects: BTreeMap<Key, (u32, Option<u64>)>,
    /// Number of writes of known revision that have happened.
    n_known: usize,
}

/// The model of one history.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    /// All known revisions, in order.
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

    /// Whether a state after `n_known` known writes can be the store's at this revision.
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

/// Sets the revisions of writes of unknown outcome whose values were read.
///
/// # Errors
///
/// If the history is impossible in any order: a value was read that nobody wrote or whose write did
/// not happen; a value has two revisions, or a revision two writes; a revision is lower than one
/// that was known before the write started.
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

/// Checks revisions across keys: a write that starts later has a higher revision than any that was
/// known before.
fn revisions_follow_time(history: &[Timed<Call>]) -> Result<(), String> {
    // The highest revision known from responses at each moment.
    let mut delivered: Vec<(u64, u64)> = history
        .iter()
        .filter_map(|timed| match timed.call {
            Call::Read { revision, .. } | Call::Write { revision, .. } => {
                Some((timed.ended?, revision?))
            }
            _ => None,
        })
        .collect();
    delivered.sort_unstable();
    let mut highest = 0;
    for (_, revision) in &mut delivered {
        highest = highest.max(*revision);
        *revision = highest;
    }
    for timed in history {
        let before = delivered.partition_point(|(ended, _)| *ended < timed.began);
        let highest = before.checked_sub(1).map_or(0, |at| delivered[at].1);
        match timed.call {
            Call::Write { revision: Some(revision), .. } if revision <= highest => {
                return Err(format!("{highest} was delivered before {timed:?}"));
            }
            Call::Read { revision: Some(revision), .. } if revision < highest => {
                return Err(format!("{highest} was delivered before {timed:?}"));
            }
            _ => {}
        }
    }
    Ok(())
}
