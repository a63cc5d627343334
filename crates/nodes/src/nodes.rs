//! The controllers of nodes and their pods.

use crate::engine::{Engine, FIELD_MANAGER, value};
use crate::stage::{API_VERSION, ResourceRef, Stage, Stages};
use crate::world::{NODE_LABEL, NODES_MAX, SeenPod, World};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube_core::params::Patch;
use kube_core::{ApiResource, DynamicObject, GroupVersionKind};
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use setpoint_informer::{Cacheable, Event};
use setpoint_object::cidr::{Families, Family};
use setpoint_object::error::chain;
use setpoint_runtime::manager::AddError;
use setpoint_runtime::source::{Enqueue, KeySink, SourceRun, source_fn};
use setpoint_runtime::{
    Action, BoxError, BuildError, Client, Context, Controller, EventRecorder, Manager, Reconciler,
    Request, Runnable, Watch,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The namespace of the Leases of nodes.
const LEASES: &str = "kube-node-lease";
/// How long a node counts as alive after a heartbeat: 40 s, as a kubelet's.
const LEASE_SECONDS: u64 = 40;
/// The time between two heartbeats: a quarter of that, as a kubelet's.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// The pause before a heartbeat that failed is repeated. The back-off of controllers would go on
/// long after the server answers again, and the node would count as dead.
const HEARTBEAT_PAUSE: Duration = Duration::from_secs(1);
/// Objects that are moved at the same time.
const WORKERS: usize = 16;
/// The pause before a node that could not be registered is tried again.
const REGISTER_PAUSE: Duration = Duration::from_secs(1);

/// Why nodes could not be added to a manager.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodesError {
    /// More nodes than there are addresses for.
    #[error("{n} nodes are too many: the most is {NODES_MAX}")]
    TooMany {
        /// The requested number.
        n: u32,
    },
    /// A controller could not be built.
    #[error("build the controllers of nodes")]
    Build(#[from] BuildError),
    /// The manager has nodes already, or takes no more members.
    #[error("add the controllers of nodes to the manager")]
    Add(#[from] AddError),
}

/// Nodes without containers. They do nothing until a manager that they were added to runs.
#[derive(Debug, Clone)]
#[must_use]
pub struct Nodes {
    n: u32,
    stages: Stages,
    seed: u64,
    capacity: BTreeMap<String, String>,
    families: Families,
}

impl Nodes {
    /// `n` nodes, `node-0` and so on, with the default stages. Delays are drawn from `seed`.
    /// Further nodes that carry the label [`NODE_LABEL`] are moved too.
    pub fn new(n: u32, seed: u64) -> Self {
        let capacity =
            [("cpu", "32"), ("memory", "256Gi"), ("ephemeral-storage", "1Ti"), ("pods", "110")];
        let owned = |(name, amount): (&str, &str)| (name.to_owned(), amount.to_owned());
        let families = Families { primary: Family::V4, is_dual: false };
        Self { n, stages: Stages::standard(), seed, capacity: capacity.map(owned).into(), families }
    }

    /// The families that nodes and pods have addresses of: those of the control plane's Services.
    /// Default: IPv4.
    pub fn families(mut self, families: Families) -> Self {
        self.families = families;
        self
    }

    /// Stages instead of the default ones. [`Stages::and`] adds some to them.
    pub fn stages(mut self, stages: Stages) -> Self {
        self.stages = stages;
        self
    }

    /// The capacity of a resource on each new node. Default: 32 cores, 256 GiB of memory, 1 TiB of
    /// storage, 110 pods.
    pub fn capacity(mut self, resource: impl Into<String>, amount: impl Into<String>) -> Self {
        self.capacity.insert(resource.into(), amount.into());
        self
    }

    /// Adds the controllers to a manager, which runs them.
    ///
    /// # Errors
    ///
    /// There are too many nodes, or the manager has nodes already.
    pub fn add_to(self, manager: &mut Manager) -> Result<(), NodesError> {
        if self.n > NODES_MAX {
            return Err(NodesError::TooMany { n: self.n });
        }
        let world = Arc::new(World::new(self.families));
        let handle = manager.handle();
        for (n, (kind, stages)) in (1_u64..).zip(self.stages_by_kind()) {
            let parts = EngineParts {
                stages,
                world: world.clone(),
                recorder: handle.recorder(FIELD_MANAGER).field_manager(FIELD_MANAGER),
                seed: self.seed.wrapping_add(n),
            };
            let controller = match (&*kind.api_version, &*kind.kind) {
                ("v1", "Node") => node_stages(parts, &kind),
                ("v1", "Pod") => pod_stages(parts, &kind),
                _ => other_stages(parts, &kind),
            };
            manager.add(controller?)?;
        }
        let heartbeat = Heartbeat {
            world: world.clone(),
            rng: Mutex::new(SmallRng::seed_from_u64(self.seed)),
            known: Mutex::new(BTreeSet::new()),
        };
        let heartbeats = Controller::builder("node-heartbeats")
            .concurrency(WORKERS)
            .for_(Watch::<Node>::metadata().filter(setpoint_runtime::Predicate::new(
                // Heartbeats go on by themselves.
                |event: &Event<_>| !matches!(event, Event::Updated { .. }),
            )))
            .sync_timeout(None)
            .build(heartbeat)?;
        manager.add(heartbeats)?;
        let client = handle.client().clone();
        let register = Runnable::new(move |stop| self.register(client, stop));
        manager.add_runnable("nodes", register)?;
        Ok(())
    }

    /// The stages of each kind. Nodes and pods are always among the kinds.
    fn stages_by_kind(&self) -> BTreeMap<ResourceRef, Vec<Stage>> {
        let built_in = ["Node", "Pod"].map(|kind| ResourceRef {
            api_version: "v1".to_owned(),
            kind: kind.to_owned(),
            resource: None,
        });
        let mut by_kind: BTreeMap<ResourceRef, Vec<Stage>> =
            built_in.into_iter().map(|kind| (kind, Vec::new())).collect();
        for stage in self.capacity_stage().iter().chain(&self.stages.0) {
            by_kind.entry(stage.resource.clone()).or_default().push(stage.clone());
        }
        by_kind
    }

    /// The stage of nodes without a capacity: API servers drop the status of new objects.
    fn capacity_stage(&self) -> Vec<Stage> {
        let stage = json!({
            "apiVersion": API_VERSION, "kind": "Stage", "metadata": {"name": "node-capacity"},
            "spec": {
                "resourceRef": {"kind": "Node"},
                "selector": {"matchExpressions": [
                    {"key": ".status.capacity", "operator": "DoesNotExist"},
                ]},
                "next": {"status": {"capacity": self.capacity, "allocatable": self.capacity}},
            },
        });
        // JSON is YAML. Amounts that are no text of a template stay what they are.
        Stages::parse(&stage.to_string()).map(|stages| stages.0).unwrap_or_default()
    }

    /// Creates the nodes that do not exist.
    async fn register(self, client: Client, stop: CancellationToken) -> Result<(), BoxError> {
        let api = client.api::<Node>().field_manager(FIELD_MANAGER);
        let mut idx = 0;
        while idx < self.n {
            let name = format!("node-{idx}");
            let node = serde_json::from_value(self.node(&name, idx))?;
            let created = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                // Cancel safe: a node that exists already is left alone.
                created = api.create(&node) => created,
            };
            match created {
                Ok(_) => idx += 1,
                Err(error) if error.is_already_exists() => idx += 1,
                Err(error) => {
                    tracing::warn!(error = chain(&error), name, "register a node");
                    tokio::select! {
                        biased;
                        () = stop.cancelled() => return Ok(()),
                        () = tokio::time::sleep(REGISTER_PAUSE) => {}
                    }
                }
            }
        }
        Ok(())
    }

    fn node(&self, name: &str, idx: u32) -> Value {
        let zone = ["a", "b", "c"][idx as usize % 3];
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {
                "beta.kubernetes.io/arch": "amd64",
                "beta.kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "topology.kubernetes.io/region": "region",
                "topology.kubernetes.io/zone": format!("zone-{zone}"),
                NODE_LABEL: "true",
            }},
            "spec": {},
        })
    }
}

