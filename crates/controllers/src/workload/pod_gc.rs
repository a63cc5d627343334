//! Garbage collection of pods that nobody else ends.
//!
//! Every twenty seconds it deletes, at once and without grace:
//!
//! - the oldest finished pods beyond 12,500, evicted ones first;
//! - pods of nodes that have been missing for 40 s, with the condition `DisruptionTarget`;
//! - pods that are being deleted and have no node;
//! - pods that are being deleted on a node that is not ready and has the taint
//!   `node.kubernetes.io/out-of-service`.
//!
//! A pod that has not finished gets the phase `Failed` first. The rules are those of
//! kube-controller-manager's `pod-garbage-collector-controller`.

use super::COMPONENT;
use super::pod::Pod;
use super::pod_control::{condition_patch, disruption_target, precondition};
use super::view::view;
use crate::boxed::{Boxed, BoxedReconciler};
use crate::setup::Setup;
use k8s_openapi::api::core::v1 as core;
use kube_core::params::Patch;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Map, json};
use setpoint_object::error::chain;
use setpoint_object::taint::Taint;
use setpoint_object::time::Timestamp;
use setpoint_runtime::client::ignore_not_found;
use setpoint_runtime::{Action, BoxError, Client, Context, Controller, Manager, Request, Watch};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// The controller's name.
const NAME: &str = "pod-garbage-collector-controller";
/// The time between two passes: 20 s, as in kube-controller-manager.
const PERIOD: Duration = Duration::from_secs(20);
/// How long a node must be missing: 40 s, as in kube-controller-manager.
const QUARANTINE: Duration = Duration::from_secs(40);
/// How many finished pods may stay: 12,500, the default of kube-controller-manager's
/// `--terminated-pod-gc-threshold`.
const FINISHED_MAX: usize = 12_500;
/// The taint of a node that is out of service.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// The index of pods by the queries of this controller.
const INDEX: &str = "pod-gc";
/// The value of the index for finished pods.
const FINISHED: &str = "finished";
/// The value of the index for pods that are being deleted and have no node.
const UNSCHEDULED: &str = "unscheduled";
/// The start of the value of the index for pods of a node, before its name.
const NODE: &str = "node/";

view! {
    /// A Node.
    Node of core::Node {
        /// The spec.
        spec: NodeSpec,
        /// The observed state.
        status: NodeStatus,
    }
}

/// `spec` of a node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeSpec {
    taints: Vec<Taint>,
}

/// `status` of a node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeStatus {
    conditions: Vec<super::pod::PodCondition>,
}

/// The controller that collects pods.
#[derive(Clone, Debug)]
#[must_use]
pub struct PodGarbageCollector(());

impl PodGarbageCollector {
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
        // The first pass. Each pass requeues itself.
        let (first, keys) = mpsc::channel(1);
        first.try_send(Request::cluster("all"))?;
        let controller = Controller::builder(NAME)
            .watches(Watch::<Pod>::new().index(INDEX, kinds_of), |_| Vec::new())
            .watches(Watch::<Node>::new(), |_| Vec::new())
            .channel(keys)
            .sync_timeout(None)
            .build(Boxed(Collector::default()))?;
        manager.add(controller)?;
        Ok(())
    }
}

/// The function of the index.
fn kinds_of(pod: &Pod) -> Vec<String> {
    let mut kinds = Vec::new();
    let node = &pod.spec.node_name;
    if pod.is_finished() {
        kinds.push(FINISHED.to_owned());
    }
    if node.is_empty() && pod.is_being_deleted() {
        kinds.push(UNSCHEDULED.to_owned());
    }
    if !node.is_empty() {
        kinds.push(format!("{NODE}{node}"));
    }
    kinds
}

#[derive(Default)]
struct Collector {
    /// Missing nodes, and since when.
    missing: Mutex<BTreeMap<String, Timestamp>>,
}

impl BoxedReconciler for Collector {
    type Error = BoxError;

