//! Unknown and duplicate fields of a JSON body, in document order.
//!
//! A tree does not remember in which order its members were written. Only a body that has such
//! fields is read a second time, by the rules of Go's strict decoder: a field that is unknown is
//! not looked into, and neither is a type that decodes itself (`JSON`, `RawExtension`, `FieldsV1`,
//! schemas that may stand for a boolean).

use crate::node::{Property, Shape, TypeSchema, View};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use setpoint_object::field::quote;
use std::collections::HashSet;
use std::fmt;

/// Problems that strict decoding of a JSON body into a built-in type finds: `unknown field
/// "spec.x"`, `duplicate field "spec.y"`, each once, in document order, [`super::PROBLEMS_MAX`] at
/// most.
///
/// The body was decoded before. Invalid JSON ends the list.
pub fn field_problems(schema: &TypeSchema, body: &[u8]) -> Vec<String> {
    let text = super::json::readable(body);
    let mut found = Found::default();
    let mut deserializer = serde_json::Deserializer::from_str(&text);
    // A fault was reported when the body was decoded.
    let _ = Walk { schema: schema.view(), found: &mut found }.deserialize(&mut deserializer);
    found.problems
}

#[derive(Default)]
struct Found {
    path: String,
    problems: Vec<String>,
}

impl Found {
    /// Notes a problem of the member `name` of what the path points to.
    fn note(&mut self, what: &str, name: &str) {
        let Self { path, problems } = self;
        super::note(problems, || {
            let dot = if path.is_empty() { "" } else { "." };
            format!("{what} field {}", quote(&format!("{path}{dot}{name}")))
        });
    }
}

/// Walks through one value of a type.
struct Walk<'a, 'f> {
    schema: View<'a>,
    found: &'f mut Found,
}

impl<'de> DeserializeSeed<'de> for Walk<'_, '_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.schema.shape == Shape::Any {
            return deserializer.deserialize_ignored_any(IgnoredAny).map(drop);
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_, '_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }
    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }
    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }
    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let Some(schema) = self.schema.items() else {
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(());
        };
        let base = self.found.path.len();
        for at in 0_usize.. {
            self.found.path.push('[');
            self.found.path.push_str(itoa::Buffer::new().format(at));
            self.found.path.push(']');
            let item = seq.next_element_seed(Walk { schema, found: self.found })?;
            self.found.path.truncate(base);
            if item.is_none() {
                break;
            }
        }
        Ok(())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { schema, found } = self;
        // By their places: fields that are alike have one node.
        let mut fields: HashSet<usize> = HashSet::new();
        let mut keys: HashSet<String> = HashSet::new();
        while let Some(name) = map.next_key::<String>()? {
            let properties = &schema.node().properties;
            let (member, is_new) = if let Ok(place) = Property::search(properties, &name) {
                (Some(schema.at(properties[place].id)), fields.insert(place))
            } else if schema.properties.is_empty()
                // A definition without fields is a struct without fields.
                && (schema.additional.is_some()
                    || schema.shape != Shape::Object
                    || schema.node().type_name.is_none())
            {
                match schema.additional {
                    Some(values) => (Some(schema.at(values)), keys.insert(name.clone())),
                    None => (None, true),
                }
            } else {
                found.note("unknown", &name);
                (None, true)
            };
            if !is_new {
                found.note("duplicate", &name);
            }
            let Some(schema) = member else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let base = found.path.len();
            if base > 0 {
                found.path.push('.');
            }
            found.path.push_str(&name);
            map.next_value_seed(Walk { schema, found: &mut *found })?;
            found.path.truncate(base);
        }
        Ok(())
    }
}
