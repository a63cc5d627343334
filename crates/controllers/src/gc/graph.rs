//! Who owns whom: a graph of objects by uid, and what each change of it asks for.
//!
//! Pure data: no requests, no time. [`Graph::observe`] and [`Graph::forget`] take in a change and
//! return the objects that have to be looked at because of it. Each costs n·log n in the owner
//! references of the object and the dependents it had.
//!
//! An owner known only from a reference is a *virtual* node until a watch shows it or a look at the
//! server says that it is not there. A reference whose coordinates differ from the real object of
//! that uid is followed like any other: only uids count.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// The identity that a graph is keyed by.
pub(crate) type Uid = Arc<str>;

/// Where an object is.
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

/// What the collector needs to know of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Observation {
    pub(crate) uid: Uid,
    pub(crate) coordinates: Coordinates,
    pub(crate) owners: Vec<OwnerReference>,
    pub(crate) deleting: bool,
    /// The finalizers of the collector's own.
    pub(crate) foreground: bool,
    pub(crate) orphan: bool,
}

/// One object.
#[derive(Debug)]
struct Node {
    coordinates: Coordinates,
    owners: Box<[Uid]>,
    /// Whether each blocks the deletion of this object in the foreground.
    dependents: BTreeMap<Uid, bool>,
    /// How many of the dependents block.
    n_blocking: usize,
    deleting: bool,
    foreground: bool,
    orphan: bool,
    /// Known from references only.
    is_virtual: bool,
}

impl Node {
    fn new(coordinates: Coordinates, is_virtual: bool) -> Self {
        Self {
            coordinates,
            owners: Box::default(),
            dependents: BTreeMap::new(),
            n_blocking: 0,
            deleting: false,
            foreground: false,
            orphan: false,
            is_virtual,
        }
    }

