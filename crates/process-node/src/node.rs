//! The nodes: their registration, their heartbeats, and a worker for each of their pods.

use crate::address::{Addresses, PodNetwork};
use crate::agent::Agent;
use crate::guard::{self, NODE_MARK, kill_marked};
use crate::shared::Shared;
use crate::worker::{FIELD_MANAGER, Parts, Seen, Worker};
use crate::workers::{Start, Workers};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use kube_core::params::Patch;
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint_apiserver::{NodeAgent, go_arch};
use setpoint_informer::Event;
use setpoint_object::error::chain;
use setpoint_object::time::Clock;
use setpoint_runtime::manager::AddError;
use setpoint_runtime::source::Enqueue;
use setpoint_runtime::{
    Action, BoxError, BuildError, Client, Context, Controller, EventRecorder, Manager, Reconciler,
    Request, Runnable, Watch,
};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// The label of the nodes of this crate.
pub const NODE_LABEL: &str = "nodes.setpoint.dev/process";
/// Maximum number of nodes in one program.
pub const NODES_MAX: u32 = 16;
/// Maximum number of pods of a node: 110, as a kubelet's.
pub const PODS_MAX: usize = 110;

/// The namespace of the Leases of nodes.
const LEASES: &str = "kube-node-lease";
/// How long a node counts as alive after a heartbeat, and the time between two: as a kubelet's.
const LEASE_SECONDS: u64 = 40;
const HEARTBEAT: Duration = Duration::from_secs(10);
/// The pause before a heartbeat that failed.
const RETRY: Duration = Duration::from_secs(1);
/// Pods that wait for their workers.
const PODS_WAITING: usize = 256;

/// Why nodes could not be added to a manager.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessNodesError {
    /// More nodes than one program has.
    #[error("{n} nodes are too many: the most is {NODES_MAX}")]
    TooMany {
        /// The requested number.
        n: u32,
    },
    /// A controller could not be built.
    #[error("build the controllers of process nodes")]
    Build(#[from] BuildError),
    /// The manager has process nodes already, or takes no more members.
    #[error("add the controllers of process nodes to the manager")]
    Add(#[from] AddError),
}

/// Nodes whose pods run as processes. They do nothing until a manager that they were added to runs.
///
/// Users who may create pods may run any command with the rights of this program.
#[derive(Debug)]
#[must_use]
pub struct ProcessNodes {
    shared: Arc<Shared>,
}

impl ProcessNodes {
    /// `n` nodes, `process-0` and so on, with their data below a folder. `run` must differ from
    /// those of other runs on this machine: it marks this run's processes.
    pub fn new(n: u32, folder: impl Into<PathBuf>, run: impl Into<String>) -> Self {
        Self {
            shared: Arc::new(Shared {
                folder: folder.into(),
                run: run.into(),
                nodes: (0..n).map(|idx| format!("process-{idx}")).collect(),
                addresses: Mutex::default(),
                pods: Mutex::default(),
                n_commands: AtomicU64::new(0),
            }),
        }
    }

    /// The network of the pods' addresses, which must be local to this machine. Default:
    /// 127.64.0.0/10. Kubernetes refuses loopback addresses in EndpointSlices, so Services have
    /// endpoints only with another network.
    pub fn pod_network(self, network: PodNetwork) -> Self {
        *self.shared.addresses.lock() = Addresses::new(network);
        self
    }

    /// What serves the streams of their pods: for the API server's
    /// [`node_agent`](setpoint_apiserver::ApiServerBuilder::node_agent).
    pub fn agent(&self) -> Arc<dyn NodeAgent> {
        Arc::new(Agent(self.shared.clone()))
    }

    /// Adds the nodes to a manager, which runs them.
    ///
    /// # Errors
    ///
    /// There are too many nodes, or the manager has process nodes already.
    pub fn add_to(self, manager: &mut Manager) -> Result<(), ProcessNodesError> {
        let n = self.shared.nodes.len() as u32;
        if n > NODES_MAX {
            return Err(ProcessNodesError::TooMany { n });
        }
        let shared = self.shared;
        let handle = manager.handle();
        let (pods, waiting) = mpsc::channel(PODS_WAITING);
        let of = shared.clone();
        let controller = Controller::builder("process-pods")
            .handles(Watch::<Pod>::new(), move |event: &Event<Pod>, keys: &Enqueue<'_, Request>| {
                let node = event.object().and_then(|pod| pod.json()).and_then(|json| {
                    let pod: Value = serde_json::from_slice(&json).ok()?;
                    pod["spec"]["nodeName"].as_str().map(str::to_owned)
                });
                if node.is_some_and(|node| of.nodes.contains(&node)) {
                    keys.add(event.key().clone());
                }
            })
            .sync_timeout(None)
            .build(Pods { shared: shared.clone(), pods })?;
        manager.add(controller)?;
        let claims = Controller::builder("process-claims")
            .for_(Watch::<PersistentVolumeClaim>::metadata())
            .sync_timeout(None)
            .build(Claims(shared.clone()))?;
        manager.add(claims)?;
        let owner = Owner {
            shared: shared.clone(),
            client: handle.client().clone(),
            recorder: handle.recorder(FIELD_MANAGER).field_manager(FIELD_MANAGER),
            clock: handle.clock().clone(),
        };
        let beats = (shared.clone(), handle.client().clone(), handle.clock().clone());
        manager.add_runnable(
            "process-node-workers",
            Runnable::new(move |stop| owner.run(waiting, stop)),
        )?;
        manager.add_runnable(
            "process-node-heartbeats",
            Runnable::new(move |stop| heartbeats(beats.0, beats.1, beats.2, stop)),
        )?;
        Ok(())
    }
}

