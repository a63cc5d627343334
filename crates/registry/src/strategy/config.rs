//! ConfigMap and Secret.
use super::Context;
use base64::Engine;
use serde_json::{Map, Value, json};
use setpoint_object::{field, name};

/// The most data a ConfigMap or Secret holds, in bytes: 1 MiB, as Kubernetes' `MaxSecretSize`.
const DATA_BYTES_MAX: usize = 1_048_576;

fn map<'a>(object: &'a Value, name: &str) -> Option<&'a Map<String, Value>> {
    object.get(name).and_then(Value::as_object)
}
fn text<'a>(object: &'a Value, name: &str) -> &'a str {
    object.get(name).and_then(Value::as_str).unwrap_or_default()
}
/// Bytes of a base64 text, without decoding it.
fn decoded_len(text: &str) -> usize {
    text.trim_end_matches('=').len() * 3 / 4
}
fn is_immutable(object: &Value) -> bool {
    object["immutable"] == true
}

/// Keys, size, and what `immutable` forbids.
pub(super) fn validate_config_map(
    new: &Value,
    old: Option<&Value>,
    errors: &mut Vec<field::Error>,
) {
    let mut size = 0;
    for (member, other) in [("data", "binaryData"), ("binaryData", "data")] {
        for (key, value) in map(new, member).into_iter().flatten() {
            let path = field::Path::new(member).key(key);
            for message in name::config_key(key) {
                errors.push(field::Error::invalid(path.clone(), &key.as_str().into(), message));
            }
            // Reported once, where Kubernetes looks for it.
            if member == "data" && map(new, other).is_some_and(|o| o.contains_key(key)) {
                errors.push(field::Error::invalid(
                    path,
                    &key.as_str().into(),
                    format!("duplicate of key present in {other}"),
                ));
            }
            let value = value.as_str().unwrap_or_default();
            size += if member == "data" { value.len() } else { decoded_len(value) };
        }
    }
    if size > DATA_BYTES_MAX {
        errors.push(field::Error::too_long(field::Path::new("[]"), DATA_BYTES_MAX));
    }
    if let Some(old) = old {
        validate_immutable(new, old, &["data", "binaryData"], errors);
    }
}
fn validate_immutable(new: &Value, old: &Value, members: &[&str], errors: &mut Vec<field::Error>) {
    if !is_immutable(old) {
        return;
    }
    let mut forbid = |member: &str| {
        errors.push(field::Error::forbidden(
            field::Path::new(member),
            "field is immutable when `immutable` is set",
        ));
    };
    if !is_immutable(new) {
        forbid("immutable");
    }
    let empty = Map::new();
    for member in members {
        if map(new, member).unwrap_or(&empty) != map(old, member).unwrap_or(&empty) {
            forbid(member);
        }
    }
}

/// `stringData` goes into `data`; the type has a default.
pub(super) fn prepare_secret(_: &Context<'_>, secret: &mut Value, old: Option<&Value>) {
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

/// What a Secret of a known type must hold: any of the keys for basic authentication, all of them for the others.
fn required_keys(kind: &str) -> &'static [&'static str] {
    match kind {
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        _ => &[],
    }
}
/// Keys, size, type and what `immutable` forbids. Values never show.
pub(super) fn validate_secret(new: &Value, old: Option<&Value>, errors: &mut Vec<field::Error>) {
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
        if !has(key) {
            errors.push(field::Error::required(data.key(key), ""));
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
    if let Some(old) = old {
        if text(old, "type") != kind {
            errors.push(field::Error::invalid(
                field::Path::new("type"),
                &new["type"],
                "field is immutable",
            ));
        }
        validate_immutable(new, old, &["data"], errors);
    }
}
