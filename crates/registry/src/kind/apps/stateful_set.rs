//! StatefulSets.
use crate::kind::template::validate_template_labels;
use crate::kind::workload::{REVISIONS, TEMPLATE_CONTAINERS, name_and_ready, validate_common};
use crate::kind::{
    Fill, Kind, Members, NameRule, StatusMeta, not_negative, not_supported, pod_default, text,
    validate_annotations,
};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::field;
use setpoint_object::time::Timestamp;

/// StatefulSet.
pub(in crate::kind) static KIND: Kind = Kind {
    names: NameRule::Label,
    default,
    validate,
    unknown_label: not_supported,
    cells: Some(cells),
    ..Kind::with_status(
        "apps",
        "StatefulSet",
        StatusMeta::All,
        r#"{"availableReplicas":0,"replicas":0}"#,
    )
};

fn default(object: &mut Members, _version: &str) {
    let Some(spec) = object.object("spec") else { return };
    spec.absent("podManagementPolicy", "OrderedReady");
    if let Some(strategy) = spec.object_or_new("updateStrategy") {
        strategy.absent("type", "RollingUpdate");
        if strategy.text("type") == "RollingUpdate"
            && let Some(rolling) = strategy.object_or_new("rollingUpdate")
        {
            rolling.absent("partition", 0);
        }
    }
    if let Some(policy) = spec.object_or_new("persistentVolumeClaimRetentionPolicy") {
        policy.absent("whenDeleted", "Retain");
        policy.absent("whenScaled", "Retain");
    }
    spec.absent("replicas", 1);
    spec.absent("revisionHistoryLimit", REVISIONS);
    for claim in spec.each("volumeClaimTemplates") {
        claim.insert("apiVersion".to_owned(), Value::from("v1"));
        claim.insert("kind".to_owned(), Value::from("PersistentVolumeClaim"));
        pod_default::volume_claim(claim);
    }
    pod_default::template(spec);
}

fn validate(object: &Value, old: Option<&Value>, errors: &mut field::Errors) {
    validate_common(object, "statefulset", true, validate_template, errors);
    validate_strategies(&object["spec"], &field::Path::new("spec"), errors);
    let Some(old) = old else { return };
    let mutable = [
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    let rest = |object: &Value| {
        let mut spec = object["spec"].clone();
        if let Some(spec) = spec.as_object_mut() {
            spec.retain(|name, _| !mutable.contains(&name.as_str()));
        }
        spec
    };
    if rest(object) != rest(old) {
        errors.push(field::Error::forbidden(
            field::Path::new("spec"),
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        ));
    }
}

/// Validates labels and annotations only: claim templates become volumes that the containers mount,
/// and the pods are validated when they are created.
fn validate_template(template: &Value, path: &field::Path, errors: &mut field::Errors) {
    validate_template_labels(template, path, errors);
    let annotations = template["metadata"].get("annotations");
    validate_annotations(annotations, &path.child("annotations"), errors);
}
fn validate_strategies(spec: &Value, path: &field::Path, errors: &mut field::Errors) {
    let policy = text(spec, "podManagementPolicy");
    if !["OrderedReady", "Parallel"].contains(&policy) {
        errors.push(field::Error::invalid(
            path.child("podManagementPolicy"),
            &policy.into(),
            "must be 'OrderedReady' or 'Parallel'",
        ));
    }
    let (strategy, path) = (&spec["updateStrategy"], path.child("updateStrategy"));
    match text(strategy, "type") {
        "OnDelete" => {
            if let Some(rolling) = strategy.get("rollingUpdate") {
                errors.push(field::Error::invalid(
                    path.child("rollingUpdate"),
                    rolling,
                    "only allowed for updateStrategy 'RollingUpdate'",
                ));
            }
        }
        "RollingUpdate" => {
            let rolling = &strategy["rollingUpdate"];
            not_negative(rolling, "partition", &path.child("rollingUpdate"), errors);
        }
        _ => errors.push(field::Error::invalid(
            path,
            strategy,
            "must be 'RollingUpdate' or 'OnDelete'",
        )),
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let [name, ready] = name_and_ready(object);
    let [names, images] = cell::containers(object, TEMPLATE_CONTAINERS);
    vec![name, ready, cell::age(object, now), names, images]
}
