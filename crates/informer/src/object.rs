//! One cached object, whichever way the cache holds it.
use crate::delta::Keyed;
use crate::key::Key;
use crate::policy::CachePolicy;
use crate::record::Record;
use bytes::Bytes;
use kube_core::Resource;
use serde::de::DeserializeOwned;
use setpoint_object::Skim;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// A handle to one version of one object: cheap to clone, shared with every other reader, never changed (IDX-9).
///
/// What an enqueuing handler needs (key, uid, resourceVersion, labels, owners) costs no decode under any
/// [`CachePolicy`]; [`get`](Self::get) gives the typed object.
pub struct Object<K>(Arc<Inner<K>>);

struct Inner<K> {
    key: Key,
    uid: Box<str>,
    resource_version: Box<str>,
    body: Body<K>,
}

enum Body<K> {
    Encoded(Bytes),
    Decoded(Arc<K>),
}

/// An object whose JSON does not fit its Rust type.
#[derive(Debug, Clone, thiserror::Error)]
#[error("decode {kind} {key} at resourceVersion {resource_version}")]
#[non_exhaustive]
pub struct DecodeError {
    /// Which object.
    pub key: Key,
    /// The name of the Rust type.
    pub kind: &'static str,
    /// Which version of it.
    pub resource_version: String,
    /// What the decoder says.
    #[source]
    pub source: Arc<serde_json::Error>,
}

impl<K: Send + Sync + 'static> Keyed for Object<K> {
    fn key(&self) -> &Key {
        self.key()
    }

    fn resource_version(&self) -> &str {
        self.resource_version()
    }
}

impl<K> Object<K> {
    /// Namespace and name.
    pub fn key(&self) -> &Key {
        &self.0.key
    }

    /// The namespace; empty for a cluster-scoped object.
    pub fn namespace(&self) -> &str {
        &self.0.key.namespace
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.0.key.name
    }

    /// `metadata.uid`: which incarnation of the name this is (HWC-8). Empty when the server sent none.
    pub fn uid(&self) -> &str {
        &self.0.uid
    }

    /// `metadata.resourceVersion`; empty when the server sent none.
    pub fn resource_version(&self) -> &str {
        &self.0.resource_version
    }

    /// The object's JSON, when the cache keeps it: under `Compact`, or when it could not be decoded.
    pub fn bytes(&self) -> Option<&Bytes> {
        match &self.0.body {
            Body::Encoded(bytes) => Some(bytes),
            Body::Decoded(_) => None,
        }
    }

    /// Whether two handles are to the same cached value.
    pub fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<K: DeserializeOwned> Object<K> {
    /// The typed object. Under `Compact` this decodes anew at each call; under `Decoded` it counts a reference.
    ///
    /// # Errors
    /// When the object does not fit `K`.
    pub fn get(&self) -> Result<Arc<K>, DecodeError> {
        match &self.0.body {
            Body::Decoded(object) => Ok(object.clone()),
            Body::Encoded(bytes) => match crate::decode::from_slice(bytes) {
                Ok(object) => Ok(Arc::new(object)),
                Err(source) => Err(DecodeError {
                    key: self.0.key.clone(),
                    kind: std::any::type_name::<K>(),
                    resource_version: self.0.resource_version.to_string(),
                    source: Arc::new(source),
                }),
            },
        }
    }

    /// Makes the cached form of an object, as a cache under `policy` holds it.
    pub fn new(record: Record, policy: CachePolicy) -> Self {
        let Record { key, uid, resource_version, bytes } = record;
        let body = match policy {
            CachePolicy::Compact => Body::Encoded(bytes),
            CachePolicy::Decoded => match crate::decode::from_slice(&bytes) {
                Ok(object) => Body::Decoded(Arc::new(object)),
                Err(_) => Body::Encoded(bytes),
            },
        };
        Self(Arc::new(Inner { key, uid, resource_version, body }))
    }
}

impl<K: Resource> Object<K> {
    /// The object's metadata, without decoding it.
    ///
    /// Under `Decoded` it is borrowed from the value: `api_version`, `kind`, the timestamps and `managed_fields` are then
    /// left empty, except `deletion_timestamp`, which is non-empty when set.
    pub fn skim(&self) -> Skim<'_> {
        match &self.0.body {
            // Bytes enter a cache by a skim, so they skim again.
            Body::Encoded(bytes) => Skim::of(bytes).unwrap_or_default(),
            Body::Decoded(object) => skim_of(object.meta()),
        }
    }

