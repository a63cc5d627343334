//! Cells: accessors for an object's tree, which treat missing members as empty, and cells that many
//! kinds share.

use super::age;
use serde_json::Value;
use setpoint_object::time::Timestamp;
use std::borrow::Cow;

/// The text for an empty value.
pub const NONE: &str = "<none>";
/// The text for an option that is not set.
pub const UNSET: &str = "<unset>";
static NULL: Value = Value::Null;

/// The member at a dotted path of plain names; null if any part is missing.
pub fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(value, |value, name| value.get(name).unwrap_or(&NULL))
}
/// A string at a path, empty if missing.
pub fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    at(value, path).as_str().unwrap_or_default()
}
/// A string at a path, or `or` if it is missing or empty.
pub fn text_or<'a>(value: &'a Value, path: &str, or: &'a str) -> &'a str {
    Some(text(value, path)).filter(|text| !text.is_empty()).unwrap_or(or)
}
/// A number at a path, 0 if missing.
pub fn int(value: &Value, path: &str) -> i64 {
    at(value, path).as_i64().unwrap_or(0)
}
/// A list at a path, empty if missing.
pub fn list<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    at(value, path).as_array().map(Vec::as_slice).unwrap_or_default()
}
/// The strings of a list.
pub fn strings<'a>(value: &'a Value, path: &str) -> Vec<&'a str> {
    list(value, path).iter().filter_map(Value::as_str).collect()
}
/// Number of members of a list or map.
pub fn len(value: &Value, path: &str) -> i64 {
    let len = match at(value, path) {
        Value::Array(items) => items.len(),
        Value::Object(members) => members.len(),
        _ => 0,
    };
    i64::try_from(len).unwrap_or(i64::MAX)
}
/// Whether a path leads to a value.
pub fn has(value: &Value, path: &str) -> bool {
    !at(value, path).is_null()
}
/// A quantity, int-or-string or other scalar as text; empty if missing.
pub fn scalar<'a>(value: &'a Value, path: &str) -> Cow<'a, str> {
    match at(value, path) {
        Value::String(text) => text.as_str().into(),
        Value::Null => "".into(),
        other => other.to_string().into(),
    }
}

/// The name cell.
pub fn name(object: &Value) -> Value {
    text(object, "metadata.name").into()
}
/// The age cell.
pub fn age(object: &Value, now: Timestamp) -> Value {
    age::age_of(text(object, "metadata.creationTimestamp"), now).into()
}
/// The cells of kinds with a name and an age only.
pub fn name_and_age(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), age(object, now)]
}
/// Whether the object is being deleted.
pub fn deleting(object: &Value) -> bool {
    has(object, "metadata.deletionTimestamp")
}
/// The condition of a type in the list at a path.
pub fn condition<'a>(object: &'a Value, path: &str, ty: &str) -> Option<&'a Value> {
    list(object, path).iter().find(|condition| text(condition, "type") == ty)
}
/// Whether the object's status has this condition with status `True`.
pub fn condition_is_true(object: &Value, ty: &str) -> bool {
    condition(object, "status.conditions", ty).is_some_and(|found| text(found, "status") == "True")
}
/// `True`, `False`, or `<unset>`.
pub fn flag(value: &Value, path: &str) -> &'static str {
    match at(value, path).as_bool() {
        Some(true) => "True",
        Some(false) => "False",
        None => UNSET,
    }
}

/// A map of labels: `a=b,c=d` by key, or `<none>`.
pub fn labels(value: &Value, path: &str) -> String {
    let Some(members) = at(value, path).as_object().filter(|members| !members.is_empty()) else {
        return NONE.to_owned();
    };
    let mut pairs: Vec<String> = members
        .iter()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    pairs.sort_unstable();
    pairs.join(",")
}
/// A label selector in its text form, by key, or `<none>` if it selects everything or nothing.
pub fn selector(value: &Value, path: &str) -> String {
    let selector = at(value, path);
    let mut parts: Vec<(&str, String)> = Vec::new();
    for (key, value) in at(selector, "matchLabels").as_object().into_iter().flatten() {
        parts.push((key, format!("{key}={}", value.as_str().unwrap_or_default())));
    }
    for expression in list(selector, "matchExpressions") {
        let key = text(expression, "key");
        let mut values = strings(expression, "values");
        values.sort_unstable();
        let values = values.join(",");
        parts.push((
            key,
            match text(expression, "operator") {
                "In" => format!("{key} in ({values})"),
                "NotIn" => format!("{key} notin ({values})"),
                "Exists" => key.to_owned(),
                "DoesNotExist" => format!("!{key}"),
                _ => return "<error>".to_owned(),
            },
        ));
    }
    if parts.is_empty() {
        return NONE.to_owned();
    }
    parts.sort_by(|a, b| a.0.cmp(b.0));
    parts.into_iter().map(|(_, part)| part).collect::<Vec<_>>().join(",")
}
/// At most `max` entries, then the number of further ones; `empty` if there are none.
pub fn some_of(entries: &[String], max: usize, separator: &str, empty: &str) -> String {
    match entries.len() {
        0 => empty.to_owned(),
        count if count > max => {
            format!("{} + {} more...", entries[..max].join(separator), count - max)
        }
        _ => entries.join(separator),
    }
}
/// The names and the images of the containers at a path, comma separated.
pub fn containers(object: &Value, path: &str) -> [Value; 2] {
    let join = |member: &str| {
        let all: Vec<&str> = list(object, path).iter().map(|item| text(item, member)).collect();
        Value::from(all.join(","))
    };
    [join("name"), join("image")]
}
