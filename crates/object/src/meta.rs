//! Reads and writes `metadata` of a JSON tree.
use serde_json::{Map, Value};
use std::fmt;

/// An invalid resourceVersion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadResourceVersion(pub String);
impl fmt::Display for BadResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits_only = !self.0.is_empty() && self.0.bytes().all(|b| b.is_ascii_digit());
        let why = if digits_only { "value out of range" } else { "invalid syntax" };
        write!(f, "strconv.ParseUint: parsing {}: {why}", crate::field::quote(&self.0))
    }
}
impl std::error::Error for BadResourceVersion {}

/// Accessors of an object tree. Missing members read as empty. If `metadata` is not an object, all
/// its members are missing.
pub trait ObjectExt {
    /// `metadata.<name>` as a string; empty if absent.
    fn meta_str(&self, name: &str) -> &str;
    /// `metadata`, created if absent or not an object.
    fn meta_mut(&mut self) -> &mut Map<String, Value>;
    /// `metadata`, if it is an object.
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
    /// `metadata.deletionTimestamp`; empty if absent.
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
        let metadata = object_mut(self).entry("metadata").or_insert(Value::Null);
        object_mut(metadata)
    }
    fn finalizers(&self) -> Vec<&str> {
        let finalizers = self.meta().and_then(|m| m.get("finalizers")).and_then(Value::as_array);
        finalizers.into_iter().flatten().filter_map(Value::as_str).collect()
    }
    fn set_meta(&mut self, name: &str, value: Value) {
        match value {
            Value::Null => {
                if self.meta().is_some() {
                    self.meta_mut().remove(name);
                }
            }
            value => {
                self.meta_mut().insert(name.to_owned(), value);
            }
        }
    }
}

/// The map of an object. Any other value is first replaced with an empty object.
fn object_mut(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("it was made an object above"),
    }
}

/// Parses a resourceVersion: an unsigned 64-bit decimal.
///
/// # Errors
///
/// If the text is empty or has anything but ASCII digits, or the number exceeds `u64::MAX`.
/// Displays as Go's `strconv` error.
pub fn parse_resource_version(text: &str) -> Result<u64, BadResourceVersion> {
    let error = || BadResourceVersion(text.to_owned());
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(error());
    }
    text.parse().map_err(|_| error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn metadata_is_created_if_missing_or_not_an_object() {
        for mut tree in [json!({}), json!({"metadata": 3}), json!(null), json!([1])] {
            tree.set_meta("name", "a".into());
            assert_eq!(tree["metadata"], json!({"name": "a"}));
        }
    }

    #[test]
    fn null_removes_a_member_and_creates_nothing() {
        let mut tree = json!({"metadata": {"uid": "u", "finalizers": ["x", 3, "y"]}});
        assert_eq!(tree.finalizers(), ["x", "y"]);
        tree.set_meta("uid", Value::Null);
        assert_eq!(tree.uid(), "");
        let mut bare = json!({});
        bare.set_meta("uid", Value::Null);
        assert_eq!(bare, json!({}));
    }

    #[test]
    fn resource_versions_parse_as_unsigned_64_bit() {
        assert_eq!(parse_resource_version("18446744073709551615"), Ok(u64::MAX));
        for (text, message) in [
            ("foo", r#"strconv.ParseUint: parsing "foo": invalid syntax"#),
            ("", r#"strconv.ParseUint: parsing "": invalid syntax"#),
            ("+5", r#"strconv.ParseUint: parsing "+5": invalid syntax"#),
            (
                "18446744073709551616",
                r#"strconv.ParseUint: parsing "18446744073709551616": value out of range"#,
            ),
        ] {
            assert_eq!(parse_resource_version(text).unwrap_err().to_string(), message);
        }
    }
}
