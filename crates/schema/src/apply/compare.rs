//! The differences between two objects, as sets of paths.

use super::element::path_element;
use super::fieldset::{FieldSet, Node};
use super::path::PathElement;
use super::scope::Scope;
use super::types::{Form, Relation, Type};
use super::value::equal;
use serde_json::{Map, Value};

/// In how many levels from the root equal members are passed over without a look at their types.
/// Most writes change one of `metadata`, `spec` and `status`. Each level costs at most one more
/// comparison of what is below it.
const PASSED_LEVELS: usize = 2;

/// The paths by which two objects differ. A node that appears is itself among the added ones, with
/// everything below it.
#[derive(Debug, Clone, Default)]
pub(super) struct Comparison<'a> {
    pub(super) added: FieldSet<'a>,
    pub(super) removed: FieldSet<'a>,
    pub(super) modified: FieldSet<'a>,
}

impl<'a> Comparison<'a> {
    /// Compares two objects of a type.
    pub(super) fn of(ty: Type<'a>, old: &'a Value, new: &'a Value) -> Self {
        let Delta { below, .. } = compare(ty, Some(old), Some(new), 0);
        below
    }

    /// Compares two objects as far as they are in the scope of an endpoint.
    pub(super) fn in_scope(ty: Type<'a>, scope: Scope<'_>, old: &'a Value, new: &'a Value) -> Self {
        let mut comparison = Self::of(ty, old, new);
        for set in [&mut comparison.added, &mut comparison.removed, &mut comparison.modified] {
            scope.apply(set);
        }
        comparison
    }
}

/// The changes of a node and of the nodes below it.
#[derive(Default)]
struct Delta<'a> {
    added: bool,
    removed: bool,
    modified: bool,
    below: Comparison<'a>,
}

impl<'a> Delta<'a> {
    /// Of two leaves.
    fn leaf(old: &Value, new: &Value) -> Self {
        Self { modified: !equal(old, new), ..Self::default() }
    }
}

fn compare<'a>(
    ty: Type<'a>,
    old: Option<&'a Value>,
    new: Option<&'a Value>,
    depth: usize,
) -> Delta<'a> {
    let (old, new) = match (old, new) {
        (None, None) => return Delta::default(),
        (None, Some(new)) => {
            let below = Comparison { added: everything(ty, new), ..Comparison::default() };
            return Delta { added: true, below, ..Delta::default() };
        }
        (Some(old), None) => {
            let below = Comparison { removed: everything(ty, old), ..Comparison::default() };
            return Delta { removed: true, below, ..Delta::default() };
        }
        (Some(old), Some(new)) => (old, new),
    };
    let (old_form, new_form) = (ty.form(Some(old)), ty.form(Some(new)));
    let delta = compare_as(ty, new_form, old, new, depth);
    if old_form == new_form {
        return delta;
    }
    // The value has another form: the old fields are removed, the new ones added.
    let other = compare_as(ty, old_form, old, new, depth);
    Delta {
        added: false,
        removed: false,
        modified: delta.modified || other.modified,
        below: Comparison {
            added: delta.below.added.union(other.below.added),
            removed: delta.below.removed.union(other.below.removed),
            modified: delta.below.modified.union(other.below.modified),
        },
    }
}

fn compare_as<'a>(
    ty: Type<'a>,
    form: Form,
    old: &'a Value,
    new: &'a Value,
    depth: usize,
) -> Delta<'a> {
    let below = match form {
        Form::Scalar(_) => return Delta::leaf(old, new),
        Form::Map => {
            let (a, b) = (old.as_object(), new.as_object());
            let empty = |map: Option<&Map<String, Value>>| map.is_none_or(Map::is_empty);
            if ty.atomic_map() || (empty(a) && empty(b)) {
                return Delta::leaf(old, new);
            }
            members(ty, a, b, depth)
        }
        Form::List => {
            let (a, b) = (old.as_array(), new.as_array());
            let empty = |list: Option<&Vec<Value>>| list.is_none_or(Vec::is_empty);
            if matches!(ty.relation(), Relation::Atomic) || (empty(a) && empty(b)) {
                return Delta::leaf(old, new);
            }
            items(
                ty,
                a.map(Vec::as_slice).unwrap_or_default(),
                b.map(Vec::as_slice).unwrap_or_default(),
                depth,
            )
        }
    };
    Delta { below, ..Delta::default() }
}

