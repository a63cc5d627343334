//! StatefulSets: pods with stable names and storage.
//!
//! # Theory
//!
//! The pod of ordinal `n` is `<set>-<n>`, and its claims are `<template>-<set>-<n>`. Because names
//! are fixed, nothing is created twice, whatever a cache shows. One pass:
//!
//! 1. Finds the revision of the template in the history, or adds it.
//! 2. Goes through the wanted ordinals: deletes finished pods, creates missing ones (claims first).
//!    With `OrderedReady` it stops at the first pod that is not available; with `Parallel` it
//!    creates at most 500 pods.
//! 3. Deletes pods beyond the wanted ordinals, the highest first; with `OrderedReady` one at a
//!    time.
//! 4. For `RollingUpdate`, deletes pods of older revisions from the highest ordinal down to
//!    `partition`, while at most `maxUnavailable` are unavailable.
//! 5. Writes the status and shortens the history. A pass over a set with all its pods rests for a
//!    time in proportion to them, so that thousands of pods that start do not cost a pass each.
//!
//! The retention policy of claims is kept by owner references: to the set (`whenDeleted`), or to a
//! pod beyond the wanted ordinals (`whenScaled`). The garbage collector does the rest.

mod claims;
mod sync;

use super::by_label::{self, BY_LABEL, Labels};
use super::difference::replacement;
use super::history::{History, revisions};
use super::pod::{self, BY_CONTROLLER, Pod, orphan_key};
use super::pod_control::rest;
use super::view::view;
use super::{COMPONENT, fresh};
use crate::boxed::{Boxed, BoxedReconciler};
use crate::setup::Setup;
use claims::VolumeClaim;
use k8s_openapi::api::apps::v1 as apps;
use kube_core::params::Patch;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use setpoint_informer::Event;
use setpoint_object::label::Selector;
use setpoint_runtime::adopt::Claim;
use setpoint_runtime::client::ignore_not_found;
use setpoint_runtime::owner::controller_of;
use setpoint_runtime::{
    Action, BoxError, Client, Context, Controller, Manager, ObjectReference, Request, Watch,
};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use sync::Sync;

/// The controller's name in events.
const NAME: &str = "statefulset-controller";
/// Number of StatefulSets that are processed at the same time: 5, as in the reference.
const WORKERS: usize = 5;
/// The label of a revision's hash.
const HASH_LABEL: &str = "controller.kubernetes.io/hash";
/// The label of a pod's revision.
const REVISION_LABEL: &str = "controller-revision-hash";
/// Pause before claims that are being deleted are looked at again.
const STALE_CLAIM_PAUSE: Duration = Duration::from_secs(1);

view! {
    /// A StatefulSet.
    StatefulSet of apps::StatefulSet {
        /// The spec.
        spec: StatefulSetSpec,
        /// The observed state.
        status: StatefulSetStatus,
    }
}

/// `spec` of a StatefulSet.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StatefulSetSpec {
    replicas: Option<i32>,
    min_ready_seconds: i32,
    selector: Value,
    template: Value,
    volume_claim_templates: Vec<Value>,
    service_name: String,
    pod_management_policy: String,
    update_strategy: Value,
    revision_history_limit: Option<i32>,
    ordinals: Value,
    persistent_volume_claim_retention_policy: Value,
}

/// `status` of a StatefulSet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StatefulSetStatus {
    observed_generation: i64,
    replicas: i32,
    ready_replicas: i32,
    available_replicas: i32,
    current_replicas: i32,
    updated_replicas: i32,
    current_revision: String,
    update_revision: String,
    collision_count: Option<i32>,
}

impl StatefulSet {
    fn replicas(&self) -> i32 {
        self.spec.replicas.unwrap_or(1)
    }

    /// The first ordinal.
    fn start(&self) -> i32 {
        let start = self.spec.ordinals["start"].as_i64().unwrap_or(0);
        i32::try_from(start).unwrap_or(0)
    }

    /// The wanted ordinals. There may be two billion.
    fn wanted(&self) -> Range<i32> {
        self.start()..self.start().saturating_add(self.replicas().max(0))
    }

    /// Whether an ordinal is wanted.
    fn wants(&self, ordinal: i32) -> bool {
        self.wanted().contains(&ordinal)
    }

    fn is_parallel(&self) -> bool {
        self.spec.pod_management_policy == "Parallel"
    }

    /// The ordinal of a pod of this name; `None` if the name is not of this set.
    fn ordinal(&self, pod: &str) -> Option<i32> {
        let digits = pod.strip_prefix(self.name())?.strip_prefix('-')?;
        digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))
    }
}

/// The controller of StatefulSets.
#[derive(Clone, Debug)]
#[must_use]
pub struct StatefulSetController(());

