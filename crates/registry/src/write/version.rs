//! Conversion between the request's version and the storage version.
use super::Write;
use crate::conversion::ObjectVersion;
use crate::convert;
use crate::request::Object;
use crate::stored::tree;
use bytes::Bytes;
use serde_json::Value;
use setpoint_object::{ApiError, encode};
use setpoint_schema::encode::to_bytes;
use setpoint_store::{KeyValue, Revision};

impl Write<'_> {
    /// Whether the request's version differs from the storage version.
    pub(super) fn converts(&self) -> bool {
        self.resource.gvk.version != self.resource.storage_version
            || self.resource.gvk.group != self.resource.storage_group
    }
    /// Whether a new state is prepared and checked in the request's version, and converted to the
    /// storage version after that: so it is for custom objects, whose versions have their own
    /// schemas and rules. The rules of a built-in kind are those of its storage version.
    pub(super) fn converts_last(&self) -> bool {
        self.converts() && !self.resource.has_go_type()
    }
    /// Whether a stored object has the present storage version. That of built-in kinds never
    /// changes.
    pub(super) fn is_storage_version(&self, stored: &Value) -> bool {
        let mut now = self.resource.group_version();
        now.version = self.resource.storage_version.clone();
        self.resource.has_go_type() || stored["apiVersion"] == *now.to_string()
    }
    /// A stored tree in the request's version; it may have an earlier storage version. `at` is its
    /// key and revision if it is stored as it is.
    pub(super) async fn served_tree(
        &self,
        stored: Value,
        at: Option<&KeyValue>,
    ) -> Result<Value, ApiError> {
        let Some(converter) = self.inner.served(self.resource) else {
            return convert::to_served(self.resource, stored);
        };
        let served = match at {
            Some(at) => {
                let (key, revision, value) = (at.key.clone(), at.modified.0, at.value.clone());
                let version = ObjectVersion { key, revision, value };
                converter.serve_one(&self.target.resource, version).await?
            }
            None => converter.show(self.resource, &to_bytes(&stored)).await?,
        };
        self.leave_if_large(served.len()).await;
        tree(&served)
    }
    /// A tree of the request's version in the storage version.
    pub(super) async fn stored_tree(&self, served: Value) -> Result<Value, ApiError> {
        if !self.converts() {
            return Ok(served);
        }
        if let Some(converter) = self.inner.stored(self.resource) {
            let stored = converter.store(self.resource, &served).await?;
            self.leave_if_grown(&stored).await;
            return Ok(stored);
        }
        let catalog = self.inner.catalog.borrow().clone();
        let (group, version) = (&self.resource.gvk.group, &self.resource.storage_version);
        let storage = catalog.get(group, version, &self.resource.resource);
        convert::to_stored(self.resource, storage.map(|row| &**row), served)
    }
    /// The answer for bytes that are stored at `revision`.
    pub(super) async fn answer(
        &self,
        key: &Bytes,
        stored: &Bytes,
        revision: Revision,
    ) -> Result<Object, ApiError> {
        let Some(converter) = self.inner.served(self.resource) else {
            let bytes = convert::serve(self.resource, stored, revision.0)?;
            return Ok(Object { bytes });
        };
        let (key, value) = (key.clone(), stored.clone());
        let object = ObjectVersion { key, revision: revision.0, value };
        let served = converter.serve_one(&self.target.resource, object).await?;
        Ok(Object { bytes: encode::with_resource_version(&served, revision.0) })
    }
    /// The answer for bytes that are not stored, with the given revision.
    pub(super) async fn preview(
        &self,
        bytes: &Bytes,
        revision: Revision,
    ) -> Result<Object, ApiError> {
        let bytes = match self.inner.served(self.resource) {
            None => convert::serve(self.resource, bytes, revision.0)?,
            Some(converter) => {
                let shown = converter.show(self.resource, bytes).await?;
                encode::with_resource_version(&shown, revision.0)
            }
        };
        Ok(Object { bytes })
    }
}
