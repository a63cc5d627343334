//! Deployments.
use crate::kind::at::{At, check};
use crate::kind::format::{at_most_all, count_of, count_or_percent};
use crate::kind::workload::{REVISIONS, TEMPLATE_CONTAINERS, name_and_ready};
use crate::kind::{Fill, Kind, Members, Report, StatusMeta, pod_default, text, workload};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::time::Timestamp;

/// Deployment.
pub(in crate::kind) static KIND: Kind = Kind {
    annotations_step_generation: true,
    default,
    validate,
    validate_status,
    unreadable,
    warnings: workload::warnings,
    update_warnings: workload::update_warnings,
    pod_spec: "spec.template.spec",
    disabled: &workload::DISABLED,
    cells: Some(cells),
    rules: "selector, template, strategy, deadline; immutable selector; `status`",
    ..Kind::with_status("apps", "Deployment", StatusMeta::ButLabels, "{}")
};

/// The annotation with the revision to return to, a number of the stored form.
const ROLLBACK: &str = "deprecated.deployment.rollback.to";

/// The annotation is a number, or empty.
fn unreadable(object: &Value) -> Option<String> {
    let text = text(&object["metadata"]["annotations"], ROLLBACK);
    let fault = Some(text).filter(|text| !text.is_empty()).and_then(workload::integer_fault)?;
    Some(format!("failed to parse annotation[{ROLLBACK}]={text} as int64: {fault}"))
}

fn default(object: &mut Members, _version: &str) {
    let Some(spec) = object.object("spec") else { return };
    spec.absent("replicas", 1);
    if let Some(strategy) = spec.object_or_new("strategy") {
        strategy.absent("type", "RollingUpdate");
        if strategy.text("type") == "RollingUpdate"
            && let Some(rolling) = strategy.object_or_new("rollingUpdate")
        {
            rolling.absent("maxUnavailable", "25%");
            rolling.absent("maxSurge", "25%");
        }
    }
    spec.absent("revisionHistoryLimit", REVISIONS);
    spec.absent("progressDeadlineSeconds", 600);
    pod_default::template(spec);
}

fn validate(object: &Value, old: Option<&Value>, errors: &mut Report) {
    check(object, old, errors, |at| {
        let spec = at.get("spec");
        spec.get("replicas").not_negative();
        workload::replicated(&spec);
        strategy(&spec.get("strategy"));
        for member in ["minReadySeconds", "revisionHistoryLimit"] {
            spec.get(member).not_negative();
        }
        let deadline = spec.get("progressDeadlineSeconds");
        deadline.not_negative();
        if deadline.int().is_some_and(|seconds| seconds <= spec.int_of("minReadySeconds")) {
            deadline.invalid("must be greater than minReadySeconds");
        }
    });
    workload::selector_immutable(object, old, errors);
}

fn strategy(at: &At<'_, '_>) {
    let rolling = at.get("rollingUpdate");
    match at.text_of("type") {
        "Recreate" => {
            if rolling.is_set() {
                rolling.forbidden("may not be specified when strategy `type` is 'Recreate'");
            }
        }
        "RollingUpdate" if !rolling.is_set() => {
            rolling.required("this should be defaulted and never be nil");
        }
        "RollingUpdate" => {
            let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
            count_or_percent(&unavailable);
            count_or_percent(&surge);
            if count_of(unavailable.value) == 0 && count_of(surge.value) == 0 {
                unavailable.invalid("may not be 0 when `maxSurge` is 0");
            }
            at_most_all(&unavailable);
        }
        _ => at.unsupported(&["Recreate", "RollingUpdate"]),
    }
}

fn validate_status(object: &Value, old: Option<&Value>, errors: &mut Report) {
    check(object, old, errors, |at| {
        workload::status(
            &at.get("status"),
            &[
                "observedGeneration",
                "replicas",
                "updatedReplicas",
                "readyReplicas",
                "availableReplicas",
                "unavailableReplicas",
                "terminatingReplicas",
                "collisionCount",
            ],
            &["updatedReplicas", "readyReplicas", "availableReplicas"],
            "readyReplicas",
        );
    });
    check(object, None, errors, |at| {
        workload::collisions(&at.get("status"), old.unwrap_or(&Value::Null));
    });
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let [name, ready] = name_and_ready(object);
    let [names, images] = cell::containers(object, TEMPLATE_CONTAINERS);
    vec![
        name,
        ready,
        cell::int(object, "status.updatedReplicas").into(),
        cell::int(object, "status.availableReplicas").into(),
        cell::age(object, now),
        names,
        images,
        cell::selector(object, "spec.selector").into(),
    ]
}
