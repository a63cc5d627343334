//! Writes what cycles decided: bindings, conditions, nominations, and the removal of victims.

use crate::plugins::Placement;
use crate::plugins::claims::Grant;
use crate::pod::Pod;
use crate::preemption::Candidate;
use crate::scheduler::{Shared, value};
use crate::state::Job;
use crate::view::SELECTED_NODE;
use k8s_openapi::api::core::v1::{self, PersistentVolume, PersistentVolumeClaim};
use kube_core::params::{DeleteParams, Patch, Preconditions};
use serde_json::{Value, json};
use setpoint_runtime::client::ignore_not_found;
use setpoint_runtime::events::EventType;
use setpoint_runtime::{
    Action, BoxError, ClientError, Context, EventRecorder, ObjectReference, Reconciler, Request,
    Timestamp,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The name in `managedFields`.
pub(crate) const FIELD_MANAGER: &str = "kube-scheduler";
/// The annotation of a volume that no user has reserved for its claim.
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// How long a pod keeps its place while its volumes are made: ten minutes, as in kube-scheduler.
const VOLUMES_MAX: Duration = Duration::from_secs(600);
/// Between two looks at the volumes.
const VOLUMES_PERIOD: Duration = Duration::from_secs(1);

mod devices;
mod groups;

/// What a pod's claims have.
enum Volumes {
    /// Each has a volume.
    Ready,
    /// Volumes are being bound or made.
    Waiting,
    /// A claim or its volume is gone, or the volume is another claim's.
    Lost,
}

/// Writes decisions, several at a time.
pub(crate) struct Binder {
    pub(crate) shared: Arc<Shared>,
    /// Records events as the scheduler.
    pub(crate) recorder: EventRecorder,
}

impl Reconciler for Binder {
    type Error = BoxError;

    async fn reconcile(&self, request: Request, context: Context) -> Result<Action, BoxError> {
        // Boxed, so that a writer that waits for work is small.
        Box::pin(self.pass(&request, &context)).await
    }
}

impl Binder {
    async fn pass(&self, key: &Request, context: &Context) -> Result<Action, BoxError> {
        self.settle_orphans(key, context).await?;
        let job = self.shared.state.lock().job(key);
        match job {
            None => Ok(Action::await_change()),
            Some(Job::Say(condition)) => self.say_of_group(key, &condition, context).await,
            Some(Job::Bind { pod, since, placed, grants }) => {
                self.bind(&pod, since, &placed, &grants, context).await
            }
            Some(Job::Refuse {
                pod,
                message,
                preempted,
                clears_nomination,
                is_fault,
                deallocates,
            }) => {
                if let Some(claim) = &deallocates {
                    self.deallocate(claim, &pod, context).await?;
                }
                if let Some(candidate) = &preempted {
                    self.preempt(&pod, candidate, context).await?;
                }
                let nominated = match (&preempted, clears_nomination) {
                    (Some(candidate), _) => Some(&*candidate.node),
                    (None, true) => Some(""),
                    (None, false) => None,
                };
                let reason = if is_fault { "SchedulerError" } else { "Unschedulable" };
                self.refuse(&pod, (reason, &message), nominated, context).await?;
                self.shared.state.lock().finish(key, &pod);
                Ok(Action::await_change())
            }
        }
    }

    async fn bind(
        &self,
        pod: &Arc<Pod>,
        since: Instant,
        placed: &[Placement],
        grants: &[Grant],
        context: &Context,
    ) -> Result<Action, BoxError> {
        match self.volumes(pod, placed, context).await? {
            Volumes::Ready => {}
            Volumes::Waiting if since.elapsed() <= VOLUMES_MAX => {
                return Ok(Action::requeue_after(VOLUMES_PERIOD));
            }
            Volumes::Waiting | Volumes::Lost => return self.give_up(pod, grants, context).await,
        }
        if let Some(why) = self.claim_devices(pod, grants, context).await? {
            self.refuse(pod, ("SchedulerError", &why), None, context).await?;
            return self.give_up(pod, grants, context).await;
        }
        let api = context.client().api::<v1::Pod>().field_manager(FIELD_MANAGER);
        let (key, node) = (&pod.key, &*pod.node);
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": &*key.name, "namespace": &*key.namespace, "uid": &*pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        let answer = api.subresource::<Value>("binding").create::<Value>(key, &binding).await;
        if let Err(error) = answer {
            // Without an answer the binding may have happened: the retry finds out.
            if !error.code().is_some_and(|code| matches!(code, 400 | 403 | 404 | 409 | 422)) {
                return Err(error.into());
            }
            let found = api.get_live(key).await?;
            let found = found.filter(|found| found.metadata.uid.as_deref() == Some(&*pod.uid));
            let assigned = found.and_then(|found| found.spec?.node_name);
            if assigned.as_deref() != Some(node) {
                return self.give_up(pod, grants, context).await;
            }
        }
        self.recorder
            .about(&reference(pod), EventType::Normal, "Scheduled")
            .action("Binding")
            .note(format!("Successfully assigned {key} to {node}"))
            .record();
        self.shared.state.lock().finish(key, pod);
        Ok(Action::await_change())
    }

    /// The pod waits again.
    async fn give_up(
        &self,
        pod: &Pod,
        grants: &[Grant],
        context: &Context,
    ) -> Result<Action, BoxError> {
        self.release(pod, grants, context).await?;
        let mut retry = None;
        self.shared.put(|state| retry = state.forget(pod, Instant::now()));
        self.shared.retry(retry);
        Ok(Action::await_change())
    }

    /// Whether every claim of the pod has a volume. Those that wait for their first consumer get
    /// the volume that was chosen for them, or learn the node that one is to be made for.
    async fn volumes(
        &self,
        pod: &Pod,
        placed: &[Placement],
        context: &Context,
    ) -> Result<Volumes, BoxError> {
        let unbound = self.shared.state.lock().unbound_claims(pod);
        let api = context.client().api::<PersistentVolumeClaim>().field_manager(FIELD_MANAGER);
        for name in &unbound {
            let key = Request::new(pod.key.namespace.clone(), &**name);
            let found = api.get(&key)?;
            let placement = placed.iter().find(|placement| placement.claim == key);
            if let Some(volume) = placement.and_then(|placement| placement.volume.as_deref()) {
                let Some(claim) = found else { return Ok(Volumes::Lost) };
                if !self.reserve(volume, &claim, context).await? {
                    return Ok(Volumes::Lost);
                }
                continue;
            }
            let annotations = found.as_ref().and_then(|claim| claim.metadata.annotations.as_ref());
            let selected = annotations.and_then(|all| all.get(SELECTED_NODE));
            if selected.is_none_or(|node| **node != *pod.node) {
                let patch = json!({"metadata": {"annotations": {SELECTED_NODE: &*pod.node}}});
                ignore_not_found(api.patch(&key, &Patch::Merge(patch)).await)?;
            }
        }
        Ok(if unbound.is_empty() { Volumes::Ready } else { Volumes::Waiting })
    }

    /// Reserves a volume for a claim, which the controller of volumes then binds. False if it is
    /// gone or another claim has it.
    async fn reserve(
        &self,
        volume: &str,
        claim: &PersistentVolumeClaim,
        context: &Context,
    ) -> Result<bool, BoxError> {
        let api = context.client().api::<PersistentVolume>().field_manager(FIELD_MANAGER);
        let key = Request::cluster(volume);
        let Some(found) = api.get_own(&key).await? else { return Ok(false) };
        let claim = &claim.metadata;
        if let Some(held) = found.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()) {
            return Ok(held.uid.is_some() && held.uid == claim.uid);
        }
        let meta = &found.metadata;
        let patch = json!({
            "metadata": {
                "uid": meta.uid, "resourceVersion": meta.resource_version,
                "annotations": {BOUND_BY_CONTROLLER: "yes"},
            },
            "spec": {"claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": claim.name,
                "namespace": claim.namespace, "uid": claim.uid,
                "resourceVersion": claim.resource_version,
            }},
        });
        // A conflict is retried with the newer volume.
        Ok(ignore_not_found(api.patch(&key, &Patch::Merge(patch)).await)?.is_some())
    }

    /// Says why the pod waits.
    async fn refuse(
        &self,
        pod: &Pod,
        (reason, message): (&str, &str),
        nominated: Option<&str>,
        context: &Context,
    ) -> Result<(), BoxError> {
        self.recorder
            .about(&reference(pod), EventType::Warning, "FailedScheduling")
            .action("Scheduling")
            .note(message)
            .record();
        let api = context.client().api::<v1::Pod>().field_manager(FIELD_MANAGER);
        let found = api.lister_of(&pod.key.namespace)?.object(&pod.key);
        let Some(found) = found.and_then(|found| value(&found)) else { return Ok(()) };
        let condition = json!({
            "type": "PodScheduled", "status": "False", "reason": reason, "message": message,
        });
        let mut status = json!({});
        if let Some(condition) = changed_condition(&found, condition, context.clock().now()) {
            status["conditions"] = json!([condition]);
        }
        let current = found["status"]["nominatedNodeName"].as_str().unwrap_or_default();
        if let Some(node) = nominated.filter(|node| *node != current) {
            status["nominatedNodeName"] = if node.is_empty() { Value::Null } else { node.into() };
        }
        self.patch_status(pod, status, context).await
    }

    /// Patches the status of a pod that still has its uid. Nothing happens without a change.
    async fn patch_status(
        &self,
        pod: &Pod,
        status: Value,
        context: &Context,
    ) -> Result<(), BoxError> {
        if status.as_object().is_none_or(serde_json::Map::is_empty) {
            return Ok(());
        }
        let api = context.client().api::<v1::Pod>().field_manager(FIELD_MANAGER);
        let patch = json!({"metadata": {"uid": &*pod.uid}, "status": status});
        let patched =
            api.subresource::<Value>("status").patch(&pod.key, &Patch::Strategic(patch)).await;
        match patched {
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) if error.is_conflict() => self.unless_replaced(pod, error, context).await,
            patched => Ok(patched.map(drop)?),
        }
    }

    /// A conflict, unless another pod has the name: then there is nothing to write.
    async fn unless_replaced(
        &self,
        pod: &Pod,
        conflict: ClientError,
        context: &Context,
    ) -> Result<(), BoxError> {
        let found = context.client().api::<v1::Pod>().get_live(&pod.key).await?;
        match found {
            Some(found) if found.metadata.uid.as_deref() == Some(&*pod.uid) => Err(conflict.into()),
            _ => Ok(()),
        }
    }

    /// Removes the victims.
    async fn preempt(
        &self,
        pod: &Pod,
        candidate: &Candidate,
        context: &Context,
    ) -> Result<(), BoxError> {
        let api = context.client().api::<v1::Pod>().field_manager(FIELD_MANAGER);
        for victim in candidate.victims.iter().filter(|victim| !victim.is_deleting) {
            let lister = api.lister_of(&victim.key.namespace)?;
            let found = lister.object(&victim.key).and_then(|found| value(&found));
            let condition = json!({
                "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
                "message": format!("{}: preempting to accommodate a higher priority pod", self.shared.name),
            });
            let found = found.unwrap_or_default();
            let condition = changed_condition(&found, condition, context.clock().now());
            if let Some(condition) = condition {
                self.patch_status(victim, json!({"conditions": [condition]}), context).await?;
            }
            let preconditions =
                Preconditions { uid: Some(victim.uid.to_string()), resource_version: None };
            let params =
                DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            match api.delete(&victim.key, &params).await {
                Err(error) if error.is_conflict() => {
                    self.unless_replaced(victim, error, context).await?;
                }
                deleted => deleted?,
            }
            let (uid, node) = (&pod.uid, &candidate.node);
            self.recorder
                .about(&reference(victim), EventType::Normal, "Preempted")
                .action("Preempting")
                .related(&reference(pod))
                .note(format!("Preempted by pod {uid} on node {node}"))
                .record();
        }
        Ok(())
    }
}

/// The condition with its times, if it differs from the pod's.
fn changed_condition(pod: &Value, mut condition: Value, now: Timestamp) -> Option<Value> {
    let conditions = pod["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|found| found["type"] == condition["type"]);
    let is_same = |member: &str| found.is_some_and(|found| found[member] == condition[member]);
    if is_same("status") && is_same("reason") && is_same("message") {
        return None;
    }
    condition["lastTransitionTime"] = match found.filter(|_| is_same("status")) {
        Some(found) => found["lastTransitionTime"].clone(),
        None => now.rfc3339().into(),
    };
    condition["lastProbeTime"] = Value::Null;
    if pod["metadata"]["generation"].is_i64() {
        condition["observedGeneration"] = pod["metadata"]["generation"].clone();
    }
    Some(condition)
}

/// A reference to a pod, for events.
fn reference(pod: &Pod) -> ObjectReference {
    let mut reference = ObjectReference::default();
    reference.api_version = "v1".to_owned();
    reference.kind = "Pod".to_owned();
    reference.namespace = pod.key.namespace.to_string();
    reference.name = pod.key.name.to_string();
    reference.uid = pod.uid.to_string();
    reference
}
