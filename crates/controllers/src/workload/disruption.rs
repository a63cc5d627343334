//! PodDisruptionBudgets: how many pods may be evicted now.
//!
//! # Theory
//!
//! A pass counts the pods that a budget selects, and those of them that are healthy: ready, not
//! being deleted, and not evicted in the last two minutes. The API server records an eviction in
//! `status.disruptedPods` before it deletes the pod, so that the next eviction already counts it;
//! an entry goes with its pod, or after two minutes. After that the pod's own state is asked of the
//! server: a cache that is behind may still show it healthy when it is gone. An entry is a name:
//! the pod that a StatefulSet creates in the place of an evicted one is none of it.
//!
//! | limit | expected pods | healthy pods that are needed |
//! |---|---|---|
//! | `minAvailable`, a number | those that exist | the number |
//! | `minAvailable`, a percentage | the sum of their owners' replicas | the percentage of it |
//! | `maxUnavailable` | the sum of their owners' replicas | all but the number or the percentage of it |
//!
//! The owner of a ReplicaSet's pods is its Deployment. Owners of other kinds need the subresource
//! `scale`. If something is unknown, no eviction is allowed, and the condition says why. The rules
//! are those of kube-controller-manager's `disruption-controller`, which also ends conditions
//! `DisruptionTarget` of pods that were not deleted within two minutes.

use super::by_label::{self, BY_LABEL, Labels};
use super::difference::difference;
use super::pod::Pod;
use super::pod_control::{DISRUPTION_TARGET, condition_patch, disruption_target, message, rest};
use super::replica_set::{ReplicaSet, ReplicationController};
use super::view::view;
use super::{COMPONENT, fresh};
use crate::boxed::{Boxed, BoxedReconciler};
use crate::setup::Setup;
use k8s_openapi::api::apps::v1 as apps;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::policy::v1 as policy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube_core::DynamicObject;
use kube_core::params::Patch;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use setpoint_informer::{Event, Object};
use setpoint_object::GroupVersionKind;
use setpoint_object::label::{Selector, go_text};
use setpoint_object::pod_phase;
use setpoint_object::time::Timestamp;
use setpoint_runtime::client::ignore_not_found;
use setpoint_runtime::mapper::Mapper;
use setpoint_runtime::owner::controller_of;
use setpoint_runtime::{
    Action, BoxError, Client, Context, Controller, Manager, ObjectReference, Request, Watch,
    set_condition,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The controller's name.
const NAME: &str = "disruption-controller";
/// What its events name as their source, as in the reference.
const EVENT_SOURCE: &str = "controllermanager";
/// How long an evicted pod may exist, and a condition `DisruptionTarget` may stay: 2 min, as in
/// kube-controller-manager.
const DISRUPTION_MAX: Duration = Duration::from_secs(120);
/// How long after an eviction a pod without the condition `DisruptionTarget` may be the evicted
/// one. The server sets it right after it has recorded the eviction.
const MARK_PAUSE: Duration = Duration::from_secs(2);
/// The pause while the cache shows an evicted pod that is gone. An event ends it.
const BEHIND_PAUSE: Duration = Duration::from_secs(30);
/// The condition of a budget.
const ALLOWED: &str = "DisruptionAllowed";
/// The start of the key of a pod. Names of budgets have no slash.
const POD: &str = "pod/";

view! {
    /// A PodDisruptionBudget.
    Budget of policy::PodDisruptionBudget {
        /// The spec.
        spec: BudgetSpec,
        /// The observed state.
        status: BudgetStatus,
    }
}

/// `spec` of a budget.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct BudgetSpec {
    selector: Value,
    min_available: Option<IntOrString>,
    max_unavailable: Option<IntOrString>,
}

/// `status` of a budget.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct BudgetStatus {
    observed_generation: Option<i64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    disrupted_pods: BTreeMap<String, Time>,
    disruptions_allowed: i32,
    current_healthy: i32,
    desired_healthy: i32,
    expected_pods: i32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<Condition>,
}

view! {
    /// A Deployment.
    Deployment of apps::Deployment {
        /// The spec.
        spec: Scaled,
    }
}

view! {
    /// A StatefulSet.
    StatefulSet of apps::StatefulSet {
        /// The spec.
        spec: Scaled,
    }
}

