//! Objects for the unit tests of this crate.
use crate::object::Object;
use crate::policy::CachePolicy;
use crate::record::Record;
use crate::resource_type::ResourceType;
use k8s_openapi::api::core::v1::ConfigMap;

/// A config map `ns/name` at a version; its uid is its name, its label `app` its first letter.
pub(crate) fn record(name: &str, resource_version: u64) -> Record {
    let app = &name[..1];
    let json = format!(
        r#"{{"metadata":{{"namespace":"ns","name":"{name}","uid":"u-{name}","resourceVersion":"{resource_version}","labels":{{"app":"{app}"}}}}}}"#
    );
    Record::from_item(json.as_bytes(), &ResourceType::of::<ConfigMap>(&())).unwrap()
}

/// The same as a cache under `Compact` holds it.
pub(crate) fn object(name: &str, resource_version: u64) -> Object<ConfigMap> {
    Object::new(record(name, resource_version), CachePolicy::Compact)
}
