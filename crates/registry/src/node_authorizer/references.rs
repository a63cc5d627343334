//! The objects that a pod and a volume name.
use super::graph::{Kind, Name};
use crate::kind::{list, text};
use serde_json::Value;
use setpoint_object::meta::ObjectExt;
use std::collections::{BTreeSet, HashMap};

/// The annotation of a mirror pod.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Sources of volumes in pods whose secret is a member: its path below the source.
const POD_SECRETS: [(&str, &str); 10] = [
    ("azureFile", "/secretName"),
    ("cephfs", "/secretRef/name"),
    ("cinder", "/secretRef/name"),
    ("csi", "/nodePublishSecretRef/name"),
    ("flexVolume", "/secretRef/name"),
    ("iscsi", "/secretRef/name"),
    ("rbd", "/secretRef/name"),
    ("scaleIO", "/secretRef/name"),
    ("secret", "/secretName"),
    ("storageos", "/secretRef/name"),
];

/// Sources of volumes whose secret is in the namespace of the claim, unless it names another one:
/// the secret's name and namespace.
const VOLUME_SECRETS: [(&str, &str, &str); 11] = [
    ("azureFile", "/secretName", "/secretNamespace"),
    ("cephfs", "/secretRef/name", "/secretRef/namespace"),
    ("cinder", "/secretRef/name", "/secretRef/namespace"),
    ("flexVolume", "/secretRef/name", "/secretRef/namespace"),
    ("iscsi", "/secretRef/name", "/secretRef/namespace"),
    ("rbd", "/secretRef/name", "/secretRef/namespace"),
    ("scaleIO", "/secretRef/name", "/secretRef/namespace"),
    ("storageos", "/secretRef/name", "/secretRef/namespace"),
    ("csi", "/nodePublishSecretRef/name", "/nodePublishSecretRef/namespace"),
    ("csi", "/nodeStageSecretRef/name", "/nodeStageSecretRef/namespace"),
    ("csi", "/nodeExpandSecretRef/name", "/nodeExpandSecretRef/namespace"),
];
/// Those that must name the namespace.
const OWN_NAMESPACE: [&str; 3] = ["cinder", "csi", "storageos"];

/// What a pod names, itself included. A mirror pod gives access to itself only, because agents
/// make mirror pods.
pub(super) fn of_pod(pod: &Value) -> BTreeSet<(Kind, Box<str>)> {
    let mut found = BTreeSet::from([(Kind::Pod, Box::from(pod.name()))]);
    if pod["metadata"]["annotations"].get(MIRROR).is_some() {
        return found;
    }
    let mut add = |kind, name: &str| {
        if !name.is_empty() {
            found.insert((kind, Box::from(name)));
        }
    };
    let spec = &pod["spec"];
    add(Kind::ServiceAccount, text(spec, "serviceAccountName"));
    for pull_secret in list(spec, "imagePullSecrets") {
        add(Kind::Secret, text(pull_secret, "name"));
    }
    for member in ["initContainers", "containers", "ephemeralContainers"] {
        for container in list(spec, member) {
            for from in list(container, "envFrom") {
                add(Kind::Secret, text(&from["secretRef"], "name"));
                add(Kind::ConfigMap, text(&from["configMapRef"], "name"));
            }
            for variable in list(container, "env") {
                let from = &variable["valueFrom"];
                add(Kind::Secret, text(&from["secretKeyRef"], "name"));
                add(Kind::ConfigMap, text(&from["configMapKeyRef"], "name"));
            }
        }
    }
    for volume in list(spec, "volumes") {
        for (source, member) in POD_SECRETS {
            let name = volume.get(source).and_then(|source| source.pointer(member));
            add(Kind::Secret, name.and_then(Value::as_str).unwrap_or_default());
        }
        add(Kind::ConfigMap, text(&volume["configMap"], "name"));
        for projected in list(&volume["projected"], "sources") {
            add(Kind::Secret, text(&projected["secret"], "name"));
            add(Kind::ConfigMap, text(&projected["configMap"], "name"));
        }
        add(Kind::Claim, text(&volume["persistentVolumeClaim"], "claimName"));
        if volume.get("ephemeral").is_some_and(Value::is_object) {
            add(Kind::Claim, &format!("{}-{}", pod.name(), text(volume, "name")));
        }
    }
    let status = &pod["status"];
    // The first of a name counts.
    let mut made = HashMap::new();
    for claim in list(status, "resourceClaimStatuses") {
        made.entry(text(claim, "name")).or_insert_with(|| text(claim, "resourceClaimName"));
    }
    for claim in list(spec, "resourceClaims") {
        match text(claim, "resourceClaimName") {
            "" => {
                // Made from a template: its name is in the status, once it is made.
                add(Kind::ResourceClaim, made.get(text(claim, "name")).copied().unwrap_or(""));
            }
            name => add(Kind::ResourceClaim, name),
        }
    }
    let extended = &status["extendedResourceClaimStatus"];
    add(Kind::ResourceClaim, text(extended, "resourceClaimName"));
    found
}

/// The secrets that an agent needs for a volume that is bound to a claim in `namespace`.
pub(super) fn of_volume(volume: &Value, namespace: &str) -> BTreeSet<Name> {
    let mut found = BTreeSet::new();
    for (kind, name, own) in VOLUME_SECRETS {
        let Some(source) = volume["spec"].get(kind).filter(|source| source.is_object()) else {
            continue;
        };
        let text = |pointer| source.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let own = match text(own) {
            "" if !OWN_NAMESPACE.contains(&kind) => namespace,
            own => own,
        };
        if !text(name).is_empty() {
            found.insert((own.into(), text(name).into()));
        }
    }
    found
}
