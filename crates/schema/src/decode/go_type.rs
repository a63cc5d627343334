//! Go's names of types, as its decoder shows them.
mod named;

use crate::node::{Node, Scalar, Shape, View};
use serde_json::Value;
use setpoint_object::encode::to_bytes;

/// The last part of a definition's name: `PodSpec`.
pub(super) fn short_name(node: &Node) -> Option<&str> {
    node.type_name.as_deref().map(last_name)
}

/// The last part of a name with dots.
pub(super) fn last_name(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// The type of the field at the end of `fields` in the struct of a definition, or of the items of
/// the list that the field is.
pub(super) fn of_field(schema: View<'_>, definition: &str, fields: &str) -> String {
    let is_text =
        |schema: View<'_>| schema.shape == Shape::String && schema.scalar == Scalar::Plain;
    let (owner, field) = (last_name(definition), last_name(fields));
    let has_texts = || schema.shape == Shape::Array && schema.items().is_some_and(is_text);
    let of_items = || named::of_items(owner, field);
    let named = match is_text(schema) {
        true => named::of_text(owner, field).or_else(of_items).map(|ty| ("", ty)),
        false if has_texts() => of_items().map(|ty| ("[]", ty)),
        false => None,
    };
    match named {
        None => of(schema),
        Some((list, ty)) if ty.contains('.') => format!("{list}{ty}"),
        Some((list, ty)) => format!("{list}{}.{ty}", version(definition)),
    }
}

/// The package of a definition: its version. A kind without one is of the first.
fn version(definition: &str) -> &str {
    definition.rsplit('.').nth(1).unwrap_or("v1")
}

fn of(schema: View<'_>) -> String {
    match schema.scalar {
        Scalar::Quantity => return "resource.Quantity".to_owned(),
        Scalar::Time => return "v1.Time".to_owned(),
        Scalar::MicroTime => return "v1.MicroTime".to_owned(),
        Scalar::Bytes => return "[]uint8".to_owned(),
        Scalar::Duration => return "v1.Duration".to_owned(),
        Scalar::Int32 => return "int32".to_owned(),
        Scalar::Int64 => return "int64".to_owned(),
        Scalar::Plain => {}
    }
    match schema.shape {
        Shape::String => "string".to_owned(),
        Shape::Boolean => "bool".to_owned(),
        Shape::Integer => "int64".to_owned(),
        Shape::Number => "float64".to_owned(),
        Shape::IntOrString => "intstr.IntOrString".to_owned(),
        Shape::Any if schema.type_name.is_none() => "interface {}".to_owned(),
        Shape::Array => {
            format!("[]{}", schema.items().map_or_else(|| "interface {}".to_owned(), of))
        }
        Shape::Object | Shape::Any => match (&schema.type_name, schema.additional) {
            (Some(name), _) => {
                let mut parts = name.rsplit('.');
                let (short, package) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
                format!("{package}.{short}")
            }
            (None, Some(values)) => format!("map[string]{}", of(schema.at(values))),
            (None, None) => "map[string]interface {}".to_owned(),
        },
    }
}

/// The JSON type found; a number too large for an integer is shown.
pub(super) fn found(value: &Value, integer_wanted: bool) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Number(n) if integer_wanted => {
            // As Go writes it, except that a fraction of zero is shown.
            match n.as_f64().filter(|float| n.is_f64() && float.fract() == 0.0) {
                Some(float) if float.abs() < super::number::INTEGRAL_MAX => format!("number {n}"),
                _ => format!("number {}", String::from_utf8_lossy(&to_bytes(value))),
            }
        }
        Value::Number(_) => "number".to_owned(),
        Value::String(_) => "string".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) => "object".to_owned(),
    }
}
