//! Types whose JSON is not the shape of their message.

use super::writer::Writer;
use super::{EncodeError, fields, single, text};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use setpoint_facts::{DEFINITIONS, Type};
use setpoint_object::time::Timestamp;

/// Bytes, quantities, times and what is an integer or a string.
pub(super) fn scalar(
    writer: &mut Writer,
    number: u32,
    field: &'static str,
    ty: &Type,
    value: &Value,
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
                Value::Null => "0",
                value => text(field, value)?,
            };
            writer.wrapped_bytes(number, quantity.as_bytes());
            Ok(())
        }
        Type::IntOrString => {
            let (is_string, integer, text) = match value {
                Value::String(text) => (1, 0, text.as_str()),
                Value::Null => (0, 0, ""),
                value => {
                    let wanted = "integer or string";
                    let integer = value.as_i64().ok_or(EncodeError::Value { field, wanted })?;
                    (0, integer, "")
                }
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
                let time = Timestamp::parse(text)
                    .ok_or(EncodeError::Value { field, wanted: "time since 1970" })?;
                let micros = time.0.subsec_micros();
                let nanos = if *ty == Type::MicroTime { micros * 1000 } else { 0 };
                writer.varint(2, u64::from(nanos));
                writer.varint(1, time.0.as_secs());
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
    definition: &str,
    value: &Value,
) -> Result<(), EncodeError> {
    writer.message(number, |writer| {
        match (definition.rsplit('.').next().unwrap_or_default(), value) {
            (_, Value::Null) => {}
            ("JSON" | "FieldsV1" | "RawExtension", value) => {
                writer.bytes(1, value.to_string().as_bytes());
            }
            ("JSONSchemaPropsOrBool", Value::Bool(allows)) => {
                writer.varint(1, u64::from(*allows));
            }
            ("JSONSchemaPropsOrBool", value) => {
                schema(writer, 2, value)?;
                writer.varint(1, 1);
            }
            ("JSONSchemaPropsOrArray", Value::Array(items)) => {
                for item in items.iter().rev() {
                    schema(writer, 2, item)?;
                }
            }
            ("JSONSchemaPropsOrStringArray", Value::Array(items)) => {
                for item in items.iter().rev() {
                    single(writer, 2, field, &Type::Str, item)?;
                }
            }
            ("JSONSchemaPropsOrArray" | "JSONSchemaPropsOrStringArray", value) => {
                schema(writer, 1, value)?;
            }
            _ => {}
        }
        Ok(())
    })
}

fn schema(writer: &mut Writer, number: u32, value: &Value) -> Result<(), EncodeError> {
    const NAME: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
    let definition =
        setpoint_facts::definition(NAME).and_then(|at| DEFINITIONS.get(usize::from(at)));
    let (Some(definition), Value::Object(members)) = (definition, value) else {
        return Err(EncodeError::Value { field: "", wanted: "schema" });
    };
    writer.message(number, |writer| fields(writer, definition, members))
}
