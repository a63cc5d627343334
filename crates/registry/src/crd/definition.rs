//! A stored definition: its bytes, and a small tree of the parts that determine its names,
//! conditions and rows.
use crate::catalog::DefinitionSource;
use bytes::Bytes;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use setpoint_object::ApiError;
use setpoint_object::meta::ObjectExt;
use setpoint_schema::crd::{StructureFault, structure_fault};
use setpoint_store::{Revision, is_sealed};
use std::fmt;
use std::sync::Arc;

/// The annotation that conditions depend on. No other is read.
const APPROVAL: &str = "api-approved.kubernetes.io";

/// A definition as it is stored, or is about to be.
#[derive(Debug, Clone)]
pub(super) struct Definition {
    /// The object without schemas, field ownership and most annotations, which are most of its
    /// size.
    pub(super) object: Value,
    /// As stored; shared with the watch cache.
    pub(super) bytes: Bytes,
    /// The revision of its last change.
    pub(super) modified: Revision,
    /// The revision of its creation: the oldest definition gets a name.
    pub(super) created: Revision,
    /// Why its schemas are not structural. Only a server of another program accepts such ones.
    pub(super) fault: Option<StructureFault>,
}
impl Definition {
    /// Parses stored bytes.
    ///
    /// # Errors
    ///
    /// They are encrypted with an unknown key, or are not JSON.
    pub(super) fn read(
        bytes: Bytes,
        modified: Revision,
        created: Revision,
    ) -> Result<Self, ApiError> {
        if is_sealed(&bytes) {
            // Returns the error.
            crate::stored::tree(&bytes)?;
        }
        let mut input = serde_json::Deserializer::from_slice(&bytes);
        let object = Part::Root.deserialize(&mut input).map_err(|error| {
            ApiError::internal(format_args!("unable to decode the stored object: {error}"))
        })?;
        Ok(Self { object, bytes, modified, created, fault: None })
    }
    /// Checks the schemas, unless `known` is the same generation of the definition.
    pub(super) fn check_structure(&mut self, known: Option<&Self>) {
        let is_same = |known: &&Self| {
            known.object.uid() == self.object.uid() && known.generation() == self.generation()
        };
        self.fault = match known.filter(is_same) {
            Some(known) => known.fault.clone(),
            None => crate::stored::tree(&self.bytes).ok().as_ref().and_then(structure_fault),
        };
    }
    /// Increases with every change of the spec.
    pub(super) fn generation(&self) -> i64 {
        self.object["metadata"]["generation"].as_i64().unwrap_or(0)
    }
    /// Whether it is being deleted.
    pub(super) fn is_terminating(&self) -> bool {
        !self.object.deletion_timestamp().is_empty()
    }
    /// The source of its schemas.
    pub(super) fn source(&self) -> Arc<DefinitionSource> {
        let source =
            DefinitionSource::new(self.object.uid(), self.generation(), self.bytes.clone());
        Arc::new(source.may_lack_structure(self.fault.is_some()))
    }
}

/// A part of a definition, which determines the members that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Root,
    Metadata,
    Annotations,
    /// A schema: only the default of `status`.
    Schema,
    Properties,
    Status,
    Other,
}
impl Part {
    /// The part for a member; `None`: it is skipped.
    fn member(self, name: &str) -> Option<Self> {
        match (self, name) {
            (Self::Root, "metadata") => Some(Self::Metadata),
            (Self::Metadata, "managedFields") => None,
            (Self::Metadata, "annotations") => Some(Self::Annotations),
            (Self::Annotations, name) if name != APPROVAL => None,
            (Self::Other, "openAPIV3Schema") => Some(Self::Schema),
            (Self::Schema, name) => (name == "properties").then_some(Self::Properties),
            (Self::Properties, name) => (name == "status").then_some(Self::Status),
            (Self::Status, name) => (name == "default").then_some(Self::Other),
            _ => Some(Self::Other),
        }
    }
    /// Whether it is kept only if something of it is.
    fn is_trimmed(self) -> bool {
        matches!(self, Self::Schema | Self::Properties | Self::Status)
    }
}
impl<'de> DeserializeSeed<'de> for Part {
    type Value = Value;
    fn deserialize<D: serde::Deserializer<'de>>(self, input: D) -> Result<Value, D::Error> {
        input.deserialize_any(self)
    }
}
impl<'de> Visitor<'de> for Part {
    type Value = Value;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut out = Vec::new();
        while let Some(item) = items.next_element_seed(Self::Other)? {
            out.push(item);
        }
        Ok(out.into())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut out = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            match self.member(&name) {
                Some(part) => {
                    let value = members.next_value_seed(part)?;
                    if !part.is_trimmed() || value.as_object().is_some_and(|part| !part.is_empty())
                    {
                        out.insert(name, value);
                    }
                }
                None => {
                    members.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(out.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_large_is_left_out() {
        let stored = json!({
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "foos.ex.io", "generation": 2, "managedFields": [{}],
                "annotations": {"a": "b", APPROVAL: "unapproved"}},
            "spec": {"group": "ex.io", "versions": [
                {"name": "v1", "schema": {"openAPIV3Schema": {"type": "object"}}, "n": [1, -1, 1.5, null, true]}]},
        });
        let bytes = Bytes::from(stored.to_string());
        let definition = Definition::read(bytes, Revision(2), Revision(1)).unwrap();
        let mut expected = stored;
        expected["metadata"].as_object_mut().unwrap().remove("managedFields");
        expected["metadata"]["annotations"].as_object_mut().unwrap().remove("a");
        expected["spec"]["versions"][0]["schema"] = json!({});
        assert_eq!(definition.object, expected);
        assert_eq!((definition.generation(), definition.is_terminating()), (2, false));
        let default =
            json!({"properties": {"status": {"type": "object", "default": {"a": {}}}, "spec": {}}});
        let kept = json!({"properties": {"status": {"default": {"a": {}}}}});
        let stored = json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": default}}]}});
        let bytes = Bytes::from(stored.to_string());
        let definition = Definition::read(bytes, Revision(2), Revision(1)).unwrap();
        assert_eq!(definition.object["spec"]["versions"][0]["schema"]["openAPIV3Schema"], kept);
        assert!(Definition::read("nope".into(), Revision(1), Revision(1)).is_err());
    }
}
