//! Removes pods from nodes with taints of effect `NoExecute`.
//!
//! # Theory
//!
//! A pod that does not tolerate one of these taints is deleted at once. One that tolerates all of
//! them for a time is deleted when the shortest of these times has passed since the taint was
//! added. Of several tolerations of one taint, the first in the pod's list counts. Pods get a
//! toleration of five minutes for nodes that are not ready or cannot be reached from admission.
//!
//! kubectl adds taints without a time. They count from when the controller first saw them with the
//! pod, which it remembers until the pod leaves or may stay. A restart of the controller begins
//! that time again.

use super::COMPONENT;
use super::node_pods::{BY_NODE, NodePod, NodeView, by_node};
use super::pod_control::{condition_patch, disruption_target};
use crate::setup::Setup;
use k8s_openapi::api::core::v1 as core;
use kube_core::params::{DeleteParams, Patch, Preconditions};
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint_informer::{Event, Object};
use setpoint_object::skim;
use setpoint_object::taint::{Taint, Toleration};
use setpoint_object::time::Timestamp;
use setpoint_runtime::client::ignore_not_found;
use setpoint_runtime::source::Enqueue;
use setpoint_runtime::{
    Action, BoxError, Context, Controller, Manager, ObjectReference, Reconciler, Request, Watch,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Number of pods that are processed at the same time.
const WORKERS: usize = 8;

/// The controller of evictions by taints.
#[derive(Clone, Debug)]
#[must_use]
pub struct TaintEvictionController(());

impl TaintEvictionController {
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
        let planned = Arc::new(Planned::default());
        let of_deleted = planned.clone();
        let controller = Controller::builder("taint-eviction-controller")
            .concurrency(WORKERS)
            .handles(
                Watch::<NodePod>::new().index(BY_NODE, by_node),
                move |event: &Event<NodePod>, keys: &Enqueue<'_, Request>| {
                    let is_news = match event {
                        // Status updates, which are most of all events, change nothing here.
                        Event::Updated { old, new } => {
                            old.uid() != new.uid() || !has_same_spec(old, new)
                        }
                        Event::Deleted { .. } => of_deleted.has(event.key()),
                        _ => true,
                    };
                    if is_news {
                        keys.add(event.key().clone());
                    }
                },
            )
            .watches_with(Watch::<NodeView>::new(), |event: &Event<NodeView>, client| {
                let taints = |node: &Object<NodeView>| {
                    node.get().map(|node| evicting(&node.spec.taints)).unwrap_or_default()
                };
                let has_changed = match event {
                    Event::Updated { old, new } => taints(old) != taints(new),
                    Event::Added { object, .. } => !taints(object).is_empty(),
                    _ => false,
                };
                if !has_changed {
                    return Vec::new();
                }
                let lister = client.api::<NodePod>().lister().ok();
                let pods =
                    lister.and_then(|pods| pods.objects_by_index(BY_NODE, &event.key().name).ok());
                pods.into_iter().flatten().map(|pod| pod.key().clone()).collect()
            })
            .sync_timeout(None)
            .build(Pass { planned })?;
        manager.add(controller)?;
        Ok(())
    }
}

/// Whether two versions of a pod are on the same node and stand the same taints. Decodes nothing.
fn has_same_spec(old: &Object<NodePod>, new: &Object<NodePod>) -> bool {
    let (Some(old), Some(new)) = (old.json(), new.json()) else { return false };
    ["nodeName", "tolerations"]
        .map(|name| ["spec".to_owned(), name.to_owned()])
        .iter()
        .all(|path| skim::value_at(&old, path) == skim::value_at(&new, path))
}

/// The taints that remove pods.
fn evicting(taints: &[Taint]) -> Vec<Taint> {
    taints.iter().filter(|taint| taint.effect == "NoExecute").cloned().collect()
}

/// When a pod leaves a node with these taints; `None`: never. Taints without a time count from
/// `since`.
fn leaves_at(
    taints: &[Taint],
    tolerations: &[Toleration],
    since: Timestamp,
    now: Timestamp,
) -> Option<Timestamp> {
    let mut earliest: Option<Timestamp> = None;
    for taint in taints {
        // Of several tolerations of a taint the first one counts.
        let Some(toleration) = tolerations.iter().find(|held| held.tolerates(taint)) else {
            return Some(now);
        };
        if let Some(seconds) = toleration.toleration_seconds {
            let added = taint.time_added.as_deref().and_then(Timestamp::parse).unwrap_or(since);
            let at = added + Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
            earliest = Some(earliest.map_or(at, |earlier| earlier.min(at)));
        }
    }
    earliest
}

/// The pods that will leave if nothing changes.
#[derive(Debug, Default)]
struct Planned(Mutex<BTreeMap<Request, Plan>>);

#[derive(Debug)]
struct Plan {
    uid: Option<String>,
    /// When the controller first saw the pod on a node that it has to leave.
    since: Timestamp,
}

impl Planned {
    fn has(&self, key: &Request) -> bool {
        self.0.lock().contains_key(key)
    }

    fn since(&self, key: &Request, uid: Option<&String>) -> Option<Timestamp> {
        self.0.lock().get(key).filter(|plan| plan.uid.as_ref() == uid).map(|plan| plan.since)
    }

    fn plan(&self, key: &Request, uid: Option<String>, since: Timestamp) {
        self.0.lock().insert(key.clone(), Plan { uid, since });
    }

