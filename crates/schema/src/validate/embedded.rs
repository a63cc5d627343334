//! Embedded resources: type and metadata.
use crate::node::View;
use serde_json::Value;
use setpoint_object::field::{Error, Path};
use setpoint_object::name;

/// Checks every embedded resource under a node.
pub(super) fn validate(schema: View<'_>, value: &Value, path: &Path, errors: &mut Vec<Error>) {
    match value {
        Value::Object(members) => {
            if schema.embedded_resource {
                resource(value, path, errors);
            }
            for (name, member) in members {
                if (path.as_str().is_empty() || schema.embedded_resource) && name == "metadata" {
                    continue;
                }
                if (member.is_object() || member.is_array())
                    && let Some(schema) = schema.member(name)
                {
                    validate(schema, member, &path.child(name), errors);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.items() {
                for (i, item) in items.iter().enumerate() {
                    validate(schema, item, &path.index(i), errors);
                }
            }
        }
        _ => {}
    }
}

fn resource(value: &Value, path: &Path, errors: &mut Vec<Error>) {
    match value.get("apiVersion").and_then(Value::as_str) {
        None | Some("") => errors.push(Error::required(path.child("apiVersion"), "")),
        Some(_) => {}
    }
    match value.get("kind").and_then(Value::as_str) {
        None | Some("") => errors.push(Error::required(path.child("kind"), "")),
        Some(kind) => {
            let shown = Value::from(kind);
            for problem in name::dns1035_label(&kind.to_lowercase()) {
                let detail = format!("may have mixed case, but should otherwise match: {problem}");
                errors.push(Error::invalid(path.child("kind"), &shown, detail));
            }
        }
    }
    let Some(labels) = value.pointer("/metadata/labels").and_then(Value::as_object) else { return };
    let path = path.child("metadata").child("labels");
    for (key, label) in labels {
        for problem in name::qualified_name(key) {
            errors.push(Error::invalid(path.clone(), &Value::from(key.as_str()), problem));
        }
        for problem in label.as_str().map(name::label_value).unwrap_or_default() {
            errors.push(Error::invalid(path.clone(), label, problem));
        }
    }
}
