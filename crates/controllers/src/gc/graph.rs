//! The ownership graph: objects by uid, and the objects that each change requires to be processed.
//!
//! Pure data: no requests, no time. [`Graph::observe`] and [`Graph::forget`] apply a change and
//! return the objects to process. Each costs n·log n in the owner references of the object and its
//! previous dependents.
//!
//! An object with new owners is processed unless all of them are *known to be there*: observed, not
//! being deleted, and where the references say. Their ends will be observed, and have the object
//! processed then. So the pods of a workload cost no reads.
//!
//! An owner known only from a reference is a *virtual* node until a watch shows it, or a read from
//! the server shows that it does not exist. A deleted object is remembered as *gone* while it has
//! dependents: its kind may be deleted too by the time they are processed. A reference whose
//! coordinates differ from the real object of that uid is followed like any other: only uids count.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// The key of the graph: an object's uid.
pub(crate) type Uid = Arc<str>;

/// An object's type, namespace and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Coordinates {
    /// `apps/v1`. Shared by the objects of a type.
    pub(crate) api_version: Arc<str>,
    /// Shared by the objects of a type.
    pub(crate) kind: Arc<str>,
    /// Empty for cluster-scoped objects.
    pub(crate) namespace: Box<str>,
    pub(crate) name: Box<str>,
}

/// One owner reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnerReference {
    pub(crate) api_version: Box<str>,
    pub(crate) kind: Box<str>,
    pub(crate) name: Box<str>,
    pub(crate) uid: Uid,
    pub(crate) block_owner_deletion: bool,
}

/// The parts of an object that the collector needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Observation {
    pub(crate) uid: Uid,
    pub(crate) coordinates: Coordinates,
    pub(crate) owners: Vec<OwnerReference>,
    pub(crate) deleting: bool,
    /// Whether the object has the finalizer `foregroundDeletion`, and `orphan`.
    pub(crate) foreground: bool,
    pub(crate) orphan: bool,
}

/// One object.
#[derive(Debug)]
struct Node {
    coordinates: Coordinates,
    owners: Box<[Uid]>,
    /// Dependents, each with whether it blocks this object's foreground deletion.
    dependents: BTreeMap<Uid, bool>,
    /// Number of dependents that block.
    n_blocking: usize,
    deleting: bool,
    foreground: bool,
    orphan: bool,
    origin: Origin,
}

/// What a node is known from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// References only.
    Virtual,
    /// The object itself.
    Observed,
    /// The object itself, which was deleted.
    Gone,
}

impl Node {
    fn new(coordinates: Coordinates, origin: Origin) -> Self {
        Self {
            coordinates,
            owners: Box::default(),
            dependents: BTreeMap::new(),
            n_blocking: 0,
            deleting: false,
            foreground: false,
            orphan: false,
            origin,
        }
    }

    /// Whether it is being deleted and waits for its dependents.
    fn waits_for_dependents(&self) -> bool {
        self.deleting && self.foreground
    }

    /// Whether it is known to be there: observed, not being deleted, and what a reference of an
    /// object in `namespace` names.
    fn is_there(&self, reference: &OwnerReference, namespace: &str) -> bool {
        let Coordinates { api_version, kind, namespace: own, name } = &self.coordinates;
        self.origin == Origin::Observed
            && !self.deleting
            && **api_version == *reference.api_version
            && **kind == *reference.kind
            && *name == reference.name
            && (own.is_empty() || **own == *namespace)
    }

    fn link(&mut self, dependent: &Uid, blocks: bool) {
        let before = self.dependents.insert(dependent.clone(), blocks);
        self.n_blocking -= usize::from(before == Some(true));
        self.n_blocking += usize::from(blocks);
    }
}

/// The graph.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    nodes: HashMap<Uid, Node>,
}

impl Graph {
    /// The coordinates of an object; `None` if it is not in the graph or is gone.
    pub(crate) fn coordinates(&self, uid: &str) -> Option<&Coordinates> {
        let node = self.nodes.get(uid).filter(|node| node.origin != Origin::Gone);
        node.map(|node| &node.coordinates)
    }

    /// The coordinates of a deleted object that has dependents.
    pub(crate) fn gone(&self, uid: &str) -> Option<&Coordinates> {
        let node = self.nodes.get(uid).filter(|node| node.origin == Origin::Gone);
        node.map(|node| &node.coordinates)
    }

    /// The coordinates of an object that was observed; `None` if it is known from references only.
    pub(crate) fn observed(&self, uid: &str) -> Option<&Coordinates> {
        let node = self.nodes.get(uid).filter(|node| node.origin == Origin::Observed);
        node.map(|node| &node.coordinates)
    }

    /// Whether an object is known from references only.
    pub(crate) fn is_virtual(&self, uid: &str) -> bool {
        self.nodes.get(uid).is_some_and(|node| node.origin == Origin::Virtual)
    }

    /// Every object that was observed.
    pub(crate) fn all_observed(&self) -> impl Iterator<Item = &Uid> {
        let is_observed = |node: &Node| node.origin == Origin::Observed;
        self.nodes.iter().filter(move |(_, node)| is_observed(node)).map(|(uid, _)| uid)
    }

