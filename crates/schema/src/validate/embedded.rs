//! Embedded resources: type and metadata.
use super::metadata;
use super::report::Report;
use crate::node::View;
use serde_json::Value;
use setpoint_object::field::{Error, Path};
use setpoint_object::name;

/// Checks every embedded resource under a node.
pub(super) fn validate(schema: View<'_>, value: &Value, path: &mut String, report: &mut Report) {
    if report.is_over() {
        return;
    }
    let base = path.len();
    match value {
        Value::Object(members) => {
            if schema.embedded_resource {
                resource(value, &Path::new(&**path), report);
            }
            for (name, member) in members {
                if (base == 0 || schema.embedded_resource) && name == "metadata" {
                    continue;
                }
                if (member.is_object() || member.is_array())
                    && let Some(inner) = schema.member(name)
                {
                    super::enter(path, schema, name);
                    validate(inner, member, path, report);
                    path.truncate(base);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.items() {
                for (i, item) in items.iter().enumerate() {
                    path.push('[');
                    path.push_str(itoa::Buffer::new().format(i));
                    path.push(']');
                    validate(schema, item, path, report);
                    path.truncate(base);
                }
            }
        }
        _ => {}
    }
}

/// Checks the type and the metadata of a resource.
pub(super) fn resource(value: &Value, path: &Path, report: &mut Report) {
    for member in ["apiVersion", "kind"] {
        if value.get(member).is_none() {
            report.push(Error::required(path.child(member), ""));
        }
    }
    let fault = |member: &str, fault: fn(&str) -> Option<String>| {
        let given = value.get(member)?;
        let detail = match given.as_str() {
            None => Some("must be a string".to_owned()),
            Some("") => Some("must not be empty".to_owned()),
            Some(text) => fault(text),
        };
        Some(Error::invalid(path.child(member), given, detail?))
    };
    let of_version = |text: &str| {
        (text.matches('/').count() > 1).then(|| format!("unexpected GroupVersion string: {text}"))
    };
    let of_kind = |text: &str| {
        let problems = name::dns1035_label(&text.to_lowercase());
        let problems = (!problems.is_empty()).then(|| problems.join(","));
        problems.map(|p| format!("may have mixed case, but should otherwise match: {p}"))
    };
    let faults = [fault("apiVersion", of_version), fault("kind", of_kind)];
    faults.into_iter().flatten().for_each(|error| report.push(error));
    if let Some(given) = value.get("metadata").filter(|given| given.is_object()) {
        metadata::validate(given, &path.child("metadata"), report);
    }
}
