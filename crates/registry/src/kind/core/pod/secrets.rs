//! Which pods refer to secrets.
use serde_json::{Map, Value};

/// Volume sources and their members that name a secret.
const VOLUMES: [(&str, &str); 10] = [
    ("azureFile", "secretName"),
    ("cephfs", "secretRef"),
    ("cinder", "secretRef"),
    ("csi", "nodePublishSecretRef"),
    ("flexVolume", "secretRef"),
    ("iscsi", "secretRef"),
    ("rbd", "secretRef"),
    ("scaleIO", "secretRef"),
    ("secret", "secretName"),
    ("storageos", "secretRef"),
];

/// Whether a pod's spec refers to a secret: to pull images, in variables, or as a volume.
pub(crate) fn refers_to_secrets(spec: &Map<String, Value>) -> bool {
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    !list(spec.get("imagePullSecrets")).is_empty()
        || lists.iter().flat_map(|name| list(spec.get(*name))).any(container)
        || list(spec.get("volumes")).iter().any(volume)
}
fn container(container: &Value) -> bool {
    let from = list(container.get("envFrom")).iter().any(|source| is_set(source.get("secretRef")));
    from || list(container.get("env")).iter().any(|variable| {
        variable.get("valueFrom").is_some_and(|source| is_set(source.get("secretKeyRef")))
    })
}
fn volume(volume: &Value) -> bool {
    let named = |(source, member): &(&str, &str)| {
        volume.get(source).is_some_and(|source| is_set(source.get(member)))
    };
    let projected = volume.get("projected").and_then(|projected| projected.get("sources"));
    VOLUMES.iter().any(named) || list(projected).iter().any(|source| is_set(source.get("secret")))
}
fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
fn is_set(value: Option<&Value>) -> bool {
    value.is_some_and(|value| !value.is_null())
}
