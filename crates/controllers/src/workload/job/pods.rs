//! The pods of a Job: which are its own, and how they are created, deleted and released.

use super::object::Job;
use super::state::{FINALIZER, INDEX, INDEX_FAILURES, INDEX_IGNORED, State, is_tracked, number};
use crate::first_error::FirstError;
use crate::workload::pod_control::{
    PodControl, message, name_prefix, pod_from_template, precondition,
};
use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube_core::DynamicObject;
use kube_core::params::Patch;
use serde_json::{Value, json};
use setpoint_object::label::Selector;
use setpoint_runtime::client::ignore_not_found;
use setpoint_runtime::owner::controller_of;
use setpoint_runtime::{
    Api, BoxError, Client, ClientError, Context, ObjectReference, Request, controller_reference,
};
use std::collections::BTreeSet;
use std::sync::Arc;

/// How many requests of a pass run at a time.
const CONCURRENT: usize = 16;
/// The longest prefix of a generated name.
const PREFIX_CHARACTERS_MAX: usize = 58;
/// The environment variable with a pod's index.
const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";

/// Writes pods of one Job.
pub(super) struct JobPods<'a> {
    pub(super) context: &'a Context,
    pub(super) client: &'a Client,
    pub(super) job: &'a Job,
    pub(super) reference: ObjectReference,
    /// The name of the PodGroup of new pods.
    pub(super) group: Option<String>,
}

impl JobPods<'_> {
    fn api(&self) -> Api<Pod> {
        self.client.api::<Pod>()
    }

    /// The Job's pods among the candidates: adopts those that match and have no controller, and
    /// releases those that do not match any more. Adoption and the finalizer are one write.
    pub(super) async fn claim(
        &self,
        candidates: Vec<Arc<Pod>>,
        selector: &Selector,
    ) -> Result<Vec<Arc<Pod>>, BoxError> {
        let mut own = Vec::new();
        let mut may_adopt = None;
        for pod in candidates {
            let labels = pod.metadata.labels.as_ref();
            let is_match = selector.matches(|label| labels?.get(label).map(String::as_str));
            match controller_of(&*pod) {
                Some(controller) if controller.uid != self.job.uid() => {}
                Some(_) if is_match => own.push(pod),
                // The garbage collector handles the pods of a Job that is being deleted.
                Some(_) if self.job.is_being_deleted() => {}
                Some(_) => self.release_owner(&pod).await?,
                None if is_match && pod.metadata.deletion_timestamp.is_none() => {
                    let may = match may_adopt {
                        Some(may) => may,
                        None => *may_adopt.insert(self.may_adopt().await?),
                    };
                    if may {
                        own.extend(self.adopt(&pod).await?);
                    }
                }
                None => {}
            }
        }
        Ok(own)
    }

    /// Whether the Job on the server is the one that was read, and not being deleted.
    async fn may_adopt(&self) -> Result<bool, ClientError> {
        let key = Request::new(self.job.namespace(), self.job.name());
        let live = self.client.api::<Job>().get_live(&key).await?;
        Ok(live.is_some_and(|live| live.uid() == self.job.uid() && !live.is_being_deleted()))
    }

    async fn adopt(&self, pod: &Pod) -> Result<Option<Arc<Pod>>, BoxError> {
        let mut owners = pod.metadata.owner_references.clone().unwrap_or_default();
        owners.retain(|owner| owner.uid != self.job.uid());
        owners.push(controller_reference(self.job, &())?);
        let mut finalizers = pod.metadata.finalizers.clone().unwrap_or_default();
        if !is_tracked(pod) {
            finalizers.push(FINALIZER.to_owned());
        }
        self.write_metadata(pod, &owners, &finalizers).await
    }

    async fn release_owner(&self, pod: &Pod) -> Result<(), BoxError> {
        let mut owners = pod.metadata.owner_references.clone().unwrap_or_default();
        owners.retain(|owner| owner.uid != self.job.uid());
        let mut finalizers = pod.metadata.finalizers.clone().unwrap_or_default();
        finalizers.retain(|finalizer| finalizer != FINALIZER);
        self.write_metadata(pod, &owners, &finalizers).await.map(drop)
    }

    /// Writes owners and finalizers, if the pod is as it was read.
    async fn write_metadata(
        &self,
        pod: &Pod,
        owners: &[OwnerReference],
        finalizers: &[String],
    ) -> Result<Option<Arc<Pod>>, BoxError> {
        let metadata = json!({
            "uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version,
            "ownerReferences": owners, "finalizers": finalizers,
        });
        let patch = Patch::Merge(json!({"metadata": metadata}));
        let patched = self.api().patch(&Request::of(pod), &patch).await;
        Ok(ignore_not_found(patched)?.map(Arc::new))
    }

    /// Creates a pod, with an index or without.
    pub(super) async fn create(
        &self,
        state: &State<'_>,
        index: Option<i32>,
    ) -> Result<(), ClientError> {
        let Ok(owner) = controller_reference(self.job, &()) else { return Ok(()) };
        let mut pod = new_pod(state, &owner, index);
        if let Some(group) = &self.group {
            pod.data["spec"]["schedulingGroup"] = json!({"podGroupName": group});
        }
        PodControl::new(self.context, self.client, &self.reference).create(&pod).await
    }

    /// Deletes pods. Pods that are not to be counted lose their finalizer first. Returns the
    /// deleted ones, and the errors.
    pub(super) async fn delete<'p>(
        &self,
        pods: &[&'p Pod],
        is_counted: bool,
    ) -> (Vec<&'p Pod>, FirstError<ClientError>) {
        let all: Vec<_> = pods.iter().map(|pod| self.delete_one(pod, is_counted)).collect();
        let results: Vec<(&Pod, Result<(), ClientError>)> =
            stream::iter(all).buffered(CONCURRENT).collect().await;
        let (mut deleted, mut errors) = (Vec::new(), FirstError::new());
        let recorder = self.context.recorder();
        for (pod, result) in results {
            match &result {
                Ok(()) => {
                    let note = format!("Deleted pod: {}", Request::of(pod).name);
                    recorder.normal(&self.reference, "SuccessfulDelete", note);
                    deleted.push(pod);
                }
                Err(error) => {
                    let note = format!("Error deleting: {}", message(error));
                    recorder.warning(&self.reference, "FailedDelete", note);
                }
            }
            errors.note(result);
        }
        (deleted, errors)
    }

    async fn delete_one<'p>(
        &self,
        pod: &'p Pod,
        is_counted: bool,
    ) -> (&'p Pod, Result<(), ClientError>) {
        if !is_counted && is_tracked(pod) {
            let (_, released) = remove_finalizer(&self.api(), pod).await;
            if released.is_err() {
                return (pod, released);
            }
        }
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        (pod, self.api().delete(&Request::of(pod), &precondition(uid)).await)
    }

    /// Removes the tracking finalizer from pods. Returns the uids of those without it now, and the
    /// errors.
    pub(super) async fn release(
        &self,
        pods: &[&Pod],
    ) -> (BTreeSet<String>, FirstError<ClientError>) {
        release(&self.api(), pods).await
    }
}