/// Hands pods to their workers.
struct Pods {
    shared: Arc<Shared>,
    pods: mpsc::Sender<(Request, Seen)>,
}

impl Reconciler for Pods {
    type Error = BoxError;

    async fn reconcile(&self, key: Request, context: Context) -> Result<Action, BoxError> {
        let pod = context.client().api::<Pod>().get(&key)?;
        let pod = pod.filter(|pod| {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
            node.is_some_and(|node| self.shared.nodes.contains(node))
        });
        // Cancel safe: the workers' owner takes whole messages, and ends with the manager.
        _ = self.pods.send((key, pod)).await;
        Ok(Action::await_change())
    }
}

/// Removes the folders of claims that are gone.
struct Claims(Arc<Shared>);

impl Reconciler for Claims {
    type Error = BoxError;

    async fn reconcile(&self, key: Request, context: Context) -> Result<Action, BoxError> {
        let claim = context.client().metadata::<PersistentVolumeClaim>().get(&key)?;
        let uid = claim.and_then(|claim| claim.metadata.uid.clone());
        let folder = self.0.folder.join("claims").join(&*key.namespace);
        let prefix = format!("{}_", key.name);
        let Ok(mut entries) = tokio::fs::read_dir(&folder).await else {
            return Ok(Action::await_change());
        };
        while let Some(entry) = entries.next_entry().await? {
            let name = entry.file_name();
            let Some(of) = name.to_str().and_then(|name| name.strip_prefix(&prefix)) else {
                continue;
            };
            if uid.as_deref() != Some(of) {
                tokio::fs::remove_dir_all(entry.path()).await?;
            }
        }
        Ok(Action::await_change())
    }
}

/// Owns the workers.
struct Owner {
    shared: Arc<Shared>,
    client: Client,
    recorder: EventRecorder,
    clock: Clock,
}

impl Owner {
    async fn run(
        self,
        mut pods: mpsc::Receiver<(Request, Seen)>,
        stop: CancellationToken,
    ) -> Result<(), BoxError> {
        tokio::fs::create_dir_all(&self.shared.folder).await?;
        // Ends what this run leaves behind, should the program be killed.
        let guard = guard::start(&self.shared.run)?;
        let start = |start: Start| {
            let parts = Parts {
                shared: self.shared.clone(),
                client: self.client.clone(),
                recorder: self.recorder.clone(),
                clock: self.clock.clone(),
                key: start.key,
                pod: start.pod,
                seen: start.seen,
                stop: stop.child_token(),
                // The scheduler counts those that run; those that have ended have workers too.
                is_too_many: start.n_running >= 4 * PODS_MAX * self.shared.nodes.len(),
            };
            async move { Worker::new(parts).run().await }
        };
        let mut workers = Workers::new(start);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                // Cancel safe: both take whole messages.
                () = workers.next() => {}
                next = pods.recv() => match next {
                    Some((key, seen)) => workers.take(key, seen),
                    None => break,
                },
            }
        }
        workers.drain().await;
        kill_marked(NODE_MARK, self.shared.run.clone()).await;
        // Its input ends: it finds nothing and ends too.
        drop(guard);
        Ok(())
    }
}