/// What the engine of each kind is made of.
struct EngineParts {
    stages: Vec<Stage>,
    world: Arc<World>,
    recorder: EventRecorder,
    seed: u64,
}

impl EngineParts {
    fn engine<K: Cacheable>(self, kind: &ResourceRef, dynamic_type: K::DynamicType) -> Engine<K> {
        Engine {
            stages: self.stages,
            dynamic_type,
            api_version: kind.api_version.clone(),
            kind: kind.kind.clone(),
            world: self.world,
            recorder: self.recorder,
            waiting: Mutex::new(BTreeMap::new()),
            rng: Mutex::new(SmallRng::seed_from_u64(self.seed)),
        }
    }
}

/// The controller that moves nodes through their stages.
fn node_stages(parts: EngineParts, kind: &ResourceRef) -> Result<Controller, BuildError> {
    let nodes = parts.world.clone();
    Controller::builder("node-stages")
        .concurrency(WORKERS)
        .handles(Watch::<Node>::new(), move |event: &Event<Node>, keys: &Enqueue<'_, Request>| {
            let node = event_value(event);
            if nodes.put_node(&event.key().name, node.as_ref()) {
                keys.add(event.key().clone());
            }
        })
        .sync_timeout(None)
        .build(parts.engine::<Node>(kind, ()))
}

