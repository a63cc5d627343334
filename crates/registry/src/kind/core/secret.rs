//! Secrets: keys, size, type, immutability. Errors never contain values.
use crate::kind::data::{DATA_BYTES_MAX, decoded_len, map, validate_immutable};
use crate::kind::{
    Context, Fill, Kind, Members, MetadataCheck, MetadataChecks, Report, Selectable, not_supported,
    text,
};
use crate::table::cell;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use setpoint_object::time::Timestamp;
use setpoint_object::{field, name};
use setpoint_schema::decode::json_object_fault;

/// Secret.
pub(in crate::kind) static KIND: Kind = Kind {
    changed_metadata: MetadataChecks::before(&[MetadataCheck::Change, MetadataCheck::Whole]),
    default,
    prepare,
    validate,
    validate_change,
    warnings,
    update_warnings: |secret, _| warnings(secret),
    selectable: &[Selectable::new("type")],
    unknown_label: not_supported,
    cells: Some(cells),
    rules: "keys, size, keys that its type needs; immutable type and data",
    ..Kind::plain("", "Secret")
};

/// Secret: `stringData` overwrites `data` and is not stored.
fn default(object: &mut Members, _version: &str) {
    object.absent("type", "Opaque");
    let Some(Value::Object(texts)) = object.remove("stringData") else { return };
    if let Some(data) = object.object_or_new("data") {
        for (key, text) in texts {
            let bytes = text.as_str().unwrap_or_default();
            data.insert(key, Value::String(STANDARD.encode(bytes)));
        }
    }
}

/// Moves `stringData` into `data`; sets the default type.
fn prepare(_: &Context<'_>, secret: &mut Value, old: Option<&Value>) {
    let Some(members) = secret.as_object_mut() else { return };
    if let Some(Value::Object(texts)) = members.remove("stringData") {
        let data = members.entry("data").or_insert_with(|| json!({}));
        for (key, value) in texts {
            let bytes = value.as_str().unwrap_or_default();
            data[key] = base64::engine::general_purpose::STANDARD.encode(bytes).into();
        }
    }
    let kind = members.entry("type").or_insert(Value::Null);
    if kind.as_str().unwrap_or_default().is_empty() {
        *kind = old.map_or_else(|| "Opaque".into(), |old| old["type"].clone());
    }
}

/// A certificate or key in TLS Secrets that is no PEM. Whether they fit each other is not checked.
fn warnings(secret: &Value) -> Vec<String> {
    if text(secret, "type") != "kubernetes.io/tls" {
        return Vec::new();
    }
    let is_pem = |key: &str| {
        let bytes = STANDARD.decode(text(&secret["data"], key)).unwrap_or_default();
        x509_parser::pem::parse_x509_pem(&bytes).is_ok()
    };
    let missing = [("tls.crt", "certificate"), ("tls.key", "key")];
    let missing = missing.into_iter().find(|(key, _)| !is_pem(key));
    let warning = |(_, input)| format!("tls: failed to find any PEM data in {input} input");
    missing.map(warning).into_iter().collect()
}

/// The keys that a Secret of a known type must have: any of them for basic authentication, all of
/// them for other types.
fn required_keys(kind: &str) -> &'static [&'static str] {
    match kind {
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        _ => &[],
    }
}

/// Why encoded data is neither a JSON object nor `null`, as Go's decoder says it.
fn json_fault(value: Option<&Value>) -> Option<String> {
    let text = value.and_then(Value::as_str).unwrap_or_default();
    let bytes = STANDARD.decode(text).unwrap_or_default();
    json_object_fault(&bytes)
}

/// The type never changes, and data may be immutable. Errors never contain values.
fn validate_change(new: &Value, old: Option<&Value>, errors: &mut Report) {
    if let Some(old) = old {
        if text(old, "type") != text(new, "type") {
            errors.push(field::Error::invalid(
                field::Path::new("type"),
                &new["type"],
                "field is immutable",
            ));
        }
        validate_immutable(new, old, &["data"], errors);
    }
}
/// Validates keys, size and type. Errors never contain values.
fn validate(new: &Value, _old: Option<&Value>, errors: &mut Report) {
    let data = field::Path::new("data");
    let mut size = 0;
    for (key, value) in map(new, "data").into_iter().flatten() {
        for message in name::config_key(key) {
            errors.push(field::Error::invalid(data.key(key), &key.as_str().into(), message));
        }
        size += decoded_len(value.as_str().unwrap_or_default());
    }
    if size > DATA_BYTES_MAX {
        errors.push(field::Error::too_long(data.clone(), DATA_BYTES_MAX));
    }
    let kind = text(new, "type");
    let has = |key: &str| map(new, "data").is_some_and(|d| d.contains_key(key));
    for key in required_keys(kind) {
        let value = new["data"].get(*key);
        let is_empty = value.and_then(Value::as_str).is_none_or(str::is_empty);
        if !has(key) || kind == "kubernetes.io/ssh-auth" && is_empty {
            errors.push(field::Error::required(data.key(key), ""));
        } else if key.starts_with(".docker")
            && let Some(fault) = json_fault(value)
        {
            let shown = "<secret contents redacted>".into();
            errors.push(field::Error::invalid(data.key(key), &shown, fault));
        }
    }
    if kind == "kubernetes.io/basic-auth" && !has("username") && !has("password") {
        errors.push(field::Error::required(data.key("username"), ""));
        errors.push(field::Error::required(data.key("password"), ""));
    }
    if kind == "kubernetes.io/service-account-token" {
        let account = "kubernetes.io/service-account.name";
        let named = new["metadata"]["annotations"][account].as_str().unwrap_or_default();
        if named.is_empty() {
            errors.push(field::Error::required(
                field::Path::new("metadata.annotations").key(account),
                "",
            ));
        }
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        cell::name(object),
        cell::text(object, "type").into(),
        cell::len(object, "data").into(),
        cell::age(object, now),
    ]
}