    /// Whether a deletion that waits for its dependents, or orphans them, has been observed: only
    /// then the graph has the dependents that were there before. An object that was never
    /// observed may be of a resource that cannot be watched.
    pub(crate) fn has_seen_deletion(&self, uid: &str) -> bool {
        self.nodes.get(uid).is_some_and(|node| {
            node.deleting && (node.foreground || node.orphan) || node.origin == Origin::Virtual
        })
    }

    pub(crate) fn has_dependents(&self, uid: &str) -> bool {
        self.nodes.get(uid).is_some_and(|node| !node.dependents.is_empty())
    }

    /// Whether a dependent blocks this object's foreground deletion.
    pub(crate) fn is_blocked(&self, uid: &str) -> bool {
        self.nodes.get(uid).is_some_and(|node| node.n_blocking > 0)
    }

    pub(crate) fn dependents(&self, uid: &str) -> Vec<Uid> {
        self.nodes.get(uid).into_iter().flat_map(|node| node.dependents.keys().cloned()).collect()
    }

    /// Whether a dependent of this object is itself waiting for its dependents.
    pub(crate) fn has_waiting_dependent(&self, uid: &str) -> bool {
        let waits = |uid: &Uid| self.nodes.get(uid).is_some_and(Node::waits_for_dependents);
        self.nodes.get(uid).is_some_and(|node| node.dependents.keys().any(waits))
    }

    /// Adds or updates an object; returns the objects to process.
    pub(crate) fn observe(&mut self, object: Observation) -> Vec<Uid> {
        let mut to_process = Vec::new();
        let known: BTreeSet<Uid> = self
            .nodes
            .get(&object.uid)
            .into_iter()
            .flat_map(|node| node.owners.iter().cloned())
            .collect();
        let owners: BTreeSet<Uid> =
            object.owners.iter().map(|reference| reference.uid.clone()).collect();
        let mut are_there = true;
        for reference in &object.owners {
            let owner = self.nodes.entry(reference.uid.clone()).or_insert_with(|| {
                to_process.push(reference.uid.clone());
                Node::new(virtual_owner(reference, &object.coordinates.namespace), Origin::Virtual)
            });
            are_there &= owner.is_there(reference, &object.coordinates.namespace);
            owner.link(&object.uid, reference.block_owner_deletion);
            if known.contains(&reference.uid)
                && !reference.block_owner_deletion
                && owner.waits_for_dependents()
            {
                // It may have been the last one that blocked.
                to_process.push(reference.uid.clone());
            }
        }
        for uid in known.difference(&owners) {
            self.unlink(uid, &object.uid);
            // An owner may have been waiting for this dependent.
            to_process.extend(self.waiting(uid));
        }
        if !are_there && known != owners {
            to_process.push(object.uid.clone());
        }
        if object.deleting {
            // The deletion of a dependent may be what its owner waits for before it acts on
            // another.
            to_process.extend(owners.iter().filter_map(|uid| self.waiting(uid)));
        }
        let node = self
            .nodes
            .entry(object.uid.clone())
            .or_insert_with(|| Node::new(object.coordinates.clone(), Origin::Observed));
        let (began_foreground, began_orphan) = (
            object.deleting && object.foreground && !node.waits_for_dependents(),
            object.deleting && object.orphan && !(node.deleting && node.orphan),
        );
        node.coordinates = object.coordinates;
        node.owners = owners.into_iter().collect();
        (node.deleting, node.foreground, node.orphan) =
            (object.deleting, object.foreground, object.orphan);
        node.origin = Origin::Observed;
        if began_foreground {
            to_process.extend(node.dependents.keys().cloned());
        }
        if began_foreground || began_orphan {
            to_process.push(object.uid);
        }
        to_process
    }

    /// Removes an object; returns the objects to process.
    pub(crate) fn forget(&mut self, uid: &str) -> Vec<Uid> {
        if self.gone(uid).is_some() {
            return Vec::new();
        }
        let Some(mut node) = self.nodes.remove(uid) else { return Vec::new() };
        let mut to_process: Vec<Uid> = node.dependents.keys().cloned().collect();
        for owner in std::mem::take(&mut node.owners) {
            self.unlink(&owner, uid);
            to_process.extend(self.waiting(&owner));
        }
        // An object may own itself.
        if node.dependents.remove(uid) == Some(true) {
            node.n_blocking -= 1;
        }
        if node.origin != Origin::Virtual && !node.dependents.is_empty() {
            (node.origin, node.deleting) = (Origin::Gone, false);
            self.nodes.insert(uid.into(), node);
        }
        to_process
    }

    fn unlink(&mut self, owner: &str, dependent: &str) {
        if let Some(node) = self.nodes.get_mut(owner) {
            if node.dependents.remove(dependent) == Some(true) {
                node.n_blocking -= 1;
            }
            if node.origin != Origin::Observed && node.dependents.is_empty() {
                self.nodes.remove(owner);
            }
        }
    }

    fn waiting(&self, uid: &Uid) -> Option<Uid> {
        self.nodes.get(uid).filter(|node| node.waits_for_dependents()).map(|_| uid.clone())
    }
}

