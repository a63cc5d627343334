//! Jobs.
use crate::kind::template::validate_template;
use crate::kind::{
    Context, Fill, Kind, Members, Selectable, StatusMeta, not_negative, pod_default, text,
};
use crate::table::{age, cell};
use serde_json::Value;
use setpoint_object::GroupVersionKind;
use setpoint_object::field;
use setpoint_object::meta::ObjectExt;
use setpoint_object::time::Timestamp;

/// Job.
pub(in crate::kind) static KIND: Kind = Kind {
    orphans_by_default: true,
    orphan_warning: ORPHANS,
    default,
    prepare,
    validate,
    selectable: &[Selectable {
        path: "status.succeeded",
        absent: "0",
        ..Selectable::new("status.successful")
    }],
    unknown_label,
    cells: Some(cells),
    ..Kind::with_status("batch", "Job", StatusMeta::All, "{}")
};

/// Jobs are the only kind whose dependents are orphaned by default although users do not expect it.
const ORPHANS: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning";

/// The label that links a Job's pods to it.
const CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";

const JOB_NAME: &str = "batch.kubernetes.io/job-name";

fn unknown_label(_: &GroupVersionKind, label: &str) -> String {
    format!("field label {} not supported for Job", field::quote(label))
}

/// Job. Its selector and labels contain the uid, so `prepare` makes them.
fn default(object: &mut Members, _version: &str) {
    let labels = object
        .get("spec")
        .and_then(|spec| spec.pointer("/template/metadata/labels"))
        .filter(|labels| labels.as_object().is_some_and(|labels| !labels.is_empty()))
        .cloned();
    let Some(spec) = object.object("spec") else { return };
    if !spec.contains_key("parallelism") {
        spec.absent("completions", 1);
        spec.insert("parallelism".to_owned(), 1.into());
    }
    let limit = if spec.contains_key("backoffLimitPerIndex") { i32::MAX } else { 6 };
    spec.absent("backoffLimit", limit);
    spec.absent("completionMode", "NonIndexed");
    spec.absent("suspend", false);
    let replacement =
        if spec.contains_key("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    spec.absent("podReplacementPolicy", replacement);
    if let Some(policy) = spec.object("podFailurePolicy") {
        for rule in policy.each("rules") {
            for pattern in rule.each("onPodConditions") {
                pattern.absent("status", "True");
            }
        }
    }
    pod_default::template(spec);
    if let Some(labels) = labels
        && let Some(metadata) = object.object_or_new("metadata")
    {
        metadata.absent("labels", labels);
    }
}

/// Generates a unique selector for a Job without one.
fn prepare(_: &Context<'_>, job: &mut Value, old: Option<&Value>) {
    if old.is_some() {
        return;
    }
    let (name, uid) = (job.name().to_owned(), job.uid().to_owned());
    if job["spec"]["manualSelector"] != true && job["spec"].is_object() {
        let spec = &mut job["spec"];
        spec["manualSelector"] = false.into();
        let labels = &mut spec["template"]["metadata"]["labels"];
        for (key, value) in [
            ("controller-uid", &uid),
            (CONTROLLER_UID, &uid),
            ("job-name", &name),
            (JOB_NAME, &name),
        ] {
            if labels.get(key).is_none() {
                labels[key] = value.as_str().into();
            }
        }
        if spec["selector"]["matchLabels"].get(CONTROLLER_UID).is_none() {
            spec["selector"]["matchLabels"][CONTROLLER_UID] = uid.as_str().into();
        }
    }
    let labels = job["spec"]["template"]["metadata"].get("labels").cloned();
    let is_bare = job["metadata"]["labels"].as_object().is_none_or(|l| l.is_empty());
    if let Some(labels) = labels.filter(|l| is_bare && l.is_object()) {
        job.set_meta("labels", labels);
    }
}

/// Validates a new or changed Job.
fn validate(job: &Value, old: Option<&Value>, errors: &mut field::Errors) {
    let path = field::Path::new("spec");
    let spec = &job["spec"];
    if old.is_none() && job.name().len() > 63 {
        // The name becomes a label of the pods.
        errors.push(field::Error::invalid(
            path.child("template.labels"),
            &job.name().into(),
            "must be no more than 63 characters",
        ));
    }
    if spec["selector"].is_null() {
        errors.push(field::Error::required(path.child("selector"), ""));
    }
    validate_spec(spec, &path, errors);
    let Some(old) = old else { return };
    for member in [
        "completions",
        "selector",
        "template",
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
    ] {
        let (before, after) = (old["spec"].get(member), spec.get(member));
        let may_change = match member {
            // An indexed Job can be scaled if both numbers change together.
            "completions" => {
                text(spec, "completionMode") == "Indexed"
                    && spec["completions"] == spec["parallelism"]
            }
            // The template of a suspended Job that has not started may change its placement.
            "template" => {
                old["spec"]["suspend"] == true && old["status"].get("startTime").is_none()
            }
            _ => false,
        };
        if before != after && !may_change {
            errors.push(field::Error::invalid(
                path.child(member),
                after.unwrap_or(&Value::Null),
                "field is immutable",
            ));
        }
    }
}

/// Validates the common part of Jobs and the templates of CronJobs.
pub(super) fn validate_spec(spec: &Value, path: &field::Path, errors: &mut field::Errors) {
    for member in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
    ] {
        not_negative(spec, member, path, errors);
    }
    let path = path.child("template");
    validate_template(&spec["template"], &path, errors);
    let policy = text(&spec["template"]["spec"], "restartPolicy");
    match policy {
        "OnFailure" | "Never" | "" => {}
        "Always" => errors.push(field::Error::required(
            path.child("spec.restartPolicy"),
            "valid values: \"OnFailure\", \"Never\"",
        )),
        other => errors.push(field::Error::not_supported(
            path.child("spec.restartPolicy"),
            &other.into(),
            &["OnFailure", "Never"],
        )),
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = cell::containers(object, "spec.template.spec.containers");
    vec![
        cell::name(object),
        job_status(object).into(),
        completions(object).into(),
        duration(object, now).into(),
        cell::age(object, now),
        names,
        images,
        cell::selector(object, "spec.selector").into(),
    ]
}

fn job_status(object: &Value) -> &'static str {
    let holds = |condition: &&str| cell::condition_is_true(object, condition);
    if let Some(ended) = ["Complete", "Failed"].into_iter().find(|condition| holds(condition)) {
        return ended;
    }
    if cell::deleting(object) {
        return "Terminating";
    }
    ["Suspended", "FailureTarget", "SuccessCriteriaMet"]
        .into_iter()
        .find(holds)
        .unwrap_or("Running")
}

fn completions(object: &Value) -> String {
    let succeeded = cell::int(object, "status.succeeded");
    match (cell::at(object, "spec.completions").as_i64(), cell::int(object, "spec.parallelism")) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    }
}

fn duration(object: &Value, now: Timestamp) -> String {
    let Some(start) = Timestamp::parse(cell::text(object, "status.startTime")) else {
        return String::new();
    };
    let end = Timestamp::parse(cell::text(object, "status.completionTime")).unwrap_or(now);
    age::human_duration(age::seconds_between(start, end))
}
