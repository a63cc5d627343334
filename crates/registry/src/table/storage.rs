//! Kinds that hold and provide volumes.

use super::cell::{self, NONE, UNSET, at, list, scalar, strings, text, text_or};
use serde_json::Value;
use setpoint_object::time::Timestamp;

/// The annotation that names a volume's or claim's class since before there was a field.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
/// Annotations that mark the default storage class.
const DEFAULT_CLASS: [&str; 2] = [
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];
const DEFAULT_ATTRIBUTES_CLASS: [&str; 1] =
    ["volumeattributesclass.alpha.kubernetes.io/is-default-class"];

fn annotation<'a>(object: &'a Value, key: &str) -> &'a str {
    at(object, "metadata.annotations").get(key).and_then(Value::as_str).unwrap_or_default()
}

fn class_name(object: &Value) -> Value {
    let class = match annotation(object, CLASS_ANNOTATION) {
        "" => text(object, "spec.storageClassName"),
        class => class,
    };
    class.into()
}

/// `RWO,ROX,RWX,RWOP`: those given, in this order.
fn access_modes(modes: &[Value]) -> String {
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let given = short.iter().filter(|(long, _)| modes.iter().any(|mode| mode == long));
    given.map(|(_, short)| *short).collect::<Vec<_>>().join(",")
}

fn phase(object: &Value) -> &str {
    if cell::deleting(object) { "Terminating" } else { text(object, "status.phase") }
}

pub(super) fn claim(object: &Value, now: Timestamp) -> Vec<Value> {
    let volume = text(object, "spec.volumeName");
    // What is bound shows what it got; what is not shows nothing yet.
    let (capacity, modes) = match volume {
        "" => (String::new(), String::new()),
        _ => (
            cell::scalar(object, "status.capacity.storage").into_owned(),
            access_modes(list(object, "status.accessModes")),
        ),
    };
    vec![
        cell::name(object),
        phase(object).into(),
        volume.into(),
        capacity.into(),
        modes.into(),
        class_name(object),
        text_or(object, "spec.volumeAttributesClassName", UNSET).into(),
        cell::age(object, now),
        text_or(object, "spec.volumeMode", UNSET).into(),
    ]
}

pub(super) fn volume(object: &Value, now: Timestamp) -> Vec<Value> {
    let claim = at(object, "spec.claimRef");
    let claim = match claim.is_null() {
        true => String::new(),
        false => format!("{}/{}", text(claim, "namespace"), text(claim, "name")),
    };
    vec![
        cell::name(object),
        scalar(object, "spec.capacity.storage").into_owned().into(),
        access_modes(list(object, "spec.accessModes")).into(),
        text(object, "spec.persistentVolumeReclaimPolicy").into(),
        phase(object).into(),
        claim.into(),
        class_name(object),
        text_or(object, "spec.volumeAttributesClassName", UNSET).into(),
        text(object, "status.reason").into(),
        cell::age(object, now),
        text_or(object, "spec.volumeMode", UNSET).into(),
    ]
}

/// The name, marked when an annotation makes the class the default.
fn class_title(object: &Value, annotations: &[&str]) -> Value {
    let default = annotations.iter().any(|key| annotation(object, key) == "true");
    let name = text(object, "metadata.name");
    if default { format!("{name} (default)").into() } else { name.into() }
}

pub(super) fn class(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        class_title(object, &DEFAULT_CLASS),
        text(object, "provisioner").into(),
        text_or(object, "reclaimPolicy", "Delete").into(),
        text_or(object, "volumeBindingMode", "Immediate").into(),
        (at(object, "allowVolumeExpansion") == true).into(),
        cell::age(object, now),
    ]
}

pub(super) fn attributes_class(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        class_title(object, &DEFAULT_ATTRIBUTES_CLASS),
        text(object, "driverName").into(),
        cell::age(object, now),
    ]
}

pub(super) fn driver(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = at(object, "spec");
    let modes = strings(spec, "volumeLifecycleModes").join(",");
    let tokens = match at(spec, "tokenRequests") {
        Value::Array(tokens) => {
            tokens.iter().map(|token| text(token, "audience")).collect::<Vec<_>>().join(",")
        }
        _ => UNSET.to_owned(),
    };
    let is = |path: &str| Value::from(at(spec, path) == true);
    vec![
        cell::name(object),
        at(spec, "attachRequired").as_bool().unwrap_or(true).into(),
        is("podInfoOnMount"),
        is("storageCapacity"),
        tokens.into(),
        is("requiresRepublish"),
        if modes.is_empty() { NONE.into() } else { modes.into() },
        cell::age(object, now),
    ]
}

pub(super) fn node(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![cell::name(object), cell::len(object, "spec.drivers").into(), cell::age(object, now)]
}

pub(super) fn attachment(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        cell::name(object),
        text(object, "spec.attacher").into(),
        text(object, "spec.source.persistentVolumeName").into(),
        text(object, "spec.nodeName").into(),
        (at(object, "status.attached") == true).into(),
        cell::age(object, now),
    ]
}