/// Removes the tracking finalizer from pods. Returns the uids of those without it now, and the
/// errors.
pub(super) async fn release(
    api: &Api<Pod>,
    pods: &[&Pod],
) -> (BTreeSet<String>, FirstError<ClientError>) {
    let all: Vec<_> = pods.iter().map(|pod| remove_finalizer(api, pod)).collect();
    let results: Vec<(&Pod, Result<(), ClientError>)> =
        stream::iter(all).buffered(CONCURRENT).collect().await;
    let (mut released, mut errors) = (BTreeSet::new(), FirstError::new());
    for (pod, result) in results {
        if errors.note(result).is_some() {
            released.extend(pod.metadata.uid.clone());
        }
    }
    (released, errors)
}

/// Removes the finalizer of a pod, of this uid only. A deleted pod has none.
async fn remove_finalizer<'p>(api: &Api<Pod>, pod: &'p Pod) -> (&'p Pod, Result<(), ClientError>) {
    let patch = json!({"metadata": {
        "uid": pod.metadata.uid, "$deleteFromPrimitiveList/finalizers": [FINALIZER],
    }});
    let key = Request::of(pod);
    let removed = match api.patch(&key, &Patch::Strategic(patch)).await {
        Err(error) if error.is_not_found() => Ok(()),
        // Another pod has the name, or somebody else has changed this one: it is not counted as
        // long as it has the finalizer.
        Err(error) if error.is_conflict() => match api.get_live(&key).await {
            Ok(Some(found)) if found.metadata.uid == pod.metadata.uid => Err(error),
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        },
        patched => patched.map(drop),
    };
    (pod, removed)
}

/// A pod of the Job's template, with the finalizer, and with what an index adds.
fn new_pod(state: &State<'_>, owner: &OwnerReference, index: Option<i32>) -> DynamicObject {
    let job = state.job;
    let mut pod = pod_from_template(&job.spec.template, job.namespace(), owner);
    let finalizers = pod.metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        finalizers.push(FINALIZER.to_owned());
    }
    let Some(index) = index else { return pod };
    pod.metadata.generate_name = Some(indexed_prefix(job.name(), index));
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(INDEX.to_owned(), index.to_string());
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(INDEX.to_owned(), index.to_string());
    if job.spec.backoff_limit_per_index.is_some() {
        let replaced = state.indexed.as_ref().and_then(|indexed| indexed.to_replace.get(&index));
        let (failures, ignored) = replaced.map_or((0, 0), |replaced| {
            let (failures, ignored) =
                (number(replaced, INDEX_FAILURES), number(replaced, INDEX_IGNORED));
            match state.counts(replaced) {
                true => (failures.saturating_add(1), ignored),
                false => (failures, ignored.saturating_add(1)),
            }
        });
        annotations.insert(INDEX_FAILURES.to_owned(), failures.to_string());
        if ignored > 0 {
            annotations.insert(INDEX_IGNORED.to_owned(), ignored.to_string());
        }
    }
    let spec = &mut pod.data["spec"];
    spec["hostname"] = json!(format!("{}-{index}", job.name()));
    for containers in ["initContainers", "containers"] {
        for container in spec[containers].as_array_mut().into_iter().flatten() {
            add_variable(container);
        }
    }
    pod
}

/// Adds the variable with the index, unless the container has one of its name.
fn add_variable(container: &mut Value) {
    let Some(container) = container.as_object_mut() else { return };
    let Some(variables) = container.entry("env").or_insert_with(|| json!([])).as_array_mut() else {
        return;
    };
    if !variables.iter().any(|variable| variable["name"] == INDEX_VARIABLE) {
        let field = format!("metadata.labels['{INDEX}']");
        variables
            .push(json!({"name": INDEX_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": field}}}));
    }
}

/// The prefix of generated names with an index. The Job's name is cut to make room.
fn indexed_prefix(job: &str, index: i32) -> String {
    let suffix = format!("-{index}-");
    let name = name_prefix(job);
    let name = name.trim_end_matches('-');
    let n = PREFIX_CHARACTERS_MAX.saturating_sub(suffix.len()).min(name.len());
    format!("{}{suffix}", name.get(..n).unwrap_or(name))
}
