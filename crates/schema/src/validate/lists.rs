//! Uniqueness in lists of type `set` and `map`.
//!
//! The API reports the first repeat of an element, and none of its further ones.
use super::report::Report;
use crate::node::{ListType, View};
use serde_json::Value;
use setpoint_object::field::{Error, Path};
use std::collections::HashMap;

/// Reports the first repeat of each element, unless the old object already had one.
pub(super) fn validate(root: View<'_>, value: &Value, old: Option<&Value>, report: &mut Report) {
    let found = report.apart(|report| node(root, value, &mut String::new(), report));
    if found.is_empty() {
        return;
    }
    if let Some(old) = old
        && !report.apart(|report| node(root, old, &mut String::new(), report)).is_empty()
    {
        return;
    }
    found.into_iter().for_each(|error| report.push(error));
}

fn node(schema: View<'_>, value: &Value, path: &mut String, report: &mut Report) {
    report.step(1);
    if report.is_over() {
        return;
    }
    let base = path.len();
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                if (base == 0 || schema.embedded_resource) && name == "metadata" {
                    continue;
                }
                if let Some(inner) = schema.member(name) {
                    super::enter(path, schema, name);
                    node(inner, member, path, report);
                    path.truncate(base);
                }
            }
        }
        Value::Array(items) => {
            let is_map = matches!(schema.node().list_type, ListType::Map(_));
            let is_wrong = |item: &&Value| !item.is_object() && !item.is_null();
            let wrong = items.iter().position(|item| is_map && is_wrong(&item));
            if let Some(i) = wrong {
                let detail = "must be an object for an array of list-type map";
                let path = Path::new(&**path).index(i);
                report.push(Error::invalid(path, &items[i], detail));
            }
            let mut seen: HashMap<_, usize> = HashMap::new();
            for (i, item) in items.iter().enumerate() {
                path.push('[');
                path.push_str(itoa::Buffer::new().format(i));
                path.push(']');
                let identity = match &schema.node().list_type {
                    ListType::Atomic => None,
                    ListType::Set => Some(Identity::Item(item)),
                    ListType::Map(keys) => Some(Identity::Keys(
                        keys.iter().map(|key| item.get(key.as_ref())).collect(),
                    )),
                };
                let is_second = wrong.is_none()
                    && identity.is_some_and(|identity| {
                        let count = seen.entry(identity).or_default();
                        *count += 1;
                        *count == 2
                    });
                if is_second {
                    let shown = shown(&schema.node().list_type, item);
                    report.push(Error::duplicate(Path::new(&**path), &shown));
                }
                if let Some(schema) = schema.items() {
                    node(schema, item, path, report);
                }
                path.truncate(base);
            }
        }
        _ => {}
    }
}

/// The identity of a list's element.
#[derive(PartialEq, Eq, Hash)]
enum Identity<'v> {
    Item(&'v Value),
    Keys(Vec<Option<&'v Value>>),
}

/// The part of a duplicate element that an error shows: the element of a set, the keys of a
/// map's.
fn shown(list_type: &ListType, item: &Value) -> Value {
    let ListType::Map(keys) = list_type else { return item.clone() };
    let members = keys
        .iter()
        .filter_map(|key| Some((key.clone().into_owned(), item.get(key.as_ref())?.clone())));
    Value::Object(members.collect())
}