/// Everything below a value that is there on one side only.
fn everything<'a>(ty: Type<'a>, value: &'a Value) -> FieldSet<'a> {
    let node = |element, ty, value| Node { element, member: true, children: everything(ty, value) };
    match (ty.form(Some(value)), value) {
        (Form::Map, Value::Object(members)) if !ty.atomic_map() => {
            let member = |(name, value): (&'a String, &'a Value)| {
                node(PathElement::field(name.as_str()), ty.member_type(name), value)
            };
            FieldSet::from_nodes(members.iter().map(member).collect())
        }
        (Form::List, Value::Array(items)) if !matches!(ty.relation(), Relation::Atomic) => {
            let item = |item: &'a Value| Some(node(path_element(ty, item).ok()?, ty.items(), item));
            FieldSet::from_elements(items.iter().filter_map(item).collect())
        }
        _ => FieldSet::new(),
    }
}

/// Gathers what children differ by.
#[derive(Default)]
struct Gather<'a> {
    added: Vec<Node<'a>>,
    removed: Vec<Node<'a>>,
    modified: Vec<Node<'a>>,
}

impl<'a> Gather<'a> {
    fn child(&mut self, element: impl Fn() -> PathElement<'a>, delta: Delta<'a>) {
        let Comparison { added, removed, modified } = delta.below;
        for (into, member, children) in [
            (&mut self.added, delta.added, added),
            (&mut self.removed, delta.removed, removed),
            (&mut self.modified, delta.modified, modified),
        ] {
            if member || !children.is_empty() {
                into.push(Node { element: element(), member, children });
            }
        }
    }

    fn done(self) -> Comparison<'a> {
        Comparison {
            added: FieldSet::from_nodes(self.added),
            removed: FieldSet::from_nodes(self.removed),
            modified: FieldSet::from_nodes(self.modified),
        }
    }
}

fn members<'a>(
    ty: Type<'a>,
    old: Option<&'a Map<String, Value>>,
    new: Option<&'a Map<String, Value>>,
    depth: usize,
) -> Comparison<'a> {
    let mut gather = Gather::default();
    let mut member = |name: &'a str, old: Option<&'a Value>, new: Option<&'a Value>| {
        if depth < PASSED_LEVELS && old == new {
            return;
        }
        let delta = compare(ty.member_type(name), old, new, depth + 1);
        gather.child(|| PathElement::field(name), delta);
    };
    for (name, value) in old.into_iter().flatten() {
        member(name, Some(value), new.and_then(|new| new.get(name)));
    }
    for (name, value) in new.into_iter().flatten() {
        if old.is_none_or(|old| !old.contains_key(name)) {
            member(name, None, Some(value));
        }
    }
    gather.done()
}

fn items<'a>(ty: Type<'a>, old: &'a [Value], new: &'a [Value], depth: usize) -> Comparison<'a> {
    let element = |item: &'a Value| path_element(ty, item).ok().map(|element| (element, item));
    let mut sides: Vec<(PathElement<'a>, bool, &'a Value)> = Vec::new();
    sides.extend(old.iter().filter_map(element).map(|(element, item)| (element, false, item)));
    sides.extend(new.iter().filter_map(element).map(|(element, item)| (element, true, item)));
    // Stable: within an element the old items stay before the new ones, in list order.
    sides.sort_by(|a, b| a.0.cmp(&b.0));
    let mut gather = Gather::default();
    for group in sides.chunk_by(|a, b| a.0 == b.0) {
        let is_old = group.iter().take_while(|(_, is_new, _)| !is_new).count();
        let (old, new) = group.split_at(is_old);
        let first = |side: &[(PathElement<'a>, bool, &'a Value)]| side.first().map(|s| s.2);
        let marker = |added, removed, modified| Delta {
            added,
            removed,
            modified,
            below: Comparison::default(),
        };
        let Some((element, ..)) = group.first() else { continue };
        let element = || element.clone();
        let item = ty.items();
        match (old.len(), new.len()) {
            (0 | 1, 0 | 1) => {
                gather.child(element, compare(item, first(old), first(new), depth + 1))
            }
            // Repeated before and after: one atomic value.
            (2.., 2..) => {
                let same = old.len() == new.len()
                    && old.iter().zip(new).all(|(old, new)| equal(old.2, new.2));
                gather.child(element, marker(false, false, !same));
            }
            (2.., _) => {
                if !new.is_empty() {
                    gather.child(element, compare(item, None, first(new), depth + 1));
                }
                gather.child(element, marker(false, true, false));
            }
            (_, _) => {
                if !old.is_empty() {
                    gather.child(element, compare(item, first(old), None, depth + 1));
                }
                gather.child(element, marker(true, false, false));
            }
        }
    }
    gather.done()
}
