//! Which element of a list an item is.

use super::path::PathElement;
use super::types::{Relation, Type};
use crate::node::Str;
use serde_json::Value;
use std::borrow::Cow;

/// The path element of an item of a list of this type.
///
/// # Errors
/// Why the item has no identity, in the reference's words.
pub(super) fn path_element<'a>(list: Type<'a>, item: &'a Value) -> Result<PathElement<'a>, String> {
    match list.relation() {
        Relation::Atomic => Err("invalid indexing of non-associative list".to_owned()),
        Relation::Set => match item {
            Value::Object(_) => {
                Err("associative list without keys has an element that's a map type".to_owned())
            }
            Value::Array(_) => {
                Err("not supported: associative list with lists as elements".to_owned())
            }
            Value::Null => {
                Err("associative list without keys has an element that's an explicit null"
                    .to_owned())
            }
            scalar => Ok(PathElement::Value(Cow::Borrowed(scalar))),
        },
        Relation::Keys(keys) => keyed(list.items(), keys, item),
    }
}

fn keyed<'a>(items: Type<'a>, keys: &'a [Str], item: &'a Value) -> Result<PathElement<'a>, String> {
    let map = match item {
        Value::Object(map) => map,
        Value::Null => {
            return Err("associative list with keys may not have a null element".to_owned());
        }
        _ => return Err("associative list with keys may not have non-map elements".to_owned()),
    };
    let mut key = Vec::with_capacity(keys.len());
    for name in keys {
        let value = map.get(name.as_ref()).map(Cow::Borrowed).or_else(|| items.key_default(name));
        // A key that is neither given nor has a default is left out: that is an element of its own.
        key.extend(value.map(|value| (Cow::Borrowed(name.as_ref()), value)));
    }
    if key.is_empty() {
        let names: Vec<String> = keys.iter().map(|name| format!("{name:?}")).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
            names.join(" ")
        ));
    }
    key.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(PathElement::Key(key))
}
