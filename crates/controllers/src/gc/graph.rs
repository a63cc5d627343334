//! Who owns whom: a graph of objects by uid, and what each change of it asks for.
//!
//! Pure data: no requests, no time. [`Graph::observe`] and [`Graph::forget`] take in what a watch tells and return the objects
//! that have to be looked at because of it.
//!
//! An owner that only a reference tells of is a *virtual* node until a watch shows it or a look at the server says that it is
//! not there. A reference whose coordinates differ from the real object of that uid is followed like any other: only uids count.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// The identity that a graph is keyed by.
pub(crate) type Uid = Arc<str>;

/// Where an object is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Coordinates {
    /// `apps/v1`.
    pub(crate) api_version: String,
    pub(crate) kind: String,
    /// Empty for cluster-scoped objects.
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// One owner reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnerReference {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) name: String,
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
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) coordinates: Coordinates,
    pub(crate) owners: Vec<OwnerReference>,
    pub(crate) dependents: BTreeSet<Uid>,
    pub(crate) deleting: bool,
    pub(crate) foreground: bool,
    pub(crate) orphan: bool,
    /// Known from references only.
    pub(crate) is_virtual: bool,
}

impl Node {
    /// It is being deleted and waits for its dependents.
    pub(crate) fn waits_for_dependents(&self) -> bool {
        self.deleting && self.foreground
    }

    /// Its reference to an owner, if it has one.
    pub(crate) fn reference_to(&self, owner: &Uid) -> Option<&OwnerReference> {
        self.owners.iter().find(|reference| reference.uid == *owner)
    }
}

/// The graph.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    nodes: HashMap<Uid, Node>,
}

impl Graph {
    pub(crate) fn get(&self, uid: &Uid) -> Option<&Node> {
        self.nodes.get(uid)
    }

    /// Takes in an object as it is now; returns what to look at.
    pub(crate) fn observe(&mut self, seen: Observation) -> Vec<Uid> {
        let mut look_at = Vec::new();
        let before = self.nodes.get(&seen.uid).cloned();
        let known: Vec<Uid> = before
            .iter()
            .flat_map(|node| &node.owners)
            .map(|reference| reference.uid.clone())
            .collect();
        for reference in &seen.owners {
            if known.contains(&reference.uid) {
                continue;
            }
            let owner = self.nodes.entry(reference.uid.clone()).or_insert_with(|| {
                look_at.push(reference.uid.clone());
                virtual_owner(reference, &seen.coordinates.namespace)
            });
            owner.dependents.insert(seen.uid.clone());
        }
        for uid in
            known.iter().filter(|uid| !seen.owners.iter().any(|reference| reference.uid == **uid))
        {
            self.unlink(uid, &seen.uid);
            // An owner may have been waiting for this dependent.
            look_at.extend(self.waiting(uid));
        }
        let gained_or_lost = known.len() != seen.owners.len()
            || seen.owners.iter().any(|reference| !known.contains(&reference.uid));
        if !seen.owners.is_empty() && gained_or_lost {
            look_at.push(seen.uid.clone());
        }
        if seen.deleting {
            // A dependent that is on its way out may be what its owner waits for to act on another.
            look_at.extend(seen.owners.iter().flat_map(|reference| self.waiting(&reference.uid)));
        }
        let node = self.nodes.entry(seen.uid.clone()).or_insert_with(|| Node {
            coordinates: seen.coordinates.clone(),
            owners: Vec::new(),
            dependents: BTreeSet::new(),
            deleting: false,
            foreground: false,
            orphan: false,
            is_virtual: false,
        });
        let (began_foreground, began_orphan) = (
            seen.deleting && seen.foreground && !node.waits_for_dependents(),
            seen.deleting && seen.orphan && !(node.deleting && node.orphan),
        );
        node.coordinates = seen.coordinates;
        node.owners = seen.owners;
        (node.deleting, node.foreground, node.orphan) =
            (seen.deleting, seen.foreground, seen.orphan);
        node.is_virtual = false;
        if began_foreground {
            look_at.extend(node.dependents.iter().cloned());
        }
        if began_foreground || began_orphan {
            look_at.push(seen.uid);
        }
        look_at
    }

    /// Takes in that an object is gone; returns what to look at.
    pub(crate) fn forget(&mut self, uid: &Uid) -> Vec<Uid> {
        let Some(node) = self.nodes.remove(uid) else { return Vec::new() };
        let mut look_at: Vec<Uid> = node.dependents.iter().cloned().collect();
        for reference in &node.owners {
            self.unlink(&reference.uid, uid);
            look_at.extend(self.waiting(&reference.uid));
        }
        look_at
    }

    fn unlink(&mut self, owner: &Uid, dependent: &Uid) {
        if let Some(node) = self.nodes.get_mut(owner) {
            node.dependents.remove(dependent);
            if node.is_virtual && node.dependents.is_empty() {
                self.nodes.remove(owner);
            }
        }
    }

    fn waiting(&self, uid: &Uid) -> Option<Uid> {
        self.nodes.get(uid).filter(|node| node.waits_for_dependents()).map(|_| uid.clone())
    }
}

/// The node of an owner that only a reference tells of. It is looked for in its dependent's namespace.
fn virtual_owner(reference: &OwnerReference, namespace: &str) -> Node {
    Node {
        coordinates: Coordinates {
            api_version: reference.api_version.clone(),
            kind: reference.kind.clone(),
            namespace: namespace.to_owned(),
            name: reference.name.clone(),
        },
        owners: Vec::new(),
        dependents: BTreeSet::new(),
        deleting: false,
        foreground: false,
        orphan: false,
        is_virtual: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    /// `a` an object; `a<o` one owned by `o`, `a<o!` blocking; `~a` deleted in the foreground, `^a` orphaning, `-a` gone.
    fn check(script: &str, expected: Expect) {
        let mut graph = Graph::default();
        let mut told = Vec::new();
        for step in script.split_whitespace() {
            let look_at = if let Some(uid) = step.strip_prefix('-') {
                graph.forget(&uid.into())
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
