//! Values as the API server's internal form prints them: members named as the Go fields.
use serde_json::{Value, json};

/// The versions of a definition; what is lifted out of the list shows as null.
pub(super) fn versions(list: &[Value]) -> Value {
    let lifted = |name: &str| {
        let first = list.first().and_then(|version| version.get(name));
        list.iter().all(|version| version.get(name) == first)
    };
    let member = |version: &Value, name: &str| match lifted(name) {
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
