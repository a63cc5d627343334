//! Access of plugins to other objects.
use crate::catalog::Resource;
use crate::convert;
use crate::request::Object;
use crate::shared::Inner;
use crate::stored::{store_error, tree};
use bytes::Bytes;
use serde_json::Value;
use setpoint_object::{ApiError, GroupVersionResource, keys};
use setpoint_store::{KeyValue, RangeRequest, Revision};
use std::ops::Bound;
use std::sync::Arc;

/// Maximum number of objects per list of a plugin.
///
/// 10,000: a plugin should look through few objects per write (classes, quotas, policies of a
/// namespace). Beyond it, a plugin needs an index of its own, fed by a watch.
pub const OBJECTS_MAX: usize = 10_000;

/// Other objects, read from the watch cache. A get may return a slightly older state, and reads the
/// store if the cache has no entry. A list waits until the cache has reached the store's revision.
/// So objects that were acknowledged before the request began are found.
#[derive(Debug, Clone, Copy)]
pub struct Objects<'a> {
    inner: &'a Inner,
}

impl<'a> Objects<'a> {
    pub(crate) fn new(inner: &'a Inner) -> Self {
        Self { inner }
    }
    /// An object in the given version; `namespace` is empty for cluster scope.
    ///
    /// # Errors
    ///
    /// 404 if the resource is not served; errors of the store.
    pub async fn get(
        &self,
        resource: &GroupVersionResource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Object>, ApiError> {
        let row = self.row(resource)?;
        let found = self.find(&row, namespace, name).await?;
        found.map(|kv| shown(&row, &kv.value, kv.modified)).transpose()
    }
    /// As [`get`](Self::get), decoded. One that has not changed since it was last asked for is not
    /// decoded again.
    pub(super) async fn tree(
        &self,
        resource: &GroupVersionResource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<Value>>, ApiError> {
        let row = self.row(resource)?;
        let found = self.find(&row, namespace, name).await?;
        found.map(|kv| self.decoded(&row, &kv.key, &kv.value, kv.modified)).transpose()
    }
    /// An object in the given version, if the watch cache has it. Never reads the store, so that
    /// requests of unknown users cost it nothing.
    ///
    /// # Errors
    ///
    /// 404 if the resource is not served.
    pub fn cached(
        &self,
        resource: &GroupVersionResource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Object>, ApiError> {
        let row = self.row(resource)?;
        let found = self.inner.recent(&row.storage_prefix, &row.key(namespace, name));
        found.map(|kv| shown(&row, &kv.value, kv.modified)).transpose()
    }
    /// The objects of a namespace, or all of them if it is empty, in key order.
    ///
    /// # Errors
    ///
    /// 404 if the resource is not served; 413 if there are more than [`OBJECTS_MAX`]; 504 if the
    /// cache is behind for three seconds; errors of the store.
    pub async fn list(
        &self,
        resource: &GroupVersionResource,
        namespace: &str,
    ) -> Result<Vec<Object>, ApiError> {
        let row = self.row(resource)?;
        self.each(&row, namespace, |_, value, modified| shown(&row, value, modified)).await
    }
    /// As [`list`](Self::list), decoded. Those that have not changed since they were last asked for
    /// are not decoded again.
    pub(super) async fn trees(
        &self,
        resource: &GroupVersionResource,
        namespace: &str,
    ) -> Result<Vec<Arc<Value>>, ApiError> {
        let row = self.row(resource)?;
        self.each(&row, namespace, |key, value, modified| self.decoded(&row, key, value, modified))
            .await
    }

    async fn find(
        &self,
        row: &Resource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<KeyValue>, ApiError> {
        let key = row.key(namespace, name);
        match self.inner.recent(&row.storage_prefix, &key) {
            Some(found) => Ok(Some(found)),
            None => self.inner.live(&key).await,
        }
    }

    /// Calls a function with the key, the stored bytes and the revision of each object.
    async fn each<T>(
        &self,
        row: &Resource,
        namespace: &str,
        take: impl Fn(&Bytes, &[u8], Revision) -> Result<T, ApiError>,
    ) -> Result<Vec<T>, ApiError> {
        let prefix = keys::collection(&row.storage_prefix, row.scope, namespace);
        if !self.inner.cache.reached().is_filled {
            let request = RangeRequest { limit: OBJECTS_MAX + 1, ..RangeRequest::prefix(prefix) };
            let entries = self.inner.store.range(request).await.map_err(store_error)?.value.entries;
            if entries.len() > OBJECTS_MAX {
                return Err(ApiError::too_large(OBJECTS_MAX));
            }
            return entries.iter().map(|kv| take(&kv.key, &kv.value, kv.modified)).collect();
        }
        let revision = self.inner.store.revision().await.map_err(store_error)?;
        self.inner.cache.wait_fresh(revision.0).await?;
        let (index, _) = self.inner.cache.resource(&row.storage_prefix).snapshot();
        let items = index.range(Bound::Included(&prefix[..]), Bound::Unbounded);
        let mut objects = Vec::new();
        for item in items.take_while(|item| item.key.starts_with(&prefix)) {
            if objects.len() == OBJECTS_MAX {
                return Err(ApiError::too_large(OBJECTS_MAX));
            }
            objects.push(take(&item.key, &item.value, Revision(item.revision))?);
        }
        Ok(objects)
    }

    fn decoded(
        &self,
        row: &Resource,
        key: &Bytes,
        stored: &[u8],
        modified: Revision,
    ) -> Result<Arc<Value>, ApiError> {
        let decode = || tree(&shown(row, stored, modified)?.bytes);
        self.inner.admission.decoded.get(row, key, modified.0, stored.len(), decode)
    }

    fn row(&self, resource: &GroupVersionResource) -> Result<Arc<Resource>, ApiError> {
        let catalog = self.inner.catalog.borrow();
        let row = catalog.get(&resource.group, &resource.version, &resource.resource);
        row.cloned().ok_or_else(ApiError::no_route)
    }
}
/// A stored object in the row's version.
fn shown(row: &Resource, stored: &[u8], modified: Revision) -> Result<Object, ApiError> {
    Ok(Object { bytes: convert::serve(row, stored, modified.0)? })
}
