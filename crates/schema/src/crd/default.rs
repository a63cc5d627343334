//! Defaults of a definition.
use serde_json::{Map, Value, json};

/// Fills the definition's own defaults (names.singular, names.listKind, conversion).
pub fn default_definition(crd: &mut Map<String, Value>) {
    let Some(spec) = crd.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
        let kind = names.get("kind").and_then(Value::as_str).unwrap_or("").to_owned();
        let is_empty = |name: Option<&Value>| name.and_then(Value::as_str).unwrap_or("").is_empty();
        if is_empty(names.get("singular")) && !kind.is_empty() {
            names.insert("singular".to_owned(), kind.to_lowercase().into());
        }
        if is_empty(names.get("listKind")) && !kind.is_empty() {
            names.insert("listKind".to_owned(), format!("{kind}List").into());
        }
    }
    let conversion = spec.entry("conversion").or_insert_with(|| json!({"strategy": "None"}));
    if let Some(service) =
        conversion.pointer_mut("/webhook/clientConfig/service").and_then(Value::as_object_mut)
    {
        service.entry("port").or_insert_with(|| json!(443));
    }
}