/// `spec` of a kind with replicas.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Scaled {
    replicas: Option<i32>,
}

/// The controller of PodDisruptionBudgets.
#[derive(Clone, Debug)]
#[must_use]
pub struct DisruptionController(());

impl DisruptionController {
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
            .for_(Watch::<Budget>::new().index(BY_LABEL, by_label))
            .watches_with(Watch::<Pod>::new().index_labels(), budgets_of)
            .watches(Watch::<Pod>::new(), |event| event.object().map(target_of).unwrap_or_default())
            // Their caches are read.
            .watches(Watch::<ReplicaSet>::new(), |_| Vec::new())
            .watches(Watch::<ReplicationController>::new(), |_| Vec::new())
            .watches(Watch::<Deployment>::new(), |_| Vec::new())
            .watches(Watch::<StatefulSet>::new(), |_| Vec::new())
            .sync_timeout(None)
            .build(Boxed(Budgets::default()))?;
        manager.add(controller)?;
        Ok(())
    }
}

/// The budgets that select a pod, before or after a change.
fn budgets_of(event: &Event<Pod>, client: &Client) -> Vec<Request> {
    let namespace = &event.key().namespace;
    let labels = Labels::of_event(event);
    let selects = |budget: &Arc<Budget>| {
        budget.selector().is_some_and(|selector| labels.are_selected_by(&selector))
    };
    let all = labels.candidates::<Budget>(client).into_iter().filter(selects);
    all.map(|budget| Request::new(namespace.clone(), budget.name())).collect()
}

/// The function of the index of budgets by a label that they require.
fn by_label(budget: &Budget) -> Vec<String> {
    by_label::required_by(budget.namespace(), &budget.spec.selector)
}

/// The key of a pod that is to be evicted.
fn target_of(pod: &Object<Pod>) -> Vec<Request> {
    let Ok(pod) = pod.get() else { return Vec::new() };
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let is_waiting = is_target(&pod) && !pod.is_being_deleted() && !pod.is_finished();
    is_waiting
        .then(|| Request::new(namespace, format!("{POD}{}", pod.name())))
        .into_iter()
        .collect()
}

impl Budget {
    /// The selector of its pods; `None` matches nothing.
    fn selector(&self) -> Option<Selector> {
        Selector::from_object(&self.spec.selector).ok().flatten()
    }
}

#[derive(Default)]
struct Budgets {
    mapper: OnceLock<Mapper>,
}

impl BoxedReconciler for Budgets {
    type Error = BoxError;

    async fn pass(&self, request: &Request, context: &Context) -> Result<Action, BoxError> {
        let client = context.client().field_manager(COMPONENT);
        if let Some(pod) = request.name.strip_prefix(POD) {
            let key = Request::new(request.namespace.clone(), pod);
            return end_target(&client, &key, context.clock().now()).await;
        }
        let Some(budget) = client.api::<Budget>().get_own(request).await? else {
            return Ok(Action::await_change());
        };
        let now = context.clock().now();
        let (status, recheck) = match self.status(context, &client, &budget, now).await {
            Ok(found) => found,
            Err(error) => {
                // Nothing may be evicted.
                let mut status = budget.status.clone();
                status.disruptions_allowed = 0;
                let observed = status.observed_generation;
                let (reason, message) = ("SyncFailed", message(&*error));
                set_condition(
                    &mut status.conditions,
                    ALLOWED,
                    false,
                    reason,
                    &message,
                    observed,
                    now,
                );
                (status, None)
            }
        };
        let patch =
            difference(&serde_json::to_value(&budget.status)?, &serde_json::to_value(&status)?);
        if !patch.is_empty() {
            let meta = &budget.metadata;
            let metadata = json!({"uid": meta.uid, "resourceVersion": meta.resource_version});
            let patch = Patch::Merge(json!({"metadata": metadata, "status": patch}));
            ignore_not_found(client.api::<Budget>().patch_status(request, &patch).await)?;
        }
        // About as many pods as the pass looked at.
        let rest = rest(usize::try_from(status.expected_pods).unwrap_or_default());
        Ok(recheck.map_or_else(Action::await_change, Action::requeue_after).rest(rest))
    }
}

