//! Deployments: roll a template out over ReplicaSets.
//!
//! # Theory
//!
//! A Deployment has one ReplicaSet per template that it had; the *new* one has its present
//! template. One pass over a Deployment does one step of these, then writes the status:
//!
//! | situation | step |
//! |---|---|
//! | it is being deleted | only the status |
//! | it is paused, or its number of replicas has changed | scale: the only ReplicaSet with pods, or all of them in proportion |
//! | strategy `RollingUpdate` | the new ReplicaSet grows as the surge permits; else the old ones shrink as availability permits |
//! | strategy `Recreate` | the old ones have no pods, then the new one grows |
//! | the rollout is complete | old ReplicaSets beyond the history's limit are deleted |
//!
//! The decisions are pure functions of sizes (`numbers`). A ReplicaSet's name has the hash of the
//! template, so it is created once. If the name is taken by another one, `status.collisionCount`
//! changes the hash.
//!
//! Every write of a ReplicaSet's size has the version that the decision was based on, and a pass
//! reads its own writes (`fresh`); so no step is done twice. Unlike in the reference, a
//! pod counts against the surge until its ReplicaSet has deleted it.

mod numbers;
mod revision;
mod rollout;
mod status;
#[cfg(test)]
mod tests;

use super::by_label::{self, BY_LABEL, Labels};
use super::pod::{self, BY_CONTROLLER, Pod, orphan_key};
use super::replica_set::{ReplicaSet, by_controller};
use super::view::view;
use super::{COMPONENT, fresh};
use crate::boxed::{Boxed, BoxedReconciler};
use crate::setup::Setup;
use k8s_openapi::api::apps::v1 as apps;
pub(crate) use numbers::int_or_percent;
use numbers::{Fenceposts, fenceposts};
pub(crate) use revision::{comparable, hash, hash_of_texts};
use rollout::Rollout;
use serde::Deserialize;
use serde_json::{Value, json};
use setpoint_informer::Event;
use setpoint_object::label::Selector;
use setpoint_runtime::adopt::Claim;
use setpoint_runtime::owner::controller_of;
use setpoint_runtime::{
    Action, BoxError, Client, Context, Controller, Manager, ObjectReference, Request, Watch,
};
use status::DeploymentStatus;
use std::sync::Arc;
use std::time::Duration;

/// The controller's name in events.
const NAME: &str = "deployment-controller";
/// Number of Deployments that are processed at the same time: 5, as in the reference.
const WORKERS: usize = 5;

view! {
    /// A Deployment.
    Deployment of apps::Deployment {
        /// The spec.
        spec: DeploymentSpec,
        /// The observed state.
        status: DeploymentStatus,
    }
}

/// `spec` of a Deployment.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DeploymentSpec {
    replicas: Option<i32>,
    selector: Value,
    template: Value,
    strategy: Value,
    min_ready_seconds: i32,
    revision_history_limit: Option<i32>,
    progress_deadline_seconds: Option<i32>,
    paused: bool,
}

impl DeploymentSpec {
    /// The desired number of pods; the server's default is 1.
    fn replicas(&self) -> i32 {
        self.replicas.unwrap_or(1)
    }

    fn is_recreate(&self) -> bool {
        self.strategy["type"] == "Recreate"
    }
}

impl Deployment {
    fn generation(&self) -> i64 {
        self.metadata.generation.unwrap_or_default()
    }

    /// How long the rollout may make no progress; `None`: forever.
    fn deadline(&self) -> Option<Duration> {
        let seconds = self.spec.progress_deadline_seconds.filter(|seconds| *seconds != i32::MAX)?;
        Some(Duration::from_secs(u64::try_from(seconds).unwrap_or_default()))
    }

    fn fenceposts(&self) -> Fenceposts {
        match self.spec.is_recreate() {
            true => Fenceposts { surge: 0, unavailable: 0 },
            false => fenceposts(&self.spec.strategy["rollingUpdate"], self.spec.replicas()),
        }
    }
}

/// The controller of Deployments.
#[derive(Clone, Debug)]
#[must_use]
pub struct DeploymentController(());

impl DeploymentController {
    /// Creates a controller. It has no settings: client, clock and seed are the manager's.
    pub fn new(_: Setup) -> Self {
        Self(())
    }

