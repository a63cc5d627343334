//! Subresources that need somebody else: a node agent, an aggregated server, or the authentication that is still to come.
use super::Write;
use crate::admission::Operation;
use crate::catalog::Resource;
use crate::request::{Target, Written};
use serde_json::Value;
use setpoint_object::{ApiError, Reason};

/// Subresources whose every verb goes on to a node, a Service or a pod.
const CONNECTED: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

impl Write<'_> {
    /// Whether the target is a stream to somewhere else, whatever the method.
    pub(super) fn is_connect(&self) -> bool {
        is_connected(self.resource, self.target)
    }
    /// Answers what cannot be done here (spec: api-server §5.6).
    pub(super) async fn connect(&self) -> Result<Written, ApiError> {
        if self.options.dry_run {
            return Err(ApiError::bad_request("dryRun is not supported"));
        }
        let subresource = self.target.subresource.as_str();
        if self.resource.custom
            || self.resource.subresource(subresource).is_none() && !subresource.is_empty()
        {
            return Err(ApiError::no_route());
        }
        if !self.is_connect() {
            // Reviews and tokens: the request is understood, the part that answers it is not there.
            let what = if subresource.is_empty() {
                self.resource.resource.to_string()
            } else {
                format!("{}/{subresource}", self.resource.resource)
            };
            return Err(ApiError::new(
                501,
                Reason::Unknown,
                format!("{what} is not implemented by this server"),
            ));
        }
        let found = self.inner.live(&self.key(&self.target.name)).await?;
        let found = found.ok_or_else(|| self.not_found())?;
        let object: Value = super::persist::tree(&found.value)?;
        let review = self.review(Operation::Connect, &self.target.name, Some(&object));
        self.inner.admission.validate(&review, None).await?;
        Err(no_agent(&self.resource.resource, &self.target.name, &object))
    }
}
/// Whether a target is a stream to somewhere else.
pub(crate) fn is_connected(resource: &Resource, target: &Target) -> bool {
    !resource.custom && CONNECTED.contains(&target.subresource.as_str())
}
/// What a stream to an object is answered without a node agent.
pub(crate) fn no_agent(resource: &str, name: &str, object: &Value) -> ApiError {
    let node = object["spec"]["nodeName"].as_str().unwrap_or_default();
    if resource == "pods" && node.is_empty() {
        return ApiError::bad_request(format!("pod {name} does not have a host assigned"));
    }
    ApiError::new(
        503,
        Reason::ServiceUnavailable,
        format!("no node agent serves {resource} {name:?}"),
    )
}