/// The assumed coordinates of an owner known only from a reference: its dependent's namespace.
fn virtual_owner(reference: &OwnerReference, namespace: &str) -> Coordinates {
    Coordinates {
        api_version: (&*reference.api_version).into(),
        kind: (&*reference.kind).into(),
        namespace: namespace.into(),
        name: reference.name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    /// Script: `a` is an object, `a<o` one owned by `o`, `a<o!` a blocking one, `~a` deleted in the
    /// foreground, `^a` orphaning, `-a` deleted.
    fn check(script: &str, expected: Expect) {
        let mut graph = Graph::default();
        let mut trace = Vec::new();
        for step in script.split_whitespace() {
            let to_process = if let Some(uid) = step.strip_prefix('-') {
                graph.forget(uid)
            } else {
                let (foreground, orphan) = (step.starts_with('~'), step.starts_with('^'));
                let (uid, owners) = step
                    .trim_start_matches(['~', '^'])
                    .split_once('<')
                    .unwrap_or((step.trim_start_matches(['~', '^']), ""));
                let owners = owners.split(',').filter(|owner| !owner.is_empty()).map(|owner| {
                    OwnerReference {
                        api_version: "v1".into(),
                        kind: "ConfigMap".into(),
                        name: owner.trim_end_matches('!').into(),
                        uid: owner.trim_end_matches('!').into(),
                        block_owner_deletion: owner.ends_with('!'),
                    }
                });
                graph.observe(Observation {
                    uid: uid.into(),
                    coordinates: Coordinates {
                        api_version: "v1".into(),
                        kind: "ConfigMap".into(),
                        namespace: "ns".into(),
                        name: uid.into(),
                    },
                    owners: owners.collect(),
                    deleting: foreground || orphan,
                    foreground,
                    orphan,
                })
            };
            trace.push(format!("{step}: {}", to_process.join(" ")).trim_end().to_owned());
        }
        expected.assert_eq(&trace.join("\n"));
    }

    #[test]
    fn dependents_are_processed_when_their_owner_is_deleted() {
        check(
            "o a<o b<o -o",
            expect![[r#"
            o:
            a<o:
            b<o:
            -o: a b"#]],
        );
    }

    #[test]
    fn new_dependent_is_processed_unless_its_owners_are_known_to_be_there() {
        check(
            "o a<o b<o,p ~o c<o",
            expect![[r#"
            o:
            a<o:
            b<o,p: p b
            ~o: a b o
            c<o: c"#]],
        );
    }

    #[test]
    fn dependent_is_processed_if_its_owner_is_not_where_the_reference_says() {
        let coordinates = |kind: &str, namespace: &str, name: &str| Coordinates {
            api_version: "v1".into(),
            kind: kind.into(),
            namespace: namespace.into(),
            name: name.into(),
        };
        let object = |uid: &str, coordinates, owners| Observation {
            uid: uid.into(),
            coordinates,
            owners,
            deleting: false,
            foreground: false,
            orphan: false,
        };
        for (owner, is_there) in [
            (coordinates("ConfigMap", "ns", "o"), true),
            (coordinates("ConfigMap", "", "o"), true),
            (coordinates("ConfigMap", "other", "o"), false),
            (coordinates("Secret", "ns", "o"), false),
            (coordinates("ConfigMap", "ns", "p"), false),
        ] {
            let mut graph = Graph::default();
            graph.observe(object("o", owner.clone(), Vec::new()));
            let reference = OwnerReference {
                api_version: "v1".into(),
                kind: "ConfigMap".into(),
                name: "o".into(),
                uid: "o".into(),
                block_owner_deletion: false,
            };
            let a = object("a", coordinates("ConfigMap", "ns", "a"), vec![reference]);
            assert_eq!(graph.observe(a).is_empty(), is_there, "{owner:?}");
        }
    }

    #[test]
    fn owner_known_only_from_a_reference_is_processed_too() {
        check(
            "a<o a<o o -o",
            expect![[r#"
            a<o: o a
            a<o:
            o:
            -o: a"#]],
        );
    }

    #[test]
    fn foreground_deletion_processes_dependents_and_again_the_owner_when_they_are_deleted() {
        check(
            "o a<o! b<o ~o ~o -a -b",
            expect![[r#"
            o:
            a<o!:
            b<o:
            ~o: a b o
            ~o:
            -a: o
            -b: o"#]],
        );
    }

    #[test]
    fn dependent_that_drops_its_reference_unblocks_the_owner() {
        check(
            "o a<o! ~o a",
            expect![[r#"
            o:
            a<o!:
            ~o: a o
            a: o"#]],
        );
    }

    #[test]
    fn orphaning_processes_only_the_owner() {
        check(
            "o a<o ^o ^o",
            expect![[r#"
            o:
            a<o:
            ^o: o
            ^o:"#]],
        );
    }

    #[test]
    fn virtual_owner_is_removed_with_its_last_dependent() {
        check(
            "a<o b<o -a -b c<o",
            expect![[r#"
            a<o: o a
            b<o: b
            -a:
            -b:
            c<o: o c"#]],
        );
    }
}
