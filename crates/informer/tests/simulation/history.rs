//! The history of the model server: a counter of versions, the stored states, and the changes
//! between them.
use bytes::Bytes;
use rand::Rng;
use rand::rngs::SmallRng;
use setpoint_informer::Key;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

/// The number of namespaces.
const NAMESPACES: u8 = 3;
/// The number of names in each namespace.
const NAMES: u8 = 4;
/// The maximum number of objects.
pub(crate) const OBJECTS_MAX: usize = NAMESPACES as usize * NAMES as usize;

/// The name of an object.
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
    /// Parses the namespace and name of a cached object.
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

/// A defect of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Defect {
    Plain,
    /// The transform fails for it.
    Poison,
    /// It cannot be decoded as its type, so an index function over typed objects fails for it.
    Undecodable,
}

/// One version of one object. Equality ignores the defect, which a cache does not show.
#[derive(Clone, Copy, Eq)]
pub(crate) struct ModelObject {
    pub(crate) version: u64,
    pub(crate) uid: u64,
    pub(crate) defect: Defect,
}

impl PartialEq for ModelObject {
    fn eq(&self, other: &Self) -> bool {
        (self.version, self.uid) == (other.version, other.uid)
    }
}

impl fmt::Debug for ModelObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.defect {
            Defect::Plain => "",
            Defect::Poison => " poison",
            Defect::Undecodable => " misfit",
        };
        write!(f, "{}(u{}{mark})", self.version, self.uid)
    }
}

impl ModelObject {
    /// Its value in the index over typed objects.
    pub(crate) fn digit(self) -> String {
        (self.version % 10).to_string()
    }

    /// The value of its label.
    pub(crate) fn tier(self) -> String {
        format!("t{}", self.version % 3)
    }
}

/// An item of a built-in list: no `apiVersion`, no `kind`.
pub(crate) fn item(name: Name, model: ModelObject) -> Bytes {
    encode("", name, model)
}

/// The object of a watch event.
pub(crate) fn object(name: Name, model: ModelObject) -> Bytes {
    encode(r#""kind":"ConfigMap","apiVersion":"v1","#, name, model)
}

fn encode(head: &str, name: Name, model: ModelObject) -> Bytes {
    let ModelObject { version, uid, defect } = model;
    let digit = match defect {
        Defect::Undecodable => model.digit(),
        _ => format!("\"{}\"", model.digit()),
    };
    let poison = if defect == Defect::Poison { r#","annotations":{"poison":"1"}"# } else { "" };
    Bytes::from(format!(
        r#"{{{head}"metadata":{{"namespace":"n{}","name":"o{}","uid":"u{uid}","resourceVersion":"{version}","labels":{{"tier":"{}"}}{poison},"managedFields":[]}},"data":{{"v":{digit}}}}}"#,
        name.namespace,
        name.name,
        model.tier(),
    ))
}

/// All objects at one version.
pub(crate) type ModelObjects = BTreeMap<Name, ModelObject>;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    Added,
    Modified,
    Deleted,
}

/// One change of the history. A deletion has the last state of the object, with the version of the
/// deletion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) verb: Verb,
    pub(crate) name: Name,
    pub(crate) model: ModelObject,
}

pub(crate) struct History {
    /// The stored states, each with its version. The last is the current one.
    states: VecDeque<(u64, Arc<ModelObjects>)>,
    /// The change that led to each stored version except the first.
    changes: VecDeque<Change>,
    uids: u64,
}

impl History {
    pub(crate) fn new() -> Self {
        Self {
            states: VecDeque::from([(1, Arc::new(ModelObjects::new()))]),
            changes: VecDeque::new(),
            uids: 0,
        }
    }

    pub(crate) fn version(&self) -> u64 {
        self.states.back().map_or(0, |(version, _)| *version)
    }

    /// The oldest version from which a watch can start.
    pub(crate) fn oldest(&self) -> u64 {
        self.states.front().map_or(0, |(version, _)| *version)
    }

    pub(crate) fn objects(&self) -> &ModelObjects {
        static EMPTY: ModelObjects = ModelObjects::new();
        self.states.back().map_or(&EMPTY, |(_, objects)| objects)
    }

    /// A stored state that is not older than `since`: the newest if `newest`, else a random one.
    pub(crate) fn state_since(
        &self,
        since: u64,
        newest: bool,
        rng: &mut SmallRng,
    ) -> Option<(u64, Arc<ModelObjects>)> {
        let first = self.states.partition_point(|(version, _)| *version < since);
        let last = self.states.len() - 1;
        if first > last {
            return None;
        }
        let at = if newest { last } else { rng.random_range(first..=last) };
        self.states.get(at).cloned()
    }

    /// The state at exactly this version, if it is stored.
    pub(crate) fn state_at(&self, version: u64) -> Option<Arc<ModelObjects>> {
        let at = self.states.binary_search_by_key(&version, |(version, _)| *version).ok()?;
        self.states.get(at).map(|(_, objects)| objects.clone())
    }

    /// The first change after a version.
    pub(crate) fn change_after(&self, version: u64) -> Option<Change> {
        let at = self.changes.partition_point(|change| change.model.version <= version);
        self.changes.get(at).copied()
    }

    /// The latest change.
    pub(crate) fn last_change(&self) -> Option<Change> {
        self.changes.back().copied()
    }

    /// Creates, changes, deletes or recreates a random object. Returns whether it was recreated.
    pub(crate) fn write(&mut self, rng: &mut SmallRng, defect: Defect) -> bool {
        let name =
            Name { namespace: rng.random_range(0..NAMESPACES), name: rng.random_range(0..NAMES) };
        match self.objects().get(&name).copied() {
            None => self.create(rng, name, defect),
            Some(model) => match rng.random_range(0..10) {
                0..5 => self.put(rng, Verb::Modified, name, ModelObject { defect, ..model }),
                5..8 => self.put(rng, Verb::Deleted, name, model),
                _ => {
                    self.put(rng, Verb::Deleted, name, model);
                    self.create(rng, name, defect);
                    return true;
                }
            },
        }
        false
    }

    /// Rewrites all objects that have a defect.
    pub(crate) fn repair(&mut self, rng: &mut SmallRng) {
        let defective: Vec<_> = self
            .objects()
            .iter()
            .filter(|(_, model)| model.defect != Defect::Plain)
            .map(|(name, model)| (*name, *model))
            .collect();
        for (name, model) in defective {
            self.put(rng, Verb::Modified, name, ModelObject { defect: Defect::Plain, ..model });
        }
    }

    /// Removes all but the last `keep` states. Returns whether any were removed.
    pub(crate) fn compact(&mut self, keep: usize) -> bool {
        let n_removed = self.states.len().saturating_sub(keep.max(1));
        self.states.drain(..n_removed);
        self.changes.drain(..n_removed);
        n_removed > 0
    }

    pub(crate) fn n_states(&self) -> usize {
        self.states.len()
    }

    fn create(&mut self, rng: &mut SmallRng, name: Name, defect: Defect) {
        self.uids += 1;
        self.put(rng, Verb::Added, name, ModelObject { version: 0, uid: self.uids, defect });
    }

    fn put(&mut self, rng: &mut SmallRng, verb: Verb, name: Name, model: ModelObject) {
        // Other resources share the counter.
        let version = self.version() + rng.random_range(1..4);
        let model = ModelObject { version, ..model };
        let mut objects = self.objects().clone();
        if verb == Verb::Deleted {
            objects.remove(&name);
        } else {
            objects.insert(name, model);
        }
        self.states.push_back((version, Arc::new(objects)));
        self.changes.push_back(Change { verb, name, model });
    }
}
