//! The life of nodes: which are alive, what that means for their taints and their pods.
//!
//! # Theory
//!
//! A node is alive while its Lease or its condition `Ready` is renewed. The controller notes, by
//! its own clock, when it last saw that change; the clocks of nodes do not matter.
//!
//! | a node is | conditions | taints |
//! |---|---|---|
//! | alive and ready | as the node says | none of these |
//! | alive and not ready | as the node says | `node.kubernetes.io/not-ready` |
//! | new, without the condition `Ready` | as the node says | none of these |
//! | silent for [`GRACE`] | `Unknown` | `node.kubernetes.io/unreachable` |
//! | cordoned, or short of something | as the node says | `node.kubernetes.io/unschedulable`, `…/memory-pressure`, `…/disk-pressure`, `…/pid-pressure`, `…/network-unavailable` |
//!
//! All have the effect `NoSchedule`. The first two also get `NoExecute`, which evicts pods, node by
//! node: one in ten seconds in a zone, fewer if most of its nodes are not ready, and none if no
//! node of the cluster is: the controller then suspects itself. Pods on a silent node are not ready
//! either. Those of a node that says itself that it is not ready are as it says: it still reports
//! them. Taints with other keys are left alone. The labels `kubernetes.io/os` and
//! `kubernetes.io/arch` are copied to their former names, `beta.…`. [`super::taint_eviction`]
//! removes the pods.

mod zones;

use self::zones::{Turn, Zones};
use super::COMPONENT;
use super::node_pods::{BY_NODE, NodePod, NodeView, by_node};
use crate::boxed::{Boxed, BoxedReconciler};
use crate::first_error::FirstError;
use crate::setup::Setup;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1 as core;
use kube_core::params::Patch;
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint_informer::Event;
use setpoint_object::taint::Taint;
use setpoint_object::time::Timestamp;
use setpoint_runtime::client::ignore_not_found;
use setpoint_runtime::source::Enqueue;
use setpoint_runtime::{
    Action, BoxError, Context, Controller, Manager, ObjectReference, Request, Watch,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a node may be silent: 50 s, as kube-controller-manager's
/// `--node-monitor-grace-period`.
pub const GRACE: Duration = Duration::from_secs(50);
/// How long a new node may be silent: 60 s, as `--node-startup-grace-period`.
const STARTUP_GRACE: Duration = Duration::from_secs(60);
/// Number of nodes that are processed at the same time.
const WORKERS: usize = 8;
/// The namespace of the Leases of nodes.
const LEASES: &str = "kube-node-lease";
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// Conditions with a taint, and the status that adds it.
const BY_CONDITION: [(&str, &str); 4] = [
    ("MemoryPressure", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "node.kubernetes.io/network-unavailable"),
];
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// Labels, and their former names, which have the same values.
const LABELS: [(&str, &str); 2] = [
    ("kubernetes.io/os", "beta.kubernetes.io/os"),
    ("kubernetes.io/arch", "beta.kubernetes.io/arch"),
];

/// The controller of nodes.
#[derive(Clone, Debug)]
#[must_use]
pub struct NodeLifecycleController(());

impl NodeLifecycleController {
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
        let seen: AllSeen = Arc::default();
        let zones: Arc<Mutex<Zones>> = Arc::default();
        let (of_nodes, of_leases, in_zones) = (seen.clone(), seen.clone(), zones.clone());
        let controller = Controller::builder("node-controller")
            .concurrency(WORKERS)
            .handles(
                Watch::<NodeView>::new(),
                move |event: &Event<NodeView>, keys: &Enqueue<'_, Request>| {
                    let (key, now) = (event.key(), Instant::now());
                    let node = event.object().and_then(|node| node.get().ok());
                    let noted = match (event, node) {
                        (Event::Deleted { .. }, _) => {
                            of_nodes.lock().remove(&*key.name);
                            in_zones.lock().remove(&key.name, now)
                        }
                        (_, node) => {
                            let beat = node.as_deref().and_then(heartbeat);
                            note(&of_nodes, &key.name, |seen| &mut seen.condition, beat);
                            let node = node.as_deref();
                            let note = |node| in_zones.lock().note(&key.name, node, now);
                            node.map(note).unwrap_or_default()
                        }
                    };
                    if noted.is_back {
                        // The others may have reported all the time, without being heard.
                        of_nodes.lock().values_mut().for_each(|seen| seen.at = now);
                    }
                    for other in noted.others {
                        keys.add(Request::cluster(other));
                    }
                    keys.add(key.clone());
                },
            )
            .handles(
                Watch::<Lease>::new(),
                move |event: &Event<Lease>, keys: &Enqueue<'_, Request>| {
                    let key = event.key();
                    if &*key.namespace != LEASES || matches!(event, Event::Deleted { .. }) {
                        return;
                    }
                    let lease = event.object().and_then(|lease| lease.get().ok());
                    let renewed = lease.and_then(|lease| lease.spec.as_ref()?.renew_time.clone());
                    let renewed = renewed.map(|time| time.0.to_string());
                    // The pass over a node looks when it would be silent for too long.
                    if note(&of_leases, &key.name, |seen| &mut seen.lease, renewed) {
                        keys.add(Request::cluster(key.name.clone()));
                    }
                },
            )
            .watches(Watch::<NodePod>::new().index(BY_NODE, by_node), |_| Vec::new())
            .sync_timeout(None)
            .build(Boxed(Pass { seen, zones, registered: Mutex::default() }))?;
        manager.add(controller)?;
        Ok(())
    }
}

