//! The version a request speaks and the version an object is stored in.
use super::Write;
use crate::request::Object;
use serde_json::Value;
use setpoint_object::ApiError;
use setpoint_store::Revision;

impl Write<'_> {
    /// Whether requests and storage speak different versions.
    pub(super) fn converts(&self) -> bool {
        self.resource.gvk.version != self.resource.storage_version
            || self.resource.gvk.group != self.resource.storage_group
    }
    /// A stored tree in the request's version; the store may still hold one of an earlier storage version.
    pub(super) fn served_tree(&self, stored: Value) -> Result<Value, ApiError> {
        crate::convert::to_served(self.resource, stored)
    }
    /// A tree of the request's version as it is stored.
    pub(super) fn stored_tree(&self, served: Value) -> Result<Value, ApiError> {
        if !self.converts() {
            return Ok(served);
        }
        let catalog = self.inner.catalog.borrow().clone();
        let (group, version) = (&self.resource.gvk.group, &self.resource.storage_version);
        let storage = catalog.get(group, version, &self.resource.resource);
        crate::convert::to_stored(self.resource, storage.map(|row| &**row), served)
    }
    /// The answer for bytes that are in the store at `revision`.
    pub(super) fn answer(&self, stored: &[u8], revision: Revision) -> Result<Object, ApiError> {
        let bytes = crate::convert::serve(self.resource, stored, revision.0)?;
        Ok(Object { bytes })
    }
}
