//! The type that an informer watches.
use kube_core::Resource;
use setpoint_object::{GroupVersionKind, GroupVersionResource};
use std::fmt;
use std::sync::Arc;

/// The type that an informer watches: the kind, to check and complete objects, and the resource,
/// for messages.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ResourceType {
    /// Group, version and kind of the objects.
    pub kind: GroupVersionKind,
    /// Group, version and plural name of the resource.
    pub resource: GroupVersionResource,
    /// The `apiVersion` of objects.
    pub api_version: Arc<str>,
}

impl ResourceType {
    /// The type of `K`.
    pub fn of<K: Resource>(dynamic_type: &K::DynamicType) -> Self {
        Self {
            kind: GroupVersionKind::new(
                &*K::group(dynamic_type),
                &*K::version(dynamic_type),
                &*K::kind(dynamic_type),
            ),
            resource: GroupVersionResource::new(
                &*K::group(dynamic_type),
                &*K::version(dynamic_type),
                &*K::plural(dynamic_type),
            ),
            api_version: Arc::from(&*K::api_version(dynamic_type)),
        }
    }
}

/// Displays as `networks.samplecrd.k8s.io`, or `pods` in the core group.
impl fmt::Display for ResourceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.resource.resource)?;
        if !self.resource.group.is_empty() {
            write!(f, ".{}", self.resource.group)?;
        }
        Ok(())
    }
}
