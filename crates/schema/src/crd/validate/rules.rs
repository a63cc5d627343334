//! Rules in CEL: everything about them but the expressions.
use super::structural::unbuilt;
use super::text;
use serde_json::Value;
use setpoint_object::field::{Error, Errors, Path};
use std::cell::LazyCell;

const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Checks `x-kubernetes-validations` of one node.
pub(super) fn validate(schema: &Value, path: &Path, errors: &mut Errors) {
    let rules = schema.get("x-kubernetes-validations").and_then(Value::as_array);
    let has_structure = LazyCell::new(|| unbuilt(schema).is_none());
    for (i, rule) in rules.into_iter().flatten().enumerate() {
        let path = path.child("x-kubernetes-validations").index(i);
        message(rule, &path, errors);
        let reason = rule.get("reason").and_then(Value::as_str);
        if let Some(reason) = reason.filter(|reason| !REASONS.contains(reason)) {
            errors.push(Error::not_supported(path.child("reason"), &reason.into(), &REASONS));
        }
        let given = text(rule, "fieldPath");
        if !given.is_empty() {
            // Below what has no structure, any path is taken.
            let is_there =
                || steps(given).is_some_and(|steps| exists(schema, &steps)) || !*has_structure;
            field_path(given, is_there, &path.child("fieldPath"), errors);
        }
    }
}

fn message(rule: &Value, path: &Path, errors: &mut Errors) {
    let (expression, message) = (text(rule, "rule").trim(), text(rule, "message"));
    let has_breaks = |text: &str| text.contains(['\n', '\r']);
    if expression.is_empty() {
        errors.push(Error::required(path.child("rule"), "rule is not specified"));
    } else if !message.is_empty() && message.trim().is_empty() {
        let detail = "must be non-empty if specified";
        errors.push(Error::invalid(path.child("message"), &message.into(), detail));
    } else if has_breaks(message.trim()) {
        let detail = "must not contain line breaks";
        errors.push(Error::invalid(path.child("message"), &message.into(), detail));
    } else if message.is_empty() && has_breaks(expression) {
        let detail = "message must be specified if rule contains line breaks";
        errors.push(Error::required(path.child("message"), detail));
    }
    let computed = text(rule, "messageExpression");
    if !computed.is_empty() && computed.trim().is_empty() {
        let detail = "messageExpression must be non-empty if specified";
        errors.push(Error::required(path.child("messageExpression"), detail));
    }
}

fn field_path(given: &str, is_there: impl Fn() -> bool, path: &Path, errors: &mut Errors) {
    let mut wrong = |detail| errors.push(Error::invalid(path.clone(), &given.into(), detail));
    if given.trim().is_empty() {
        wrong("must be non-empty if specified");
    }
    if given.contains(['\n', '\r']) {
        wrong("must not contain line breaks");
    }
    if !is_there() {
        wrong("must be a valid path");
    }
}

/// The names of a path in dots (`.a.b`) and quoted brackets (`['x-y']`).
pub(crate) fn steps(text: &str) -> Option<Vec<String>> {
    let mut steps = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(quoted) = rest.strip_prefix("['") {
            let (name, after) = quoted.split_once("']")?;
            steps.push(name.replace("\\'", "'"));
            rest = after;
        } else {
            let name = rest.strip_prefix('.')?;
            let end = name.find(['.', '[']).unwrap_or(name.len());
            if end == 0 {
                return None;
            }
            steps.push(name[..end].to_owned());
            rest = &name[end..];
        }
    }
    (!steps.is_empty()).then_some(steps)
}

/// Whether a path leads through properties and map keys.
fn exists(schema: &Value, steps: &[String]) -> bool {
    let mut node = schema;
    for step in steps {
        let property = node.get("properties").and_then(|properties| properties.get(step));
        let value = node.get("additionalProperties").filter(|inner| inner.is_object());
        match property.or(value) {
            Some(inner) => node = inner,
            None => return false,
        }
    }
    true
}
