//! The Workload and the PodGroup of a Job whose pods are a gang.
//!
//! An indexed Job whose pods all run at once gets a Workload, before its first pod, and that a
//! PodGroup. Its pods name the group. What another one has made or changed is left alone: then
//! pods have no group. kube-controller-manager does the same with its feature gate
//! `WorkloadWithJob`, by the same names.

use super::object::Job;
use super::pods::JobPods;
use crate::workload::deployment::hash_of_texts;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube_core::{ApiResource, DynamicObject};
use serde_json::{Value, json};
use setpoint_runtime::owner::controller_of;
use setpoint_runtime::{Api, BoxError, Client, Request, Watch, controller_reference};
use std::sync::Arc;

/// The group and the version that it reads and writes.
const GROUP: &str = "scheduling.k8s.io";
const VERSION: &str = "v1alpha2";
/// The index of Workloads by the Job that they are for: `namespace/name`.
const BY_JOB: &str = "job";
/// The index of PodGroups by the Workload that their template is in.
const BY_WORKLOAD: &str = "workload";
/// The longest name of an object.
const NAME_BYTES_MAX: usize = 253;

fn resource(kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: GROUP.to_owned(),
        version: VERSION.to_owned(),
        api_version: format!("{GROUP}/{VERSION}"),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

fn workloads(client: &Client) -> Api<DynamicObject> {
    client.api_with(resource("Workload", "workloads"))
}

fn groups(client: &Client) -> Api<DynamicObject> {
    client.api_with(resource("PodGroup", "podgroups"))
}

/// The Workloads that a controller of Jobs reads.
pub(super) fn watch_workloads() -> Watch<DynamicObject> {
    let watch = Watch::<DynamicObject>::dynamic(resource("Workload", "workloads"));
    watch.index(BY_JOB, |workload: &DynamicObject| {
        let job = job_of(workload).map(|job| format!("{}/{job}", namespace(workload)));
        job.into_iter().collect()
    })
}

/// The PodGroups that it reads.
pub(super) fn watch_groups() -> Watch<DynamicObject> {
    let watch = Watch::<DynamicObject>::dynamic(resource("PodGroup", "podgroups"));
    watch.index(BY_WORKLOAD, |group: &DynamicObject| {
        let workload = workload_of(group).map(|name| format!("{}/{name}", namespace(group)));
        workload.into_iter().collect()
    })
}

fn namespace(object: &DynamicObject) -> &str {
    object.metadata.namespace.as_deref().unwrap_or_default()
}

fn name(object: &DynamicObject) -> &str {
    object.metadata.name.as_deref().unwrap_or_default()
}

/// The name of the Job that a Workload is for.
fn job_of(workload: &DynamicObject) -> Option<&str> {
    let controller = &workload.data["spec"]["controllerRef"];
    let is_job = controller["apiGroup"] == "batch" && controller["kind"] == "Job";
    controller["name"].as_str().filter(|name| is_job && !name.is_empty())
}

/// The name of the Workload that a group's template is in.
fn workload_of(group: &DynamicObject) -> Option<&str> {
    let name = &group.data["spec"]["podGroupTemplateRef"]["workload"]["workloadName"];
    name.as_str().filter(|name| !name.is_empty())
}

/// Whether the pods of a Job are a gang: all run at once, each has an index, and the template names
/// no group.
fn is_gang(job: &Job) -> bool {
    job.parallelism() > 1
        && job.indexed() == Some(job.parallelism())
        && job.spec.template["spec"]["schedulingGroup"].is_null()
}

/// Whether a Job has never started.
fn is_new(job: &Job, n_pods: usize) -> bool {
    let status = &job.status;
    let mut conditions = status.conditions.iter().flatten();
    n_pods == 0
        && status.start_time.is_none()
        && status.succeeded.unwrap_or(0) == 0
        && status.failed.unwrap_or(0) == 0
        && !conditions.any(|condition| condition.type_ == "Suspended")
}

/// The name of the group of a Job with `n_pods` pods, which is made if it must have one; `None` if
/// its pods have none.
///
/// # Errors
///
/// The caches are behind, or the server refuses or cannot be reached.
pub(super) async fn group_of(
    writer: &JobPods<'_>,
    n_pods: usize,
) -> Result<Option<String>, BoxError> {
    let job = writer.job;
    if !is_gang(job) || job.is_being_deleted() {
        return Ok(None);
    }
    let Some(workload) = workload(writer, n_pods).await? else { return Ok(None) };
    let api = groups(writer.client);
    api.lister_own().await?;
    let key = format!("{}/{}", job.namespace(), name(&workload));
    let found = api.lister_of(job.namespace())?.by_index(BY_WORKLOAD, &key)?;
    let found = match &found[..] {
        [] => Some(made(&api, new_group(job, &workload)?).await?),
        [group] => Some(group.clone()),
        [..] => None,
    };
    let is_for_it = |group: &Arc<DynamicObject>| workload_of(group) == Some(name(&workload));
    let group = found.filter(|group| is_for_it(group) && is_controlled(group, job));
    Ok(group.map(|group| name(&group).to_owned()))
}

/// The Workload of a Job, if pods should have a group of it.
async fn workload(
    writer: &JobPods<'_>,
    n_pods: usize,
) -> Result<Option<Arc<DynamicObject>>, BoxError> {
    let job = writer.job;
    let api = workloads(writer.client);
    api.lister_own().await?;
    let key = format!("{}/{}", job.namespace(), job.name());
    let found = api.lister_of(job.namespace())?.by_index(BY_JOB, &key)?;
    let found = match &found[..] {
        [] if !is_new(job, n_pods) => None,
        [] => {
            let workload = made(&api, new_workload(job)?).await?;
            let note = format!("Created Workload {} for Job {}", name(&workload), job.name());
            writer.context.recorder().normal(&writer.reference, "WorkloadCreated", note);
            Some(workload)
        }
        [workload] => Some(workload.clone()),
        [..] => None,
    };
    let has_one_template = |workload: &Arc<DynamicObject>| {
        let templates = workload.data["spec"]["podGroupTemplates"].as_array();
        templates.is_some_and(|templates| templates.len() == 1)
    };
    Ok(found.filter(|workload| {
        job_of(workload) == Some(job.name())
            && is_controlled(workload, job)
            && has_one_template(workload)
    }))
}

fn is_controlled(object: &DynamicObject, job: &Job) -> bool {
    controller_of(object).is_some_and(|controller| controller.uid == job.uid())
}

/// Creates an object. One that has the name already was made by an earlier pass, whose answer was
/// lost, or by somebody else.
async fn made(
    api: &Api<DynamicObject>,
    object: DynamicObject,
) -> Result<Arc<DynamicObject>, BoxError> {
    match api.create(&object).await {
        Ok(created) => Ok(Arc::new(created)),
        Err(error) if error.is_already_exists() => {
            match api.get_live(&Request::of(&object)).await? {
                Some(found) => Ok(Arc::new(found)),
                None => Err(error.into()),
            }
        }
        Err(error) => Err(error.into()),
    }
}

fn new_workload(job: &Job) -> Result<DynamicObject, BoxError> {
    let mut workload = DynamicObject::new(
        &workload_name(job.name(), job.uid()),
        &resource("Workload", "workloads"),
    )
    .within(job.namespace());
    workload.metadata.owner_references = Some(vec![controller_reference(job, &())?]);
    workload.data = json!({"spec": {
        "controllerRef": {"apiGroup": "batch", "kind": "Job", "name": job.name()},
        "podGroupTemplates": [{
            "name": format!("{}-pgt-0", job.name()),
            "schedulingPolicy": {"gang": {"minCount": job.parallelism()}},
        }],
    }});
    Ok(workload)
}

fn new_group(job: &Job, workload: &DynamicObject) -> Result<DynamicObject, BoxError> {
    let template: &Value = &workload.data["spec"]["podGroupTemplates"][0];
    let template_name = template["name"].as_str().unwrap_or_default();
    let mut group = DynamicObject::new(
        &group_name(name(workload), template_name),
        &resource("PodGroup", "podgroups"),
    )
    .within(job.namespace());
    let of_workload = OwnerReference {
        api_version: format!("{GROUP}/{VERSION}"),
        kind: "Workload".to_owned(),
        name: name(workload).to_owned(),
        uid: workload.metadata.uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    };
    group.metadata.owner_references = Some(vec![controller_reference(job, &())?, of_workload]);
    group.data = json!({"spec": {
        "podGroupTemplateRef": {"workload": {
            "workloadName": name(workload), "podGroupTemplateName": template_name,
        }},
        "schedulingPolicy": template["schedulingPolicy"],
    }});
    Ok(group)
}

/// The name of the Workload of a Job: `<job>-<hash of the uid>`.
fn workload_name(job: &str, uid: &str) -> String {
    // As Go prints a value with its type.
    let hash = hash_of_texts(&["(types.UID)", uid]);
    format!("{}-{hash}", head(job, NAME_BYTES_MAX - hash.len() - 1))
}

/// The name of a PodGroup: `<workload>-<template>-<hash of both>`. If they are too long, each has
/// half of the room, and what the other one leaves.
fn group_name(workload: &str, template: &str) -> String {
    let hash = hash_of_texts(&[workload, template]);
    let room = NAME_BYTES_MAX - hash.len() - 2;
    let half = room / 2;
    let (workload, template) = match (workload.len(), template.len()) {
        (first, second) if first + second <= room => (workload, template),
        (first, _) if first <= half => (workload, head(template, room - first)),
        (_, second) if second <= half => (head(workload, room - second), template),
        _ => (head(workload, room - half), head(template, half)),
    };
    format!("{workload}-{template}-{hash}")
}

/// The first bytes of a name, which is ASCII.
fn head(name: &str, n_bytes_max: usize) -> &str {
    name.get(..n_bytes_max).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_enough_and_end_with_a_hash() {
        let name = workload_name("train", "7a0c1b8e-1c4f-4d0e-9a53-0f6a4d6b2a11");
        assert_eq!(name, "train-6cbbd5d99c");
        let (long, short) = ("w".repeat(250), "tpl");
        for (workload, template) in [(&*long, short), (short, &*long), (&*long, &*long)] {
            let name = group_name(workload, template);
            assert_eq!(name.len(), NAME_BYTES_MAX, "{name}");
            assert!(name.contains("-tpl-") || name.starts_with("tpl-") || name.contains("w-w"));
            assert_eq!(name, group_name(workload, template));
            assert_ne!(name, group_name(workload, "other"));
        }
        assert!(group_name("wl", "t").starts_with("wl-t-"));
        assert_eq!(workload_name(&long, "u").len(), NAME_BYTES_MAX);
    }
}
