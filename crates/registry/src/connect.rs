//! Subresources that are streams to another server: a node agent, an aggregated server.
use crate::attributes::Target;
use crate::catalog::Resource;
use crate::subresource::Subresource;
use serde_json::Value;
use setpoint_object::field::quote;
use setpoint_object::{ApiError, Reason};

/// The name of the object of a target. That of a proxied one may be between a scheme and a port:
/// `http:web:80`, `web:metrics`.
///
/// # Errors
///
/// 400 for other names with colons.
pub(crate) fn object_name(target: &Target) -> Result<&str, ApiError> {
    if target.subresource != Some(Subresource::Proxy) {
        return Ok(&target.name);
    }
    let parts: Vec<&str> = target.name.splitn(4, ':').collect();
    match parts[..] {
        [name] | [name, _] | ["" | "http" | "https", name, _] if !name.is_empty() => Ok(name),
        _ => {
            let kind = target.resource.singular.as_ref();
            Err(ApiError::bad_request(format!("invalid {kind} request {}", quote(&target.name))))
        }
    }
}
/// Whether a target is a stream to another server.
pub(crate) fn is_connected(target: &Target) -> bool {
    target.subresource.as_ref().is_some_and(Subresource::is_connect)
}
/// The error for a stream to an object without a node agent.
pub(crate) fn no_agent(resource: &Resource, name: &str, object: &Value) -> ApiError {
    let node = object["spec"]["nodeName"].as_str().unwrap_or_default();
    if resource.kind.has_node_streams && node.is_empty() {
        return ApiError::bad_request(format!("pod {name} does not have a host assigned"));
    }
    ApiError::new(
        503,
        Reason::ServiceUnavailable,
        format!("no node agent serves {} {name:?}", resource.resource),
    )
}
