//! Job and CronJob.
use super::Context;
use super::pod::{not_negative, text, validate_template};
use serde_json::{Value, json};
use setpoint_object::field;
use setpoint_object::meta::ObjectExt;

/// Labels that tie a Job's pods to it.
const CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";
const JOB_NAME: &str = "batch.kubernetes.io/job-name";

/// A Job that leaves its selector to the server gets one that no other Job can match.
pub(super) fn prepare(_: &Context<'_>, job: &mut Value, old: Option<&Value>) {
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
/// A Job, new or changed.
pub(super) fn validate(job: &Value, old: Option<&Value>, errors: &mut Vec<field::Error>) {
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
            // Indexed jobs grow and shrink when both numbers move together.
            "completions" => {
                text(spec, "completionMode") == "Indexed"
                    && spec["completions"] == spec["parallelism"]
            }
            // A suspended job that has not started may be placed elsewhere.
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
fn validate_spec(spec: &Value, path: &field::Path, errors: &mut Vec<field::Error>) {
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
/// A CronJob, new or changed.
pub(super) fn validate_cron(
    cron_job: &Value,
    _old: Option<&Value>,
    errors: &mut Vec<field::Error>,
) {
    let path = field::Path::new("spec");
    let spec = &cron_job["spec"];
    let schedule = text(spec, "schedule");
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if schedule.is_empty() {
        errors.push(field::Error::required(path.child("schedule"), ""));
    } else if schedule.contains("TZ") {
        errors.push(field::Error::invalid(
            path.child("schedule"),
            &schedule.into(),
            "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
        ));
    } else if fields.len() != 5 && !schedule.starts_with('@') {
        errors.push(field::Error::invalid(
            path.child("schedule"),
            &schedule.into(),
            format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")),
        ));
    }
    super::pod::one_of(spec, "concurrencyPolicy", &["Allow", "Forbid", "Replace"], &path, errors);
    for member in
        ["startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"]
    {
        not_negative(spec, member, &path, errors);
    }
    let template = &spec["jobTemplate"]["spec"];
    if template["manualSelector"] == json!(true) {
        errors.push(field::Error::not_supported(
            path.child("jobTemplate.spec.manualSelector"),
            &true.into(),
            &[] as &[&str],
        ));
    }
    validate_spec(template, &path.child("jobTemplate.spec"), errors);
}
