//! Jobs.
use super::fill::{Fill, Object};
use super::pod;

/// Job. Its selector and labels carry the uid: the registry makes them.
pub(super) fn job(object: &mut Object) {
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
    pod::template(spec);
    if let Some(labels) = labels
        && let Some(metadata) = object.object_or_new("metadata")
    {
        metadata.absent("labels", labels);
    }
}

/// CronJob. Its job template is defaulted when a Job is made of it, except for the pod.
pub(super) fn cron_job(object: &mut Object) {
    let Some(spec) = object.object("spec") else { return };
    spec.absent("concurrencyPolicy", "Allow");
    spec.absent("suspend", false);
    spec.absent("successfulJobsHistoryLimit", 3);
    spec.absent("failedJobsHistoryLimit", 1);
    if let Some(job) = spec.object("jobTemplate").and_then(|template| template.object("spec")) {
        pod::template(job);
    }
}