impl StatefulSetController {
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
        let controller = Controller::builder(NAME)
            .for_(Watch::<StatefulSet>::new().index(BY_LABEL, by_label))
            .owns(Watch::<Pod>::new().index(BY_CONTROLLER, pod::by_controller))
            .watches_with(Watch::<Pod>::new(), owners_of_orphan)
            .owns(revisions())
            // Claims are read; their events change nothing.
            .watches(Watch::<VolumeClaim>::new(), |_: &Event<VolumeClaim>| Vec::new())
            .concurrency(WORKERS)
            .sync_timeout(None)
            .build(Boxed(Pass))?;
        manager.add(controller)?;
        Ok(())
    }
}

/// The function of the index of its kind by a label that is required.
fn by_label(set: &StatefulSet) -> Vec<String> {
    by_label::required_by(set.namespace(), &set.spec.selector)
}

/// The sets that may adopt a pod without a controller.
fn owners_of_orphan(event: &Event<Pod>, client: &Client) -> Vec<Request> {
    let is_deleted = matches!(event, Event::Deleted { .. });
    let pod = event.object().filter(|_| !is_deleted).and_then(|pod| pod.get().ok());
    let Some(pod) = pod.filter(|pod| controller_of(&**pod).is_none()) else { return Vec::new() };
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let all = Labels::of(&*pod).candidates::<StatefulSet>(client);
    let owns = |set: &Arc<StatefulSet>| {
        let selector = Selector::from_object(&set.spec.selector).ok().flatten();
        let is_selected = selector.is_some_and(|selector| pod.is_selected(&selector));
        is_selected && set.ordinal(pod.name()).is_some()
    };
    let owners = all.into_iter().filter(owns);
    owners.map(|set| Request::new(namespace, set.name())).collect()
}

struct Pass;

impl BoxedReconciler for Pass {
    type Error = BoxError;

    /// One pass over a StatefulSet.
    async fn pass(&self, request: &Request, context: &Context) -> Result<Action, BoxError> {
        let client = context.client().field_manager(COMPONENT);
        let sets = client.api::<StatefulSet>();
        let Some(set) = sets.get_own(request).await? else { return Ok(Action::await_change()) };
        let Some(selector) = Selector::from_object(&set.spec.selector).ok().flatten() else {
            return Ok(Action::await_change());
        };
        let pods = fresh::lister::<Pod>(context, &client, &request.namespace).await?;
        // Claims of the last pass are not created again.
        fresh::lister::<VolumeClaim>(context, &client, &request.namespace).await?;
        let mut candidates = pods.by_index(BY_CONTROLLER, set.uid())?;
        candidates.extend(pods.by_index(BY_CONTROLLER, &orphan_key(&request.namespace))?);
        candidates.retain(|pod| set.ordinal(pod.name()).is_some());
        let claim = Claim::of(&sets, &*set, &selector)?;
        let pods = claim.claim(&client.api::<Pod>(), candidates).await?.children;

        let n_collisions = set.status.collision_count.unwrap_or(0);
        let mut history =
            History::read(context, &client, &*set, &selector, HASH_LABEL, n_collisions).await?;
        let Some(update) = history.update(&set.spec.template).await? else {
            return Ok(Action::await_change());
        };
        let current =
            history.revisions.iter().find(|found| found.name() == set.status.current_revision);
        let current = current.cloned().unwrap_or_else(|| update.clone());

        let mut sync = Sync::new(context, &client, &set, &pods, &current, &update);
        let done = sync.run().await;
        let mut status = sync.status();
        status.collision_count = Some(history.n_collisions);
        // Also after an error, because other steps may have succeeded.
        write_status(&client, &set, &status).await?;
        let wait = sync.wait();
        done?;
        let live: Vec<String> =
            pods.iter().map(|pod| pod.label(REVISION_LABEL).to_owned()).collect();
        let limit = set.spec.revision_history_limit.unwrap_or(10);
        let is_live = |revision: &super::history::ControllerRevision| {
            let name = revision.name();
            name == current.name() || name == update.name() || live.iter().any(|live| live == name)
        };
        history.truncate(limit, is_live).await?;
        // A pass that creates or deletes pods may have more of them to do.
        let is_settled = i32::try_from(pods.len()) == Ok(set.replicas());
        let rest = if is_settled { rest(pods.len()) } else { Duration::ZERO };
        Ok(wait.map_or_else(Action::await_change, Action::requeue_after).rest(rest))
    }
}

/// Writes the status if it differs.
async fn write_status(
    client: &Client,
    set: &StatefulSet,
    status: &StatefulSetStatus,
) -> Result<(), BoxError> {
    if set.status == *status {
        return Ok(());
    }
    let mut body = replacement(status, &["replicas", "availableReplicas", "collisionCount"]);
    // As in the reference, which makes each status anew, conditions of others go.
    body["conditions"] = Value::Null;
    let patch = json!({"metadata": {"uid": set.metadata.uid}, "status": body});
    let key = Request::new(set.namespace(), set.name());
    ignore_not_found(client.api::<StatefulSet>().patch_status(&key, &Patch::Merge(patch)).await)?;
    Ok(())
}

/// The object of events.
fn reference(set: &StatefulSet) -> ObjectReference {
    ObjectReference::of(set)
}
