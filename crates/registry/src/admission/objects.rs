//! Other objects, as a plugin may read them.
use crate::catalog::Resource;
use crate::convert;
use crate::request::Object;
use crate::shared::Inner;
use crate::stored::store_error;
use setpoint_object::{ApiError, GroupVersionResource, keys};
use setpoint_store::{RangeRequest, Revision};
use std::ops::Bound;
use std::sync::Arc;

/// The most objects that a plugin is given at once.
///
/// 10,000: what a plugin looks through for every write should be few (classes, quotas, policies of
/// a namespace). Beyond it, a plugin needs an index of its own, fed by a watch.
pub const OBJECTS_MAX: usize = 10_000;

/// Other objects, read from the watch cache. One object is what it was a moment ago, and looked for
/// in the store when it is not in the cache. A list waits until the cache has what the store has.
/// So what was acknowledged before the request began is found.
#[derive(Debug, Clone, Copy)]
pub struct Objects<'a> {
    inner: &'a Inner,
}

impl<'a> Objects<'a> {
    pub(crate) fn new(inner: &'a Inner) -> Self {
        Self { inner }
    }
    /// An object, in the version asked for; `namespace` is empty for cluster scope.
    ///
    /// # Errors
    ///
    /// 404 when the resource is not served; what the store says.
    pub async fn get(
        &self,
        resource: &GroupVersionResource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Object>, ApiError> {
        let row = self.row(resource)?;
        let key = row.key(namespace, name);
        let found = match self.inner.recent(&row.storage_prefix, &key) {
            Some(found) => Some(found),
            None => self.inner.live(&key).await?,
        };
        found.map(|kv| shown(&row, &kv.value, kv.modified)).transpose()
    }
    /// The objects of a namespace, or all of them when it is empty, in key order.
    ///
    /// # Errors
    ///
    /// 404 when the resource is not served; 413 when there are more than [`OBJECTS_MAX`]; 504 when
    /// the cache stays behind for three seconds; what the store says.
    pub async fn list(
        &self,
        resource: &GroupVersionResource,
        namespace: &str,
    ) -> Result<Vec<Object>, ApiError> {
        let row = self.row(resource)?;
        let prefix = keys::collection(&row.storage_prefix, row.scope, namespace);
        if !self.inner.cache.reached().is_filled {
            let request = RangeRequest { limit: OBJECTS_MAX + 1, ..RangeRequest::prefix(prefix) };
            let entries = self.inner.store.range(request).await.map_err(store_error)?.value.entries;
            if entries.len() > OBJECTS_MAX {
                return Err(ApiError::too_large(OBJECTS_MAX));
            }
            return entries.iter().map(|kv| shown(&row, &kv.value, kv.modified)).collect();
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
            objects.push(shown(&row, &item.value, Revision(item.revision))?);
        }
        Ok(objects)
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