/// The time of the last heartbeat in the node's status.
fn heartbeat(node: &NodeView) -> Option<String> {
    let ready = node.status.conditions.iter().find(|condition| condition.kind == "Ready")?;
    ready.last_heartbeat_time.clone()
}

/// What was seen of a node's heartbeats.
#[derive(Debug)]
struct Seen {
    lease: Option<String>,
    condition: Option<String>,
    /// When one of them changed.
    at: Instant,
    /// Whether the node has been declared silent since.
    is_silent: bool,
    /// Whether its pods are still to be marked: it was ready until then.
    has_ready_pods: bool,
}

type AllSeen = Arc<Mutex<BTreeMap<Arc<str>, Seen>>>;

/// Notes a heartbeat. Returns whether the node had been silent.
fn note(
    all: &AllSeen,
    name: &Arc<str>,
    member: impl FnOnce(&mut Seen) -> &mut Option<String>,
    beat: Option<String>,
) -> bool {
    let mut all = all.lock();
    let now = Instant::now();
    let seen = all.entry(name.clone()).or_insert_with(|| Seen {
        lease: None,
        condition: None,
        at: now,
        is_silent: false,
        has_ready_pods: false,
    });
    let known = member(seen);
    if beat.is_none() || *known == beat {
        return false;
    }
    *known = beat;
    seen.at = now;
    seen.has_ready_pods = false;
    std::mem::take(&mut seen.is_silent)
}

/// Reconciles nodes.
struct Pass {
    seen: AllSeen,
    zones: Arc<Mutex<Zones>>,
    /// The uids of the known nodes, by name.
    registered: Mutex<BTreeMap<Arc<str>, String>>,
}

impl BoxedReconciler for Pass {
    type Error = BoxError;

    async fn pass(&self, request: &Request, context: &Context) -> Result<Action, BoxError> {
        let api = context.client().api::<NodeView>();
        let node = api.get(request)?;
        self.register(&request.name, node.as_deref(), context);
        let Some(node) = node else { return Ok(Action::await_change()) };
        let silent_at = {
            let seen = self.seen.lock();
            let Some(seen) = seen.get(&*request.name) else { return Ok(Action::requeue()) };
            let has_status = !node.condition("Ready").is_empty();
            seen.at + if has_status { GRACE } else { STARTUP_GRACE }
        };
        let is_silent = Instant::now() >= silent_at;
        let mut ready = node.condition("Ready").to_owned();
        if is_silent {
            if let Some(seen) = self.seen.lock().get_mut(&*request.name) {
                seen.is_silent = true;
                // As in the reference, pods of a node that was not ready before are left alone.
                seen.has_ready_pods |= ready == "True";
            }
            if ready != "Unknown" {
                self.declare_unknown(&node, request, context).await?;
                ready = "Unknown".to_owned();
            }
        }
        let (evicts, next) = self.evicts(&node, &request.name, &ready);
        let is_tainted = self.taint(&node, request, (&ready, evicts), context).await?;
        let has_ready_pods =
            self.seen.lock().get(&*request.name).is_some_and(|seen| seen.has_ready_pods);
        if ready == "Unknown" && has_ready_pods {
            not_ready(request, context).await?;
            if let Some(seen) = self.seen.lock().get_mut(&*request.name) {
                seen.has_ready_pods = false;
            }
        }
        label(&node, request, context).await?;
        if !is_tainted {
            return Ok(Action::requeue());
        }
        // A heartbeat wakes a silent one.
        let next =
            if is_silent { next } else { Some(next.map_or(silent_at, |n| n.min(silent_at))) };
        Ok(next.map_or_else(Action::await_change, |next| {
            let wait = next.saturating_duration_since(Instant::now());
            Action::requeue_after(wait.max(Duration::from_millis(1)))
        }))
    }
}

