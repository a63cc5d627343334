//! Subresources that another server must answer: a node agent or an aggregated server.
use super::Write;
use crate::admission::Operation;
use crate::connect::{is_connected, is_optional, no_agent, object_name};
use crate::request::Written;
use crate::routed::Target;
use crate::subresource::Subresource;
use serde_json::Value;
use setpoint_object::ApiError;

/// The error for a stream that no server serves.
pub(super) fn not_connected(target: &Target, object: &Value) -> ApiError {
    match object_name(target) {
        Ok(name) if object.is_null() => {
            ApiError::not_found(&target.resource.group_resource(), name)
        }
        Ok(name) => no_agent(target, name, object),
        Err(error) => error,
    }
}

impl Write<'_> {
    /// Whether the target is a stream to another server, for any method.
    pub(super) fn is_connect(&self) -> bool {
        is_connected(self.target)
    }
    /// The answer for requests that need another server (spec: api-server §5.6).
    pub(super) async fn connect(&self) -> Result<Written, ApiError> {
        let object = self.connected(&serde_json::json!({})).await?;
        Err(not_connected(self.target, &object))
    }
    /// The object that a stream with these options is about, once admission has let it pass.
    pub(super) async fn connected(&self, options: &Value) -> Result<Value, ApiError> {
        if self.options.dry_run {
            return Err(ApiError::bad_request("dryRun is not supported"));
        }
        let subresource = self.target.subresource.as_ref();
        let is_unknown = subresource.is_none_or(|sub| self.resource.subresource(sub).is_none());
        if is_unknown || !self.is_connect() {
            return Err(ApiError::no_route());
        }
        let name = object_name(self.target)?;
        // A log is read, not connected to.
        if let Some(name) = subresource.filter(|name| **name != Subresource::Log) {
            let kind = self.resource.subresource(name).map_or(&self.resource.gvk, |row| &row.gvk);
            let mut options = options.clone();
            super::body::name_kind(kind, &mut options);
            self.admit(Operation::Connect, &self.target.name, options, |_| Ok(())).await?;
        }
        let found = self.inner.live(&self.key(name)).await?;
        if found.is_none() && is_optional(self.target) {
            return Ok(Value::Null);
        }
        let group_resource = self.resource.group_resource();
        let found = found.ok_or_else(|| ApiError::not_found(&group_resource, name))?;
        self.leave_if_large(found.value.len()).await;
        crate::stored::tree(&found.value)
    }
}
