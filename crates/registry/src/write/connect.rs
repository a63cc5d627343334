//! Subresources that another server must answer: a node agent or an aggregated server.
use super::Write;
use crate::admission::Operation;
use crate::connect::{is_connected, no_agent, object_name};
use crate::request::Written;
use crate::subresource::Subresource;
use serde_json::Value;
use setpoint_object::ApiError;

impl Write<'_> {
    /// Whether the target is a stream to another server, for any method.
    pub(super) fn is_connect(&self) -> bool {
        is_connected(self.target)
    }
    /// The answer for requests that need another server (spec: api-server §5.6).
    pub(super) async fn connect(&self) -> Result<Written, ApiError> {
        let object = self.connected().await?;
        let name = object_name(self.target)?;
        Err(no_agent(self.resource, self.target, name, &object))
    }
    /// The object that a stream is about, once admission has let it pass.
    pub(super) async fn connected(&self) -> Result<Value, ApiError> {
        if self.options.dry_run {
            return Err(ApiError::bad_request("dryRun is not supported"));
        }
        let subresource = self.target.subresource.as_ref();
        let is_unknown = subresource.is_none_or(|sub| self.resource.subresource(sub).is_none());
        if is_unknown || !self.is_connect() {
            return Err(ApiError::no_route());
        }
        let name = object_name(self.target)?;
        let found = self.inner.live(&self.key(name)).await?;
        let group_resource = self.resource.group_resource();
        let found = found.ok_or_else(|| ApiError::not_found(&group_resource, name))?;
        let object: Value = crate::stored::tree(&found.value)?;
        // A log is read, not connected to.
        if subresource == Some(&Subresource::Log) {
            return Ok(object);
        }
        let subresource = subresource.and_then(|name| self.resource.subresource(name));
        let kind = subresource.map_or(&self.resource.gvk, |row| &row.gvk);
        let mut options = serde_json::json!({});
        super::body::name_kind(kind, &mut options);
        self.admit(Operation::Connect, &self.target.name, options).await?;
        Ok(object)
    }
}
