//! Claims, volumes and classes as the binder sees them.

use super::{BIND_COMPLETED, BOUND_BY_CONTROLLER, PROVISIONED_BY, PROVISIONER, matching};
use crate::workload::view::view;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::storage::v1 as storage;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use setpoint_runtime::{BoxError, Request};

/// The annotation that named a class before there was a field.
const CLASS: &str = "volume.beta.kubernetes.io/storage-class";

view! {
    /// A PersistentVolumeClaim.
    Claim of core::PersistentVolumeClaim {
        /// The desired state, as JSON.
        spec: Value,
        /// What is, as JSON.
        status: Value,
    }
}

view! {
    /// A PersistentVolume.
    Volume of core::PersistentVolume {
        /// The desired state, as JSON.
        spec: Value,
        /// What is, as JSON.
        status: Value,
    }
}

view! {
    /// A StorageClass.
    Class of storage::StorageClass {
        /// Who makes its volumes.
        provisioner: String,
        /// What becomes of a volume without its claim.
        reclaim_policy: Option<String>,
        /// When a claim is bound.
        volume_binding_mode: Option<String>,
        /// Options of its volumes.
        mount_options: Vec<String>,
    }
}

pub(super) fn annotation<'a>(metadata: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

impl Claim {
    pub(super) fn key(&self) -> Request {
        Request::new(self.namespace(), self.name())
    }

    /// The name of its volume; empty if it has none.
    pub(super) fn volume(&self) -> &str {
        self.spec["volumeName"].as_str().unwrap_or_default()
    }

    pub(super) fn class(&self) -> &str {
        matching::class(annotation(&self.metadata, CLASS), &self.spec)
    }

    pub(super) fn is_bound(&self) -> bool {
        annotation(&self.metadata, BIND_COMPLETED).is_some()
    }
}

impl Class {
    /// Whether its claims wait for their first consumer.
    pub(super) fn waits(&self) -> bool {
        self.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
    }
}

impl Volume {
    /// Whether the binder has made it.
    pub(super) fn is_simulated(&self) -> bool {
        annotation(&self.metadata, PROVISIONED_BY) == Some(PROVISIONER)
    }

    pub(super) fn key(&self) -> Request {
        Request::cluster(self.name())
    }

    pub(super) fn class(&self) -> &str {
        matching::class(annotation(&self.metadata, CLASS), &self.spec)
    }

    pub(super) fn phase(&self) -> &str {
        self.status["phase"].as_str().unwrap_or_default()
    }

    /// The claim that it is bound to or reserved for.
    pub(super) fn claim(&self) -> Option<Request> {
        let reference = &self.spec["claimRef"];
        Some(Request::new(reference["namespace"].as_str()?, reference["name"].as_str()?))
    }
}

/// The function of the index by claim.
pub(super) fn by_claim(volume: &Volume) -> Vec<String> {
    volume.claim().iter().map(claim_key).collect()
}

/// The function of the index by volume.
pub(super) fn by_volume(claim: &Claim) -> Vec<String> {
    Some(claim.volume().to_owned()).filter(|volume| !volume.is_empty()).into_iter().collect()
}

pub(super) fn claim_key(claim: &Request) -> String {
    format!("{}/{}", claim.namespace, claim.name)
}

/// The version that a patch is for.
pub(super) fn version(metadata: &ObjectMeta) -> Value {
    json!({"uid": metadata.uid, "resourceVersion": metadata.resource_version})
}

/// Whether a claim names a class, or the empty one.
pub(super) fn has_class(claim: &Claim) -> bool {
    annotation(&claim.metadata, CLASS).is_some() || !claim.spec["storageClassName"].is_null()
}

/// A volume for a claim, without storage.
pub(super) fn simulated(claim: &Claim, class: &Class) -> Result<core::PersistentVolume, BoxError> {
    let name = format!("pvc-{}", claim.uid());
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {
            "name": name, "annotations": {BOUND_BY_CONTROLLER: "yes", PROVISIONED_BY: PROVISIONER},
        },
        "spec": {
            "accessModes": claim.spec["accessModes"],
            "capacity": {"storage": claim.spec["resources"]["requests"]["storage"]},
            "volumeMode": claim.spec["volumeMode"],
            "volumeAttributesClassName": claim.spec["volumeAttributesClassName"],
            "storageClassName": claim.class(),
            "persistentVolumeReclaimPolicy": class.reclaim_policy.as_deref().unwrap_or("Delete"),
            "mountOptions": class.mount_options,
            "csi": {"driver": "volumes.setpoint.dev", "volumeHandle": name},
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": claim.name(),
                "namespace": claim.namespace(), "uid": claim.uid(),
                "resourceVersion": claim.metadata.resource_version,
            },
        },
    });
    Ok(serde_json::from_value(volume)?)
}
