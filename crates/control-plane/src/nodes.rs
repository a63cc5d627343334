//! Runs simulated nodes and the scheduler of a control plane.

use crate::built_in::{has_taint_rules, serves};
use setpoint_apiserver::ApiServer;
use setpoint_controllers::workload::node_lifecycle::NodeLifecycleController;
use setpoint_controllers::workload::taint_eviction::TaintEvictionController;
use setpoint_controllers::{GroupProtection, Setup};
use setpoint_nodes::{Nodes, Stages};
use setpoint_registry::{Feature, Registry};
use setpoint_runtime::events::EventApi;
use setpoint_runtime::{BoxError, Manager};
use setpoint_scheduler::{PodGroups, Scheduler};
use std::collections::BTreeMap;
use tokio_util::sync::CancellationToken;

/// Nodes without containers, with a scheduler: the argument of
/// [`ControlPlaneBuilder::nodes`](crate::ControlPlaneBuilder::nodes). A number is that many nodes.
#[derive(Debug, Clone)]
#[must_use]
pub struct SimulatedNodes {
    n: u32,
    stages: Option<Stages>,
    capacity: BTreeMap<String, String>,
}

impl SimulatedNodes {
    /// `n` nodes, `node-0` and so on. With 0, only nodes that carry the label
    /// [`NODE_LABEL`](setpoint_nodes::NODE_LABEL) are moved.
    pub fn new(n: u32) -> Self {
        Self { n, stages: None, capacity: BTreeMap::new() }
    }

    /// Stages beside the default ones. One with the name of a default stage replaces it.
    pub fn stages(mut self, stages: Stages) -> Self {
        self.stages = Some(stages);
        self
    }

    /// The capacity of a resource on each node. Default: 32 cores, 256 GiB of memory, 1 TiB of
    /// storage, 110 pods.
    pub fn capacity(mut self, resource: impl Into<String>, amount: impl Into<String>) -> Self {
        self.capacity.insert(resource.into(), amount.into());
        self
    }

    /// Runs them until `stop`. `has_lifecycle`: with the controllers of the life of nodes, which
    /// remove the taint of new nodes.
    pub(crate) async fn run(
        self,
        server: &ApiServer,
        setup: Setup,
        seed: u64,
        has_lifecycle: bool,
        stop: CancellationToken,
    ) -> Result<(), BoxError> {
        let clock = server.registry().clock().clone();
        let mut manager = Manager::builder(server.client())
            .clock(clock)
            .seed(seed)
            .events(EventApi::Core)
            .field_manager("kube-controller-manager")
            .build();
        if has_lifecycle {
            NodeLifecycleController::new(setup.clone()).add_to(&mut manager)?;
            TaintEvictionController::new(setup).add_to(&mut manager)?;
        }
        // Seeds that differ from each other and from the manager's.
        Scheduler::new(seed.wrapping_add(2))
            .in_place(server.registry().works_in_place())
            .device_taint_rules(has_taint_rules(server.registry()))
            .pod_groups(pod_groups(server.registry()))
            .add_to(&mut manager)?;
        let families = server.registry().service_networks().families();
        let mut nodes = Nodes::new(self.n, seed.wrapping_add(3)).families(families);
        if let Some(stages) = self.stages {
            nodes = nodes.stages(Stages::standard().and(stages));
        }
        for (resource, amount) in self.capacity {
            nodes = nodes.capacity(resource, amount);
        }
        nodes.add_to(&mut manager)?;
        Ok(manager.run(stop).await?)
    }
}

impl From<u32> for SimulatedNodes {
    fn from(n: u32) -> Self {
        Self::new(n)
    }
}

/// What the scheduler does with pods of PodGroups.
fn pod_groups(registry: &Registry) -> PodGroups {
    let is_served = serves(registry, ["scheduling.k8s.io", GroupProtection::VERSION, "podgroups"]);
    match (is_served, registry.features().is_on(Feature::GangScheduling)) {
        (false, _) => PodGroups::Ignored,
        (true, false) => PodGroups::Together,
        (true, true) => PodGroups::Gangs,
    }
}
