//! The fields of a new object, as text.
//!
//! They are those by which it differs from an object without values: what [`super::compare`] adds
//! and modifies. Here they are written while the object is walked, without a set of them. Creates
//! are many, and most of such a set would be made only to be written.

use super::element::path_element;
use super::path::PathElement;
use super::scope::{UNTRACKED, UNTRACKED_METADATA};
use super::types::{Form, Relation, Type};
use super::value::{compare, equal};
use super::wire::{push_field, push_key, push_step, text};
use serde_json::{Map, Value};
use std::cmp::Ordering;
use std::collections::BTreeSet;

/// The beginning of a node that has others below it and is in the set itself.
const ITSELF: &[u8] = br#"{".":{}"#;

/// Whether the fields of a new object can be written here: an endpoint resets whole members.
pub(super) fn is_plain(reset: &BTreeSet<&str>) -> bool {
    reset.iter().all(|path| !path.contains('/'))
}

/// Appends FieldsV1 of a new object, and returns whether there is any field. `zero`: the object
/// without values, which has no lists; `is_sorted`: with its members sorted as texts.
pub(super) fn push_fields(
    out: &mut Vec<u8>,
    ty: Type<'_>,
    (zero, new): (&Value, &Value),
    reset: &BTreeSet<&str>,
    is_sorted: bool,
) -> bool {
    let Value::Object(members) = new else { return false };
    let mut fields = Fields { out, is_sorted };
    fields.map(|fields| {
        for (name, new) in members.iter().filter(|(name, _)| !reset.contains(&***name)) {
            let zero = zero.get(name);
            match &**name {
                "metadata" => fields.node(
                    |out| push_field(out, "metadata"),
                    |fields| {
                        let is_tracked = |name: &str| !UNTRACKED_METADATA.contains(&name);
                        let Value::Object(members) = new else { return false };
                        let ty = ty.member_type("metadata");
                        fields.map(|fields| fields.members(ty, zero, members, is_tracked))
                    },
                ),
                name if UNTRACKED.contains(&name) => {}
                name => fields.member(ty, name, zero, new),
            }
        }
    })
}

struct Fields<'o> {
    out: &'o mut Vec<u8>,
    is_sorted: bool,
}

