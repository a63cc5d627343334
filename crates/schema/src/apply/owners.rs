//! An object's managedFields beside it.
//!
//! They often are half of an object, and most writes change one entry of them. As a tree, each
//! field is a map of its own. As text, entries that a write does not touch are copied, and the
//! fields of others are written once, from the set.

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::fmt;

/// `metadata.managedFields` as the text of a list, beside an object that does not have them.
///
/// ```
/// use serde_json::json;
/// use setpoint_schema::apply::Owners;
///
/// let text = r#"{"metadata":{"managedFields":[{"manager":"kubectl"}],"name":"a"}}"#;
/// let (mut object, owners) = Owners::split(text)?;
/// assert_eq!(object, json!({"metadata": {"name": "a"}}));
/// owners.unwrap().join(&mut object);
/// assert_eq!(object, serde_json::from_str::<serde_json::Value>(text)?);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owners<'a>(Cow<'a, str>);

impl<'a> Owners<'a> {
    pub(super) fn of_text(text: impl Into<Cow<'a, str>>) -> Self {
        Self(text.into())
    }

    /// Reads an object. `None`: it has no managedFields.
    ///
    /// # Errors
    /// The text is no JSON object with `metadata`, or has managedFields that are no list.
    pub fn split(text: &'a str) -> serde_json::Result<(Value, Option<Self>)> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let read = Object.deserialize(&mut deserializer)?;
        deserializer.end()?;
        Ok(read)
    }

    /// The text of the list.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Puts them into their object.
    pub fn join(&self, object: &mut Value) {
        // It was read as JSON, or written by this crate.
        let list = serde_json::from_str(&self.0).unwrap_or_default();
        super::managed::put(object, Some(list));
    }
}

/// Reads an object.
struct Object;
/// Reads `metadata`.
struct Metadata;

impl<'de> DeserializeSeed<'de> for Object {
    type Value = (Value, Option<Owners<'de>>);
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Object {
    type Value = (Value, Option<Owners<'de>>);
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let (mut object, mut owners) = (Map::new(), None);
        let mut has_metadata = false;
        while let Some(name) = members.next_key::<String>()? {
            let value = match &*name {
                "metadata" => {
                    has_metadata = true;
                    let (metadata, found) = members.next_value_seed(Metadata)?;
                    owners = found;
                    metadata
                }
                _ => members.next_value()?,
            };
            object.insert(name, value);
        }
        match has_metadata {
            true => Ok((Value::Object(object), owners)),
            false => Err(A::Error::custom("an object without metadata")),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Metadata {
    type Value = (Value, Option<Owners<'de>>);
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Metadata {
    type Value = (Value, Option<Owners<'de>>);
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("metadata")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let (mut metadata, mut owners) = (Map::new(), None);
        while let Some(name) = members.next_key::<String>()? {
            if name != "managedFields" {
                metadata.insert(name, members.next_value()?);
                continue;
            }
            let list = members.next_value::<&RawValue>()?.get();
            if !list.starts_with('[') {
                return Err(A::Error::custom("managedFields must be a list"));
            }
            owners = Some(Owners::of_text(list));
        }
        Ok((Value::Object(metadata), owners))
    }
}