    /// Returns whether there was a plan.
    fn forget(&self, key: &Request) -> bool {
        self.0.lock().remove(key).is_some()
    }
}

/// Reconciles pods.
struct Pass {
    planned: Arc<Planned>,
}

impl Pass {
    /// The pod stays, or has left without this controller.
    fn stays(&self, key: &Request, reference: &ObjectReference, context: &Context) -> Action {
        if self.planned.forget(key) {
            let message = format!("Cancelling deletion of Pod {key}");
            context.recorder().normal(reference, "TaintManagerEviction", message);
        }
        Action::await_change()
    }
}

impl Reconciler for Pass {
    type Error = BoxError;

    async fn reconcile(&self, request: Request, context: Context) -> Result<Action, BoxError> {
        let client = context.client();
        let Some(pod) = client.api::<NodePod>().get(&request)? else {
            return Ok(self.stays(&request, &of_gone(&request), &context));
        };
        if pod.spec.node_name.is_empty() || pod.metadata.deletion_timestamp.is_some() {
            self.planned.forget(&request);
            return Ok(Action::await_change());
        }
        let key = Request::cluster(&*pod.spec.node_name);
        let node = client.api::<NodeView>().get(&key)?;
        let taints = node.map(|node| evicting(&node.spec.taints)).unwrap_or_default();
        let now = context.clock().now();
        let uid = pod.metadata.uid.as_ref();
        let since = self.planned.since(&request, uid).unwrap_or(now);
        match leaves_at(&taints, &pod.spec.tolerations, since, now) {
            None => return Ok(self.stays(&request, &ObjectReference::of(&*pod), &context)),
            Some(at) if at > now => {
                self.planned.plan(&request, uid.cloned(), since);
                return Ok(Action::requeue_after(at.since(now)));
            }
            Some(_) => {}
        }
        // A cache that is behind may show a taint that is gone.
        let live = client.api::<NodeView>().get_live(&key).await?;
        let taints = live.map(|node| evicting(&node.spec.taints)).unwrap_or_default();
        match leaves_at(&taints, &pod.spec.tolerations, since, now) {
            Some(at) if at <= now => {
                // Boxed, so that a worker that waits for work is small.
                let action = Box::pin(evict(&request, &pod, &context)).await?;
                self.planned.forget(&request);
                Ok(action)
            }
            // Until the cache shows it.
            _ => Ok(Action::requeue()),
        }
    }
}

/// A reference to a pod that is gone.
fn of_gone(key: &Request) -> ObjectReference {
    let mut reference = ObjectReference::default();
    reference.api_version = "v1".to_owned();
    reference.kind = "Pod".to_owned();
    reference.namespace = key.namespace.to_string();
    reference.name = key.name.to_string();
    reference
}

async fn evict(key: &Request, pod: &NodePod, context: &Context) -> Result<Action, BoxError> {
    let uid = pod.metadata.uid.clone();
    let cause = ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint");
    let now = context.clock().now();
    let condition = disruption_target(&pod.metadata, "True", Some(cause), now);
    let held = pod.status.conditions.iter().map(|condition| &*condition.kind);
    let patch = json!({"metadata": {"uid": uid}, "status": condition_patch(held, condition)});
    let api = context.client().field_manager(COMPONENT).api::<core::Pod>();
    let noted = api.subresource::<Value>("status").patch(key, &Patch::Strategic(patch)).await;
    // A conflict does not say whether another pod has the name: the pass is repeated.
    if ignore_not_found(noted)?.is_none() {
        return Ok(Action::await_change());
    }
    let message = format!("Marking for deletion Pod {key}");
    context.recorder().normal(&ObjectReference::of(pod), "TaintManagerEviction", message);
    let preconditions = Some(Preconditions { uid, resource_version: None });
    let params = DeleteParams { preconditions, ..DeleteParams::default() };
    api.delete(key, &params).await?;
    Ok(Action::await_change())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_leaves_when_its_shortest_toleration_ends() {
        let taint = |key: &str| Taint {
            key: key.to_owned(),
            value: String::new(),
            effect: "NoExecute".to_owned(),
            time_added: Some(Timestamp::from_secs(100).rfc3339()),
        };
        let toleration = |key: &str, seconds: Value| -> Toleration {
            let value = json!({"key": key, "operator": "Exists", "tolerationSeconds": seconds});
            serde_json::from_value(value).unwrap()
        };
        let now = Timestamp::from_secs(150);
        let leaves = |taints: &[Taint], tolerations: &[Toleration]| {
            leaves_at(taints, tolerations, now, now).map(|at| at.0.as_secs())
        };
        let both = [taint("a"), taint("b")];
        assert_eq!(leaves(&[], &[]), None);
        assert_eq!(leaves(&both, &[toleration("a", Value::Null)]), Some(150));
        assert_eq!(leaves(&both, &[toleration("", Value::Null)]), None);
        assert_eq!(
            leaves(&both, &[toleration("a", 300.into()), toleration("b", 60.into())]),
            Some(160)
        );
        let forever = toleration("", Value::Null);
        let short = toleration("a", 60.into());
        assert_eq!(leaves(&both, &[forever.clone(), short.clone()]), None, "the first one counts");
        assert_eq!(leaves(&both, &[short, forever]), Some(160));
    }
}
