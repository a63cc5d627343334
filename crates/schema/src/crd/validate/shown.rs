//! Values as the API server's internal form prints them: members named as the Go fields.
use serde_json::{Value, json};

/// The versions of a definition. `lifted`: the members that all have equal, which show as null.
pub(super) fn versions(list: &[Value], lifted: &[&str]) -> Value {
    let member = |version: &Value, name: &str| match lifted.contains(&name) {
        true => Value::Null,
        false => version.get(name).cloned().unwrap_or_default(),
    };
    list.iter()
        .map(|version| {
            json!({
                "Name": version.get("name").cloned().unwrap_or_else(|| "".into()),
                "Served": version.get("served").and_then(Value::as_bool).unwrap_or(false),
                "Storage": version.get("storage").and_then(Value::as_bool).unwrap_or(false),
                "Deprecated": version.get("deprecated").and_then(Value::as_bool).unwrap_or(false),
                "DeprecationWarning": version.get("deprecationWarning").cloned().unwrap_or_default(),
                "Schema": member(version, "schema"),
                "Subresources": member(version, "subresources"),
                "AdditionalPrinterColumns": member(version, "additionalPrinterColumns"),
                "SelectableFields": member(version, "selectableFields"),
            })
        })
        .collect()
}
