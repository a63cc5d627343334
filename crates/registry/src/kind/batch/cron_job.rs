//! CronJobs.
use super::job::validate_spec;
use crate::kind::{
    Fill, Kind, Members, NameRule, StatusMeta, not_negative, one_of, pod_default, text,
};
use crate::table::{age, cell};
use serde_json::{Value, json};
use setpoint_object::field;
use setpoint_object::time::Timestamp;

/// CronJob.
pub(in crate::kind) static KIND: Kind = Kind {
    names: NameRule::ShortSubdomain(NAME_CHARACTERS_MAX),
    default,
    validate,
    cells: Some(cells),
    ..Kind::with_status("batch", "CronJob", StatusMeta::All, "{}")
};

/// Eleven less than a label, so that the names of its Jobs fit.
const NAME_CHARACTERS_MAX: usize = 52;

/// CronJob. Its job template is defaulted when a Job is created from it, except for the pod.
fn default(object: &mut Members, _version: &str) {
    let Some(spec) = object.object("spec") else { return };
    spec.absent("concurrencyPolicy", "Allow");
    spec.absent("suspend", false);
    spec.absent("successfulJobsHistoryLimit", 3);
    spec.absent("failedJobsHistoryLimit", 1);
    if let Some(job) = spec.object("jobTemplate").and_then(|template| template.object("spec")) {
        pod_default::template(job);
    }
}

/// Validates a new or changed CronJob.
fn validate(cron_job: &Value, _old: Option<&Value>, errors: &mut field::Errors) {
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
    one_of(spec, "concurrencyPolicy", &["Allow", "Forbid", "Replace"], &path, errors);
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

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] =
        cell::containers(object, "spec.jobTemplate.spec.template.spec.containers");
    let last = if cell::has(object, "status.lastScheduleTime") {
        age::age_of(cell::text(object, "status.lastScheduleTime"), now)
    } else {
        cell::NONE.to_owned()
    };
    vec![
        cell::name(object),
        cell::text(object, "spec.schedule").into(),
        cell::text_or(object, "spec.timeZone", cell::NONE).into(),
        cell::flag(object, "spec.suspend").into(),
        cell::len(object, "status.active").into(),
        last.into(),
        cell::age(object, now),
        names,
        images,
        cell::selector(object, "spec.jobTemplate.spec.selector").into(),
    ]
}