    /// It is being deleted and waits for its dependents.
    fn waits_for_dependents(&self) -> bool {
        self.deleting && self.foreground
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
    /// Where an object is, if the graph knows it.
    pub(crate) fn coordinates(&self, uid: &str) -> Option<&Coordinates> {
        self.nodes.get(uid).map(|node| &node.coordinates)
    }

    /// Where an object is that was seen, not only referred to.
    pub(crate) fn seen(&self, uid: &str) -> Option<&Coordinates> {
        self.nodes.get(uid).filter(|node| !node.is_virtual).map(|node| &node.coordinates)
    }

    /// Every object that was seen.
    pub(crate) fn all_seen(&self) -> impl Iterator<Item = &Uid> {
        self.nodes.iter().filter(|(_, node)| !node.is_virtual).map(|(uid, _)| uid)
    }

    pub(crate) fn has_dependents(&self, uid: &str) -> bool {
        self.nodes.get(uid).is_some_and(|node| !node.dependents.is_empty())
    }

    /// Whether a dependent keeps this object from being deleted in the foreground.
    pub(crate) fn is_blocked(&self, uid: &str) -> bool {
        self.nodes.get(uid).is_some_and(|node| node.n_blocking > 0)
    }

    pub(crate) fn dependents(&self, uid: &str) -> Vec<Uid> {
        self.nodes.get(uid).into_iter().flat_map(|node| node.dependents.keys().cloned()).collect()
    }

    /// Whether a dependent of this object waits for dependents of its own.
    pub(crate) fn has_waiting_dependent(&self, uid: &str) -> bool {
        let waits = |uid: &Uid| self.nodes.get(uid).is_some_and(Node::waits_for_dependents);
        self.nodes.get(uid).is_some_and(|node| node.dependents.keys().any(waits))
    }

    /// Takes in an object as it is now; returns what to look at.
    pub(crate) fn observe(&mut self, seen: Observation) -> Vec<Uid> {
        let mut look_at = Vec::new();
        let known: BTreeSet<Uid> = self
            .nodes
            .get(&seen.uid)
            .into_iter()
            .flat_map(|node| node.owners.iter().cloned())
            .collect();
        let owners: BTreeSet<Uid> =
            seen.owners.iter().map(|reference| reference.uid.clone()).collect();
        for reference in &seen.owners {
            let owner = self.nodes.entry(reference.uid.clone()).or_insert_with(|| {
                look_at.push(reference.uid.clone());
                Node::new(virtual_owner(reference, &seen.coordinates.namespace), true)
            });
            owner.link(&seen.uid, reference.block_owner_deletion);
            if known.contains(&reference.uid)
                && !reference.block_owner_deletion
                && owner.waits_for_dependents()
            {
                // It may have been the last one that blocked.
                look_at.push(reference.uid.clone());
            }
        }
        for uid in known.difference(&owners) {
            self.unlink(uid, &seen.uid);
            // An owner may have been waiting for this dependent.
            look_at.extend(self.waiting(uid));
        }
        if !owners.is_empty() && known != owners {
            look_at.push(seen.uid.clone());
        }
        if seen.deleting {
            // A dependent that is on its way out may be what its owner waits for to act on another.
            look_at.extend(owners.iter().filter_map(|uid| self.waiting(uid)));
        }
        let node = self
            .nodes
            .entry(seen.uid.clone())
            .or_insert_with(|| Node::new(seen.coordinates.clone(), false));
        let (began_foreground, began_orphan) = (
            seen.deleting && seen.foreground && !node.waits_for_dependents(),
            seen.deleting && seen.orphan && !(node.deleting && node.orphan),
        );
        node.coordinates = seen.coordinates;
        node.owners = owners.into_iter().collect();
        (node.deleting, node.foreground, node.orphan) =
            (seen.deleting, seen.foreground, seen.orphan);
        node.is_virtual = false;
        if began_foreground {
            look_at.extend(node.dependents.keys().cloned());
        }
        if began_foreground || began_orphan {
            look_at.push(seen.uid);
        }
        look_at
    }

    /// Takes in that an object is gone; returns what to look at.
    pub(crate) fn forget(&mut self, uid: &str) -> Vec<Uid> {
        let Some(node) = self.nodes.remove(uid) else { return Vec::new() };
        let mut look_at: Vec<Uid> = node.dependents.into_keys().collect();
        for owner in &node.owners {
            self.unlink(owner, uid);
            look_at.extend(self.waiting(owner));
        }
        look_at
    }

    fn unlink(&mut self, owner: &str, dependent: &str) {
        if let Some(node) = self.nodes.get_mut(owner) {
            if node.dependents.remove(dependent) == Some(true) {
                node.n_blocking -= 1;
            }
            if node.is_virtual && node.dependents.is_empty() {
                self.nodes.remove(owner);
            }
        }
    }

    fn waiting(&self, uid: &Uid) -> Option<Uid> {
        self.nodes.get(uid).filter(|node| node.waits_for_dependents()).map(|_| uid.clone())
    }
}

/// Where an owner is said to be that only a reference tells of: in its dependent's namespace.
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

    /// `a` an object; `a<o` one owned by `o`, `a<o!` blocking; `~a` deleted in the foreground, `^a`
    /// orphaning, `-a` gone.
    fn check(script: &str, expected: Expect) {
        let mut graph = Graph::default();
        let mut told = Vec::new();
        for step in script.split_whitespace() {
            let look_at = if let Some(uid) = step.strip_prefix('-') {
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
            told.push(format!("{step}: {}", look_at.join(" ")).trim_end().to_owned());
        }
        expected.assert_eq(&told.join("\n"));
    }

    #[test]
    fn dependents_are_looked_at_when_their_owner_goes() {
        check(
            "o a<o b<o -o",
            expect![[r#"
            o:
            a<o: a
            b<o: b
            -o: a b"#]],
        );
    }

    #[test]
    fn owner_known_from_a_reference_only_is_looked_at_too() {
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
    fn foreground_deletion_looks_at_the_dependents_and_comes_back_when_they_go() {
        check(
            "o a<o! b<o ~o ~o -a -b",
            expect![[r#"
            o:
            a<o!: a
            b<o: b
            ~o: a b o
            ~o:
            -a: o
            -b: o"#]],
        );
    }

    #[test]
    fn dependent_that_drops_its_reference_frees_the_owner() {
        check(
            "o a<o! ~o a",
            expect![[r#"
            o:
            a<o!: a
            ~o: a o
            a: o"#]],
        );
    }

    #[test]
    fn orphaning_looks_at_the_owner_alone() {
        check(
            "o a<o ^o ^o",
            expect![[r#"
            o:
            a<o: a
            ^o: o
            ^o:"#]],
        );
    }

    #[test]
    fn virtual_owner_goes_with_its_last_dependent() {
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
