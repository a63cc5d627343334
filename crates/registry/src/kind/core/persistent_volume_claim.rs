//! PersistentVolumeClaims: they request storage and are nearly immutable.
use super::persistent_volume::attributes_class_change;
use crate::features::Feature;
use crate::kind::at::{At, check};
use crate::kind::volume::{
    CLASS_ANNOTATION, OLD_CLASS, access_modes, annotation_warnings, class_name, phase,
};
use crate::kind::workload::rest_is_same;
use crate::kind::{
    Charged, Context, Kind, Members, MetadataCheck, MetadataChecks, Report, StatusMeta, StatusRule,
    pod_default, resources, template, text,
};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::quantity::Quantity;
use setpoint_object::time::Timestamp;
use setpoint_object::{field, name};

/// PersistentVolumeClaim.
pub(in crate::kind) static KIND: Kind = Kind {
    changed_metadata: MetadataChecks::before(&[MetadataCheck::Change, MetadataCheck::Whole]),
    returns_deleted: true,
    default,
    prepare,
    validate,
    disabled: &[
        (Some(Feature::VolumeAttributesClass), &["spec.volumeAttributesClassName"]),
        (Some(Feature::VolumeAttributesClass), &["status.currentVolumeAttributesClassName"]),
        (Some(Feature::VolumeAttributesClass), &["status.modifyVolumeStatus"]),
    ],
    warnings,
    update_warnings: |claim, _| warnings(claim),
    validate_status,
    // The status has the storage that a claim has until it is smaller, and its attributes class.
    charged: Charged::updates(&["", "status"]),
    cells: Some(cells),
    rules: "modes, amount, data sources; immutable except size and attributes class of bound claims; `status`",
    status: Some(StatusRule {
        comes_late: true,
        ..StatusRule::new(StatusMeta::All, r#"{"phase":"Pending"}"#)
    }),
    ..Kind::plain("", "PersistentVolumeClaim")
};

fn default(claim: &mut Members, _version: &str) {
    pod_default::volume_claim(claim);
}

/// The two fields for a source of data say the same. A source that is no claim and no snapshot
/// is dropped if it is in the older field only, and a reference to another namespace without the
/// feature for that.
fn prepare(context: &Context<'_>, claim: &mut Value, old: Option<&Value>) {
    let Some(spec) = claim.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let was = |member: &str| old.is_some_and(|old| !old["spec"][member].is_null());
    let is_set = |spec: &Members, member: &str| spec.get(member).is_some_and(Value::is_object);
    let elsewhere = |spec: &Members| !text(&spec["dataSourceRef"], "namespace").is_empty();
    let crosses = context.features.is_on(Feature::CrossNamespaceVolumeDataSource);
    if is_set(spec, "dataSourceRef") && elsewhere(spec) && !was("dataSourceRef") && !crosses {
        spec.remove("dataSourceRef");
    }
    let is_known = is_set(spec, "dataSource") && {
        let source = &spec["dataSource"];
        matches!(
            (text(source, "apiGroup"), text(source, "kind")),
            ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
        )
    };
    if !was("dataSource") && !was("dataSourceRef") && !is_set(spec, "dataSourceRef") && !is_known {
        spec.remove("dataSource");
    }
    same_sources(spec);
}

/// Copies the source of data from the field that has it to the other one.
fn same_sources(spec: &mut Members) {
    let copy = |source: &Value| {
        let members = ["apiGroup", "kind", "name"].into_iter();
        let given = members.filter_map(|name| Some((name.to_owned(), source.get(name)?.clone())));
        Value::Object(given.collect())
    };
    let (source, reference) = (spec.get("dataSource"), spec.get("dataSourceRef"));
    let is_there = |value: Option<&Value>| value.is_some_and(Value::is_object);
    match (source, reference) {
        (Some(source), reference) if source.is_object() && !is_there(reference) => {
            spec.insert("dataSourceRef".to_owned(), copy(source));
        }
        (source, Some(reference))
            if reference.is_object()
                && !is_there(source)
                && text(reference, "namespace").is_empty() =>
        {
            spec.insert("dataSource".to_owned(), copy(reference));
        }
        _ => {}
    }
}

fn warnings(claim: &Value) -> Vec<String> {
    let of_spec = template::claim_warnings(&claim["spec"], "spec");
    annotation_warnings(claim, &[OLD_CLASS]).chain(of_spec).collect()
}

/// Validates a claim; nearly all of it is immutable.
fn validate(claim: &Value, old: Option<&Value>, errors: &mut Report) {
    // A claim whose sources of data had a group may have any.
    let has_group = |old: &Value| {
        ["dataSource", "dataSourceRef"].iter().any(|from| !old["spec"][*from]["apiGroup"].is_null())
    };
    let checks_groups = !old.is_some_and(has_group);
    check(claim, old, errors, |at| template::claim(&at.get("spec"), checks_groups));
    let Some(old) = old else { return };
    check(claim, None, errors, |at| changes(at, old));
}

fn storage(claim: &Value, path: [&str; 3]) -> Option<Quantity> {
    let text = path.iter().fold(claim, |value, name| &value[*name])["storage"].as_str()?;
    Quantity::parse(text).ok()
}

fn changes(at: &At<'_, '_>, old: &Value) {
    let mut before = old["spec"].clone();
    if let Some(before) = before.as_object_mut() {
        same_sources(before);
    }
    let (spec, before) = (at.get("spec"), &before);
    let is_bound = at.text_of("status.phase") == "Bound";
    let class = "storageClassName";
    let mut mutable = Vec::new();
    // The volume may be set once, and so may the class.
    if text(before, "volumeName").is_empty() {
        mutable.push("volumeName");
    }
    let annotated = &old["metadata"]["annotations"][CLASS_ANNOTATION];
    let annotations = at.get("metadata.annotations");
    let annotation = annotations.shown_as(CLASS_ANNOTATION, &annotations.value[CLASS_ANNOTATION]);
    if before[class].is_null() && (annotated.is_null() || annotated == spec.get(class).value) {
        mutable.push(class);
    }
    // The class of the annotation may move to the member.
    let moves = !annotated.is_null()
        && before[class].is_null()
        && spec.get(class).value == annotated
        && (!annotation.is_set() || annotation.value == annotated);
    if !moves {
        annotation.immutable_text(annotated);
    }
    let mut new = spec.value.clone();
    if is_bound {
        mutable.push("volumeAttributesClassName");
        if let Some(requests) = new["resources"]["requests"].as_object_mut() {
            requests
                .insert("storage".to_owned(), before["resources"]["requests"]["storage"].clone());
        }
    }
    if spec.get(class).value.is_null() && !before[class].is_null() {
        mutable.retain(|member| *member != class);
    }
    // A selector of everything is another one than none.
    let has_selector = |spec: &Value| spec["selector"].is_object();
    if !rest_is_same(&new, before, &mutable) || has_selector(&new) != has_selector(before) {
        spec.forbidden(
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n",
        );
    }
    let none = || Quantity::from_units(0);
    let requested = storage(at.value, ["spec", "resources", "requests"]).unwrap_or_else(none);
    let was = storage(old, ["spec", "resources", "requests"]).unwrap_or_else(none);
    let shrinks = requested.compare(&was).is_lt();
    if shrinks {
        let has = old["status"]["capacity"]["storage"].as_str();
        let has = has.and_then(|text| Quantity::parse(text).ok());
        if requested.compare(&has.unwrap_or_else(none)).is_le() {
            spec.get("resources.requests.storage")
                .forbidden("field can not be less than status.capacity");
        }
    }
    // The API's path omits `spec`.
    let mode = spec.get("volumeMode");
    if mode.value != &old["spec"]["volumeMode"] {
        spec.report(|_| {
            field::Error::invalid(field::Path::new("volumeMode"), mode.value, "field is immutable")
        });
    }
    let attributes = spec.get("volumeAttributesClassName");
    let before = &old["spec"]["volumeAttributesClassName"];
    attributes_class_change(&attributes, before);
    let is_in_use = !old["status"]["currentVolumeAttributesClassName"].is_null();
    if is_in_use && attributes.value != before {
        let to = match attributes.value.as_str() {
            None => "nil",
            Some("") => "empty string",
            Some(_) => return,
        };
        attributes.forbidden(format!(
            "update to {to} is forbidden when status.currentVolumeAttributesClassName is not nil"
        ));
    }
}

fn validate_status(claim: &Value, old: Option<&Value>, errors: &mut Report) {
    check(claim, old, errors, |at| {
        for (_, amount) in at.get("status.capacity").all() {
            if amount.quantity().is_some_and(|quantity| quantity.value() < 0) {
                let bytes = amount.quantity().map_or(0, |quantity| quantity.value());
                amount.invalid_as(&bytes.into(), "must be a valid resource quantity");
            }
        }
        let statuses = at.get("status.allocatedResourceStatuses");
        for (key, status) in statuses.all() {
            resource_key(&statuses, key);
            if !RESIZES.contains(&status.text()) {
                // The API shows the key.
                statuses.report(|path| field::Error::not_supported(path, &key.into(), &RESIZES));
            }
        }
        let allocated = at.get("status.allocatedResources");
        for (key, amount) in allocated.all() {
            if resource_key(&allocated, key) {
                if amount.quantity().is_some_and(|quantity| quantity.value() < 0) {
                    let bytes = amount.quantity().map_or(0, |quantity| quantity.value());
                    amount.invalid_as(&bytes.into(), "must be a valid resource quantity");
                } else {
                    resources::quantity(&amount, "storage");
                }
            }
        }
    });
}
/// What a resize of a claim can have come to.
const RESIZES: [&str; 5] = [
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];
/// The name of a resource of a claim: storage, or one of another domain.
fn resource_key(at: &At<'_, '_>, key: &str) -> bool {
    let faults = name::qualified_name(key);
    let is_name = faults.is_empty();
    faults.into_iter().for_each(|fault| at.invalid_as(&key.into(), fault));
    let is_known = key == "storage" || !resources::is_native(key);
    if is_name && !is_known {
        at.report(|path| field::Error::not_supported(path, &key.into(), &["storage"]));
    }
    is_name && is_known
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let volume = cell::text(object, "spec.volumeName");
    // A bound claim shows its volume's values, zero before they are known; an unbound claim shows
    // none.
    let (capacity, modes) = match volume {
        "" => (String::new(), String::new()),
        _ => (
            match cell::scalar(object, "status.capacity.storage").into_owned() {
                unknown if unknown.is_empty() => "0".to_owned(),
                known => known,
            },
            access_modes(cell::list(object, "status.accessModes")),
        ),
    };
    vec![
        cell::name(object),
        phase(object).into(),
        volume.into(),
        capacity.into(),
        modes.into(),
        class_name(object),
        cell::text_or(object, "spec.volumeAttributesClassName", cell::UNSET).into(),
        cell::age(object, now),
        cell::text_or(object, "spec.volumeMode", cell::UNSET).into(),
    ]
}