/// Registers the nodes and keeps them alive.
async fn heartbeats(
    shared: Arc<Shared>,
    client: Client,
    clock: Clock,
    stop: CancellationToken,
) -> Result<(), BoxError> {
    loop {
        let mut pause = HEARTBEAT;
        for name in &shared.nodes {
            let beat = beat(name, &client, &clock);
            let outcome = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                // Cancel safe: the next start repeats it.
                outcome = beat => outcome,
            };
            if let Err(error) = outcome {
                tracing::warn!(
                    error = chain(&*error),
                    node = name,
                    "a heartbeat of a process node"
                );
                pause = RETRY;
            }
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(pause) => {}
        }
    }
}

async fn beat(name: &str, client: &Client, clock: &Clock) -> Result<(), BoxError> {
    let nodes = client.api::<Node>().field_manager(FIELD_MANAGER);
    let key = Request::cluster(name);
    let node = match nodes.get_live(&key).await? {
        Some(node) => node,
        None => nodes.create(&serde_json::from_value(node_object(name))?).await?,
    };
    let now = clock.now();
    let status = node.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let is_ready = conditions
        .into_iter()
        .flatten()
        .any(|known| known.type_ == "Ready" && known.status == "True");
    if !is_ready {
        let patch = json!({"status": node_status(name, &now.rfc3339())});
        nodes.subresource::<Value>("status").patch(&key, &Patch::Strategic(patch)).await?;
    }
    let leases = client.api::<Lease>().field_manager(FIELD_MANAGER);
    let lease = Request::new(LEASES, name);
    let renewal = json!({"spec": {
        "holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS,
        "renewTime": now.rfc3339_micro(),
    }});
    let renewed = leases.patch(&lease, &Patch::Merge(&renewal)).await;
    if renewed.as_ref().is_err_and(|error| error.is_not_found()) {
        let mut new = renewal;
        new["metadata"] = json!({
            "name": name, "namespace": LEASES,
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Node", "name": name, "uid": node.metadata.uid,
            }],
        });
        leases.create(&serde_json::from_value(new)?).await?;
    } else {
        renewed?;
    }
    Ok(())
}

fn node_object(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/arch": go_arch(),
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            NODE_LABEL: "true",
        }},
        "spec": {},
    })
}

fn node_status(name: &str, now: &str) -> Value {
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        })
    };
    let amounts = json!({
        "cpu": cores().to_string(), "memory": memory().to_string(),
        "ephemeral-storage": "100Gi", "pods": PODS_MAX.to_string(),
    });
    json!({
        "capacity": amounts, "allocatable": amounts,
        "addresses": [
            {"type": "InternalIP", "address": "127.0.0.1"},
            {"type": "Hostname", "address": name},
        ],
        "conditions": [
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory",
                "kubelet has sufficient memory available"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure",
                "kubelet has no disk pressure"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID",
                "kubelet has sufficient PID available"),
            condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        ],
        "nodeInfo": {
            "architecture": go_arch(), "operatingSystem": "linux", "machineID": "", "systemUUID": "",
            "bootID": "", "kernelVersion": kernel(), "osImage": "", "kubeProxyVersion": "",
            "containerRuntimeVersion": "process://0.1.0", "kubeletVersion": "v1.36.0-setpoint",
        },
    })
}

fn kernel() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// The cores of the machine.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// The memory of the machine in bytes.
pub(crate) fn memory() -> u64 {
    // The first line: `MemTotal:       32768 kB`.
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok());
    kib.unwrap_or(0_u64) * 1024
}