    /// Adds it to a manager, which runs it.
    ///
    /// # Errors
    ///
    /// If the manager refuses it, for example because it has one of that name.
    pub fn add_to(self, manager: &mut Manager) -> Result<(), BoxError> {
        let sets = Watch::<ReplicaSet>::new().index(BY_CONTROLLER, by_controller);
        let pods = Watch::<Pod>::new().index(BY_CONTROLLER, pod::by_controller);
        let controller = Controller::builder(NAME)
            .for_(Watch::<Deployment>::new().index(BY_LABEL, by_label))
            .owns(sets)
            .watches_with(Watch::<ReplicaSet>::new(), owners_of_orphan)
            .watches_with(pods, recreated)
            .concurrency(WORKERS)
            .sync_timeout(None)
            .build(Boxed(Pass))?;
        manager.add(controller)?;
        Ok(())
    }
}

/// The function of the index of its kind by a label that is required.
fn by_label(deployment: &Deployment) -> Vec<String> {
    by_label::required_by(deployment.namespace(), &deployment.spec.selector)
}

/// The Deployments that may adopt a ReplicaSet without a controller.
fn owners_of_orphan(event: &Event<ReplicaSet>, client: &Client) -> Vec<Request> {
    let is_deleted = matches!(event, Event::Deleted { .. });
    let set = event.object().filter(|_| !is_deleted).and_then(|set| set.get().ok());
    let Some(set) = set.filter(|set| controller_of(&**set).is_none()) else { return Vec::new() };
    let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
    let all = Labels::of(&*set).candidates::<Deployment>(client);
    let selects = |deployment: &Arc<Deployment>| {
        let selector = Selector::from_object(&deployment.spec.selector).ok().flatten();
        let labels = set.metadata.labels.as_ref();
        selector.is_some_and(|selector| {
            selector.matches(|label| labels?.get(label).map(String::as_str))
        })
    };
    let owners = all.into_iter().filter(selects);
    owners.map(|owner| Request::new(namespace, owner.name())).collect()
}

/// The Deployment with the strategy `Recreate` that waits for the end of a pod.
fn recreated(event: &Event<Pod>, client: &Client) -> Vec<Request> {
    let find = || {
        let pod = event.object()?.get().ok()?;
        let is_relevant = matches!(event, Event::Deleted { .. }) || pod.is_finished();
        let namespace = pod.metadata.namespace.as_deref().filter(|_| is_relevant)?;
        let set = controller_of(&*pod).filter(|owner| owner.kind == "ReplicaSet")?;
        let set = client.api::<ReplicaSet>().get(&Request::new(namespace, &*set.name)).ok()??;
        let owner = controller_of(&*set).filter(|owner| owner.kind == "Deployment")?;
        let key = Request::new(namespace, &*owner.name);
        let deployment = client.api::<Deployment>().get(&key).ok()??;
        deployment.spec.is_recreate().then_some(key)
    };
    find().into_iter().collect()
}

struct Pass;

impl BoxedReconciler for Pass {
    type Error = BoxError;

    /// One pass over a Deployment.
    async fn pass(&self, request: &Request, context: &Context) -> Result<Action, BoxError> {
        let client = context.client().field_manager(COMPONENT);
        let deployments = client.api::<Deployment>();
        let Some(deployment) = deployments.get_own(request).await? else {
            return Ok(Action::await_change());
        };
        let Some(selector) = Selector::from_object(&deployment.spec.selector).ok().flatten() else {
            return Ok(Action::await_change());
        };
        if selector.is_everything() {
            let note = "This deployment is selecting all pods. A non-empty selector is required.";
            let reference = ObjectReference::of(&*deployment);
            context.recorder().warning(&reference, "SelectingAll", note);
            if deployment.status.observed_generation < deployment.generation() {
                let meta = &deployment.metadata;
                let patch = json!({
                    "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
                    "status": {"observedGeneration": deployment.generation()},
                });
                deployments.patch_status(request, &kube_core::params::Patch::Merge(patch)).await?;
            }
            return Ok(Action::await_change());
        }
        let sets = fresh::lister::<ReplicaSet>(context, &client, &request.namespace).await?;
        let uid = deployment.metadata.uid.as_deref().unwrap_or_default();
        let mut candidates = sets.by_index(BY_CONTROLLER, uid)?;
        candidates.extend(sets.by_index(BY_CONTROLLER, &orphan_key(&request.namespace))?);
        let claim = Claim::of(&deployments, &*deployment, &selector)?;
        let claimed = claim.claim(&client.api::<ReplicaSet>(), candidates).await?;
        let mut rollout = Rollout::new(context, &client, deployment, claimed.children);
        let done = rollout.step().await;
        // Also after an error, whose condition it may have.
        rollout.write_status().await?;
        done?;
        Ok(match rollout.next_check() {
            Some(wait) => Action::requeue_after(wait),
            None => Action::await_change(),
        })
    }
}
