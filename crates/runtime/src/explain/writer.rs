//! The writers of an object's version.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::Deserialize;
use setpoint_informer::{Cacheable, Object};
use setpoint_object::Skim;

use crate::{cache::CacheLister, request::Request};

/// A writer of an object, from its `managedFields`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(default)]
#[derive(Default)]
#[non_exhaustive]
pub struct Writer {
    /// The field manager: `kubectl-client-side-apply`, a controller's name …
    pub manager: String,
    /// `Update` or `Apply`.
    pub operation: String,
    /// `status`, or empty for the object itself.
    pub subresource: String,
    /// The time in seconds: RFC 3339 as the server writes it.
    pub time: String,
}

impl fmt::Display for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.manager)?;
        match &*self.subresource {
            "" => write!(f, " ({})", self.operation),
            subresource => write!(f, " ({} of {subresource})", self.operation),
        }
    }
}

/// The object of an event, found in the cache at the same version.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) object: Request,
    pub(crate) writers: Vec<Writer>,
}

/// The objects of a cache at these versions. One walk; only these objects are decoded.
pub(crate) fn find_seen<K: Cacheable>(
    lister: &CacheLister<K>,
    versions: &BTreeSet<u64>,
) -> BTreeMap<u64, Seen> {
    let mut found = BTreeMap::new();
    for lister in lister.listers() {
        for object in lister.snapshot().iter() {
            let version = object.resource_version().parse().ok();
            if let Some(version) = version.filter(|version| versions.contains(version)) {
                let seen = Seen { object: object.key().clone(), writers: writers(&object) };
                found.insert(version, seen);
            }
        }
    }
    found
}

/// The newest entries: several if they wrote within one second, none without `managedFields`.
fn writers<K: Cacheable>(object: &Object<K>) -> Vec<Writer> {
    let mut all = match object.json() {
        Some(json) => {
            let skim = Skim::of(&json).unwrap_or_default();
            let entries = skim.managed_fields.and_then(|range| json.get(range));
            entries.and_then(|entries| serde_json::from_slice(entries).ok()).unwrap_or_default()
        }
        None => object.get().map(|object| typed(&*object)).unwrap_or_default(),
    };
    let newest = all.iter().map(|writer| &writer.time).max().cloned().unwrap_or_default();
    all.retain(|writer| writer.time == newest && !writer.manager.is_empty());
    all.sort();
    all
}

fn typed<K: kube_core::Resource>(object: &K) -> Vec<Writer> {
    let entries = object.meta().managed_fields.iter().flatten();
    entries
        .map(|entry| Writer {
            manager: entry.manager.clone().unwrap_or_default(),
            operation: entry.operation.clone().unwrap_or_default(),
            subresource: entry.subresource.clone().unwrap_or_default(),
            time: entry.time.as_ref().map(|time| time.0.to_string()).unwrap_or_default(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;
    use setpoint_informer::{CachePolicy, Record, ResourceType};

    use super::*;

    fn record(text: &str) -> Record {
        Record::from_item(text.as_bytes(), &ResourceType::of::<ConfigMap>(&())).unwrap()
    }

    #[test]
    fn newest_entries_name_the_writers_under_every_policy() {
        let entry = |manager: &str, time: &str| json!({"manager": manager, "operation": "Update", "time": time, "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {}}});
        let mut of_status = entry("kubelet", "2026-01-01T00:00:09Z");
        of_status["subresource"] = "status".into();
        let text = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "name": "a", "namespace": "b", "uid": "u", "resourceVersion": "7", "managedFields": [
            entry("old", "2026-01-01T00:00:08Z"), entry("new", "2026-01-01T00:00:09Z"), of_status,
        ]}});
        for policy in [CachePolicy::Compact, CachePolicy::Decoded] {
            let record = record(&text.to_string());
            let object = Object::<ConfigMap>::new(record, policy);
            let names: Vec<_> = writers(&object).iter().map(ToString::to_string).collect();
            assert_eq!(names, ["kubelet (Update of status)", "new (Update)"], "{policy:?}");
        }
    }

    #[test]
    fn object_without_managed_fields_has_no_writers() {
        let text = r#"{"metadata":{"name":"a","uid":"u","resourceVersion":"7"}}"#;
        let record = record(text);
        assert_eq!(writers(&Object::<ConfigMap>::new(record, CachePolicy::Compact)), []);
    }
}