impl Pass {
    /// Records nodes that are new, and those that are gone.
    fn register(&self, name: &Arc<str>, node: Option<&NodeView>, context: &Context) {
        let uid = node.and_then(|node| node.metadata.uid.clone());
        let before = {
            let mut registered = self.registered.lock();
            match &uid {
                Some(uid) => registered.insert(name.clone(), uid.clone()),
                None => registered.remove(name),
            }
        };
        if before == uid {
            return;
        }
        let record = |uid: String, reason: &str, event: String| {
            let mut reference = ObjectReference::default();
            "v1".clone_into(&mut reference.api_version);
            "Node".clone_into(&mut reference.kind);
            reference.name = name.to_string();
            reference.uid = uid;
            context.recorder().normal(&reference, reason, format!("Node {name} event: {event}"));
        };
        if let Some(uid) = before {
            record(uid, "RemovingNode", format!("Removing Node {name} from Controller"));
        }
        if let Some(uid) = uid {
            record(uid, "RegisteredNode", format!("Registered Node {name} in Controller"));
        }
    }

    /// The node does not report: its conditions are unknown.
    async fn declare_unknown(
        &self,
        node: &NodeView,
        request: &Request,
        context: &Context,
    ) -> Result<(), BoxError> {
        let conditions = unknown_conditions(node, context.clock().now());
        // A heartbeat that comes meanwhile must stay.
        let meta = &node.metadata;
        let patch = json!({
            "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
            "status": {"conditions": conditions},
        });
        let api = context.client().field_manager(COMPONENT).api::<NodeView>();
        ignore_not_found(api.patch_status(request, &Patch::Strategic(patch)).await)?;
        if node.condition("Ready") == "True" {
            let reference = ObjectReference::of(node);
            let message = format!("Node {} status is now: NodeNotReady", request.name);
            context.recorder().normal(&reference, "NodeNotReady", message);
        }
        Ok(())
    }

    /// Whether a node has taints that evict pods, and when to ask again.
    fn evicts(&self, node: &NodeView, name: &str, ready: &str) -> (bool, Option<Instant>) {
        // A new node has said nothing yet.
        if matches!(ready, "True" | "") {
            return (false, None);
        }
        let mut zones = self.zones.lock();
        if zones.are_all_down() {
            return (false, None);
        }
        if has_evicting(&node.spec.taints) {
            return (true, None);
        }
        match zones.turn(name, Instant::now()) {
            Turn::Now => (true, None),
            Turn::Later(at) => (false, Some(at)),
            Turn::Never => (false, None),
        }
    }

    /// Adds and removes the taints that follow from conditions. Returns false if the node has
    /// changed meanwhile.
    async fn taint(
        &self,
        node: &NodeView,
        request: &Request,
        (ready, evicts): (&str, bool),
        context: &Context,
    ) -> Result<bool, BoxError> {
        let taints = taints(node, ready, evicts, context.clock().now());
        if taints == node.spec.taints {
            return Ok(true);
        }
        // The list is replaced as a whole, so nobody may have changed it meanwhile.
        let metadata = json!({
            "uid": node.metadata.uid, "resourceVersion": node.metadata.resource_version,
        });
        let mut patch = json!({"metadata": metadata, "spec": {"taints": taints}});
        if taints.is_empty() {
            patch["spec"]["taints"] = Value::Null;
        }
        // This pass may have written the status: then the node is newer.
        let api = context.client().field_manager(COMPONENT).api::<NodeView>();
        let patched = api.patch(request, &Patch::Merge(patch)).await;
        if patched.is_err() && evicts && !has_evicting(&node.spec.taints) {
            self.zones.lock().give_back(&request.name, Instant::now());
        }
        match patched {
            Err(error) if error.is_conflict() => Ok(false),
            patched => Ok(ignore_not_found(patched).map(|_| true)?),
        }
    }
}

