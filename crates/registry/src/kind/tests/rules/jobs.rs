//! What changes of Jobs and CronJobs.
use super::{Name, changed, created, fresh};
use crate::kind::rows;
use serde_json::{Value, json};

/// The warnings for an update.
fn warned((group, _, kind): Name, new: &Value, old: &Value) -> Vec<String> {
    (rows::of(group, kind).unwrap().update_warnings)(new, old)
}
fn job(rest: Value) -> Value {
    let mut spec = json!({"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}});
    for (member, value) in rest.as_object().unwrap() {
        spec[member] = value.clone();
    }
    json!({"spec": spec})
}

#[test]
fn what_the_status_of_a_job_may_change() {
    let name: Name = ("batch", "v1", "Job");
    let change = |spec: Value, before: Value, after: Value| {
        let mut old = fresh(name, job(spec));
        old["status"] = before;
        let mut new = old.clone();
        new["status"] = after;
        changed(name, &old, &new, true)
    };
    const SHRUNK: &str =
        "status.succeeded: Invalid value: 1: cannot decrease the succeeded counter";
    let indexed = json!({"completionMode": "Indexed", "completions": 2, "parallelism": 2});
    let counts = [json!({"succeeded": 2}), json!({"succeeded": 1})];
    let [two, one] = counts;
    assert_eq!(change(indexed, two.clone(), one.clone()), [""; 0]);
    assert_eq!(change(json!({}), two.clone(), one.clone()), [SHRUNK]);
    let fewer = json!({"completionMode": "Indexed", "completions": 2, "parallelism": 1});
    assert_eq!(change(fewer, two, one), [SHRUNK]);

    let at = |time: &str, suspended: &str| json!({"startTime": time, "conditions": [{"type": "Suspended", "status": suspended}]});
    let (then, now) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z");
    assert_eq!(change(json!({}), at(then, "True"), at(now, "False")), [""; 0]);
    assert_eq!(
        change(json!({}), at(then, "False"), at(now, "False")),
        [
            "status.startTime: Invalid value: \"2026-01-01T00:00:01Z\": field is immutable for unsuspended job once set"
        ]
    );

    let complete = json!({"completionTime": now, "conditions": [{"type": "Complete", "status": "True"}, {"type": "SuccessCriteriaMet", "status": "True"}]});
    let nothing = json!({"suspend": true, "completions": 0});
    assert_eq!(change(nothing, json!({}), complete.clone()), [""; 0]);
    assert_eq!(
        change(json!({"completions": 0}), json!({}), complete),
        ["status.startTime: Required value: startTime is required for finished job"]
    );

    let uncounted = json!({"uncountedTerminatedPods": {"succeeded": ["a"], "failed": ["a"]}});
    assert_eq!(
        change(json!({}), json!({}), uncounted),
        ["status.uncountedTerminatedPods.failed[0]: Duplicate value: \"a\""]
    );
}

#[test]
fn time_zones_of_cron_jobs() {
    let name: Name = ("batch", "v1", "CronJob");
    let mut sample = json!({"spec": {"schedule": "* * * * *"}});
    sample["spec"]["jobTemplate"] = job(json!({}));
    let unknown =
        |zone: &str| format!("spec.timeZone: Invalid value: {zone:?}: unknown time zone {zone}");
    for zone in ["UTC", "Etc/UTC", "America/Argentina/Buenos_Aires"] {
        sample["spec"]["timeZone"] = zone.into();
        assert_eq!(created(name, sample.clone()), [""; 0], "{zone}");
    }
    for zone in ["utc", "europe/berlin", "Europe/berlin"] {
        sample["spec"]["timeZone"] = zone.into();
        assert_eq!(created(name, sample.clone()), [unknown(zone)]);
    }
    sample["spec"]["timeZone"] = "a..b".into();
    let why = r#"spec.timeZone: Invalid value: "a..b": time: invalid location name"#;
    assert_eq!(created(name, sample.clone()), [why]);
    sample["spec"].as_object_mut().unwrap().remove("timeZone");
    // One that was stored before it was forbidden.
    let mut old = fresh(name, sample);
    old["spec"]["schedule"] = "TZ=UTC 0 * * * *".into();
    let mut new = old.clone();
    new["spec"]["schedule"] = "TZ=UTC 1 * * * *".into();
    assert_eq!(changed(name, &old, &new, false), [""; 0]);
    assert_eq!(
        warned(name, &new, &old),
        [
            "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
        ]
    );
    new["spec"]["timeZone"] = "UTC".into();
    assert_eq!(
        changed(name, &old, &new, false),
        [
            "spec.schedule: Invalid value: \"TZ=UTC 1 * * * *\": cannot use both timeZone field and TZ or CRON_TZ in schedule"
        ]
    );
}

#[test]
fn conditions_of_failure_policies_are_true_by_default() {
    let policy =
        json!({"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]});
    let spec = job(json!({"podFailurePolicy": policy}));
    let cron = fresh(
        ("batch", "v1", "CronJob"),
        json!({"spec": {"schedule": "* * * * *", "jobTemplate": spec}}),
    );
    let policy = &cron["spec"]["jobTemplate"]["spec"]["podFailurePolicy"];
    assert_eq!(policy["rules"][0]["onPodConditions"][0]["status"], "True");
}