impl Fields<'_> {
    /// Writes a set, and returns whether anything is in it. Without, nothing is written.
    fn map(&mut self, write: impl FnOnce(&mut Self)) -> bool {
        self.out.push(b'{');
        let start = self.out.len();
        write(self);
        let is_any = self.out.len() > start;
        if is_any {
            self.out.push(b'}');
        } else {
            self.out.pop();
        }
        is_any
    }

    /// Writes a node, if `write` writes what is at its step: a set, or `{}` for a leaf.
    fn node(
        &mut self,
        push_step: impl FnOnce(&mut Vec<u8>),
        write: impl FnOnce(&mut Self) -> bool,
    ) {
        let start = self.out.len();
        if self.out.last() != Some(&b'{') {
            self.out.push(b',');
        }
        push_step(self.out);
        self.out.push(b':');
        if !write(self) {
            self.out.truncate(start);
        }
    }

    fn leaf(&mut self) -> bool {
        self.out.extend_from_slice(b"{}");
        true
    }

    /// Writes a member that is not as it was without values. `ty`: of what it is a member.
    fn member(&mut self, ty: Type<'_>, name: &str, zero: Option<&Value>, new: &Value) {
        self.node(
            |out| push_field(out, name),
            |fields| match (zero, new) {
                // Whatever its type, nothing is below it. Most members are like this.
                (None, Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
                    fields.leaf()
                }
                (None, new) => fields.all(ty.member_type(name), new),
                (Some(zero), new) => fields.changed(ty.member_type(name), zero, new),
            },
        );
    }

    fn members(
        &mut self,
        ty: Type<'_>,
        zero: Option<&Value>,
        members: &Map<String, Value>,
        is_tracked: impl Fn(&str) -> bool,
    ) {
        for (name, new) in members.iter().filter(|(name, _)| is_tracked(name)) {
            self.member(ty, name, zero.and_then(|zero| zero.get(name)), new);
        }
    }

    /// Writes what differs from a value that was there.
    fn changed(&mut self, ty: Type<'_>, zero: &Value, new: &Value) -> bool {
        let form = ty.form(Some(new));
        let is_same_form = form == ty.form(Some(zero));
        let is_empty = |value: &Value| match value {
            Value::Object(members) => members.is_empty(),
            Value::Array(items) => items.is_empty(),
            _ => true,
        };
        let both_empty = is_empty(zero) && is_empty(new);
        match (form, new) {
            (Form::Map, Value::Object(members))
                if is_same_form && !both_empty && !ty.atomic_map() =>
            {
                self.map(|fields| fields.members(ty, Some(zero), members, |_| true))
            }
            (Form::List, Value::Array(items))
                if !both_empty && !matches!(ty.relation(), Relation::Atomic) =>
            {
                self.map(|fields| fields.items(ty, items))
            }
            _ if equal(zero, new) => false,
            _ => self.leaf(),
        }
    }

    /// Writes a value that was not there, with everything below it.
    fn all(&mut self, ty: Type<'_>, new: &Value) -> bool {
        let start = self.out.len();
        self.out.extend_from_slice(ITSELF);
        match (ty.form(Some(new)), new) {
            (Form::Map, Value::Object(members)) if !ty.atomic_map() => {
                self.members(ty, None, members, |_| true);
            }
            (Form::List, Value::Array(items)) if !matches!(ty.relation(), Relation::Atomic) => {
                self.items(ty, items);
            }
            _ => {}
        }
        if self.out.len() == start + ITSELF.len() {
            self.out.truncate(start);
            return self.leaf();
        }
        self.out.push(b'}');
        true
    }

    /// Writes new items. One that occurs several times is one atomic value.
    fn items(&mut self, ty: Type<'_>, items: &[Value]) {
        if let Relation::Keys([name]) = ty.relation()
            && !self.is_sorted
            && let Some(mut elements) = with_key(items, name)
        {
            for group in grouped(&mut elements, |a, b| compare(a, b)) {
                self.group(ty, group, |out, key| push_key(out, [(&**name, *key)].into_iter()));
            }
            return;
        }
        let element = |item| Some((path_element(ty, item).ok()?, item));
        let mut elements = Vec::with_capacity(items.len());
        elements.extend(items.iter().filter_map(element));
        let mut groups: Vec<_> = grouped(&mut elements, PathElement::cmp).collect();
        if self.is_sorted {
            groups.sort_by_cached_key(|group| group.first().map(|(element, _)| text(element)));
        }
        for group in groups {
            self.group(ty, group, push_step);
        }
    }

    /// Writes an element, which is there once or several times.
    fn group<E>(&mut self, ty: Type<'_>, group: &[(E, &Value)], push: impl Fn(&mut Vec<u8>, &E)) {
        match group {
            [(element, item)] => {
                self.node(|out| push(out, element), |fields| fields.all(ty.items(), item));
            }
            [(element, _), ..] => self.node(|out| push(out, element), Self::leaf),
            [] => {}
        }
    }
}

/// Items with the values of their only key; `None`: one has none, or is none.
fn with_key<'v>(items: &'v [Value], name: &str) -> Option<Vec<(&'v Value, &'v Value)>> {
    items.iter().map(|item| Some((item.as_object()?.get(name)?, item))).collect()
}

/// The same elements, in order.
fn grouped<'e, 'v, E>(
    elements: &'e mut [(E, &'v Value)],
    order: impl Fn(&E, &E) -> Ordering + Copy + 'e,
) -> impl Iterator<Item = &'e [(E, &'v Value)]> {
    if !elements.is_sorted_by(|(a, _), (b, _)| order(a, b).is_lt()) {
        elements.sort_by(|(a, _), (b, _)| order(a, b));
    }
    elements.chunk_by(move |(a, _), (b, _)| order(a, b).is_eq())
}
