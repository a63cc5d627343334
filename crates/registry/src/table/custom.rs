//! Columns of custom resources, as their definition declares them (spec: crd §9).

use super::age::age_of;
use super::cell::{self, text};
use super::{Cells, ColumnDefinition, Columns};
use serde_json::Value;
use setpoint_object::encode;
use setpoint_object::jsonpath::JsonPath;
use setpoint_object::time::Timestamp;
use setpoint_schema::patch::go_value;

/// The text of a null.
const NO_VALUE: &str = "<no value>";
/// Integers up to this one are exact as floats.
const EXACT_MAX: u64 = 1 << 53;
/// The description of the column `Name`.
const NAME: &str = "The object's name, unique among objects of its type in its namespace.";
const AGE_PATH: &str = ".metadata.creationTimestamp";

/// Name, then the declared columns; if there are none, the age. A path that cannot be parsed ends
/// the columns.
pub(super) fn columns(columns: &Value) -> Columns {
    let name = ColumnDefinition {
        description: NAME.to_owned(),
        ..ColumnDefinition::new("Name", "string", "name")
    };
    let mut definitions = vec![name];
    let mut paths = Vec::new();
    let declared = columns.as_array().map(Vec::as_slice).unwrap_or_default();
    for column in declared {
        let path = text(column, "jsonPath");
        let Ok(parsed) = JsonPath::parse(path) else { break };
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
        paths.push(parsed);
    }
    if declared.is_empty() {
        definitions.push(ColumnDefinition {
            description: describe(AGE_PATH),
            ..ColumnDefinition::new("Age", "date", "")
        });
        paths.extend(JsonPath::parse(AGE_PATH));
    }
    Columns { definitions, cells: Cells::Paths(paths) }
}

fn describe(path: &str) -> String {
    format!("Custom resource definition column (in JSONPath format): {path}")
}

/// The name, then the first value of each path, as its column's type.
pub(super) fn row(
    definitions: &[ColumnDefinition],
    paths: &[JsonPath],
    object: &Value,
    now: Timestamp,
) -> Vec<Value> {
    let mut cells = Vec::with_capacity(definitions.len());
    cells.push(cell::name(object));
    for (definition, path) in definitions.iter().skip(1).zip(paths) {
        let found = path.find(object).into_iter().next();
        cells.push(found.map_or(Value::Null, |found| as_type(&definition.ty, found, now)));
    }
    cells
}

/// A value as a column shows it; null if it does not fit the column's type.
fn as_type(ty: &str, value: &Value, now: Timestamp) -> Value {
    match (ty, value) {
        ("string", Value::String(_)) => value.clone(),
        ("string", Value::Null) => NO_VALUE.into(),
        ("string", Value::Object(_) | Value::Array(_)) => {
            String::from_utf8_lossy(&encode::to_bytes(value)).into()
        }
        ("string", Value::Bool(_) | Value::Number(_)) => go_value(value).into(),
        ("integer", Value::Number(number)) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => whole.into(),
            #[expect(clippy::cast_possible_truncation, reason = "a fraction is cut off")]
            (None, Some(float)) => (float as i64).into(),
            (None, None) => Value::Null,
        },
        // Numbers are floats there: an integer beyond 2^53 is rounded.
        ("number", Value::Number(number)) => match number.as_f64() {
            Some(float) if number.as_i64().is_none_or(|i| i.unsigned_abs() > EXACT_MAX) => {
                float.into()
            }
            _ => value.clone(),
        },
        ("boolean", Value::Bool(_)) => value.clone(),
        ("date", Value::String(text)) => age_of(text, now).into(),
        _ => Value::Null,
    }
}
