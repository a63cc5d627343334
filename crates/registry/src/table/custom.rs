//! Columns of custom resources, as their definition declares them (spec: crd §9).

use super::age::age_of;
use super::cell::{self, text};
use super::{Cells, ColumnDefinition, Columns};
use serde_json::Value;
use setpoint_object::jsonpath::JsonPath;
use setpoint_object::time::Timestamp;

const AGE_PATH: &str = ".metadata.creationTimestamp";

/// Name, then the declared columns; if there are none, the age.
pub(super) fn columns(columns: &Value) -> Columns {
    let mut definitions = vec![ColumnDefinition::new("Name", "string", "name")];
    let mut paths = Vec::new();
    let declared = columns.as_array().map(Vec::as_slice).unwrap_or_default();
    for column in declared {
        let path = text(column, "jsonPath");
        let description = match text(column, "description") {
            "" => describe(path),
            written => written.to_owned(),
        };
        let priority = column.get("priority").and_then(Value::as_i64).unwrap_or(0);
        definitions.push(ColumnDefinition {
            description,
            priority: i32::try_from(priority).unwrap_or(i32::MAX),
            ..ColumnDefinition::new(
                text(column, "name"),
                text(column, "type"),
                text(column, "format"),
            )
        });
        paths.push(JsonPath::parse(path).ok());
    }
    if declared.is_empty() {
        definitions.push(ColumnDefinition {
            description: describe(AGE_PATH),
            ..ColumnDefinition::new("Age", "date", "")
        });
        paths.push(JsonPath::parse(AGE_PATH).ok());
    }
    Columns { definitions, cells: Cells::Paths(paths) }
}

fn describe(path: &str) -> String {
    format!("Custom resource definition column (in JSONPath format): {path}")
}

/// The name, then the first value of each path, as its column's type.
pub(super) fn row(
    definitions: &[ColumnDefinition],
    paths: &[Option<JsonPath>],
    object: &Value,
    now: Timestamp,
) -> Vec<Value> {
    let mut cells = Vec::with_capacity(definitions.len());
    cells.push(cell::name(object));
    for (definition, path) in definitions.iter().skip(1).zip(paths) {
        let found = path.as_ref().and_then(|path| path.find(object).into_iter().next());
        cells.push(found.map_or(Value::Null, |found| as_type(&definition.ty, found, now)));
    }
    cells
}

/// A value as a column shows it; null if it does not fit the column's type.
fn as_type(ty: &str, value: &Value, now: Timestamp) -> Value {
    match (ty, value) {
        ("string", Value::String(_)) => value.clone(),
        ("string", Value::Null) => Value::Null,
        ("string", other) => other.to_string().into(),
        ("integer", Value::Number(number)) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => whole.into(),
            #[expect(clippy::cast_possible_truncation, reason = "a fraction is cut off")]
            (None, Some(float)) => (float as i64).into(),
            (None, None) => Value::Null,
        },
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
        ("date", Value::String(text)) => age_of(text, now).into(),
        _ => Value::Null,
    }
}
