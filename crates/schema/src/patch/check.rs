//! Whether a merged map can be turned into an object of its type, in the words of the reference's
//! converter.

use super::notation::go_kind;
use crate::decode::wrong_type;
use crate::node::{Scalar, Shape, View};
use serde_json::Value;
use setpoint_object::quantity::Quantity;

/// The reference's error for an invalid quantity.
const QUANTITY: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// The first value of a wrong type. Strings with a meaning of their own (times, bytes) are left to
/// decoding.
pub(crate) fn types(schema: View<'_>, value: &Value) -> Result<(), String> {
    match (schema.shape, value) {
        (_, Value::Null) | (Shape::Any, _) => Ok(()),
        (Shape::IntOrString, _) => int_or_string(value),
        (Shape::Object, Value::Object(members)) => {
            let members = members.iter();
            let mut members: Vec<(View<'_>, &Value)> = members
                .filter_map(|(name, value)| schema.member(name).map(|member| (member, value)))
                .collect();
            // In the order of the struct's fields. Sorting is stable: members of maps stay.
            members.sort_by_key(|(member, _)| member.order);
            members.into_iter().try_for_each(|(member, value)| types(member, value))
        }
        (Shape::Object, _) => {
            let kind = go_kind(value);
            Err(if schema.properties.is_empty() && schema.additional.is_some() {
                format!("cannot restore map from {kind}")
            } else {
                format!("cannot restore struct from: {kind}")
            })
        }
        (Shape::Array, Value::Array(items)) => match schema.items() {
            Some(schema) => items.iter().try_for_each(|item| types(schema, item)),
            None => Ok(()),
        },
        (Shape::Array, _) => Err(format!("cannot restore slice from {}", go_kind(value))),
        (Shape::String, _) if schema.scalar == Scalar::Quantity => quantity(value),
        (shape, _) => scalar(shape, schema.scalar, value),
    }
}

fn quantity(value: &Value) -> Result<(), String> {
    let fits = match value {
        Value::Number(_) => true,
        Value::String(text) => text.is_empty() || text.parse::<Quantity>().is_ok(),
        _ => false,
    };
    if fits { Ok(()) } else { Err(QUANTITY.to_owned()) }
}

fn int_or_string(value: &Value) -> Result<(), String> {
    let found = match value {
        Value::String(_) | Value::Null => return Ok(()),
        Value::Number(n) if n.is_i64() => return Ok(()),
        Value::Number(n) => format!("number {n}"),
        Value::Bool(_) => "bool".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) => "object".to_owned(),
    };
    Err(wrong_type(&found, "", "int32"))
}

fn scalar(shape: Shape, scalar: Scalar, value: &Value) -> Result<(), String> {
    let (fits, name) = match (shape, scalar) {
        (Shape::String, Scalar::Plain) => (value.is_string(), "string"),
        (Shape::Boolean, _) => (value.is_boolean(), "bool"),
        (Shape::Number, _) => (value.is_number(), "float64"),
        (Shape::Integer, scalar) => {
            let whole = value.as_f64().is_some_and(|float| float.fract() == 0.0);
            (value.is_i64() || whole, if scalar == Scalar::Int32 { "int32" } else { "int64" })
        }
        _ => (true, ""),
    };
    if fits {
        return Ok(());
    }
    // Go can convert a fraction to an integer, but refuses to where that would lose something.
    Err(if shape == Shape::Integer && value.is_f64() {
        format!("cannot convert float64 to {name}")
    } else if shape == Shape::String && value.is_i64() {
        "cannot convert int64 to string".to_owned()
    } else {
        format!("unrecognized type: {name}")
    })
}