impl Budgets {
    /// The status, and when an eviction will be too long ago.
    async fn status(
        &self,
        context: &Context,
        client: &Client,
        budget: &Budget,
        now: Timestamp,
    ) -> Result<(BudgetStatus, Option<Duration>), BoxError> {
        let reference = ObjectReference::of(budget);
        let recorder = context.recorder().as_component(EVENT_SOURCE);
        let namespace = budget.metadata.namespace.as_deref().unwrap_or_default();
        let pods = match budget.selector() {
            Some(selector) => {
                client.api::<Pod>().select().namespace(namespace).labels(selector).all()?
            }
            None => Vec::new(),
        };
        if pods.is_empty() {
            recorder.normal(&reference, "NoPods", "No matching pods found");
        }
        let pods: Vec<&Pod> = pods.iter().map(|pod| &**pod).collect();
        let counted = self.count(client, budget, namespace, &pods).await;
        let Counted { expected, desired, has_unmanaged } = counted.inspect_err(|error| {
            let why = message(&**error);
            let note = format!("Failed to calculate the number of expected pods: {why}");
            recorder.warning(&reference, "CalculateExpectedPodCountFailed", note);
        })?;
        if has_unmanaged {
            let selector = go_text(&budget.spec.selector);
            let note = format!(
                "Pods selected by this PodDisruptionBudget (selector: {selector}) were found to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please set \".spec.minAvailable\" field of the PDB to an integer value."
            );
            recorder.warning(&reference, "UnmanagedPods", note);
        }
        let (mut disrupted, mut recheck) = disrupted(budget, &pods, now);
        let overdue = pods.iter().copied().filter(|pod| is_overdue(budget, pod, &disrupted));
        for pod in overdue.collect::<Vec<_>>() {
            if !fresh::is_live(&client.api(), pod).await? {
                let evicted = budget.status.disrupted_pods.get_key_value(pod.name());
                disrupted.extend(evicted.map(|(name, at)| (name.clone(), at.clone())));
                recheck = recheck.or(Some(BEHIND_PAUSE));
                continue;
            }
            let name = budget.metadata.name.as_deref().unwrap_or_default();
            let note =
                format!("Pod was expected by PDB {namespace}/{name} to be deleted but it wasn't");
            recorder.warning(&ObjectReference::of(pod), "NotDeleted", note);
        }
        let is_healthy = |pod: &&&Pod| {
            pod.is_ready() && !pod.is_being_deleted() && !disrupted.contains_key(pod.name())
        };
        let healthy = i32::try_from(pods.iter().filter(is_healthy).count()).unwrap_or(i32::MAX);
        let allowed = if expected > 0 { (healthy - desired).max(0) } else { 0 };
        let mut status = BudgetStatus {
            observed_generation: budget.metadata.generation,
            disrupted_pods: disrupted,
            disruptions_allowed: allowed,
            current_healthy: healthy,
            desired_healthy: desired,
            expected_pods: expected,
            conditions: budget.status.conditions.clone(),
        };
        let reason = if allowed > 0 { "SufficientPods" } else { "InsufficientPods" };
        let generation = budget.metadata.generation;
        set_condition(&mut status.conditions, ALLOWED, allowed > 0, reason, "", generation, now);
        Ok((status, recheck))
    }

    async fn count(
        &self,
        client: &Client,
        budget: &Budget,
        namespace: &str,
        pods: &[&Pod],
    ) -> Result<Counted, BoxError> {
        let (limit, is_max) = match (&budget.spec.max_unavailable, &budget.spec.min_available) {
            (Some(max), _) => (max, true),
            (None, Some(IntOrString::Int(min))) => {
                let expected = i32::try_from(pods.len()).unwrap_or(i32::MAX);
                return Ok(Counted { expected, desired: *min, has_unmanaged: false });
            }
            (None, Some(min)) => (min, false),
            (None, None) => return Ok(Counted::default()),
        };
        let mut has_unmanaged = false;
        let mut owners: BTreeMap<String, i32> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for pod in pods {
            let Some(owner) = controller_of(*pod) else {
                has_unmanaged = true;
                continue;
            };
            if !seen.insert(owner.uid.clone()) {
                continue;
            }
            let (uid, replicas) = self
                .scale(client, namespace, owner)
                .await?
                .ok_or_else(|| format!("found no controllers for pod {:?}", pod.name()))?;
            owners.insert(uid, replicas);
        }
        let expected = owners.values().copied().fold(0, i32::saturating_add);
        let of_limit = scaled(limit, expected)?;
        let desired = if is_max { (expected - of_limit).max(0) } else { of_limit };
        Ok(Counted { expected, desired, has_unmanaged })
    }

