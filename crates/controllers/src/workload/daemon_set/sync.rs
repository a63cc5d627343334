//! One pass over the nodes of a DaemonSet.

use super::node::{self, Fit, Node};
use super::{DaemonSet, GENERATION, GENERATION_LABEL, HASH_LABEL};
use crate::workload::deployment::int_or_percent;
use crate::workload::fresh;
use crate::workload::pod::{Pod, next_available};
use crate::workload::pod_control::{PodControl, pod_from_template, slow_start};
use parking_lot::Mutex;
use serde_json::Value;
use setpoint_object::time::Timestamp;
use setpoint_runtime::{
    BoxError, Client, Context, EventRecorder, ObjectReference, controller_reference,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// The most pods that one pass creates or deletes: 250, as in the reference.
const BURST_MAX: usize = 250;
/// Shortest and longest pause between two deletions of failed pods on a node.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15 * 60));
/// The most back-offs that are remembered.
const BACKOFFS_MAX: usize = 100_000;

/// Back-offs of failed pods, by the DaemonSet's uid and the node.
#[derive(Debug, Default)]
pub(super) struct Backoffs(HashMap<(String, String), Backoff>);

#[derive(Debug, Clone, Copy)]
struct Backoff {
    pause: Duration,
    /// When the next failed pod may be deleted.
    until: Timestamp,
}

impl Backoffs {
    /// Forgets nodes without failures for a while: they start again at zero.
    fn forget_old(&mut self, now: Timestamp) {
        self.0.retain(|_, backoff| backoff.until.0 + BACKOFF.1 > now.0);
    }

    /// Whether a failed pod may be deleted now; otherwise how long to wait.
    fn take(&mut self, set: &str, node: &str, now: Timestamp) -> Result<(), Duration> {
        let key = (set.to_owned(), node.to_owned());
        let pause = match self.0.get(&key) {
            Some(backoff) if backoff.until.0 > now.0 => return Err(backoff.until.0 - now.0),
            Some(backoff) => (backoff.pause * 2).min(BACKOFF.1),
            None => BACKOFF.0,
        };
        if self.0.len() < BACKOFFS_MAX {
            self.0.insert(key, Backoff { pause, until: Timestamp(now.0 + pause) });
        }
        Ok(())
    }
}

/// A DaemonSet, its nodes and its pods in one pass.
pub(super) struct Sync<'a> {
    context: &'a Context,
    pub(super) client: &'a Client,
    pub(super) set: &'a DaemonSet,
    reference: ObjectReference,
    /// What each node is to the set, by name.
    pub(super) nodes: BTreeMap<&'a str, Fit>,
    /// By node, oldest first.
    pods: BTreeMap<&'a str, Vec<&'a Pod>>,
    /// The hash of the present template.
    pub(super) hash: &'a str,
    pub(super) now: Timestamp,
}

/// What a pass does.
#[derive(Debug, Default)]
struct Plan<'a> {
    /// Nodes that get a pod.
    create: Vec<&'a str>,
    delete: Vec<&'a Pod>,
    /// When to look again.
    wait: Option<Duration>,
}

impl<'a> Sync<'a> {
    pub(super) fn new(
        context: &'a Context,
        client: &'a Client,
        set: &'a DaemonSet,
        pods: &'a [Arc<Pod>],
        nodes: &'a [Arc<Node>],
        hash: &'a str,
    ) -> Self {
        let mut spec = set.spec.template["spec"].clone();
        node::add_tolerations(&mut spec);
        let nodes = nodes.iter().map(|node| (node.name(), node::fit(node, &spec))).collect();
        let mut by_node = BTreeMap::<&str, Vec<&Pod>>::new();
        for pod in pods {
            by_node.entry(node::node_of(pod)).or_default().push(pod);
        }
        // A pod that is tied to no node, as somebody else's was, is left alone.
        by_node.remove("");
        for pods in by_node.values_mut() {
            // A pod that is bound counts as older than one that is not.
            pods.sort_by_key(|pod| (pod.spec.node_name.is_empty(), pod.created(), pod.name()));
        }
        let reference = ObjectReference::of(set);
        let now = context.clock().now();
        Self { context, client, set, reference, nodes, pods: by_node, hash, now }
    }

