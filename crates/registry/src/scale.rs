//! The `scale` subresource: an `autoscaling/v1 Scale` made from its parent (spec: api-server §5.6,
//! crd §7).
use crate::catalog::{Resource, ScalePaths, ScaleSelector};
use crate::subresource::Subresource;
use serde_json::{Value, json};
use setpoint_object::ApiError;
use setpoint_object::label::Selector;
use setpoint_object::meta::ObjectExt;

/// The Scale of an object, with the object's resourceVersion.
///
/// # Errors
/// 500: a custom resource without the replicas field that its definition names.
pub(crate) fn scale_of(resource: &Resource, object: &Value) -> Result<Value, ApiError> {
    let paths = paths(resource)?;
    let replicas = match at(object, &paths.spec_replicas) {
        Some(replicas) => replicas.as_i64().unwrap_or(0),
        None if !resource.has_go_type() => {
            return Err(ApiError::internal(format_args!(
                "the spec replicas field {:?} does not exist",
                paths.spec_replicas
            )));
        }
        None => 0,
    };
    let mut scale = scale_with(object, replicas);
    let observed = at(object, &paths.status_replicas).and_then(Value::as_i64).unwrap_or(0);
    let selector = match &paths.selector {
        ScaleSelector::None => String::new(),
        ScaleSelector::Text(path) => {
            at(object, path).and_then(Value::as_str).unwrap_or_default().to_owned()
        }
        ScaleSelector::Rendered => selector_text(&object["spec"]["selector"]),
    };
    let mut status = json!({"replicas": observed});
    if !selector.is_empty() {
        status["selector"] = selector.into();
    }
    scale["status"] = status;
    Ok(scale)
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
