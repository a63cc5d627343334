//! CronJobs.

use super::job::{policy_default, rules, warning};
use crate::kind::at::{At, check};
use crate::kind::{
    Fill, FormerVersion, Kind, Members, MetadataChecks, Report, StatusMeta, StatusRule,
    pod_default, template, text, workload,
};
use crate::table::{age, cell};
use jiff::tz::TimeZoneDatabase;
use serde_json::Value;
use setpoint_object::cron::Schedule;
use setpoint_object::time::Timestamp;

/// CronJob.
pub(in crate::kind) static KIND: Kind = Kind {
    default,
    validate,
    warnings,
    update_warnings: |new, old| {
        let mut all = if workload::has_stepped(new, old) { spec_warnings(new) } else { Vec::new() };
        if has_zone(text(&new["spec"], "schedule")) {
            // The API's path has one step more.
            all.push("cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details".to_owned());
        }
        all
    },
    pod_spec: "spec.jobTemplate.spec.template.spec",
    cells: Some(cells),
    rules: "schedule, time zone, job template",
    status: Some(StatusRule {
        checks: MetadataChecks::NONE,
        ..StatusRule::new(StatusMeta::All, "{}")
    }),
    formers: &[FormerVersion::retired("v1beta1")],
    ..Kind::plain("batch", "CronJob")
};

/// Maximum length of a name, in bytes. Eleven less than that of a label, so that the names of its
/// Jobs fit.
const NAME_BYTES_MAX: usize = 52;

/// CronJob. Its job template is defaulted when a Job is created from it, except for the pod and its
/// failure policy.
fn default(object: &mut Members, _version: &str) {
    let Some(spec) = object.object("spec") else { return };
    spec.absent("concurrencyPolicy", "Allow");
    spec.absent("suspend", false);
    spec.absent("successfulJobsHistoryLimit", 3);
    spec.absent("failedJobsHistoryLimit", 1);
    if let Some(job) = spec.object("jobTemplate").and_then(|template| template.object("spec")) {
        policy_default(job);
        pod_default::template(job);
    }
}

/// Validates a new or changed CronJob.
fn validate(cron_job: &Value, old: Option<&Value>, errors: &mut Report) {
    check(cron_job, old, errors, |at| {
        let spec = at.get("spec");
        let schedule = spec.get("schedule");
        if schedule.need() {
            if let Err(error) = Schedule::parse(schedule.text()) {
                schedule.invalid(error);
            }
            // A schedule that was stored with a time zone may have any.
            let had_zone = schedule.stored().as_str().is_some_and(has_zone);
            match (has_zone(schedule.text()), had_zone) {
                (true, false) => schedule
                    .invalid("cannot use TZ or CRON_TZ in schedule, use timeZone field instead"),
                (true, true) if spec.has("timeZone") => {
                    schedule.invalid("cannot use both timeZone field and TZ or CRON_TZ in schedule")
                }
                _ => {}
            }
        }
        spec.get("startingDeadlineSeconds").not_negative();
        time_zone(&spec.get("timeZone"));
        spec.get("concurrencyPolicy").one_of(&["Allow", "Forbid", "Replace"]);
        let job = spec.get("jobTemplate.spec");
        rules(&job);
        if job.has("selector") {
            job.get("selector").invalid("`selector` will be auto-generated");
        }
        if job.is("manualSelector") {
            job.get("manualSelector").unsupported(&["nil", "false"]);
        }
        for member in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
            spec.get(member).not_negative();
        }
        let name = at.get("metadata.name");
        if old.is_none() && name.text().len() > NAME_BYTES_MAX {
            name.invalid(format!("must be no more than {NAME_BYTES_MAX} characters"));
        }
    });
}

/// Whether a schedule names its time zone itself.
fn has_zone(schedule: &str) -> bool {
    schedule.contains("TZ")
}

/// Maximum length of a part of a time zone's name, in bytes.
const ZONE_PART_MAX: usize = 14;

fn time_zone(at: &At<'_, '_>) {
    if !at.is_set() {
        return;
    }
    let name = at.text();
    if name.is_empty() {
        return at.invalid("timeZone must be nil or non-empty string");
    }
    let is_part = |part: &str| {
        let is_inner = |b: u8| b.is_ascii_alphanumeric() || b".-_+".contains(&b);
        !part.is_empty()
            && part.len() <= ZONE_PART_MAX
            && part.bytes().all(is_inner)
            && !matches!(part, "." | "..")
            && !part.starts_with('-')
    };
    let is_local = name.eq_ignore_ascii_case("local");
    if is_local {
        at.invalid(
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones",
        );
    }
    if name == "Local" {
        return;
    }
    if !name.split('/').all(is_part) {
        at.invalid(format!("unknown time zone {name}"));
    } else if name.contains("..") {
        at.invalid("time: invalid location name");
    } else if !is_zone(name) {
        at.invalid(format!("unknown time zone {name}"));
    }
}

/// Whether there is a time zone of this name, in this case.
fn is_zone(name: &str) -> bool {
    let zone = TimeZoneDatabase::bundled().get(name);
    zone.is_ok_and(|zone| zone.iana_name() == Some(name))
}

fn warnings(cron_job: &Value) -> Vec<String> {
    let mut all: Vec<String> = workload::name_warning(cron_job).into_iter().collect();
    all.append(&mut spec_warnings(cron_job));
    all
}
fn spec_warnings(cron_job: &Value) -> Vec<String> {
    let job = &cron_job["spec"]["jobTemplate"]["spec"];
    let path = "spec.jobTemplate.spec";
    let mut all = Vec::new();
    all.extend(warning(job, path));
    all.append(&mut template::template_warnings(&job["template"], &format!("{path}.template")));
    all
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