    /// The uid and the replicas of the object that scales the pods of a controller; `None` if it
    /// does not exist.
    async fn scale(
        &self,
        client: &Client,
        namespace: &str,
        owner: &OwnerReference,
    ) -> Result<Option<(String, i32)>, BoxError> {
        let key = Request::new(namespace, owner.name.as_str());
        let is_apps = owner.api_version.starts_with("apps/");
        let found = |meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
                     replicas: Option<i32>| {
            (meta.uid.as_deref() == Some(&*owner.uid))
                .then(|| (owner.uid.clone(), replicas.unwrap_or(1)))
        };
        match owner.kind.as_str() {
            "ReplicaSet" if is_apps => {
                let Some(set) = client.api::<ReplicaSet>().get(&key)? else { return Ok(None) };
                if let Some(above) = controller_of(&*set).filter(|above| above.kind == "Deployment")
                {
                    let key = Request::new(namespace, above.name.as_str());
                    let deployment = client.api::<Deployment>().get(&key)?;
                    let deployment =
                        deployment.filter(|d| d.metadata.uid.as_deref() == Some(&*above.uid));
                    return Ok(deployment.map(|deployment| {
                        (above.uid.clone(), deployment.spec.replicas.unwrap_or(1))
                    }));
                }
                Ok(found(&set.metadata, Some(set.spec.replicas())))
            }
            "ReplicationController" if owner.api_version == "v1" => {
                let held = client.api::<ReplicationController>().get(&key)?;
                Ok(held.and_then(|held| found(&held.metadata, Some(held.spec.replicas()))))
            }
            "StatefulSet" if is_apps => {
                let held = client.api::<StatefulSet>().get(&key)?;
                Ok(held.and_then(|held| found(&held.metadata, held.spec.replicas)))
            }
            _ => self.scale_of_other(client, &key, owner).await,
        }
    }

    async fn scale_of_other(
        &self,
        client: &Client,
        key: &Request,
        owner: &OwnerReference,
    ) -> Result<Option<(String, i32)>, BoxError> {
        let (group, version) =
            owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
        let mapper = self.mapper.get_or_init(|| Mapper::new(client.kube().clone()));
        let kind = GroupVersionKind::new(group, version, &*owner.kind);
        let resource = mapper.resolve(&kind).await?.resource;
        let name = match group {
            "" => resource.plural.clone(),
            group => format!("{}.{group}", resource.plural),
        };
        let api = client.api_with::<DynamicObject>(resource);
        let scale = match api.scale().get(key).await {
            // A path that is not served.
            Err(error) if error.is_not_found() => None,
            scale => scale?,
        };
        if let Some(scale) = scale {
            let replicas = scale.spec.and_then(|spec| spec.replicas).unwrap_or(0);
            let uid = scale.metadata.uid.unwrap_or_default();
            return Ok((uid == owner.uid).then_some((uid, replicas)));
        }
        // Either the object does not exist, or its kind has no scale.
        match api.get_live(key).await? {
            Some(_) => Err(format!("{name} does not implement the scale subresource").into()),
            None => Ok(None),
        }
    }
}

#[derive(Debug, Default)]
struct Counted {
    expected: i32,
    desired: i32,
    /// Pods without a controller, whose desired number is unknown.
    has_unmanaged: bool,
}

/// A number, or a percentage of `total`, rounded up.
fn scaled(limit: &IntOrString, total: i32) -> Result<i32, BoxError> {
    let text = match limit {
        IntOrString::Int(number) => return Ok(*number),
        IntOrString::String(text) => text,
    };
    let percent = text.strip_suffix('%').and_then(|percent| percent.parse::<i64>().ok());
    let percent = percent.ok_or_else(|| {
        format!("invalid value for IntOrString: invalid type: string is not a percentage: {text:?}")
    })?;
    let scaled = percent.saturating_mul(i64::from(total)).saturating_add(99).div_euclid(100);
    Ok(i32::try_from(scaled).unwrap_or(i32::MAX))
}

