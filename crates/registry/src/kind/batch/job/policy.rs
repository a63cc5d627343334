//! What a Job and the template of a CronJob have in common: numbers, policies and the pods.
use crate::kind::at::At;
use crate::kind::{Fill, Members, format, template, text};
use serde_json::Value;
use setpoint_object::{field, name};
use std::collections::HashSet;

/// Limits of an indexed Job, as Kubernetes has them.
const PARALLELISM_MAX: i64 = 100_000;
const FAILED_INDEXES_MAX: i64 = 100_000;
/// Above so many completions with a limit per index, there are lower limits.
const COMPLETIONS_MANY: i64 = 100_000;
const PARALLELISM_MANY_MAX: i64 = 10_000;
const FAILED_INDEXES_MANY_MAX: i64 = 10_000;
const RULES_MAX: usize = 20;
const PATTERNS_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;
const MANAGER_MAX: usize = 63;
const INDEXES_BYTES_MAX: usize = 64 * 1024;

/// The status of a condition in a failure policy, in the spec of a Job.
pub(in crate::kind::batch) fn default(spec: &mut Members) {
    let Some(policy) = spec.object("podFailurePolicy") else { return };
    for rule in policy.each("rules") {
        for pattern in rule.each("onPodConditions") {
            if pattern.text("status").is_empty() {
                pattern.insert("status".to_owned(), "True".into());
            }
        }
    }
}

/// The spec of a Job.
pub(in crate::kind::batch) fn rules(spec: &At<'_, '_>) {
    for member in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        spec.get(member).not_negative();
    }
    if spec.has("maxFailedIndexes") && !spec.has("backoffLimitPerIndex") {
        spec.get("backoffLimitPerIndex").required("when maxFailedIndexes is specified");
    }
    if let Some(manager) = spec.given("managedBy") {
        format::domain_path(&manager);
        if manager.text().len() > MANAGER_MAX {
            manager.too_long(MANAGER_MAX);
        }
    }
    let mode = spec.text_of("completionMode");
    let is_indexed = mode == "Indexed";
    spec.get("completionMode").one_of_if_set(&["NonIndexed", "Indexed"]);
    if is_indexed {
        indexed(spec);
    } else if mode == "NonIndexed" || !spec.has("completionMode") {
        for member in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if spec.has(member) {
                spec.get(member).invalid("requires indexed completion mode");
            }
        }
    }
    if let Some(policy) = spec.given("podFailurePolicy") {
        failure_policy(spec, &policy);
    }
    if let Some(policy) = spec.given("successPolicy") {
        if is_indexed {
            success_policy(spec, &policy);
        } else {
            policy.invalid("requires indexed completion mode");
        }
    }
    let replacement = spec.get("podReplacementPolicy");
    if spec.has("podFailurePolicy") {
        replacement.one_of_if_set(&["Failed"]);
    } else {
        replacement.one_of_if_set(&["Failed", "TerminatingOrFailed"]);
    }
    pods(spec);
}

fn indexed(spec: &At<'_, '_>) {
    let at_most = |member: &'static str, most: i64, detail: String| {
        let at = spec.get(member);
        if at.int().is_some_and(|number| number > most) {
            at.invalid(detail);
        }
    };
    let completions = spec.get("completions").int();
    if completions.is_none() {
        spec.get("completions").required("when completion mode is Indexed");
    }
    at_most(
        "parallelism",
        PARALLELISM_MAX,
        format!("must be less than or equal to {PARALLELISM_MAX} when completion mode is Indexed"),
    );
    if let Some(completions) = completions {
        at_most(
            "maxFailedIndexes",
            completions,
            "must be less than or equal to completions".to_owned(),
        );
    }
    at_most(
        "maxFailedIndexes",
        FAILED_INDEXES_MAX,
        format!("must be less than or equal to {FAILED_INDEXES_MAX}"),
    );
    if completions.is_some_and(|n| n > COMPLETIONS_MANY) && spec.has("backoffLimitPerIndex") {
        if !spec.has("maxFailedIndexes") {
            spec.get("maxFailedIndexes").required(&format!(
                "must be specified when completions is above {COMPLETIONS_MANY}"
            ));
        }
        for (member, most) in
            [("parallelism", PARALLELISM_MANY_MAX), ("maxFailedIndexes", FAILED_INDEXES_MANY_MAX)]
        {
            at_most(
                member,
                most,
                format!(
                    "must be less than or equal to {most} when completions are above {COMPLETIONS_MANY} and used with backoff limit per index"
                ),
            );
        }
    }
}

