//! Jobs.
mod policy;
mod status;

pub(super) use policy::{default as policy_default, rules, warning};

use crate::features::Feature;
use crate::kind::at::{At, check};
use crate::kind::{
    Context, Fill, Kind, Members, MetadataChecks, Report, Selectable, StatusMeta, pod_default,
    workload,
};
use crate::table::{age, cell};
use serde_json::Value;
use setpoint_object::GroupVersionKind;
use setpoint_object::label::Selector;
use setpoint_object::meta::ObjectExt;
use setpoint_object::time::Timestamp;
use setpoint_object::{field, name};

/// Job.
pub(in crate::kind) static KIND: Kind = Kind {
    changed_metadata: MetadataChecks::WHOLE_THEN_CHANGE,
    orphans_by_default: true,
    orphan_warning: ORPHANS,
    default,
    prepare,
    validate,
    validate_change: validate_update,
    validate_status: status::validate,
    warnings,
    update_warnings: |new, old| {
        if workload::has_stepped(new, old) { spec_warnings(new) } else { Vec::new() }
    },
    pod_spec: "spec.template.spec",
    selectable: &[Selectable {
        path: "status.succeeded",
        absent: "0",
        ..Selectable::new("status.successful")
    }],
    unknown_label,
    cells: Some(cells),
    rules: "numbers, indexes, failure and success policies, selector, template; immutable fields, and what a suspended Job may change; `status`",
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

/// Job. Labels default to those of the template, which `prepare` adds the uid to.
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
    spec.absent("manualSelector", false);
    let replacement =
        if spec.contains_key("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    spec.absent("podReplacementPolicy", replacement);
    policy::default(spec);
    pod_default::template(spec);
    if let Some(labels) = labels
        && let Some(metadata) = object.object_or_new("metadata")
    {
        metadata.absent("labels", labels);
    }
}

/// Generates a unique selector for a Job without one. As there, labels that are a default are those
/// of the template, so that they get the uid with it, unless the name of the Job is generated.
fn prepare(context: &Context<'_>, job: &mut Value, old: Option<&Value>) {
    if old.is_some() {
        return;
    }
    let (name, uid) = (job.name().to_owned(), job.uid().to_owned());
    let has_labels = job["spec"]["template"]["metadata"]["labels"]
        .as_object()
        .is_some_and(|labels| !labels.is_empty());
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
    // A name that is no value of a label is refused in the template. The API reports it here, too,
    // only if the template has labels of its own.
    let fits = has_labels || name::label_value(&name).is_empty();
    let is_bare = context.has_default_labels
        || job["metadata"]["labels"].as_object().is_none_or(|labels| labels.is_empty());
    let is_bare = fits && is_bare;
    if let Some(labels) = labels.filter(|l| is_bare && l.is_object()) {
        job.set_meta("labels", labels);
    }
}

/// Validates a new or changed Job.
fn validate(job: &Value, old: Option<&Value>, errors: &mut Report) {
    check(job, None, errors, |at| generated(at, old));
    check(job, old, errors, rules_of_job);
    check(job, None, errors, host_names);
}
/// What an update may change.
fn validate_update(job: &Value, old: Option<&Value>, errors: &mut Report) {
    let Some(before) = old else { return };
    // The API checks the spec of a changed Job twice, and reports both.
    check(job, old, errors, rules_of_job);
    check(job, None, errors, |at| validate_change(&at.get("spec"), before));
}

fn rules_of_job(at: &At<'_, '_>) {
    let spec = at.get("spec");
    rules(&spec);
    let selector = spec.get("selector");
    if selector.is_set() {
        selector.selector();
    } else {
        selector.required("");
    }
    let labels = spec.get("template.metadata.labels");
    let label = |key: &str| labels.value.get(key).and_then(Value::as_str);
    if let Ok(parsed) = Selector::from_object(selector.value)
        && !parsed.is_some_and(|parsed| parsed.matches(label))
    {
        workload::mismatch(&labels);
    }
}

/// A selector that the server made. Jobs of older releases have no labels with a prefix.
fn generated(at: &At<'_, '_>, old: Option<&Value>) {
    let (name, uid) = (at.text_of("metadata.name"), at.text_of("metadata.uid"));
    let spec = at.get("spec");
    if !spec.is("manualSelector") && spec.has("selector") {
        let metadata = spec.get("template.metadata");
        let had = |key: &str| {
            old.is_none_or(|old| old["spec"]["template"]["metadata"]["labels"].get(key).is_some())
        };
        let with_prefix = had(CONTROLLER_UID) && had(JOB_NAME);
        for (key, expected) in
            [("controller-uid", uid), ("job-name", name), (CONTROLLER_UID, uid), (JOB_NAME, name)]
                .into_iter()
                .take(if with_prefix { 4 } else { 2 })
        {
            let label = metadata.entry("labels", key);
            if !label.is_set() {
                label.required(&format!("must be '{expected}'"));
            } else if label.text() != expected {
                label.invalid_as(metadata.get("labels").value, format!("must be '{expected}'"));
            }
        }
        let expected = |key: &str| match key {
            "controller-uid" => Some(uid),
            "job-name" => Some(name),
            CONTROLLER_UID if with_prefix => Some(uid),
            JOB_NAME if with_prefix => Some(name),
            _ => None,
        };
        let selector = spec.get("selector");
        if let Ok(Some(parsed)) = Selector::from_object(selector.value)
            && !parsed.matches(expected)
        {
            selector.invalid("`selector` not auto-generated");
        }
    }
}

/// Pods of an indexed Job get host names of its name and an index.
fn host_names(at: &At<'_, '_>) {
    let (name, spec) = (at.text_of("metadata.name"), at.get("spec"));
    let completions = spec.int_of("completions");
    if spec.text_of("completionMode") == "Indexed" && completions > 0 {
        let host = format!("{name}-{}", completions - 1);
        if !name::dns1123_label(&host).is_empty() {
            at.get("metadata.name").invalid_as(
                &name.into(),
                format!("will not able to create pod with invalid DNS label: {host}"),
            );
        }
    }
}

/// What an update may change.
fn validate_change(spec: &At<'_, '_>, old: &Value) {
    let (before, status) = (&old["spec"], &old["status"]);
    let completions = spec.get("completions");
    if spec.text_of("completionMode") != "Indexed" {
        completions.immutable(&before["completions"]);
    } else if completions.is_set()
        && completions.value != &before["completions"]
        && completions.value != spec.get("parallelism").value
    {
        // An indexed Job is scaled by both numbers.
        completions.invalid("can only be modified in tandem with spec.parallelism");
    }
    // A selector of everything is another one than none.
    let selector = spec.get("selector");
    match selector.is_set() == before["selector"].is_null() {
        true => selector.invalid("field is immutable"),
        false => selector.immutable(&before["selector"]),
    }
    let (template, mut expected) = (spec.get("template"), before["template"].clone());
    let is_suspended = before["suspend"] == true;
    let has_condition = crate::kind::list(status, "conditions")
        .iter()
        .any(|one| one["type"] == "Suspended" && one["status"] == "True");
    let never_started = is_suspended && status.get("startTime").is_none_or(Value::is_null);
    let is_waiting = is_suspended
        && (never_started || has_condition)
        && status["active"].as_i64().unwrap_or(0) == 0;
    let may_place = match spec.is_on(Feature::MutableSchedulingDirectivesForSuspendedJobs) {
        true => is_waiting,
        false => never_started,
    };
    if may_place {
        place(&mut expected, template.value);
    }
    if is_waiting && spec.is_on(Feature::MutablePodResourcesForSuspendedJobs) {
        take_resources(&mut expected, template.value);
        // The API compares the pod alone here: labels and annotations may change.
        template.get("spec").immutable(&expected["spec"]);
    } else {
        template.immutable(&expected);
    }
    for member in
        ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"]
    {
        spec.get(member).immutable(&before[member]);
    }
}

/// Takes the members of a template that say where its pods run.
fn place(stored: &mut Value, sent: &Value) {
    let take = |stored: &mut Value, sent: &Value, member: &str| {
        let Some(members) = stored.as_object_mut() else { return };
        match sent.get(member) {
            Some(value) => members.insert(member.to_owned(), value.clone()),
            None => members.remove(member),
        };
    };
    if !stored["metadata"].is_object() {
        stored["metadata"] = Value::Object(Members::new());
    }
    for member in ["labels", "annotations"] {
        take(&mut stored["metadata"], &sent["metadata"], member);
    }
    for member in ["nodeSelector", "tolerations", "schedulingGates"] {
        take(&mut stored["spec"], &sent["spec"], member);
    }
    let affinity = &sent["spec"]["affinity"];
    if affinity.is_object() && !stored["spec"]["affinity"].is_object() {
        stored["spec"]["affinity"] = Value::Object(Members::new());
    }
    if stored["spec"]["affinity"].is_object() {
        take(&mut stored["spec"]["affinity"], affinity, "nodeAffinity");
        if affinity.is_null() && stored["spec"]["affinity"] == Value::Object(Members::new()) {
            take(&mut stored["spec"], &sent["spec"], "affinity");
        }
    }
}
/// Takes the resources of the containers.
fn take_resources(stored: &mut Value, sent: &Value) {
    for list in ["containers", "initContainers"] {
        let Some(stored) = stored["spec"].get_mut(list).and_then(Value::as_array_mut) else {
            continue;
        };
        let sent = crate::kind::list(&sent["spec"], list);
        if sent.len() != stored.len() {
            continue;
        }
        for (stored, sent) in stored.iter_mut().zip(sent) {
            if stored["name"] == sent["name"]
                && let Some(members) = stored.as_object_mut()
            {
                match sent.get("resources") {
                    Some(resources) => members.insert("resources".to_owned(), resources.clone()),
                    None => members.remove("resources"),
                };
            }
        }
    }
}

fn warnings(job: &Value) -> Vec<String> {
    let mut all: Vec<String> = workload::name_warning(job).into_iter().collect();
    all.append(&mut spec_warnings(job));
    all
}
fn spec_warnings(job: &Value) -> Vec<String> {
    let mut all: Vec<String> = policy::warning(&job["spec"], "spec").into_iter().collect();
    all.append(&mut workload::template_warnings(job));
    all
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
