//! The version a request speaks and the version an object is stored in.
use super::Write;
use super::persist::served;
use crate::request::Object;
use serde_json::Value;
use setpoint_object::ApiError;
use setpoint_store::Revision;

impl Write<'_> {
    /// Whether requests and storage speak different versions.
    pub(super) fn converts(&self) -> bool {
        self.resource.gvk.version != self.resource.storage_version
            || (&*self.resource.gvk.group == "events.k8s.io" && !self.resource.custom)
    }
    /// A stored tree in the request's version.
    pub(super) fn served_tree(&self, stored: Value) -> Result<Value, ApiError> {
        if self.converts() { crate::convert::to_served(self.resource, stored) } else { Ok(stored) }
    }
    /// A tree of the request's version as it is stored.
    pub(super) fn stored_tree(&self, served: Value) -> Result<Value, ApiError> {
        if self.converts() { crate::convert::to_stored(self.resource, served) } else { Ok(served) }
    }
    /// The answer for bytes that are in the store at `revision`.
    pub(super) fn answer(&self, stored: &[u8], revision: Revision) -> Result<Object, ApiError> {
        if !self.converts() {
            return Ok(served(stored, revision));
        }
        let tree = self.served_tree(super::persist::tree(stored)?)?;
        Ok(served(&setpoint_object::encode::to_bytes(&tree), revision))
    }
}