/// The pods of a Job end.
fn pods(spec: &At<'_, '_>) {
    let at = spec.get("template");
    template::template(&at);
    let policy = at.get("spec.restartPolicy");
    match policy.text() {
        "Always" | "" => policy.required("valid values: \"OnFailure\", \"Never\""),
        "OnFailure" if spec.has("podFailurePolicy") => {
            policy.invalid("only \"Never\" is supported when podFailurePolicy is specified");
        }
        "OnFailure" | "Never" => {}
        _ => policy.unsupported(&["OnFailure", "Never"]),
    }
}

/// One of a few texts; a missing one is reported with them.
fn one_of(at: &At<'_, '_>, supported: &[&str]) {
    let names: Vec<String> = supported.iter().map(|name| format!("\"{name}\"")).collect();
    if at.need_for(&format!("valid values: [{}]", names.join(" "))) {
        at.one_of_if_set(supported);
    }
}

/// What happens to a Job whose pods fail.
fn failure_policy(spec: &At<'_, '_>, policy: &At<'_, '_>) {
    let rules = policy.get("rules");
    rules.at_most(RULES_MAX);
    let containers: HashSet<&str> = ["containers", "initContainers"]
        .into_iter()
        .flat_map(|list| crate::kind::list(&spec.get("template").value["spec"], list))
        .map(|container| text(container, "name"))
        .collect();
    for rule in rules.items() {
        let action = rule.get("action");
        if action.text() == "FailIndex" && !spec.has("backoffLimitPerIndex") {
            action.invalid("requires the backoffLimitPerIndex to be set");
        }
        one_of(&action, &["Count", "FailIndex", "FailJob", "Ignore"]);
        let (codes, conditions) = (rule.get("onExitCodes"), rule.get("onPodConditions"));
        if codes.is_set() {
            exit_codes(&codes, &containers);
        }
        conditions.at_most(PATTERNS_MAX);
        for pattern in conditions.items() {
            let kind = pattern.get("type");
            kind.faults(name::qualified_name(kind.text()));
            one_of(&pattern.get("status"), &["False", "True", "Unknown"]);
        }
        let message = match (codes.is_set(), conditions.len() > 0) {
            (true, true) => "specifying both OnExitCodes and OnPodConditions is not supported",
            (false, false) => "specifying one of OnExitCodes and OnPodConditions is required",
            _ => continue,
        };
        rule.invalid_bare(message);
    }
}
fn exit_codes(at: &At<'_, '_>, containers: &HashSet<&str>) {
    one_of(&at.get("operator"), &["In", "NotIn"]);
    let container = at.get("containerName");
    if container.is_set() && !containers.contains(container.text()) {
        container
            .invalid("must be one of the container or initContainer names in the pod template");
    }
    let values = at.get("values");
    if values.len() == 0 {
        values.invalid("at least one value is required");
    }
    values.at_most(EXIT_CODES_MAX);
    let mut seen = HashSet::new();
    let mut last = i64::MIN;
    let mut is_ordered = true;
    for value in values.items() {
        let number = value.int().unwrap_or(0);
        if at.text_of("operator") == "In" && number == 0 {
            value.invalid("must not be 0 for the In operator");
        }
        if !seen.insert(number) {
            value.duplicate();
        }
        is_ordered &= last <= number;
        last = number;
    }
    if !is_ordered {
        values.invalid("must be ordered");
    }
}