    async fn pass(&self, _: &Request, context: &Context) -> Result<Action, BoxError> {
        let client = context.client().field_manager(COMPONENT);
        let pods = client.api::<Pod>();
        let of_kind = |kind: &str| pods.select().index(INDEX, kind).all();
        // A pod that cannot be deleted does not keep the others: the next pass tries it again.
        let delete = async |pod: &Pod, condition| {
            if let Err(error) = delete(&client, pod, condition, context).await {
                tracing::warn!(error = chain(&*error), pod = %Request::of(pod), "collect a pod");
            }
        };
        let finished = of_kind(FINISHED)?;
        let n_doomed = finished.len().saturating_sub(FINISHED_MAX);
        if n_doomed > 0 {
            let mut finished = finished;
            finished.sort_by_cached_key(|pod| {
                (!is_evicted(&client, pod), pod.created(), pod.name().to_owned())
            });
            for pod in finished.iter().take(n_doomed) {
                delete(pod, None).await;
            }
        }
        for node in
            client.api::<Node>().select().all()?.iter().filter(|node| is_out_of_service(node))
        {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            for pod in
                of_kind(&format!("{NODE}{name}"))?.iter().filter(|pod| pod.is_being_deleted())
            {
                delete(pod, None).await;
            }
        }
        for node in self.deleted_nodes(&client, context.clock().now()).await? {
            for pod in of_kind(&format!("{NODE}{node}"))? {
                let condition = ("DeletionByPodGC", "PodGC: node no longer exists");
                delete(&pod, Some(condition)).await;
            }
        }
        for pod in of_kind(UNSCHEDULED)? {
            delete(&pod, None).await;
        }
        Ok(Action::requeue_after(PERIOD))
    }
}

impl Collector {
    /// The nodes of pods that have been missing long enough, and do not exist on the server.
    async fn deleted_nodes(
        &self,
        client: &Client,
        now: Timestamp,
    ) -> Result<Vec<String>, BoxError> {
        let nodes = client.api::<Node>();
        let mut missing = BTreeSet::new();
        for lister in client.api::<Pod>().lister()?.listers() {
            for value in lister.snapshot().index_values(INDEX) {
                let Some(node) = value.strip_prefix(NODE) else { continue };
                if nodes.get(&Request::cluster(node))?.is_none() {
                    missing.insert(node.to_owned());
                }
            }
        }
        let overdue: Vec<String> = {
            let mut since = self.missing.lock();
            since.retain(|node, _| missing.contains(node));
            let overdue = |node: &String, since: &mut BTreeMap<String, Timestamp>| {
                now.since(*since.entry(node.clone()).or_insert(now)) >= QUARANTINE
            };
            missing.into_iter().filter(|node| overdue(node, &mut since)).collect()
        };
        let mut deleted = Vec::new();
        for node in overdue {
            if nodes.get_live(&Request::cluster(node.as_str())).await?.is_none() {
                deleted.push(node);
            }
        }
        Ok(deleted)
    }
}

/// Whether a node is not ready and out of service.
fn is_out_of_service(node: &Node) -> bool {
    let mut conditions = node.status.conditions.iter();
    let is_ready = conditions.any(|c| c.kind == "Ready" && c.status == "True");
    !is_ready && node.spec.taints.iter().any(|taint| taint.key == OUT_OF_SERVICE)
}

/// Whether a pod was evicted by its node.
fn is_evicted(client: &Client, pod: &Pod) -> bool {
    let whole = client.api::<core::Pod>().get(&Request::of(pod));
    let whole: Option<Arc<core::Pod>> = whole.ok().flatten();
    let status = whole.as_ref().and_then(|pod| pod.status.as_ref());
    status.is_some_and(|status| {
        status.phase.as_deref() == Some("Failed") && status.reason.as_deref() == Some("Evicted")
    })
}

/// Deletes a pod at once, after marking it as failed if it has not finished.
async fn delete(
    client: &Client,
    pod: &Pod,
    condition: Option<(&str, &str)>,
    context: &Context,
) -> Result<(), BoxError> {
    let api = client.api::<Pod>();
    let key = Request::of(pod);
    if !pod.is_finished() {
        let mut status = Map::new();
        if condition.is_some() {
            let now = context.clock().now();
            let condition = disruption_target(&pod.metadata, "True", condition, now);
            let held = pod.status.conditions.iter().map(|condition| &*condition.kind);
            status = condition_patch(held, condition);
        }
        status.insert("phase".to_owned(), "Failed".into());
        status.insert("observedGeneration".to_owned(), pod.metadata.generation.into());
        let patch = json!({"metadata": {"uid": pod.uid()}, "status": status});
        let written = api.patch_status(&key, &Patch::Strategic(patch)).await;
        if ignore_not_found(written)?.is_none() {
            return Ok(());
        }
    }
    let mut params = precondition(pod.uid());
    params.grace_period_seconds = Some(0);
    Ok(api.delete(&key, &params).await?)
}