/// The controller that moves pods through their stages.
fn pod_stages(parts: EngineParts, kind: &ResourceRef) -> Result<Controller, BuildError> {
    let (pods, sink) = (parts.world.clone(), parts.world.clone());
    Controller::builder("pod-stages")
        .concurrency(WORKERS)
        .source(source_fn("pods of new nodes", async move |keys: KeySink<Request>| {
            _ = sink.pods.set(keys);
            Ok(SourceRun::none())
        }))
        .handles(Watch::<Pod>::new(), move |event: &Event<Pod>, keys: &Enqueue<'_, Request>| {
            let seen = seen_pod(event);
            let is_gone = seen.is_none();
            if pods.put_pod(event.key(), seen) || is_gone {
                keys.add(event.key().clone());
            }
        })
        .sync_timeout(None)
        .build(parts.engine::<Pod>(kind, ()))
}

/// The controller that moves objects of another kind through their stages.
fn other_stages(parts: EngineParts, kind: &ResourceRef) -> Result<Controller, BuildError> {
    let resource = resource(kind);
    Controller::builder(format!("stages-{}", resource.plural))
        .concurrency(WORKERS)
        .for_(Watch::<DynamicObject>::dynamic(resource.clone()))
        .sync_timeout(None)
        .build(parts.engine::<DynamicObject>(kind, resource))
}

fn resource(kind: &ResourceRef) -> ApiResource {
    let (group, version) = kind.api_version.rsplit_once('/').unwrap_or(("", &kind.api_version));
    let of = GroupVersionKind::gvk(group, version, &kind.kind);
    match &kind.resource {
        Some(plural) => ApiResource::from_gvk_with_plural(&of, plural),
        None => ApiResource::from_gvk(&of),
    }
}

/// The object of an event, unless it was deleted.
fn event_value<K: Cacheable>(event: &Event<K>) -> Option<Value> {
    match event {
        Event::Deleted { .. } => None,
        event => event.object().and_then(value),
    }
}

fn seen_pod(event: &Event<Pod>) -> Option<SeenPod> {
    match event {
        Event::Deleted { .. } => None,
        event => serde_json::from_slice(&event.object()?.json()?).ok(),
    }
}

/// Renews the Leases of nodes.
struct Heartbeat {
    world: Arc<World>,
    rng: Mutex<SmallRng>,
    /// Nodes with a heartbeat: the first one is at a random time, so that they spread.
    known: Mutex<BTreeSet<Arc<str>>>,
}

impl Reconciler for Heartbeat {
    type Error = BoxError;

    async fn reconcile(&self, request: Request, context: Context) -> Result<Action, BoxError> {
        // Boxed, so that a worker that waits for work is small.
        let passed = Box::pin(self.pass(&request.name, &context)).await;
        Ok(passed.unwrap_or_else(|error| {
            tracing::warn!(
                error = chain(&*error),
                node = %request.name,
                "a heartbeat of a simulated node"
            );
            Action::requeue_after(HEARTBEAT_PAUSE)
        }))
    }
}

impl Heartbeat {
    async fn pass(&self, node: &Arc<str>, context: &Context) -> Result<Action, BoxError> {
        let (name, key) = (&**node, Request::cluster(node.clone()));
        let found = context.client().metadata::<Node>().get(&key)?;
        let Some(found) = found else {
            self.known.lock().remove(name);
            return Ok(Action::await_change());
        };
        let labels = found.metadata.labels.as_ref();
        if labels.is_none_or(|labels| labels.get(NODE_LABEL).is_none_or(|value| value != "true")) {
            // It may get the label later.
            return Ok(Action::requeue_after(HEARTBEAT));
        }
        if !self.world.has_node(name) {
            return Ok(Action::requeue_after(Duration::from_millis(100)));
        }
        let api = context.client().api::<Lease>().field_manager(FIELD_MANAGER);
        let now = context.clock().now().rfc3339_micro();
        let key = Request::new(LEASES, node.clone());
        let renewal = json!({"spec": {
            "holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now,
        }});
        let renewed = api.patch(&key, &Patch::Merge(&renewal)).await;
        if renewed.as_ref().is_err_and(|error| error.is_not_found()) {
            let mut lease = renewal;
            lease["metadata"] = json!({
                "name": name, "namespace": LEASES,
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "Node", "name": name, "uid": found.metadata.uid,
                }],
            });
            api.create(&serde_json::from_value(lease)?).await?;
        } else {
            renewed?;
        }
        let is_new = self.known.lock().insert(node.clone());
        let next = match is_new {
            true => self.rng.lock().random_range(Duration::from_secs(1)..HEARTBEAT),
            false => HEARTBEAT,
        };
        Ok(Action::requeue_after(next))
    }
}
