//! Objects that plugins read for many writes (namespaces, accounts, classes), decoded once per
//! version.

use crate::catalog::Resource;
use bytes::Bytes;
use lru::LruCache;
use parking_lot::Mutex;
use serde_json::Value;
use setpoint_object::bounded;
use std::sync::Arc;

/// Maximum number of objects.
const OBJECTS_MAX: usize = 512;
/// Maximum encoded size of an object that is remembered. A tree takes some six times as much: with
/// this, at most 12 MiB in sum.
const BYTES_MAX: usize = 4096;

/// Decoded objects by their keys, those that were used last.
#[derive(Debug)]
pub(crate) struct Decoded(Mutex<LruCache<Bytes, Entry>>);

#[derive(Debug)]
struct Entry {
    revision: u64,
    /// The version it is decoded as.
    version: Arc<str>,
    object: Arc<Value>,
}

impl Decoded {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(bounded::lru(OBJECTS_MAX)))
    }

    /// The object with this key as it was at a revision, in the row's version. `decode` is called
    /// if it is not remembered.
    pub(super) fn get<E>(
        &self,
        row: &Resource,
        key: &Bytes,
        revision: u64,
        n_bytes: usize,
        decode: impl FnOnce() -> Result<Value, E>,
    ) -> Result<Arc<Value>, E> {
        let is_same =
            |entry: &&Entry| entry.revision == revision && *entry.version == *row.gvk.version;
        if let Some(entry) = self.0.lock().get(key).filter(is_same) {
            return Ok(entry.object.clone());
        }
        let object = Arc::new(decode()?);
        if n_bytes <= BYTES_MAX {
            let version = row.gvk.version.clone();
            let entry = Entry { revision, version, object: object.clone() };
            // The former one is dropped without the lock.
            let former = self.0.lock().push(key.clone(), entry);
            drop(former);
        }
        Ok(object)
    }
}

#[cfg(test)]
mod tests {
    use crate::admission::Objects;
    use crate::testing::Bench;
    use serde_json::json;
    use setpoint_object::GroupVersionResource;
    use std::sync::Arc;

    #[tokio::test(start_paused = true)]
    async fn an_object_is_decoded_again_after_a_change_only() {
        let bench = Bench::new().await;
        let resource = GroupVersionResource::new("", "v1", "serviceaccounts");
        let key = "serviceaccounts/default/robot";
        let account = |mounts: bool| {
            json!({"kind": "ServiceAccount", "apiVersion": "v1",
            "metadata": {"name": "robot", "namespace": "default"},
            "automountServiceAccountToken": mounts})
        };
        let ask = async || {
            let objects = Objects::new(bench.inner());
            let one = objects.tree(&resource, "default", "robot").await.unwrap().unwrap();
            let all = objects.trees(&resource, "default").await.unwrap();
            assert!(Arc::ptr_eq(&one, &all[0]), "get and list share it");
            one
        };
        bench.put(key, &account(true)).await;
        bench.settle().await;
        let (first, second) = (ask().await, ask().await);
        assert!(Arc::ptr_eq(&first, &second));
        assert_eq!(first["automountServiceAccountToken"], true);
        bench.put(key, &account(false)).await;
        let revision = bench.settle().await;
        let changed = ask().await;
        assert_eq!(changed["automountServiceAccountToken"], false);
        assert_eq!(changed["metadata"]["resourceVersion"], revision.to_string());
        let text = "x".repeat(super::BYTES_MAX);
        let long = json!({
            "kind": "ServiceAccount", "apiVersion": "v1",
            "metadata": {"name": "long", "namespace": "default", "annotations": {"text": text}},
        });
        bench.put("serviceaccounts/default/long", &long).await;
        bench.settle().await;
        let long = async || {
            Objects::new(bench.inner()).tree(&resource, "default", "long").await.unwrap().unwrap()
        };
        assert!(!Arc::ptr_eq(&long().await, &long().await), "long ones are not remembered");
        bench.delete(key).await;
        bench.settle().await;
        let gone = Objects::new(bench.inner()).tree(&resource, "default", "robot").await.unwrap();
        assert_eq!(gone, None);
    }
}