    pub(super) fn pods_of(&self, node: &str) -> &[&'a Pod] {
        self.pods.get(node).map_or(&[], Vec::as_slice)
    }

    /// Moves the nodes one step towards the desired state. Returns when to look again.
    pub(super) async fn run(
        &self,
        backoffs: &Mutex<Backoffs>,
    ) -> Result<Option<Duration>, BoxError> {
        let mut plan = Plan::default();
        backoffs.lock().forget_old(self.now);
        for (node, fit) in &self.nodes {
            self.plan_node(node, *fit, &mut plan, &mut backoffs.lock());
        }
        // Pods that wait for a deleted node; the pod garbage collector handles bound ones.
        for (node, pods) in &self.pods {
            if !self.nodes.contains_key(node) {
                let waiting = pods.iter().filter(|pod| pod.spec.node_name.is_empty());
                plan.delete.extend(waiting.filter(|pod| !pod.is_being_deleted()));
            }
        }
        if plan.create.is_empty()
            && plan.delete.is_empty()
            && self.set.spec.update_strategy["type"] != "OnDelete"
        {
            self.plan_update(&mut plan);
        }
        let control = PodControl::new(self.context, self.client, &self.reference);
        if !plan.create.is_empty() && !fresh::is_live(&self.client.api(), self.set).await? {
            plan.create.clear();
        }
        plan.create.truncate(BURST_MAX);
        plan.delete.truncate(BURST_MAX);
        let deleted = control.delete_all(&plan.delete).await;
        let owner = controller_reference(self.set, &())?;
        let namespace = self.set.metadata.namespace.as_deref().unwrap_or_default();
        let template = self.template();
        let nodes = &plan.create;
        slow_start(nodes.len(), |n| {
            let mut pod = pod_from_template(&template, namespace, &owner);
            node::tie(&mut pod.data["spec"], nodes[n]);
            let control = &control;
            async move { control.create(&pod).await }
        })
        .await?;
        deleted?;
        let pods = self.pods.values().flatten().copied();
        let available = next_available(pods, self.set.spec.min_ready_seconds, self.now);
        Ok(plan.wait.into_iter().chain(available).min())
    }

    /// The template with what every daemon pod has.
    fn template(&self) -> Value {
        let mut template = self.set.spec.template.clone();
        node::add_tolerations(&mut template["spec"]);
        let labels = &mut template["metadata"]["labels"];
        labels[HASH_LABEL] = self.hash.into();
        let annotations = self.set.metadata.annotations.as_ref();
        if let Some(generation) = annotations.and_then(|all| all.get(GENERATION)) {
            labels[GENERATION_LABEL] = generation.as_str().into();
        }
        template
    }

    /// What one node needs.
    fn plan_node(&self, node: &'a str, fit: Fit, plan: &mut Plan<'a>, backoffs: &mut Backoffs) {
        let pods = self.pods_of(node);
        if fit == Fit::Away {
            plan.delete.extend(pods.iter().filter(|pod| !pod.is_being_deleted()));
            return;
        }
        if pods.is_empty() {
            if fit == Fit::Run {
                plan.create.push(node);
            }
            return;
        }
        let mut running = Vec::new();
        for pod in pods.iter().copied().filter(|pod| !pod.is_being_deleted()) {
            if !pod.is_finished() {
                running.push(pod);
                continue;
            }
            match backoffs.take(self.set.uid(), node, self.now) {
                Ok(()) => {
                    record_finished(self.context.recorder(), &self.reference, pod, node);
                    plan.delete.push(pod);
                }
                Err(wait) => plan.wait = Some(plan.wait.map_or(wait, |other| other.min(wait))),
            }
        }
        // Of several, the oldest one stays; during a surge an old and a new one. With a surge, a
        // new pod does not wait for the end of the last one either.
        let surge = self.max_surge(1) > 0;
        let (new, old): (Vec<&Pod>, Vec<&Pod>) =
            running.into_iter().partition(|pod| self.set.is_updated(pod, self.hash));
        if !surge {
            plan.delete.extend(old.iter().chain(&new).skip(1).copied());
            return;
        }
        if fit == Fit::Run && pods.iter().all(|pod| pod.is_being_deleted()) {
            plan.create.push(node);
            return;
        }
        let is_replaced = new.first().is_some_and(|pod| self.is_available(pod));
        // One that is ready serves, although it may not be available yet.
        let is_useless = old.first().is_some_and(|pod| !pod.is_ready());
        let drops_old = !new.is_empty() && (is_replaced || is_useless);
        plan.delete.extend(old.iter().skip(usize::from(!drops_old)).copied());
        plan.delete.extend(new.iter().skip(1).copied());
    }

