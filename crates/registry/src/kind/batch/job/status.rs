//! What a Job's controller reports.
use super::policy::{count_indexes, interval_of};
use crate::kind::at::{At, check};
use crate::kind::{Report, list, text};
use serde_json::Value;
use setpoint_object::time::Timestamp;
use std::collections::HashSet;

/// Validates a write through `/status`.
pub(super) fn validate(job: &Value, old: Option<&Value>, errors: &mut Report) {
    check(job, old, errors, |at| {
        // In the order of Kubernetes, whose messages list them so.
        let (status, spec) = (at.get("status"), at.get("spec"));
        let says = Conditions::of(status.value);
        let conditions = status.get("conditions");
        counters(&status);
        says.one_end(&conditions);
        times(&status, says.complete);
        says.reasons_of_end(&conditions);
        if says.is_finished() {
            let has_nothing = spec.get("completions").int() == Some(0);
            finished(&status, spec.is("suspend") && has_nothing);
        }
        indexes(&status, &spec);
        if says.is_finished() && status.int_of("terminating") > 0 {
            status.get("terminating").invalid("terminating>0 is invalid for finished job");
        }
        if status.has("ready") && status.int_of("ready") > status.int_of("active") {
            status.get("ready").invalid("cannot set more ready pods than active");
        }
        says.success(&conditions, spec.has("successPolicy"));
    });
    let Some(old) = old else { return };
    check(job, None, errors, |at| changes(at, &old["status"]));
}

fn is_true(status: &Value, kind: &str) -> bool {
    has_condition(status, kind, "True")
}
fn has_condition(status: &Value, kind: &str, value: &str) -> bool {
    let conditions = list(status, "conditions");
    conditions.iter().any(|c| text(c, "type") == kind && text(c, "status") == value)
}

/// What the conditions say.
struct Conditions {
    complete: bool,
    failed: bool,
    failure_target: bool,
    success_met: bool,
}

impl Conditions {
    fn of(status: &Value) -> Self {
        Self {
            complete: is_true(status, "Complete"),
            failed: is_true(status, "Failed"),
            failure_target: is_true(status, "FailureTarget"),
            success_met: is_true(status, "SuccessCriteriaMet"),
        }
    }

    fn is_finished(&self) -> bool {
        self.complete || self.failed
    }

    fn one_end(&self, at: &At<'_, '_>) {
        if self.complete && self.failed {
            at.invalid_bare("cannot set Complete=True and Failed=true conditions");
        }
        if self.complete && self.failure_target {
            at.invalid_bare("cannot set Complete=True and FailureTarget=true conditions");
        }
    }

    fn reasons_of_end(&self, at: &At<'_, '_>) {
        if self.failed && !self.failure_target {
            at.invalid_bare(
                "cannot set Failed=True condition without the FailureTarget=true condition",
            );
        }
        if self.complete && !self.success_met {
            at.invalid_bare(
                "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
            );
        }
    }

    fn success(&self, at: &At<'_, '_>, has_policy: bool) {
        if self.success_met && self.failed {
            at.invalid_bare("cannot set SuccessCriteriaMet=True and Failed=true conditions");
        }
        if self.success_met && self.failure_target {
            at.invalid_bare("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions");
        }
        if has_policy && self.complete && !self.success_met {
            at.invalid_bare(
                "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True",
            );
        }
    }
}
fn counters(status: &At<'_, '_>) {
    for member in ["active", "succeeded", "failed", "ready", "terminating"] {
        status.get(member).not_negative();
    }
    let mut seen = HashSet::new();
    for member in ["succeeded", "failed"] {
        for uid in status.get("uncountedTerminatedPods").each(member) {
            if uid.text().is_empty() {
                uid.invalid("must not be empty");
            } else {
                uid.unique(&mut seen);
            }
        }
    }
}

/// What a Job that has ended does not have. `may_not_start`: it is suspended, and has nothing to
/// do.
fn finished(status: &At<'_, '_>, may_not_start: bool) {
    if status.int_of("active") > 0 {
        status.get("active").invalid("active>0 is invalid for finished job");
    }
    let start = status.get("startTime");
    if !start.is_set() && !may_not_start {
        start.required("startTime is required for finished job");
    }
    let uncounted = status.get("uncountedTerminatedPods");
    if ["succeeded", "failed"].iter().any(|member| !uncounted.list_of(member).is_empty()) {
        uncounted.invalid("must be empty for finished job");
    }
}

