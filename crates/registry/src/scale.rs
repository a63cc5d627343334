//! The `scale` subresource: an `autoscaling/v1 Scale` made from its parent (spec: api-server §5.6,
//! crd §7).
use crate::catalog::{Resource, ScalePaths, ScaleSelector};
use crate::subresource::Subresource;
use serde_json::{Value, json};
use setpoint_object::ApiError;
use setpoint_object::label::Selector;
use setpoint_object::meta::ObjectExt;
use setpoint_schema::patch::{go_type, go_value};

/// The Scale of an object, with the object's resourceVersion.
///
/// # Errors
/// 500: a custom resource without the replicas field that its definition names, or with a value of
/// another type at one of the definition's paths.
pub(crate) fn scale_of(resource: &Resource, object: &Value) -> Result<Value, ApiError> {
    match parts(resource, object)? {
        (_, false) if !resource.has_go_type() => Err(ApiError::internal(format_args!(
            "the spec replicas field {:?} does not exist",
            paths(resource)?.spec_replicas
        ))),
        (scale, _) => Ok(scale),
    }
}
/// The Scale of an object, with no replicas if the object has none, and whether it has some.
///
/// # Errors
/// As [`scale_of`], except for missing replicas.
pub(crate) fn parts(resource: &Resource, object: &Value) -> Result<(Value, bool), ApiError> {
    let paths = paths(resource)?;
    // A built-in object conforms to its type.
    let number = |path: &str| match resource.has_go_type() {
        true => Ok(at(object, path).and_then(Value::as_i64)),
        // As the reference's: without a reason.
        false => number_at(object, path).map_err(ApiError::unclassified),
    };
    let replicas = number(&paths.spec_replicas)?;
    let observed = number(&paths.status_replicas)?.unwrap_or(0);
    let selector = match &paths.selector {
        ScaleSelector::None => String::new(),
        ScaleSelector::Text(path) => {
            let text = text_at(object, path).map_err(ApiError::unclassified)?;
            text.unwrap_or_default().to_owned()
        }
        ScaleSelector::Rendered => selector_text(&object["spec"]["selector"]),
    };
    let mut status = json!({"replicas": observed});
    if !selector.is_empty() {
        status["selector"] = selector.into();
    }
    let mut scale = scale_with(object, replicas.unwrap_or(0));
    scale["status"] = status;
    Ok((scale, replicas.is_some()))
}
pub(crate) fn scale_with(object: &Value, replicas: i64) -> Value {
    let mut meta = serde_json::Map::new();
    for member in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object.meta().and_then(|m| m.get(member)).filter(|v| !v.is_null()) {
            meta.insert(member.to_owned(), value.clone());
        }
    }
    let spec = if replicas == 0 { json!({}) } else { json!({"replicas": replicas}) };
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": meta, "spec": spec})
}
pub(crate) fn paths(resource: &Resource) -> Result<&ScalePaths, ApiError> {
    resource
        .subresource(&Subresource::Scale)
        .and_then(|s| s.scale.as_ref())
        .ok_or_else(ApiError::no_route)
}
/// The value at a path of plain names, as definitions write it: `.spec.replicas`.
pub(crate) fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let mut value = object;
    for name in names(path) {
        value = value.get(name)?;
    }
    (!value.is_null()).then_some(value)
}
/// The number at a path, if there is one. The error names Go's types, as the API does.
pub(crate) fn number_at(object: &Value, path: &str) -> Result<Option<i64>, String> {
    let is = |value: &Value| value.is_i64();
    Ok(typed(object, path, is, "int64")?.and_then(Value::as_i64))
}
/// The text at a path, if there is one. The error names Go's types, as the API does.
pub(crate) fn text_at<'a>(object: &'a Value, path: &str) -> Result<Option<&'a str>, String> {
    Ok(typed(object, path, Value::is_string, "string")?.and_then(Value::as_str))
}
fn typed<'a>(
    object: &'a Value,
    path: &str,
    is: impl Fn(&Value) -> bool,
    wanted: &str,
) -> Result<Option<&'a Value>, String> {
    let fault = |names: &[&str], found: &Value, wanted: &str| {
        let (at, shown) = (names.join("."), go_value(found));
        let found = if found.is_null() { "<nil>" } else { go_type(found) };
        format!(".{at} accessor error: {shown} is of the type {found}, expected {wanted}")
    };
    let steps: Vec<&str> = names(path).collect();
    let mut value = object;
    for (n, name) in steps.iter().enumerate() {
        match value {
            Value::Null => return Ok(None),
            Value::Object(members) => match members.get(*name) {
                Some(member) => value = member,
                None => return Ok(None),
            },
            other => return Err(fault(&steps[..=n], other, "map[string]interface{}")),
        }
    }
    // A null is there, too.
    if is(value) { Ok(Some(value)) } else { Err(fault(&steps, value, wanted)) }
}
pub(crate) fn names(path: &str) -> impl Iterator<Item = &str> {
    path.trim_start_matches('.').split('.')
}
/// Sets the value at a path and creates missing parents.
pub(crate) fn put_at(object: &mut Value, path: &str, new: Value) {
    let mut value = object;
    for name in names(path) {
        if !value.is_object() {
            *value = json!({});
        }
        value = &mut value[name];
    }
    *value = new;
}
/// The text form of a workload's selector; ReplicationControllers have a plain map.
fn selector_text(selector: &Value) -> String {
    let is_map = selector.as_object().is_some_and(|s| s.values().all(Value::is_string));
    let full = if is_map { &json!({"matchLabels": selector}) } else { selector };
    match Selector::from_object(full) {
        Ok(Some(selector)) => selector.to_string(),
        Ok(None) | Err(_) => String::new(),
    }
}
