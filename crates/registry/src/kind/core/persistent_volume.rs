//! Volumes.
use crate::features::Feature;
use crate::kind::at::{At, check, same};
use crate::kind::volume::{OLD_CLASS, access_modes, annotation_warnings, class_name, phase};
use crate::kind::workload::rest_is_same;
use crate::kind::{
    Context, Fill, Kind, Members, MetadataCheck, MetadataChecks, Report, StatusMeta, list,
    node_label, resources, template, text,
};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::time::Timestamp;
use setpoint_object::{field, name};

/// PersistentVolume.
pub(in crate::kind) static KIND: Kind = Kind {
    changed_metadata: MetadataChecks {
        before: &[MetadataCheck::Whole],
        after: &[MetadataCheck::Whole],
    },
    returns_deleted: true,
    default,
    prepare,
    prepare_status,
    validate,
    validate_change,
    disabled: &[(Some(Feature::VolumeAttributesClass), &["spec.volumeAttributesClassName"])],
    warnings,
    update_warnings: |volume, _| warnings(volume),
    cells: Some(cells),
    rules: "exactly one source with what it needs, modes, capacity, node affinity, the annotation of mount options; immutable source",
    ..Kind::with_status("", "PersistentVolume", StatusMeta::All, r#"{"phase":"Pending"}"#)
};

fn default(object: &mut Members, _version: &str) {
    if let Some(spec) = object.object("spec") {
        spec.absent("persistentVolumeReclaimPolicy", "Retain");
        spec.absent("volumeMode", "Filesystem");
        if let Some(path) = spec.object("hostPath") {
            path.absent("type", "");
        }
    }
    if let Some(status) = object.object_or_new("status") {
        status.absent("phase", "Pending");
    }
}

/// Sets the time of the last phase transition.
fn prepare(context: &Context<'_>, volume: &mut Value, old: Option<&Value>) {
    if old.is_none() {
        volume["status"]["lastPhaseTransitionTime"] = context.now.rfc3339().into();
    }
}

/// A new phase has a new time, unless the client gives one.
fn prepare_status(context: &Context<'_>, volume: &mut Value, old: &Value) {
    let (status, before) = (&volume["status"], &old["status"]);
    let time = "lastPhaseTransitionTime";
    let is_given = !status[time].is_null();
    if status["phase"] == before["phase"] && !is_given {
        if !before[time].is_null() {
            volume["status"][time] = before[time].clone();
        }
    } else if status["phase"] != before["phase"] && (!is_given || status[time] == before[time]) {
        volume["status"][time] = context.now.rfc3339().into();
    }
}

/// Sources that nothing serves any more, in the API's order and words.
const DEPRECATED: [(&str, &str); 6] = [
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// The annotation with the options of a mount, and the sources that take it.
const MOUNT_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";
const WITH_MOUNT_OPTIONS: [&str; 13] = [
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "nfs",
    "rbd",
    "quobyte",
    "iscsi",
    "cinder",
    "cephfs",
    "azureFile",
    "vsphereVolume",
    "azureDisk",
    "photonPersistentDisk",
];

/// Annotations that members have replaced, with the API's words.
const DEPRECATED_ANNOTATIONS: [(&str, &str); 2] =
    [OLD_CLASS, (MOUNT_OPTIONS, r#"deprecated since v1.31; use "mountOptions" attribute instead"#)];

fn warnings(volume: &Value) -> Vec<String> {
    let spec = &volume["spec"];
    let mut all: Vec<String> = annotation_warnings(volume, &DEPRECATED_ANNOTATIONS).collect();
    if spec["persistentVolumeReclaimPolicy"] == "Recycle" {
        all.push("spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.".to_owned());
    }
    let required = &spec["nodeAffinity"]["required"];
    for (i, term) in list(required, "nodeSelectorTerms").iter().enumerate() {
        let path = field::Path::new("spec.nodeAffinity.required.nodeSelectorTerms").index(i);
        all.extend(node_label::of_term(term, false, &path));
    }
    for (source, message) in DEPRECATED {
        if !spec[source].is_null() {
            let shown = if source == "storageos" { "storageOS" } else { source };
            all.push(format!("spec.{shown}: {message}"));
        }
    }
    all
}

/// Members of a spec that are not the source of the volume.
const NOT_SOURCE: [&str; 9] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

/// Validates a volume: one source, which never changes.
fn validate(volume: &Value, old: Option<&Value>, errors: &mut Report) {
    check(volume, old, errors, |at| {
        let spec = at.get("spec");
        rules(&spec, at.text_of("metadata.name"));
        let annotations = at.get("metadata.annotations");
        let is_given = annotations.value.get(MOUNT_OPTIONS).is_some();
        if is_given && !WITH_MOUNT_OPTIONS.iter().any(|source| spec.has(source)) {
            annotations
                .shown_as(MOUNT_OPTIONS, &Value::Null)
                .forbidden("may not specify mount options for this volume type");
        }
    });
}
/// What an update may change.
fn validate_change(volume: &Value, old: Option<&Value>, errors: &mut Report) {
    let Some(before) = old else { return };
    // The API checks a changed volume twice, and reports both.
    check(volume, old, errors, |at| rules(&at.get("spec"), at.text_of("metadata.name")));
    let old = before;
    check(volume, None, errors, |at| changes(&at.get("spec"), &old["spec"]));
}

fn rules(spec: &At<'_, '_>, name: &str) {
    let modes = spec.get("accessModes");
    modes.need();
    template::access_modes(&modes);
    let capacity = spec.get("capacity");
    capacity.need();
    if capacity.len() != 1 || capacity.value.get("storage").is_none() {
        capacity.unsupported(&["storage"]);
    }
    for (_, amount) in capacity.all() {
        if amount.quantity().is_some_and(|quantity| quantity.value() < 0) {
            let bytes = amount.quantity().map_or(0, |quantity| quantity.value());
            amount.invalid_as(&bytes.into(), "must be a valid resource quantity");
        }
        resources::positive(&amount, "must be greater than zero");
    }
    spec.get("persistentVolumeReclaimPolicy").one_of_if_set(&["Delete", "Recycle", "Retain"]);
    if let Some(affinity) = spec.given("nodeAffinity") {
        match affinity.given("required") {
            Some(selector) => template::node_selector(&selector, true),
            None => affinity.get("required").required("must specify required node constraints"),
        }
    }
    template::persistent_source(spec, name);
    recycling(spec);
    spec.get("storageClassName").named_if_set(name::dns1123_subdomain);
    spec.get("volumeMode").one_of_if_set(&["Block", "Filesystem"]);
    attributes_class(spec);
}

/// Checks the spec of a volume that is no object of its own.
pub(in crate::kind) fn inline_rules(spec: &At<'_, '_>) {
    const NOT_HERE: &str = "may not be specified in the context of inline volumes";
    let refuse = |member: &str| {
        let at = spec.get(member);
        if at.len() > 0 || !at.text().is_empty() {
            at.forbidden(NOT_HERE);
        }
    };
    let only = |member: &str, value: &str, detail: &str| {
        let at = spec.get(member);
        if at.is_set() && at.text() != value {
            at.forbidden(format!("{detail}{value} in the context of inline volumes"));
        }
    };
    if let Some(claim) = spec.given("claimRef") {
        claim.forbidden(NOT_HERE);
    }
    refuse("capacity");
    if !spec.has("csi") {
        spec.get("csi").required("has to be specified in the context of inline volumes");
    }
    let modes = spec.get("accessModes");
    modes.need();
    template::access_modes(&modes);
    only("persistentVolumeReclaimPolicy", "Retain", "may only be ");
    if let Some(affinity) = spec.given("nodeAffinity") {
        affinity.forbidden(NOT_HERE);
    }
    template::persistent_source(spec, "");
    recycling(spec);
    refuse("storageClassName");
    only("volumeMode", "Filesystem", "may not specify volumeMode other than ");
}

fn recycling(spec: &At<'_, '_>) {
    let policy = spec.get("persistentVolumeReclaimPolicy");
    let path = spec.text_of("hostPath.path");
    let is_root = path.starts_with('/') && path.split('/').all(|part| matches!(part, "" | "."));
    if is_root && policy.text() == "Recycle" {
        policy.forbidden("may not be 'recycle' for a hostPath mount of '/'");
    }
}

fn attributes_class(spec: &At<'_, '_>) {
    let class = spec.get("volumeAttributesClassName");
    if class.is_set() {
        if class.need_for("an empty string is disallowed") {
            class.faults(name::dns1123_subdomain(class.text()));
        }
        if !spec.has("csi") {
            spec.get("csi").required("has to be specified when using volumeAttributesClassName");
        }
    }
}

/// A class can be changed only with the feature for it.
pub(super) fn attributes_class_change(class: &At<'_, '_>, old: &Value) {
    if !class.is_on(Feature::VolumeAttributesClass) && !same(class.value, old) {
        class.forbidden(
            "update is forbidden when the VolumeAttributesClass feature gate is disabled",
        );
    }
}

fn changes(spec: &At<'_, '_>, old: &Value) {
    let mut new = spec.value.clone();
    let secret = "controllerExpandSecretRef";
    if old["csi"].is_object()
        && old["csi"].get(secret).is_none()
        && let Some(csi) = new.get_mut("csi").and_then(Value::as_object_mut)
    {
        csi.remove(secret);
    }
    // An empty source is another one than none.
    let sources = |spec: &Value| -> Vec<String> {
        let members = spec.as_object().into_iter().flatten();
        let given = members
            .filter(|(name, value)| !value.is_null() && !NOT_SOURCE.contains(&name.as_str()));
        given.map(|(name, _)| name.clone()).collect()
    };
    if sources(&new) != sources(old) || !rest_is_same(&new, old, &NOT_SOURCE) {
        spec.get("persistentvolumesource")
            .forbidden("spec.persistentvolumesource is immutable after creation\n");
    }
    // The API's paths of these two omit `spec`.
    let at_root = |member: &str, detail: &str| {
        spec.report(|_| {
            field::Error::invalid(field::Path::new(member), spec.get(member).value, detail)
        });
    };
    if !same(spec.get("volumeMode").value, &old["volumeMode"]) {
        at_root("volumeMode", "field is immutable");
    }
    let affinity = spec.get("nodeAffinity").value;
    if !spec.is_on(Feature::MutablePVNodeAffinity)
        && !old["nodeAffinity"].is_null()
        && *affinity != renamed(&old["nodeAffinity"], affinity)
    {
        at_root("nodeAffinity", "field is immutable, except for updating from beta label to GA");
    }
    let class = spec.get("volumeAttributesClassName");
    attributes_class_change(&class, &old["volumeAttributesClassName"]);
    if !old["volumeAttributesClassName"].is_null() && !class.is_set() {
        class.forbidden("update from non-nil value to nil is forbidden");
    }
}
/// A node affinity, with the present names of those labels that `new` has them of at the same
/// place.
fn renamed(affinity: &Value, new: &Value) -> Value {
    let mut affinity = affinity.clone();
    let terms = affinity.pointer_mut("/required/nodeSelectorTerms").and_then(Value::as_array_mut);
    for (term, new) in terms.into_iter().flatten().zip(list(&new["required"], "nodeSelectorTerms"))
    {
        for member in ["matchExpressions", "matchFields"] {
            let requirements = term.get_mut(member).and_then(Value::as_array_mut);
            for (requirement, new) in requirements.into_iter().flatten().zip(list(new, member)) {
                // As there, a name that is no older one may go, which another rule refuses.
                if text(new, "key") == present_name(text(requirement, "key")) {
                    requirement["key"] = new["key"].clone();
                }
            }
        }
    }
    affinity
}
/// The present name of a label that has an older one; empty for others.
fn present_name(label: &str) -> &'static str {
    match label {
        "failure-domain.beta.kubernetes.io/zone" => "topology.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region" => "topology.kubernetes.io/region",
        "beta.kubernetes.io/os" => "kubernetes.io/os",
        "beta.kubernetes.io/arch" => "kubernetes.io/arch",
        "beta.kubernetes.io/instance-type" => "node.kubernetes.io/instance-type",
        _ => "",
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let claim = cell::at(object, "spec.claimRef");
    let claim = match claim.is_null() {
        true => String::new(),
        false => format!("{}/{}", cell::text(claim, "namespace"), cell::text(claim, "name")),
    };
    vec![
        cell::name(object),
        cell::scalar(object, "spec.capacity.storage").into_owned().into(),
        access_modes(cell::list(object, "spec.accessModes")).into(),
        cell::text(object, "spec.persistentVolumeReclaimPolicy").into(),
        phase(object).into(),
        claim.into(),
        class_name(object),
        cell::text_or(object, "spec.volumeAttributesClassName", cell::UNSET).into(),
        cell::text(object, "status.reason").into(),
        cell::age(object, now),
        cell::text_or(object, "spec.volumeMode", cell::UNSET).into(),
    ]
}
