//! Members that a JSON body has twice, as Go decodes them into structs: the second one is decoded
//! into what the first one has left.

use super::json::{float, integer};
use crate::node::{Scalar, Shape, TypeSchema, View};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

/// The tree of a JSON body of a built-in type that has members twice: structs, and the structs at
/// the same place of lists, have the members of both; maps have the keys of both; anything else is
/// the last one. `null` changes nothing of a struct, a text, a number or a boolean. What is of a
/// wrong type stays, so that [`super::conform`] finds it.
///
/// The body was parsed before: `None` if it is no JSON.
pub(super) fn merge_repeated(schema: &TypeSchema, body: &[u8]) -> Option<Value> {
    let text = super::json::readable(body);
    let mut deserializer = serde_json::Deserializer::from_str(&text);
    Read { schema: Some(schema.view()), old: None }.deserialize(&mut deserializer).ok()
}

/// Reads a value into what is there. `schema`: none of what Go does not look into.
struct Read<'a> {
    schema: Option<View<'a>>,
    old: Option<Value>,
}

impl Read<'_> {
    /// What is there after a value that replaces it.
    fn replaced(self, new: Value) -> Value {
        match (self.schema, self.old) {
            (Some(schema), Some(old)) if !fits(schema, &old) => old,
            _ => new,
        }
    }
}

impl<'de> DeserializeSeed<'de> for Read<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Read<'_> {
    type Value = Value;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        match (self.schema, self.old) {
            (Some(schema), Some(old)) if takes_no_null(schema) || !fits(schema, &old) => Ok(old),
            _ => Ok(Value::Null),
        }
    }
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(self.replaced(value.into()))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(self.replaced(value.into()))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(self.replaced(integer(value)))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(self.replaced(float(value, true)))
    }
    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(self.replaced(value.into()))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let schema = self.schema.and_then(|schema| schema.items());
        let mut old = Vec::new();
        match (self.schema, self.old) {
            (Some(schema), Some(old)) if !fits(schema, &old) => {
                while seq.next_element::<serde::de::IgnoredAny>()?.is_some() {}
                return Ok(old);
            }
            (Some(schema), Some(Value::Array(items))) if schema.shape == Shape::Array => {
                old = items;
            }
            _ => {}
        }
        let mut old = old.into_iter();
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(Read { schema, old: old.next() })? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let is_map = self.schema.is_some_and(|schema| schema.additional.is_some());
        let mut members = Map::new();
        match (self.schema, self.old) {
            (Some(schema), Some(old)) if !fits(schema, &old) => {
                while map.next_entry::<serde::de::IgnoredAny, serde::de::IgnoredAny>()?.is_some() {}
                return Ok(old);
            }
            (Some(schema), Some(Value::Object(old))) if schema.shape == Shape::Object => {
                members = old;
            }
            _ => {}
        }
        while let Some(name) = map.next_key::<String>()? {
            let schema = self.schema.and_then(|schema| match schema.additional {
                Some(values) => Some(schema.at(values)),
                None => schema.property(&name),
            });
            let old = members.remove(&name);
            // A value of a map is made anew.
            let (wrong, old) = match is_map {
                true => (old.filter(|old| schema.is_some_and(|schema| !fits(schema, old))), None),
                false => (None, old),
            };
            let value = map.next_value_seed(Read { schema, old })?;
            members.insert(name, wrong.unwrap_or(value));
        }
        Ok(Value::Object(members))
    }
}

/// Whether a value may be decoded into this type.
fn fits(schema: View<'_>, value: &Value) -> bool {
    match (schema.scalar, schema.shape) {
        _ if value.is_null() => true,
        (Scalar::Int32 | Scalar::Int64, _) | (Scalar::Plain, Shape::Integer) => value.is_i64(),
        (Scalar::Quantity, _) | (_, Shape::IntOrString) => value.is_string() || value.is_number(),
        (Scalar::Plain, Shape::Object) => value.is_object(),
        (Scalar::Plain, Shape::Array) => value.is_array(),
        (Scalar::Plain, Shape::Number) => value.is_number(),
        (Scalar::Plain, Shape::Boolean) => value.is_boolean(),
        (Scalar::Plain, Shape::Any) => true,
        _ => value.is_string(),
    }
}

