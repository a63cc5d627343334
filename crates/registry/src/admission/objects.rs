//! Access of plugins to other objects.
use crate::catalog::Resource;
use crate::convert;
use crate::request::Object;
use crate::shared::Inner;
use crate::stored::{store_error, tree};
use crate::threads::ServingThread;
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
///
/// A write that reads large objects, or many, goes on where it may compute.
#[derive(Debug, Clone, Copy)]
pub struct Objects<'a> {
    inner: &'a Inner,
    /// That of the write that reads them.
    thread: Option<&'a ServingThread>,
}

/// Key, stored bytes and revision of an object.
type Stored = (Bytes, Bytes, Revision);

impl<'a> Objects<'a> {
    pub(crate) fn new(inner: &'a Inner) -> Self {
        Self { inner, thread: None }
    }
    /// For a write.
    pub(crate) fn of_write(inner: &'a Inner, thread: &'a ServingThread) -> Self {
        Self { inner, thread: Some(thread) }
    }
    /// Work on so many bytes follows.
    async fn leave_if_long(&self, n_bytes: usize) {
        if let Some(thread) = self.thread {
            thread.leave_if_long(n_bytes).await;
        }
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
        let all = self.all(&row, namespace).await?;
        all.iter().map(|(_, value, modified)| shown(&row, value, *modified)).collect()
    }
    /// As [`list`](Self::list), decoded. Those that have not changed since they were last asked for
    /// are not decoded again.
    pub(super) async fn trees(
        &self,
        resource: &GroupVersionResource,
        namespace: &str,
    ) -> Result<Vec<Arc<Value>>, ApiError> {
        let row = self.row(resource)?;
        let all = self.all(&row, namespace).await?;
        all.iter().map(|(key, value, at)| self.decoded(&row, key, value, *at)).collect()
    }

    async fn find(
        &self,
        row: &Resource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<KeyValue>, ApiError> {
        let key = row.key(namespace, name);
        let found = match self.inner.recent(&row.storage_prefix, &key) {
            Some(found) => Some(found),
            None => self.inner.live(&key).await?,
        };
        self.leave_if_long(found.as_ref().map_or(0, |kv| kv.value.len())).await;
        Ok(found)
    }

    /// All objects of a namespace, as they are stored.
    async fn all(&self, row: &Resource, namespace: &str) -> Result<Vec<Stored>, ApiError> {
        let prefix = keys::collection(&row.storage_prefix, row.scope, namespace);
        if !self.inner.cache.reached().is_filled {
            let request = RangeRequest { limit: OBJECTS_MAX + 1, ..RangeRequest::prefix(prefix) };
            let entries = self.inner.store.range(request).await.map_err(store_error)?.value.entries;
            if entries.len() > OBJECTS_MAX {
                return Err(ApiError::too_large(OBJECTS_MAX));
            }
            self.leave_if_long(entries.iter().map(|kv| kv.value.len()).sum()).await;
            return Ok(entries.into_iter().map(|kv| (kv.key, kv.value, kv.modified)).collect());
        }
        let revision = self.inner.store.revision().await.map_err(store_error)?;
        self.inner.cache.wait_fresh(revision.0).await?;
        let (index, _) = self.inner.cache.resource(&row.storage_prefix).snapshot();
        let items = index.range(Bound::Included(&prefix[..]), Bound::Unbounded);
        let items = items.take_while(|item| item.key.starts_with(&prefix)).take(OBJECTS_MAX + 1);
        let stored: Vec<Stored> = items
            .map(|item| (item.key.clone(), item.value.clone(), Revision(item.revision)))
            .collect();
        if stored.len() > OBJECTS_MAX {
            return Err(ApiError::too_large(OBJECTS_MAX));
        }
        self.leave_if_long(stored.iter().map(|(_, value, _)| value.len()).sum()).await;
        Ok(stored)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, config_map};
    use crate::threads::Threads;
    use serde_json::json;
    use setpoint_schema::INLINE_BYTES_MAX;

    #[tokio::test]
    async fn a_write_that_reads_many_bytes_leaves_the_serving_thread() {
        let bench = Bench::new().await;
        let one = config_map("one", json!({}), &"x".repeat(INLINE_BYTES_MAX / 2));
        bench.put("configmaps/default/one", &one).await;
        bench.settle().await;
        let threads = Threads::new(false);
        let resource = GroupVersionResource::new("", "v1", "configmaps");
        let here = std::thread::current().id();
        let read = async |name: Option<&'static str>| {
            let (registry, resource) = (bench.registry.clone(), resource.clone());
            let thread = Arc::new(ServingThread::new());
            let write = {
                let thread = thread.clone();
                async move {
                    let objects = Objects::of_write(&registry.inner, &thread);
                    match name {
                        Some(name) => drop(objects.get(&resource, "default", name).await.unwrap()),
                        None => drop(objects.list(&resource, "default").await.unwrap()),
                    }
                    std::thread::current().id()
                }
            };
            threads.run_from_here(&thread, Box::pin(write)).await.unwrap() != here
        };
        assert!(!read(None).await);
        bench.put("configmaps/default/two", &one).await;
        let long = config_map("long", json!({}), &"x".repeat(INLINE_BYTES_MAX));
        bench.put("configmaps/other/long", &long).await;
        bench.settle().await;
        assert!(read(None).await);
        assert!(!read(Some("two")).await);
        bench.put("configmaps/default/long", &long).await;
        bench.settle().await;
        assert!(read(Some("long")).await);
    }
}
