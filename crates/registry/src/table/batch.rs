//! Kinds that run Pods to completion.

use super::age::{age_of, human_duration, seconds_between};
use super::cell::{
    self, NONE, at, condition_is_true, containers, has, int, selector, text, text_or,
};
use serde_json::Value;
use setpoint_object::time::Timestamp;

pub(super) fn job(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(object, "spec.template.spec.containers");
    vec![
        cell::name(object),
        job_status(object).into(),
        completions(object).into(),
        duration(object, now).into(),
        cell::age(object, now),
        names,
        images,
        selector(object, "spec.selector").into(),
    ]
}

fn job_status(object: &Value) -> &'static str {
    let holds = |condition: &&str| condition_is_true(object, condition);
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
    let succeeded = int(object, "status.succeeded");
    match (at(object, "spec.completions").as_i64(), int(object, "spec.parallelism")) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    }
}

fn duration(object: &Value, now: Timestamp) -> String {
    let Some(start) = Timestamp::parse(text(object, "status.startTime")) else {
        return String::new();
    };
    let end = Timestamp::parse(text(object, "status.completionTime")).unwrap_or(now);
    human_duration(seconds_between(start, end))
}

pub(super) fn cron_job(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(object, "spec.jobTemplate.spec.template.spec.containers");
    let last = if has(object, "status.lastScheduleTime") {
        age_of(text(object, "status.lastScheduleTime"), now)
    } else {
        NONE.to_owned()
    };
    vec![
        cell::name(object),
        text(object, "spec.schedule").into(),
        text_or(object, "spec.timeZone", NONE).into(),
        cell::flag(object, "spec.suspend").into(),
        cell::len(object, "status.active").into(),
        last.into(),
        cell::age(object, now),
        names,
        images,
        selector(object, "spec.jobTemplate.spec.selector").into(),
    ]
}
