//! What the modelled server holds, and held: a counter of versions, the states that are kept, and
//! what led from one to the next.
use bytes::Bytes;
use rand::Rng;
use rand::rngs::SmallRng;
use setpoint_informer::Key;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

/// How many namespaces there are.
const NAMESPACES: u8 = 3;
/// How many names each has.
const NAMES: u8 = 4;
/// How many objects there can be at once.
pub(crate) const THINGS_MAX: usize = NAMESPACES as usize * NAMES as usize;

/// Which object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    namespace: u8,
    name: u8,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}/o{}", self.namespace, self.name)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Name {
    /// Out of a cached object's namespace and name.
    pub(crate) fn read(namespace: &str, name: &str) -> Self {
        Self { namespace: digit(namespace), name: digit(name) }
    }

    pub(crate) fn key(self) -> Key {
        Key::new(self.namespace(), format!("o{}", self.name))
    }

    pub(crate) fn namespace(self) -> String {
        format!("n{}", self.namespace)
    }
}

fn digit(text: &str) -> u8 {
    text[1..].parse().unwrap_or(u8::MAX)
}

/// What is wrong with an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flavor {
    Plain,
    /// The transform fails for it.
    Poison,
    /// It does not fit its type, so that an index function over typed objects fails for it.
    Misfit,
}

/// One version of one object. Two that differ only in what is wrong with them are equal: a cache
/// does not show it.
#[derive(Clone, Copy, Eq)]
pub(crate) struct Thing {
    pub(crate) version: u64,
    pub(crate) uid: u64,
    pub(crate) flavor: Flavor,
}

impl PartialEq for Thing {
    fn eq(&self, other: &Self) -> bool {
        (self.version, self.uid) == (other.version, other.uid)
    }
}

impl fmt::Debug for Thing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.flavor {
            Flavor::Plain => "",
            Flavor::Poison => " poison",
            Flavor::Misfit => " misfit",
        };
        write!(f, "{}(u{}{mark})", self.version, self.uid)
    }
}

impl Thing {
    /// The one value under which an index over typed objects files it.
    pub(crate) fn digit(self) -> String {
        (self.version % 10).to_string()
    }

    /// The value of its label.
    pub(crate) fn tier(self) -> String {
        format!("t{}", self.version % 3)
    }
}

/// An item of a built-in list: no `apiVersion`, no `kind`.
pub(crate) fn item(name: Name, thing: Thing) -> Bytes {
    encode("", name, thing)
}

/// The object of a watch event.
pub(crate) fn object(name: Name, thing: Thing) -> Bytes {
    encode(r#""kind":"ConfigMap","apiVersion":"v1","#, name, thing)
}

fn encode(head: &str, name: Name, thing: Thing) -> Bytes {
    let Thing { version, uid, flavor } = thing;
    let digit = match flavor {
        Flavor::Misfit => thing.digit(),
        _ => format!("\"{}\"", thing.digit()),
    };
    let poison = if flavor == Flavor::Poison { r#","annotations":{"poison":"1"}"# } else { "" };
    Bytes::from(format!(
        r#"{{{head}"metadata":{{"namespace":"n{}","name":"o{}","uid":"u{uid}","resourceVersion":"{version}","labels":{{"tier":"{}"}}{poison},"managedFields":[]}},"data":{{"v":{digit}}}}}"#,
        name.namespace,
        name.name,
        thing.tier(),
    ))
}

/// Every object at one moment.
pub(crate) type Things = BTreeMap<Name, Thing>;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    Added,
    Modified,
    Deleted,
}

/// One step of the history. A deletion carries the object as it was, at the version of the
/// deletion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) verb: Verb,
    pub(crate) name: Name,
    pub(crate) thing: Thing,
}

