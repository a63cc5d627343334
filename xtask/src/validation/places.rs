//! The places of an object that can be changed, by its type.

use serde_json::Value;
use setpoint_facts::{DEFINITIONS, Type};

/// A place in an object: there, or a declared member that is missing.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// A JSON pointer.
    pub(super) pointer: String,
    pub(super) ty: Type,
    /// The field that has the value, or the list or map in which it is.
    pub(super) field: Option<(u16, &'static str)>,
    pub(super) is_there: bool,
}

impl Place {
    /// The name of the field, empty at the root.
    pub(super) fn name(&self) -> &'static str {
        self.field.map_or("", |(_, name)| name)
    }
}

/// Members that a server sets.
const SKIPPED: &[&str] =
    &["creationTimestamp", "managedFields", "resourceVersion", "selfLink", "uid", "generation"];

/// All places below the root, without `kind` and `apiVersion`.
pub(super) fn places(object: &Value, ty: Type) -> Vec<Place> {
    let mut found = Vec::new();
    walk(object, ty, None, String::new(), &mut found);
    found
}

fn walk(
    value: &Value,
    ty: Type,
    field: Option<(u16, &'static str)>,
    pointer: String,
    found: &mut Vec<Place>,
) {
    if !pointer.is_empty() {
        found.push(Place { pointer: pointer.clone(), ty, field, is_there: true });
    }
    match (ty, value) {
        (Type::Ref(at), Value::Object(members)) => {
            let definition = &DEFINITIONS[usize::from(at)];
            for one in definition.fields {
                let is_meta = definition.name.ends_with(".ObjectMeta");
                let is_root = pointer.is_empty() && matches!(one.name, "kind" | "apiVersion");
                if is_root || is_meta && SKIPPED.contains(&one.name) {
                    continue;
                }
                let (pointer, field) = (format!("{pointer}/{}", one.name), Some((at, one.name)));
                match members.get(one.name) {
                    Some(value) => walk(value, one.ty, field, pointer, found),
                    None => found.push(Place { pointer, ty: one.ty, field, is_there: false }),
                }
            }
        }
        (Type::List(item), Value::Array(items)) => {
            for (at, value) in items.iter().enumerate() {
                walk(value, *item, field, format!("{pointer}/{at}"), found);
            }
        }
        (Type::Map(item), Value::Object(members)) => {
            for (key, value) in members {
                let key = key.replace('~', "~0").replace('/', "~1");
                walk(value, *item, field, format!("{pointer}/{key}"), found);
            }
        }
        _ => {}
    }
}