/// The evictions whose pods still exist and that are not too long ago, and when the first of them
/// will be.
fn disrupted(
    budget: &Budget,
    pods: &[&Pod],
    now: Timestamp,
) -> (BTreeMap<String, Time>, Option<Duration>) {
    let mut recheck = None;
    let evicted = pods.iter().filter(|pod| !pod.is_being_deleted()).filter_map(|pod| {
        let at = budget.status.disrupted_pods.get(pod.name())?;
        let max = if is_successor(pod, at) { MARK_PAUSE } else { DISRUPTION_MAX };
        let left = (timestamp(at) + max).since(now);
        if left.is_zero() {
            return None;
        }
        recheck = Some(recheck.map_or(left, |first: Duration| first.min(left)));
        Some((pod.name().to_owned(), at.clone()))
    });
    let evicted = evicted.collect();
    (evicted, recheck)
}

/// Whether a pod took the place of one of its name that was evicted. Times are of whole seconds:
/// one that is as old as the eviction is told by its condition, which comes a little later.
fn is_successor(pod: &Pod, evicted: &Time) -> bool {
    pod.created() >= timestamp(evicted) && !is_target(pod)
}

/// Whether a pod has the condition `DisruptionTarget`.
fn is_target(pod: &Pod) -> bool {
    pod.status.conditions.iter().any(|c| c.kind == DISRUPTION_TARGET && c.status == "True")
}

fn timestamp(time: &Time) -> Timestamp {
    Timestamp::from_secs(u64::try_from(time.0.as_second()).unwrap_or_default())
}

/// Whether a pod was evicted too long ago, and is not being deleted.
fn is_overdue(budget: &Budget, pod: &Pod, disrupted: &BTreeMap<String, Time>) -> bool {
    let evicted = budget.status.disrupted_pods.get(pod.name());
    evicted.is_some_and(|at| !is_successor(pod, at))
        && !disrupted.contains_key(pod.name())
        && !pod.is_being_deleted()
}

/// Ends the condition of a pod that was to be evicted and was not deleted in time.
async fn end_target(client: &Client, key: &Request, now: Timestamp) -> Result<Action, BoxError> {
    let Some(pod) = client.api::<core::Pod>().get(key)? else { return Ok(Action::await_change()) };
    let status = pod.status.clone().unwrap_or_default();
    let is_finished = status.phase.as_deref().is_some_and(pod_phase::is_terminal);
    let mut conditions = status.conditions.iter().flatten();
    let target = conditions.find(|condition| {
        condition.type_ == DISRUPTION_TARGET
            && condition.status == "True"
            // The kubelet may take long to stop the pod.
            && condition.reason.as_deref() != Some("TerminationByKubelet")
    });
    let Some(target) = target.filter(|_| !is_finished && pod.metadata.deletion_timestamp.is_none())
    else {
        return Ok(Action::await_change());
    };
    let since = target.last_transition_time.as_ref().map_or(Timestamp::from_secs(0), timestamp);
    let left = (since + DISRUPTION_MAX).since(now);
    if !left.is_zero() {
        return Ok(Action::requeue_after(left));
    }
    let condition = disruption_target(&pod.metadata, "False", None, now);
    let held = status.conditions.iter().flatten().map(|condition| &*condition.type_);
    let patch = json!({
        "metadata": {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version},
        "status": condition_patch(held, condition),
    });
    ignore_not_found(client.api::<core::Pod>().patch_status(key, &Patch::Strategic(patch)).await)?;
    Ok(Action::await_change())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_rounded_up() {
        for (percent, total, expected) in
            [("50%", 3, 2), ("0%", 3, 0), ("100%", 7, 7), ("1%", 1, 1), ("30%", 10, 3)]
        {
            let limit = IntOrString::String(percent.to_owned());
            assert_eq!(scaled(&limit, total).unwrap(), expected, "{percent} of {total}");
        }
        assert_eq!(scaled(&IntOrString::Int(5), 100).unwrap(), 5);
        assert!(scaled(&IntOrString::String("x".to_owned()), 1).is_err());
    }
}