pub(crate) struct World {
    /// What there was at each version that is kept; the last is the present.
    kept: VecDeque<(u64, Arc<Things>)>,
    /// What led to each of those versions but the first.
    changes: VecDeque<Change>,
    uids: u64,
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            kept: VecDeque::from([(1, Arc::new(Things::new()))]),
            changes: VecDeque::new(),
            uids: 0,
        }
    }

    pub(crate) fn version(&self) -> u64 {
        self.kept.back().map_or(0, |(version, _)| *version)
    }

    /// The oldest version from which a watch can start.
    pub(crate) fn oldest(&self) -> u64 {
        self.kept.front().map_or(0, |(version, _)| *version)
    }

    pub(crate) fn things(&self) -> &Things {
        static EMPTY: Things = Things::new();
        self.kept.back().map_or(&EMPTY, |(_, things)| things)
    }

    /// A kept state that is not older than `since`; the newest of all that are when `newest`.
    pub(crate) fn state_since(
        &self,
        since: u64,
        newest: bool,
        rng: &mut SmallRng,
    ) -> Option<(u64, Arc<Things>)> {
        let first = self.kept.partition_point(|(version, _)| *version < since);
        let last = self.kept.len() - 1;
        if first > last {
            return None;
        }
        let at = if newest { last } else { rng.random_range(first..=last) };
        self.kept.get(at).cloned()
    }

    /// The state at exactly a version, when it is kept.
    pub(crate) fn state_at(&self, version: u64) -> Option<Arc<Things>> {
        let at = self.kept.binary_search_by_key(&version, |(version, _)| *version).ok()?;
        self.kept.get(at).map(|(_, things)| things.clone())
    }

    /// What came first after a version.
    pub(crate) fn change_after(&self, version: u64) -> Option<Change> {
        let at = self.changes.partition_point(|change| change.thing.version <= version);
        self.changes.get(at).copied()
    }

    /// The latest change.
    pub(crate) fn last_change(&self) -> Option<Change> {
        self.changes.back().copied()
    }

    /// Creates, changes, deletes or recreates a random object. Gives whether it was recreated.
    pub(crate) fn write(&mut self, rng: &mut SmallRng, flavor: Flavor) -> bool {
        let name =
            Name { namespace: rng.random_range(0..NAMESPACES), name: rng.random_range(0..NAMES) };
        match self.things().get(&name).copied() {
            None => self.create(rng, name, flavor),
            Some(thing) => match rng.random_range(0..10) {
                0..5 => self.put(rng, Verb::Modified, name, Thing { flavor, ..thing }),
                5..8 => self.put(rng, Verb::Deleted, name, thing),
                _ => {
                    self.put(rng, Verb::Deleted, name, thing);
                    self.create(rng, name, flavor);
                    return true;
                }
            },
        }
        false
    }

    /// Writes anew what is not plain.
    pub(crate) fn mend(&mut self, rng: &mut SmallRng) {
        let bad: Vec<_> = self
            .things()
            .iter()
            .filter(|(_, thing)| thing.flavor != Flavor::Plain)
            .map(|(name, thing)| (*name, *thing))
            .collect();
        for (name, thing) in bad {
            self.put(rng, Verb::Modified, name, Thing { flavor: Flavor::Plain, ..thing });
        }
    }

    /// Forgets all but the last so many states. Gives whether there were more.
    pub(crate) fn compact(&mut self, keep: usize) -> bool {
        let forgotten = self.kept.len().saturating_sub(keep.max(1));
        self.kept.drain(..forgotten);
        self.changes.drain(..forgotten);
        forgotten > 0
    }

    pub(crate) fn n_kept(&self) -> usize {
        self.kept.len()
    }

    fn create(&mut self, rng: &mut SmallRng, name: Name, flavor: Flavor) {
        self.uids += 1;
        self.put(rng, Verb::Added, name, Thing { version: 0, uid: self.uids, flavor });
    }

    fn put(&mut self, rng: &mut SmallRng, verb: Verb, name: Name, thing: Thing) {
        // Other resources share the counter.
        let version = self.version() + rng.random_range(1..4);
        let thing = Thing { version, ..thing };
        let mut things = self.things().clone();
        if verb == Verb::Deleted {
            things.remove(&name);
        } else {
            things.insert(name, thing);
        }
        self.kept.push_back((version, Arc::new(things)));
        self.changes.push_back(Change { verb, name, thing });
    }
}
