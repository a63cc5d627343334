//! Parts of values: fields, entries, elements.

use super::Error;
use crate::value::Value;

/// Whether fields or indices of such a value can be looked for.
pub(super) fn has_parts(value: &Value<'_>) -> bool {
    matches!(value, Value::Map(_) | Value::Object(_) | Value::List(_) | Value::Optional(_))
}

/// How many bytes are read to make the part of a value behind a field or an index.
pub(super) fn read_bytes(value: &Value<'_>, index: &Value<'_>) -> usize {
    match (value, index) {
        (Value::Map(map), index) => map.read_bytes(index),
        (Value::Object(object), Value::String(field)) => object.read_bytes(field),
        (Value::List(list), Value::Int(index)) => {
            usize::try_from(*index).map_or(0, |index| list.read_bytes(index))
        }
        _ => 0,
    }
}

/// The part of a value behind a field or an index. `None`: it has none such.
pub(super) fn find<'v>(value: &Value<'v>, index: &Value<'v>) -> Result<Option<Value<'v>>, Error> {
    match value {
        Value::Map(map) => {
            if !matches!(
                index,
                Value::String(_)
                    | Value::Int(_)
                    | Value::Uint(_)
                    | Value::Double(_)
                    | Value::Bool(_)
            ) {
                return Err(Error::message(format!("unsupported key type: {}", index.type_name())));
            }
            map.get(index).transpose()
        }
        Value::Object(object) => match index {
            Value::String(field) => object.get(field).transpose(),
            _ => Err(Error::NoSuchOverload),
        },
        Value::List(list) => {
            let place = match index {
                Value::Int(index) => usize::try_from(*index).ok(),
                Value::Uint(index) => usize::try_from(*index).ok(),
                Value::Double(index) if index.fract() == 0.0 && index.abs() < 2f64.powi(63) => {
                    usize::try_from(*index as i64).ok()
                }
                Value::Double(index) => {
                    return Err(Error::message(format!("unsupported index value {index} in list")));
                }
                other => {
                    return Err(Error::message(format!(
                        "unsupported index type '{}' in list",
                        other.type_name()
                    )));
                }
            };
            place.and_then(|place| list.get(place)).transpose()
        }
        Value::Optional(Some(inner)) => find(inner, index),
        Value::Optional(None) => Ok(None),
        _ => Err(missing(value, index)),
    }
}

pub(super) fn missing(value: &Value<'_>, index: &Value<'_>) -> Error {
    let shown = crate::library::display(index);
    match value {
        Value::List(_) => Error::OutOfBounds(shown),
        _ => Error::NoSuchKey(shown),
    }
}