    fn is_available(&self, pod: &Pod) -> bool {
        !pod.is_being_deleted() && pod.is_available(self.set.spec.min_ready_seconds, self.now)
    }

    fn max_surge(&self, n_nodes: i32) -> i32 {
        int_or_percent(&self.set.spec.update_strategy["rollingUpdate"]["maxSurge"], n_nodes, true)
    }

    /// Replaces pods of older revisions, as far as the strategy permits.
    fn plan_update(&self, plan: &mut Plan<'a>) {
        let n_nodes = self.nodes.values().filter(|fit| **fit == Fit::Run).count();
        let of_nodes = i32::try_from(n_nodes).unwrap_or(i32::MAX);
        let surge = self.max_surge(of_nodes);
        let max = match &self.set.spec.update_strategy["rollingUpdate"]["maxUnavailable"] {
            _ if surge > 0 => surge,
            Value::Null => 1,
            max => int_or_percent(max, of_nodes, true).max(1),
        };
        let mut room = usize::try_from(max).unwrap_or_default();
        // Nodes whose old pod is unavailable anyway come first and need no room.
        let (mut free, mut waiting) = (Vec::new(), Vec::new());
        // Available old pods of nodes that get no new ones.
        let (mut leaving, mut n_available) = (Vec::new(), 0);
        for (node, fit) in &self.nodes {
            let pods = self.pods_of(node);
            if *fit == Fit::Away || (*fit == Fit::Continue && pods.is_empty()) {
                continue;
            }
            let is_new = |pod: &&&Pod| self.set.is_updated(pod, self.hash);
            let new = pods.iter().find(is_new);
            let old = pods.iter().find(|pod| !is_new(pod) && !pod.is_being_deleted());
            let is_available = old.or(new).is_some_and(|pod| self.is_available(pod));
            n_available += usize::from(is_available);
            match (new, old) {
                (None, Some(old)) if surge > 0 && *fit == Fit::Continue => match is_available {
                    true => leaving.push(*old),
                    false => plan.delete.push(*old),
                },
                (None, Some(old)) if is_available => waiting.push((*node, *old)),
                (None, Some(old)) => {
                    // With a surge its replacement is unavailable for a while too.
                    room = room.saturating_sub(usize::from(surge == 0));
                    free.push((*node, *old));
                }
                (Some(new), _) if self.is_available(new) => {}
                // The only pod of a node is not one too many.
                (_, None) if surge > 0 => {}
                // It is being replaced.
                _ => room = room.saturating_sub(1),
            }
        }
        let n_spare = n_available.saturating_sub(n_nodes);
        plan.delete.extend(leaving.into_iter().take(n_spare));
        let chosen = free.into_iter().chain(waiting.into_iter().take(room));
        for (node, old) in chosen {
            match surge > 0 {
                true => plan.create.push(node),
                false => plan.delete.push(old),
            }
        }
    }
}

/// Records that a finished pod is deleted.
fn record_finished(recorder: &EventRecorder, set: &ObjectReference, pod: &Pod, node: &str) {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let name = pod.name();
    match pod.status.phase == "Failed" {
        true => {
            let note = format!(
                "Found failed daemon pod {namespace}/{name} on node {node}, will try to kill it"
            );
            recorder.warning(set, "FailedDaemonPod", note);
        }
        false => {
            let note = format!(
                "Found succeeded daemon pod {namespace}/{name} on node {node}, will try to delete it"
            );
            recorder.normal(set, "SucceededDaemonPod", note);
        }
    }
}
