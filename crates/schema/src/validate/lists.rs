//! Uniqueness in lists of type `set` and `map`.
use crate::node::{ListType, View};
use serde_json::{Map, Value};
use setpoint_object::field::{Error, Path};
use std::collections::HashSet;

/// Reports each repeat, unless the old object already had one.
pub(super) fn validate(
    root: View<'_>,
    value: &Value,
    old: Option<&Value>,
    errors: &mut Vec<Error>,
) {
    let mut found = Vec::new();
    node(root, value, &mut String::new(), &mut found);
    if found.is_empty() {
        return;
    }
    if let Some(old) = old {
        let mut before = Vec::new();
        node(root, old, &mut String::new(), &mut before);
        if !before.is_empty() {
            return;
        }
    }
    errors.append(&mut found);
}

fn node(schema: View<'_>, value: &Value, path: &mut String, errors: &mut Vec<Error>) {
    let base = path.len();
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                if (base == 0 || schema.embedded_resource) && name == "metadata" {
                    continue;
                }
                if let Some(schema) = schema.member(name) {
                    if base > 0 {
                        path.push('.');
                    }
                    path.push_str(name);
                    node(schema, member, path, errors);
                    path.truncate(base);
                }
            }
        }
        Value::Array(items) => {
            let mut seen = HashSet::with_capacity(items.len());
            for (i, item) in items.iter().enumerate() {
                let index = |path: &mut String| {
                    path.push('[');
                    path.push_str(itoa::Buffer::new().format(i));
                    path.push(']');
                };
                let identity = match &schema.list_type {
                    ListType::Atomic => None,
                    ListType::Set => Some(item.clone()),
                    ListType::Map(keys) => Some(Value::Object(
                        keys.iter()
                            .filter_map(|key| {
                                let value = item.get(key.as_ref())?.clone();
                                Some((key.clone().into_owned(), value))
                            })
                            .collect::<Map<_, _>>(),
                    )),
                };
                if let Some(identity) = identity
                    && !seen.insert(identity.to_string())
                {
                    index(path);
                    errors.push(Error::duplicate(Path::new(&**path), &identity));
                    path.truncate(base);
                }
                if let Some(schema) = schema.items() {
                    index(path);
                    node(schema, item, path, errors);
                    path.truncate(base);
                }
            }
        }
        _ => {}
    }
}
