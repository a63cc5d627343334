//! Reading and writing `metadata` of a JSON tree.
use serde_json::{Map, Value};
use std::fmt;

/// Why a string is not a resourceVersion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadResourceVersion(pub String);
impl fmt::Display for BadResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "strconv.ParseUint: parsing {:?}: invalid syntax", self.0)
    }
}

/// Accessors of an object tree. Missing members read as empty; a tree whose `metadata` is not an object reads as having none.
pub trait ObjectExt {
    /// `metadata.<name>` as a string, empty when absent.
    fn meta_str(&self, name: &str) -> &str;
    /// `metadata`, created when absent or not an object.
    fn meta_mut(&mut self) -> &mut Map<String, Value>;
    /// `metadata` when it is an object.
    fn meta(&self) -> Option<&Map<String, Value>>;
    /// `metadata.name`.
    fn name(&self) -> &str {
        self.meta_str("name")
    }
    /// `metadata.namespace`.
    fn namespace(&self) -> &str {
        self.meta_str("namespace")
    }
    /// `metadata.uid`.
    fn uid(&self) -> &str {
        self.meta_str("uid")
    }
    /// `metadata.resourceVersion`.
    fn resource_version(&self) -> &str {
        self.meta_str("resourceVersion")
    }
    /// `metadata.deletionTimestamp`, empty when absent.
    fn deletion_timestamp(&self) -> &str {
        self.meta_str("deletionTimestamp")
    }
    /// `metadata.finalizers`.
    fn finalizers(&self) -> Vec<&str>;
    /// Sets `metadata.<name>`; `Value::Null` removes it.
    fn set_meta(&mut self, name: &str, value: Value);
}
impl ObjectExt for Value {
    fn meta_str(&self, name: &str) -> &str {
        self.get("metadata").and_then(|m| m.get(name)).and_then(Value::as_str).unwrap_or("")
    }
    fn meta(&self) -> Option<&Map<String, Value>> {
        self.get("metadata").and_then(Value::as_object)
    }
    fn meta_mut(&mut self) -> &mut Map<String, Value> {
        todo!()
    }
    fn finalizers(&self) -> Vec<&str> {
        todo!()
    }
    fn set_meta(&mut self, _name: &str, _value: Value) {
        todo!()
    }
}
/// Parses a resourceVersion: unsigned 64 bit decimal.
pub fn parse_resource_version(_text: &str) -> Result<u64, BadResourceVersion> {
    todo!()
}
