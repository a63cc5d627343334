//! DaemonSets.
use crate::kind::at::{At, check};
use crate::kind::format::{at_most_all, count_of, count_or_percent};
use crate::kind::workload::{REVISIONS, TEMPLATE_CONTAINERS};
use crate::kind::{
    Context, Fill, Kind, Members, Report, StatusMeta, pod_default, template, workload,
};
use crate::table::cell;
use serde_json::{Value, json};
use setpoint_object::meta::ObjectExt;
use setpoint_object::time::Timestamp;

/// DaemonSet.
pub(in crate::kind) static KIND: Kind = Kind {
    default,
    prepare,
    prepare_status,
    validate,
    validate_status,
    unreadable,
    warnings: workload::template_warnings,
    update_warnings: |set, old| match set["spec"]["template"] == old["spec"]["template"] {
        true => Vec::new(),
        false => workload::template_warnings(set),
    },
    pod_spec: "spec.template.spec",
    cells: Some(cells),
    hidden_annotations: &[GENERATION],
    rules: "selector, template, strategy; immutable selector; `status`",
    ..Kind::with_status(
        "apps",
        "DaemonSet",
        StatusMeta::All,
        r#"{"currentNumberScheduled":0,"desiredNumberScheduled":0,"numberMisscheduled":0,"numberReady":0}"#,
    )
};

/// The annotation with the template's generation.
const GENERATION: &str = "deprecated.daemonset.template.generation";

/// The annotation is a number of the stored form.
fn unreadable(object: &Value) -> Option<String> {
    workload::integer_fault(object["metadata"]["annotations"][GENERATION].as_str()?)
}

fn default(object: &mut Members, _version: &str) {
    if let Some(metadata) = object.object_or_new("metadata")
        && let Some(annotations) = metadata.object_or_new("annotations")
    {
        // As in the reference, who leaves it out has written a zero, which is corrected later: the
        // annotation is theirs.
        annotations.absent(GENERATION, "0");
    }
    let Some(spec) = object.object("spec") else { return };
    if let Some(strategy) = spec.object_or_new("updateStrategy") {
        strategy.absent("type", "RollingUpdate");
        let rolls = strategy.text("type") == "RollingUpdate";
        if rolls {
            strategy.absent("rollingUpdate", json!({}));
        }
        if let Some(rolling) = strategy.object("rollingUpdate") {
            rolling.absent("maxUnavailable", i32::from(rolls));
            rolling.absent("maxSurge", 0);
        }
    }
    spec.absent("revisionHistoryLimit", REVISIONS);
    pod_default::template(spec);
}

/// Maintains the template generation for old clients.
fn prepare(_: &Context<'_>, object: &mut Value, old: Option<&Value>) {
    let generation = match old {
        None => generation(object).max(1),
        Some(old) if old["spec"]["template"] == object["spec"]["template"] => generation(old),
        Some(old) => generation(old).saturating_add(1),
    };
    put_generation(object, generation);
}
/// The template generation belongs to the spec, which `status` does not write.
fn prepare_status(_: &Context<'_>, object: &mut Value, old: &Value) {
    put_generation(object, generation(old));
}
fn generation(object: &Value) -> i64 {
    let text = object["metadata"]["annotations"][GENERATION].as_str();
    text.and_then(|text| text.parse().ok()).unwrap_or(1)
}
fn put_generation(object: &mut Value, generation: i64) {
    let annotations = object.meta_mut().entry("annotations").or_insert_with(|| json!({}));
    annotations[GENERATION] = generation.to_string().into();
}

fn validate(object: &Value, old: Option<&Value>, errors: &mut Report) {
    workload::selector_immutable(object, old, errors);
    check(object, old, errors, |at| {
        let spec = at.get("spec");
        workload::selection(&spec, "daemonset", false);
        let template = spec.get("template");
        template::template(&template);
        workload::runs_always(&template, KIND.kind);
        spec.get("minReadySeconds").not_negative();
        strategy(&spec.get("updateStrategy"));
        spec.get("revisionHistoryLimit").not_negative();
    });
}

fn strategy(at: &At<'_, '_>) {
    let rolling = at.get("rollingUpdate");
    match at.text_of("type") {
        "OnDelete" => {}
        "RollingUpdate" if !rolling.is_set() => rolling.required(""),
        "RollingUpdate" => {
            let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
            for at in [&unavailable, &surge] {
                count_or_percent(at);
                at_most_all(at);
            }
            match (count_of(unavailable.value) != 0, count_of(surge.value) != 0) {
                (true, true) => surge.invalid("may not be set when maxUnavailable is non-zero"),
                (false, false) => unavailable.required("cannot be 0 when maxSurge is 0"),
                _ => {}
            }
        }
        _ => at.unsupported(&["RollingUpdate", "OnDelete"]),
    }
}

fn validate_status(object: &Value, old: Option<&Value>, errors: &mut Report) {
    check(object, old, errors, |at| {
        for member in [
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
            "collisionCount",
        ] {
            at.get("status").get(member).not_negative();
        }
    });
    check(object, None, errors, |at| {
        workload::collisions(&at.get("status"), old.unwrap_or(&Value::Null));
    });
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = cell::containers(object, TEMPLATE_CONTAINERS);
    vec![
        cell::name(object),
        cell::int(object, "status.desiredNumberScheduled").into(),
        cell::int(object, "status.currentNumberScheduled").into(),
        cell::int(object, "status.numberReady").into(),
        cell::int(object, "status.updatedNumberScheduled").into(),
        cell::int(object, "status.numberAvailable").into(),
        cell::labels(object, "spec.template.spec.nodeSelector").into(),
        cell::age(object, now),
        names,
        images,
        cell::selector(object, "spec.selector").into(),
    ]
}
