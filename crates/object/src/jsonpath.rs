//! The JSONPath dialect of printer columns, with missing keys allowed.
use serde_json::Value;
/// A parsed path.
#[derive(Debug, Clone)]
pub struct JsonPath {
    _private: (),
}
/// Why a path does not parse.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct JsonPathError(pub String);
impl JsonPath {
    /// Parses `.spec.x`, `.a[0]`, `.a[*].b`, `.a[?(@.type=="Ready")].status`, `{.a}`.
    pub fn parse(_text: &str) -> Result<Self, JsonPathError> {
        todo!()
    }
    /// Every value the path reaches, in order.
    pub fn find<'a>(&self, _value: &'a Value) -> Vec<&'a Value> {
        todo!()
    }
}