fn times(status: &At<'_, '_>, is_complete: bool) {
    let (start, end) = (status.get("startTime"), status.get("completionTime"));
    if end.is_set() && !is_complete {
        end.invalid("cannot set completionTime when there is no Complete=True condition");
    }
    if !end.is_set() && is_complete {
        end.required("completionTime is required for Complete jobs");
    }
    let moment = |at: &At<'_, '_>| Timestamp::parse(at.text());
    if let (Some(started), Some(ended)) = (moment(&start), moment(&end))
        && ended < started
    {
        end.invalid("must be equal to or after `startTime`");
    }
}

fn indexes(status: &At<'_, '_>, spec: &At<'_, '_>) {
    let (completed, failed) = (status.get("completedIndexes"), status.get("failedIndexes"));
    if let Some(completions) = spec.get("completions").int() {
        let check = |at: &At<'_, '_>, noun: &str| {
            if let Err(error) = count_indexes(at.text(), completions) {
                at.invalid(format!("error parsing {noun}: {error}"));
            }
        };
        check(&completed, "completedIndexes");
        if spec.has("backoffLimitPerIndex") {
            check(&failed, "failedIndexes");
        }
    }
    if !completed.text().is_empty() && spec.text_of("completionMode") != "Indexed" {
        completed.invalid("cannot set non-empty completedIndexes when non-indexed completion mode");
    }
    if failed.is_set() && !spec.has("backoffLimitPerIndex") {
        failed.invalid("cannot set non-null failedIndexes when backoffLimitPerIndex is null");
    }
    if let Some(completions) = spec.get("completions").int()
        && let Some(index) = overlap(completed.text(), failed.text(), completions)
    {
        failed.invalid(format!("failedIndexes and completedIndexes overlap at index: {index}"));
    }
}

/// The first index that is in both lists of increasing intervals.
fn overlap(a: &str, b: &str, completions: i64) -> Option<i64> {
    let intervals = |text: &str| -> Vec<(i64, i64)> {
        text.split(',').filter_map(|part| interval_of(part, completions).ok()).collect()
    };
    let (a, b) = (intervals(a), intervals(b));
    let (mut i, mut j) = (0, 0);
    while let (Some((a_first, a_end)), Some((b_first, b_end))) = (a.get(i), b.get(j)) {
        if a_first <= b_end && b_first <= a_end {
            return Some(*a_first.max(b_first));
        }
        if a_first <= b_first { i += 1 } else { j += 1 }
    }
    None
}

const SUSPENDED: &str = "Suspended";

/// What does not go back.
fn changes(at: &At<'_, '_>, old: &Value) {
    let status = at.get("status");
    let conditions = status.get("conditions");
    let is = |status: &Value, kind: &str| is_true(status, kind);
    for kind in ["Failed", "Complete", "FailureTarget"] {
        if is(old, kind) && !is(status.value, kind) {
            conditions.invalid_bare(format!("cannot disable the terminal {kind}=True condition"));
        }
    }
    // An indexed Job whose two numbers are one is scaled down.
    let spec = at.get("spec");
    let may_shrink = spec.text_of("completionMode") == "Indexed"
        && spec.get("completions").value == spec.get("parallelism").value;
    for member in ["failed", "succeeded"].into_iter().take(if may_shrink { 1 } else { 2 }) {
        let number = status.get(member);
        if status.int_of(member) < old[member].as_i64().unwrap_or(0) {
            number.invalid_as(
                &status.int_of(member).into(),
                format!("cannot decrease the {member} counter"),
            );
        }
    }
    let end = status.get("completionTime");
    if end.is_set() && !old["completionTime"].is_null() && end.value != &old["completionTime"] {
        end.invalid("field is immutable");
    }
    let start = status.get("startTime");
    let resumes = is_true(old, SUSPENDED) && has_condition(status.value, SUSPENDED, "False");
    if !old["startTime"].is_null()
        && start.value != &old["startTime"]
        && !at.is("spec.suspend")
        && !resumes
    {
        start.invalid("field is immutable for unsuspended job once set");
    }
    let met = "SuccessCriteriaMet";
    if is(old, met) && !is(status.value, met) {
        conditions.invalid_bare("cannot disable the SuccessCriteriaMet=True condition");
    }
    if is(old, "Complete") && !is(old, met) && is(status.value, met) {
        conditions.invalid_bare(
            "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions",
        );
    }
}
