//! Rules in CEL, as far as they can be checked without compiling them.
use super::text;
use serde_json::Value;
use setpoint_object::field::{Error, Errors, Path};

const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Checks `x-kubernetes-validations` of one node.
pub(super) fn validate(schema: &Value, path: &Path, errors: &mut Errors) {
    let rules = schema.get("x-kubernetes-validations").and_then(Value::as_array);
    for (i, rule) in rules.into_iter().flatten().enumerate() {
        let path = path.child("x-kubernetes-validations").index(i);
        let expression = text(rule, "rule").trim();
        if expression.is_empty() {
            errors.push(Error::required(path.child("rule"), "rule is not specified"));
        }
        message(rule, expression, &path, errors);
        let reason = rule.get("reason").and_then(Value::as_str);
        if let Some(reason) = reason.filter(|reason| !REASONS.contains(reason)) {
            errors.push(Error::not_supported(path.child("reason"), &reason.into(), &REASONS));
        }
        field_path(rule, schema, &path.child("fieldPath"), errors);
        if rule.get("optionalOldSelf") == Some(&Value::Bool(true)) && !mentions_old(expression) {
            errors.push(Error::invalid(
                path.child("optionalOldSelf"),
                &Value::Bool(true),
                "may not be set if oldSelf is not used in rule",
            ));
        }
    }
}

fn message(rule: &Value, expression: &str, path: &Path, errors: &mut Errors) {
    let message = text(rule, "message");
    if !message.is_empty() && message.trim().is_empty() {
        let detail = "must be non-empty if specified";
        errors.push(Error::invalid(path.child("message"), &message.into(), detail));
    } else if message.trim().contains('\n') {
        let detail = "must not contain line breaks";
        errors.push(Error::invalid(path.child("message"), &message.into(), detail));
    } else if message.is_empty() && expression.contains('\n') {
        let detail = "message must be specified if rule contains line breaks";
        errors.push(Error::required(path.child("message"), detail));
    }
    let computed = text(rule, "messageExpression");
    if !computed.is_empty() && computed.trim().is_empty() {
        let detail = "messageExpression must be non-empty if specified";
        errors.push(Error::required(path.child("messageExpression"), detail));
    }
}

fn field_path(rule: &Value, schema: &Value, path: &Path, errors: &mut Errors) {
    let given = text(rule, "fieldPath");
    if given.is_empty() {
        return;
    }
    if given.contains('\n') {
        let detail = "must not contain line breaks";
        errors.push(Error::invalid(path.clone(), &given.into(), detail));
    } else if steps(given).is_none_or(|steps| !exists(schema, &steps)) {
        errors.push(Error::invalid(path.clone(), &given.into(), "must be a valid path"));
    }
}

/// The names of a path in dots (`.a.b`) and quoted brackets (`['x-y']`).
fn steps(text: &str) -> Option<Vec<String>> {
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

/// Whether an expression uses the identifier `oldSelf`.
fn mentions_old(expression: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    expression.match_indices("oldSelf").any(|(at, name)| {
        !expression[..at].ends_with(word) && !expression[at + name.len()..].starts_with(word)
    })
}
