//! Types whose JSON is not the shape of their message.

use super::node::Node;
use super::writer::Writer;
use super::{EncodeError, fields, text};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use setpoint_facts::Type;
use setpoint_object::time::Moment;

/// Bytes, quantities, times and what is an integer or a string.
pub(super) fn scalar(
    writer: &mut Writer,
    number: u32,
    field: &'static str,
    ty: &Type,
    value: &Node<'_>,
) -> Result<(), EncodeError> {
    match ty {
        Type::Bytes => {
            let bytes = STANDARD
                .decode(text(field, value)?)
                .map_err(|_| EncodeError::Value { field, wanted: "base64" })?;
            writer.bytes(number, &bytes);
            Ok(())
        }
        Type::Quantity => {
            // The zero quantity is written out, as Go does.
            let quantity = match value {
                Node::Null => "0",
                value => text(field, value)?,
            };
            writer.wrapped_bytes(number, quantity.as_bytes());
            Ok(())
        }
        Type::IntOrString => {
            let (is_string, integer, text) = match value {
                Node::Text(text) => (1, 0, text.as_ref()),
                Node::Null => (0, 0, ""),
                Node::Int(integer) => (0, *integer, ""),
                _ => return Err(EncodeError::Value { field, wanted: "integer or string" }),
            };
            writer.message(number, |writer| {
                writer.bytes(3, text.as_bytes());
                writer.varint(2, integer.cast_unsigned());
                writer.varint(1, is_string);
                Ok(())
            })
        }
        Type::Time | Type::MicroTime => {
            let text = text(field, value)?;
            writer.message(number, |writer| {
                // No time is an empty message.
                if text.is_empty() {
                    return Ok(());
                }
                let time =
                    Moment::parse(text).ok_or(EncodeError::Value { field, wanted: "time" })?;
                if time == Moment::ZERO {
                    return Ok(());
                }
                let nanos = match ty {
                    Type::MicroTime => time.nanos - time.nanos % 1000,
                    _ => 0,
                };
                writer.varint(2, u64::from(nanos));
                writer.varint(1, time.seconds.cast_unsigned());
                Ok(())
            })
        }
        _ => Ok(()),
    }
}

/// Free-form JSON, which is JSON text in protobuf too, and what has one of two shapes.
pub(super) fn any(
    writer: &mut Writer,
    number: u32,
    field: &'static str,
    name: &str,
    value: &Node<'_>,
) -> Result<(), EncodeError> {
    writer.message(number, |writer| {
        match (name, value) {
            (_, Node::Null) => {}
            (_, Node::Raw(json)) => writer.bytes(1, json.as_bytes()),
            ("JSONSchemaPropsOrBool", Node::Bool(allows)) => writer.varint(1, u64::from(*allows)),
            ("JSONSchemaPropsOrBool", Node::Struct(members)) => {
                writer.message(2, |writer| fields(writer, members))?;
                writer.varint(1, 1);
            }
            ("JSONSchemaPropsOrArray" | "JSONSchemaPropsOrStringArray", Node::Struct(members)) => {
                writer.message(1, |writer| fields(writer, members))?;
            }
            ("JSONSchemaPropsOrArray" | "JSONSchemaPropsOrStringArray", Node::List(items)) => {
                for item in items.iter().rev() {
                    match item {
                        Node::Struct(members) => {
                            writer.message(2, |writer| fields(writer, members))?;
                        }
                        item => writer.bytes(2, text(field, item)?.as_bytes()),
                    }
                }
            }
            _ => return Err(EncodeError::Value { field, wanted: "schema" }),
        }
        Ok(())
    })
}