    /// The value of one label.
    pub fn label(&self, key: &str) -> Option<Cow<'_, str>> {
        match &self.0.body {
            Body::Encoded(_) => {
                self.skim().labels.into_iter().find(|(label, _)| label == key).map(|(_, v)| v)
            }
            Body::Decoded(object) => {
                let labels = object.meta().labels.as_ref()?;
                labels.get(key).map(|value| Cow::Borrowed(value.as_str()))
            }
        }
    }
}

fn skim_of(meta: &kube_core::ObjectMeta) -> Skim<'_> {
    fn text(value: &Option<String>) -> Cow<'_, str> {
        Cow::Borrowed(value.as_deref().unwrap_or_default())
    }
    fn pairs(
        map: &Option<std::collections::BTreeMap<String, String>>,
    ) -> Vec<(Cow<'_, str>, Cow<'_, str>)> {
        map.iter().flatten().map(|(k, v)| (Cow::from(k.as_str()), Cow::from(v.as_str()))).collect()
    }
    let mut skim = Skim::default();
    skim.name = text(&meta.name);
    skim.namespace = text(&meta.namespace);
    skim.uid = text(&meta.uid);
    skim.resource_version = text(&meta.resource_version);
    skim.generation = meta.generation.unwrap_or_default();
    skim.deletion_timestamp = meta
        .deletion_timestamp
        .as_ref()
        .map(|time| Cow::from(time.0.to_string()))
        .unwrap_or_default();
    skim.labels = pairs(&meta.labels);
    skim.annotations = pairs(&meta.annotations);
    skim.finalizers =
        meta.finalizers.iter().flatten().map(|name| Cow::from(name.as_str())).collect();
    skim.owner_references = meta
        .owner_references
        .iter()
        .flatten()
        .map(|owner| setpoint_object::skim::OwnerReference {
            api_version: Cow::from(owner.api_version.as_str()),
            kind: Cow::from(owner.kind.as_str()),
            name: Cow::from(owner.name.as_str()),
            uid: Cow::from(owner.uid.as_str()),
            controller: owner.controller.unwrap_or_default(),
            block_owner_deletion: owner.block_owner_deletion.unwrap_or_default(),
        })
        .collect();
    skim
}

impl<K> Clone for Object<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// Key and resourceVersion: enough to tell versions apart in logs.
impl<K> fmt::Debug for Object<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.0.key, self.0.resource_version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource_type::ResourceType;
    use crate::testing::record;
    use k8s_openapi::api::core::v1::{ConfigMap, Pod};

    #[test]
    fn every_policy_gives_the_same_answers() {
        let json = br#"{"metadata":{"namespace":"ns","name":"a","uid":"u","resourceVersion":"3","generation":2,
            "labels":{"app":"x"},"finalizers":["f"],"deletionTimestamp":"2026-01-01T00:00:00Z",
            "ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"pu","controller":true}]},"data":{"k":"v"}}"#;
        let record = Record::from_item(json, &ResourceType::of::<ConfigMap>(&())).unwrap();
        let compact: Object<ConfigMap> = Object::new(record.clone(), CachePolicy::Compact);
        let decoded: Object<ConfigMap> = Object::new(record, CachePolicy::Decoded);
        assert_eq!(compact.get().unwrap(), decoded.get().unwrap());
        assert_eq!(compact.label("app"), decoded.label("app"));
        let (a, b) = (compact.skim(), decoded.skim());
        assert_eq!(a.owner_references, b.owner_references);
        assert_eq!(
            (a.generation, &a.finalizers, &a.labels),
            (b.generation, &b.finalizers, &b.labels)
        );
        assert_eq!(a.deletion_timestamp, b.deletion_timestamp);
        assert!(compact.bytes().is_some() && decoded.bytes().is_none());
        assert!(Arc::ptr_eq(&decoded.get().unwrap(), &decoded.get().unwrap()));
    }

    #[test]
    fn an_object_that_does_not_fit_says_which_and_why() {
        let json = br#"{"metadata":{"namespace":"ns","name":"a","resourceVersion":"3"},"spec":7}"#;
        let record = Record::from_item(json, &ResourceType::of::<Pod>(&())).unwrap();
        for policy in [CachePolicy::Compact, CachePolicy::Decoded] {
            let object: Object<Pod> = Object::new(record.clone(), policy);
            let error = object.get().unwrap_err();
            assert!(error.to_string().ends_with("Pod ns/a at resourceVersion 3"), "{error}");
            assert_eq!(object.bytes(), Some(&record.bytes));
        }
    }

    #[test]
    fn debug_tells_versions_apart() {
        let object: Object<ConfigMap> = Object::new(record("a", 7), CachePolicy::Compact);
        assert_eq!(format!("{object:?}"), "ns/a@7");
    }
}