/// When an indexed Job has succeeded.
fn success_policy(spec: &At<'_, '_>, policy: &At<'_, '_>) {
    let rules = policy.get("rules");
    rules.need_for("at least one rules must be specified when the successPolicy is specified");
    rules.at_most(RULES_MAX);
    let completions = spec.int_of("completions");
    for rule in rules.items() {
        let (count, indexes) = (rule.get("succeededCount"), rule.get("succeededIndexes"));
        if !count.is_set() && !indexes.is_set() {
            rule.required("at least one of succeededCount or succeededIndexes must be specified");
        }
        let mut total = 0;
        if indexes.is_set() {
            if indexes.text().len() > INDEXES_BYTES_MAX {
                indexes.too_long(INDEXES_BYTES_MAX);
            }
            match count_indexes(indexes.text(), completions) {
                Ok(n) => total = n,
                Err(error) => indexes.invalid(format!("error parsing succeededIndexes: {error}")),
            }
        }
        count.not_negative();
        if count.int().is_some_and(|count| count > completions) {
            count.invalid(format!(
                "must be less than or equal to {completions} (the number of specified completions)"
            ));
        }
        if indexes.is_set() && count.int().is_some_and(|count| count > total) {
            count.invalid(format!(
                "must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
            ));
        }
    }
}

/// The number of indexes in a text such as `1,3-5`, each below the completions.
pub(super) fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    let mut total = 0;
    let mut last = None;
    for interval in text.split(',').filter(|_| !text.is_empty()) {
        let (first, end) = interval_of(interval, completions)?;
        if let Some(last) = last.filter(|last| *last >= first) {
            return Err(format!("non-increasing order, previous: {last}, current: {first}"));
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}
/// The ends of one interval: `3-5` or `3`.
pub(super) fn interval_of(text: &str, completions: i64) -> Result<(i64, i64), String> {
    let number = |text: &str| -> Result<i64, String> {
        let number = text.parse::<i64>().map_err(|_| {
            format!("cannot convert string to integer for index: {}", field::quote(text))
        })?;
        if number >= completions {
            return Err(format!("too large index: {}", field::quote(text)));
        }
        Ok(number)
    };
    match text.split_once('-') {
        Some((_, rest)) if rest.contains('-') => Err(format!(
            "the fragment {} violates the requirement that an index interval can have at most two parts separated by '-'",
            field::quote(text)
        )),
        Some((first, end)) => {
            let (first, end) = (number(first)?, number(end)?);
            if first >= end {
                return Err(format!("non-increasing order, previous: {first}, current: {end}"));
            }
            Ok((first, end))
        }
        None => number(text).map(|number| (number, number)),
    }
}

/// Warns of a Job with so many indexes that its status may become too large.
pub(in crate::kind::batch) fn warning(spec: &Value, path: &str) -> Option<String> {
    let completions = spec["completions"].as_i64().unwrap_or(0);
    let parallelism = spec["parallelism"].as_i64().unwrap_or(0);
    let is_large = text(spec, "completionMode") == "Indexed"
        && completions > COMPLETIONS_MANY
        && parallelism > PARALLELISM_MANY_MAX;
    is_large.then(|| format!(
        "{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_counted() {
        for (text, count) in [("", 0), ("0", 1), ("0,2-4,7", 5)] {
            assert_eq!(count_indexes(text, 8), Ok(count), "{text}");
        }
        for (text, error) in [
            ("8", "too large index: \"8\""),
            ("2,1", "non-increasing order, previous: 2, current: 1"),
            ("3-3", "non-increasing order, previous: 3, current: 3"),
            ("x", "cannot convert string to integer for index: \"x\""),
            ("\0", r#"cannot convert string to integer for index: "\x00""#),
            (
                "1-2-3",
                "the fragment \"1-2-3\" violates the requirement that an index interval can have at most two parts separated by '-'",
            ),
        ] {
            assert_eq!(count_indexes(text, 8), Err(error.to_owned()), "{text}");
        }
    }
}