/// Whether `null` changes nothing: it is no pointer, list or map, and does not decode itself.
fn takes_no_null(schema: View<'_>) -> bool {
    let is_pointer = !schema.omit_empty && !schema.always_present || schema.zero_null;
    let is_plain = matches!(schema.scalar, Scalar::Plain | Scalar::Int32 | Scalar::Int64);
    let holds = match schema.shape {
        Shape::Object => schema.additional.is_none(),
        Shape::String | Shape::Integer | Shape::Number | Shape::Boolean => true,
        _ => false,
    };
    is_plain && holds && !is_pointer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{Format, conform_error};

    #[test]
    fn members_that_are_there_twice_are_merged() {
        let schema = crate::builtin::type_schema("", "v1", "Pod").unwrap();
        let merged = |body: &str| merge_repeated(&schema, body.as_bytes()).unwrap().to_string();
        for (body, expect) in [
            (
                r#"{"metadata":{"name":"a","labels":{"a":"b"}},"metadata":{"labels":{"c":"d"},"x":1}}"#,
                r#"{"metadata":{"labels":{"a":"b","c":"d"},"name":"a","x":1}}"#,
            ),
            (
                r#"{"metadata":{"name":"a"},"metadata":{"name":null},"spec":{"hostIPC":true,"hostIPC":null}}"#,
                r#"{"metadata":{"name":"a"},"spec":{"hostIPC":true}}"#,
            ),
            (
                r#"{"spec":{"priority":1,"priority":null,"containers":[{"name":"a","image":"b"},{}],"containers":[{"name":"c"}]}}"#,
                r#"{"spec":{"containers":[{"image":"b","name":"c"}],"priority":null}}"#,
            ),
            (
                r#"{"spec":{"hostIPC":1,"hostIPC":true,"nodeName":"a","nodeName":2,"containers":{},"containers":[1]}}"#,
                r#"{"spec":{"containers":{},"hostIPC":1,"nodeName":2}}"#,
            ),
            (r#"{"x":{"a":1},"x":{"b":2}}"#, r#"{"x":{"b":2}}"#),
            (
                r#"{"metadata":{"labels":{"a":[],"a":"b","c":"d","c":"e"}}}"#,
                r#"{"metadata":{"labels":{"a":[],"c":"e"}}}"#,
            ),
        ] {
            assert_eq!(merged(body), expect, "{body}");
        }
        let error = |body: &str| conform_error(&schema, "Pod", body.as_bytes(), Format::Json);
        let told = error(r#"{"spec":{"hostIPC":1,"hostIPC":true}}"#).unwrap().to_string();
        assert_eq!(
            told,
            "json: cannot unmarshal number into Go struct field PodSpec.spec.hostIPC of type bool"
        );
    }

    /// Without members that are there twice, it is what parsing gives.
    #[test]
    fn a_body_without_repetitions_is_parsed_as_it_is() {
        let schema = crate::builtin::type_schema("", "v1", "Pod").unwrap();
        for body in [
            "null",
            "[]",
            "1.0",
            r#"{"kind":"Pod","x":[1,{"y":null}],"metadata":{"labels":{"a":null,"b":"c"}}}"#,
            r#"{"spec":{"containers":[{"name":"a","ports":[{"containerPort":80.0}]},null,{"name":1}]}}"#,
            r#"{"spec":{"priority":9223372036854775808,"nodeSelector":[],"hostIPC":"x"}}"#,
            r#"{"spec":{"overhead":{"cpu":1.5,"memory":"1Gi"},"x":-0,"y":1e400,"z":"\ud800"}}"#,
        ] {
            let parsed = crate::decode::parse_typed(body.as_bytes(), Format::Json).unwrap();
            assert_eq!(merge_repeated(&schema, body.as_bytes()), Some(parsed.value), "{body}");
        }
        assert_eq!(merge_repeated(&schema, b"{"), None);
    }
}
