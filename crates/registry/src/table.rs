//! Table columns: how a kind's rows are printed (spec: api-server §3.1, crd §9).
use serde_json::Value;
use setpoint_object::time::Timestamp;
/// Column headings and how cells are computed.
#[derive(Debug, Clone)]
pub struct Columns {
    /// Headings.
    pub definitions: Vec<ColumnDefinition>,
    /// Where cells come from.
    pub cells: Cells,
}
/// Where cells come from.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Cells {
    /// A printer of a built-in kind: (object, now) → cells in heading order.
    Builtin(fn(&Value, Timestamp) -> Vec<Value>),
    /// Name, then JSONPaths.
    Paths(Vec<setpoint_object::jsonpath::JsonPath>),
}
/// One heading.
#[derive(Debug, Clone, serde::Serialize)]
#[allow(missing_docs)]
pub struct ColumnDefinition {
    pub name: String,
    #[serde(rename = "type")]
    pub ty: String,
    pub format: String,
    pub description: String,
    pub priority: i32,
}
impl Columns {
    /// The columns of a built-in kind.
    pub fn builtin(_group: &str, _version: &str, _kind: &str) -> Self {
        todo!()
    }
    /// The columns of a custom resource version, from `additionalPrinterColumns` (may be null).
    pub fn custom(_columns: &Value) -> Self {
        todo!()
    }
    /// The cells of one object.
    pub fn row(&self, _object: &Value, _now: Timestamp) -> Vec<Value> {
        todo!()
    }
}