/// The conditions of a node that does not report, as far as they differ from those it has.
fn unknown_conditions(node: &NodeView, now: Timestamp) -> Vec<Value> {
    let kinds = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];
    let unknown = |kind: &str| {
        let mut condition = json!({
            "type": kind, "status": "Unknown", "lastTransitionTime": now.rfc3339(),
        });
        let (reason, message) = match node.condition(kind) {
            "Unknown" => return None,
            "" => {
                condition["lastHeartbeatTime"] = json!(node.metadata.creation_timestamp);
                ("NodeStatusNeverUpdated", "Kubelet never posted node status.")
            }
            _ => ("NodeStatusUnknown", "Kubelet stopped posting node status."),
        };
        condition["reason"] = reason.into();
        condition["message"] = message.into();
        Some(condition)
    };
    kinds.into_iter().filter_map(unknown).collect()
}

/// Whether one of the taints evicts pods because the node is not ready.
fn has_evicting(taints: &[Taint]) -> bool {
    let is_own = |key: &str| [NOT_READY, UNREACHABLE].contains(&key);
    taints.iter().any(|taint| taint.effect == "NoExecute" && is_own(&taint.key))
}

/// The taints that a node should have.
fn taints(node: &NodeView, ready: &str, evicts: bool, now: Timestamp) -> Vec<Taint> {
    let own = |key: &str| {
        [NOT_READY, UNREACHABLE, UNSCHEDULABLE].contains(&key)
            || BY_CONDITION.iter().any(|(_, taint)| *taint == key)
    };
    let mut wanted: Vec<(&str, &str)> = Vec::new();
    let of_ready = match ready {
        // A new node has said nothing yet.
        "True" | "" => None,
        "Unknown" => Some(UNREACHABLE),
        _ => Some(NOT_READY),
    };
    if let Some(key) = of_ready {
        wanted.push((key, "NoSchedule"));
        wanted.extend(evicts.then_some((key, "NoExecute")));
    }
    for (condition, taint) in BY_CONDITION {
        if node.condition(condition) == "True" {
            wanted.push((taint, "NoSchedule"));
        }
    }
    if node.spec.unschedulable {
        wanted.push((UNSCHEDULABLE, "NoSchedule"));
    }
    let is =
        |taint: &Taint, (key, effect): (&str, &str)| taint.key == key && taint.effect == effect;
    let mut taints: Vec<Taint> = node
        .spec
        .taints
        .iter()
        .filter(|taint| !own(&taint.key) || wanted.iter().any(|pair| is(taint, *pair)))
        .cloned()
        .collect();
    for (key, effect) in wanted {
        if !taints.iter().any(|taint| is(taint, (key, effect))) {
            taints.push(Taint {
                key: key.to_owned(),
                value: String::new(),
                effect: effect.to_owned(),
                time_added: Some(now.rfc3339()),
            });
        }
    }
    taints
}

/// The labels of a node that its labels by other names ask for.
fn former_labels(node: &NodeView) -> BTreeMap<&'static str, &str> {
    let labels = node.metadata.labels.as_ref();
    let label = |name| labels.and_then(|labels| labels.get(name)).map(String::as_str);
    let wanted = |(name, former)| {
        let value = label(name)?;
        (label(former) != Some(value)).then_some((former, value))
    };
    LABELS.into_iter().filter_map(wanted).collect()
}

/// Gives a node its labels by their former names.
async fn label(node: &NodeView, request: &Request, context: &Context) -> Result<(), BoxError> {
    let labels = former_labels(node);
    if labels.is_empty() {
        return Ok(());
    }
    let patch = json!({"metadata": {"uid": node.metadata.uid, "labels": labels}});
    let api = context.client().field_manager(COMPONENT).api::<NodeView>();
    ignore_not_found(api.patch(request, &Patch::Merge(patch)).await)?;
    Ok(())
}

