//! Which object an event is about.

use kube_core::Resource;
use serde::Serialize;

/// Which object an event is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ObjectReference {
    /// `apps/v1`.
    pub api_version: String,
    /// `Deployment`.
    pub kind: String,
    /// Empty for a cluster-scoped object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The name.
    pub name: String,
    /// Which incarnation of the name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Which version of the object it was about.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// Which part of the object, if not all of it: `spec.containers{web}`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field_path: String,
}

impl ObjectReference {
    /// A reference to an object whose type is known at compile time.
    pub fn of<K: Resource>(object: &K) -> Self
    where
        K::DynamicType: Default,
    {
        Self::dynamic(object, &K::DynamicType::default())
    }

    /// A reference to an object whose type is known at run time.
    pub fn dynamic<K: Resource>(object: &K, dynamic_type: &K::DynamicType) -> Self {
        let meta = object.meta();
        Self {
            api_version: K::api_version(dynamic_type).into_owned(),
            kind: K::kind(dynamic_type).into_owned(),
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            field_path: String::new(),
        }
    }

    /// The same object, whichever version of it: the version an object has is no part of who it is.
    pub(super) fn identity(&self) -> Self {
        let mut identity = self.clone();
        identity.resource_version.clear();
        identity
    }

    /// Whether it names an object: an event about anything else cannot be written (EV-2).
    pub(super) fn is_resolved(&self) -> bool {
        !self.kind.is_empty() && !self.name.is_empty()
    }
}
