//! From an object to its owners' keys.

use std::sync::Arc;

use kube_core::Resource;
use setpoint_informer::Object;
use setpoint_object::{GroupKind, GroupVersion};

use crate::request::Request;

/// What an owner reference to a controller's type looks like: group and kind, whatever the version
/// (HND-1).
#[derive(Debug, Clone)]
pub(crate) struct Owner {
    pub(crate) kind: GroupKind,
    pub(crate) is_cluster_scoped: bool,
}

impl Owner {
    /// The keys of an object's owners of this kind, each once. None when one of its references
    /// cannot be read (HND-1).
    pub(crate) fn keys<K: Resource + 'static>(
        &self,
        object: &Object<K>,
        any_owner: bool,
    ) -> Vec<Request> {
        let mut keys = Vec::new();
        for reference in &object.skim().owner_references {
            let Some(owner) = GroupVersion::parse(&reference.api_version) else {
                tracing::warn!(
                    object = %object.key(),
                    api_version = %reference.api_version,
                    "an owner reference cannot be read: the object's owners are not told of it"
                );
                return Vec::new();
            };
            if owner.group == self.kind.group
                && reference.kind == *self.kind.kind
                && (any_owner || reference.controller)
            {
                let namespace = match self.is_cluster_scoped {
                    true => Arc::default(),
                    false => object.key().namespace.clone(),
                };
                let key = Request::new(namespace, &*reference.name);
                if !keys.contains(&key) {
                    keys.push(key);
                }
            }
        }
        keys
    }
}