/// Pods on a silent node are not ready. Reason and message of their conditions stay.
async fn not_ready(node: &Request, context: &Context) -> Result<(), BoxError> {
    let client = context.client().field_manager(COMPONENT);
    let api = client.api::<NodePod>();
    let pods = api.lister()?.by_index(BY_NODE, &node.name)?;
    let is_ready = |pod: &&Arc<NodePod>| {
        let conditions = &pod.status.conditions;
        conditions.iter().any(|condition| condition.kind == "Ready" && condition.status == "True")
    };
    // A pod that cannot be written does not keep the others.
    let mut errors = FirstError::new();
    for pod in pods.iter().filter(is_ready) {
        let meta = &pod.metadata;
        let (namespace, name) = (meta.namespace.as_deref(), meta.name.as_deref());
        let key = Request::new(namespace.unwrap_or_default(), name.unwrap_or_default());
        let condition = json!({
            "type": "Ready", "status": "False",
            "lastTransitionTime": context.clock().now().rfc3339(),
        });
        let patch = json!({"metadata": {"uid": meta.uid}, "status": {"conditions": [condition]}});
        let status = client.api::<core::Pod>().subresource::<Value>("status");
        let patched = status.patch(&key, &Patch::Strategic(patch)).await;
        let is_gone = patched.as_ref().is_err_and(|error| error.is_not_found());
        if is_gone || errors.note(patched).is_none() {
            continue;
        }
        context.recorder().warning(
            &ObjectReference::of(&**pod),
            "NodeNotReady",
            "Node is not ready",
        );
    }
    Ok(errors.into_result()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_of_a_silent_node_say_whether_they_were_ever_posted() {
        let node: NodeView = serde_json::from_value(json!({
            "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"conditions": [
                {"type": "Ready", "status": "False"}, {"type": "DiskPressure", "status": "Unknown"},
            ]},
        }))
        .unwrap();
        let conditions = unknown_conditions(&node, Timestamp::from_secs(0));
        let shown: Vec<Value> = conditions
            .iter()
            .map(|one| json!([one["type"], one["reason"], one["lastHeartbeatTime"]]))
            .collect();
        let created = "2026-01-01T00:00:00Z";
        let expected = json!([
            ["Ready", "NodeStatusUnknown", null],
            ["MemoryPressure", "NodeStatusNeverUpdated", created],
            ["PIDPressure", "NodeStatusNeverUpdated", created],
        ]);
        assert_eq!(json!(shown), expected);
        assert_eq!(conditions[0]["message"], "Kubelet stopped posting node status.");
    }

    #[test]
    fn taints_follow_from_conditions_and_others_stay() {
        let node: NodeView = serde_json::from_value(json!({
            "spec": {"unschedulable": true, "taints": [
                {"key": "mine", "effect": "NoSchedule"},
                {"key": NOT_READY, "effect": "NoExecute"},
            ]},
            "status": {"conditions": [{"type": "DiskPressure", "status": "True"}]},
        }))
        .unwrap();
        let keys_of = |ready: &str, evicts: bool| {
            let taints = taints(&node, ready, evicts, Timestamp::from_secs(0));
            taints.iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect::<Vec<_>>()
        };
        let keys = |ready: &str| keys_of(ready, true);
        let rest = [
            "node.kubernetes.io/disk-pressure:NoSchedule",
            "node.kubernetes.io/unschedulable:NoSchedule",
        ];
        assert_eq!(keys("True"), [&["mine:NoSchedule"][..], &rest].concat());
        assert_eq!(
            keys("Unknown"),
            [
                &[
                    "mine:NoSchedule",
                    "node.kubernetes.io/unreachable:NoSchedule",
                    "node.kubernetes.io/unreachable:NoExecute",
                ][..],
                &rest
            ]
            .concat()
        );
        assert_eq!(keys("False")[1], "node.kubernetes.io/not-ready:NoExecute");
        let slow = [&["mine:NoSchedule", "node.kubernetes.io/unreachable:NoSchedule"][..], &rest];
        assert_eq!(keys_of("Unknown", false), slow.concat(), "not yet, or no longer");
        assert_eq!(keys(""), keys("True"), "a new node has not said that it is not ready");
    }

    #[test]
    fn former_names_of_labels_have_the_values_of_the_labels() {
        let former = |labels: Value| {
            let node = json!({"metadata": {"labels": labels}});
            let node: NodeView = serde_json::from_value(node).unwrap();
            json!(former_labels(&node))
        };
        let both = json!({"kubernetes.io/os": "linux", "beta.kubernetes.io/os": "linux"});
        assert_eq!(former(both), json!({}));
        let different = json!({"kubernetes.io/os": "linux", "beta.kubernetes.io/os": "x"});
        assert_eq!(former(different), json!({"beta.kubernetes.io/os": "linux"}));
        let arch = json!({"kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux"});
        assert_eq!(former(arch), json!({"beta.kubernetes.io/arch": "amd64"}));
        assert_eq!(former(Value::Null), json!({}));
    }
}
