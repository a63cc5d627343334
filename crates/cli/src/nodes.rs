//! Options of nodes: without containers, and with processes.

use anyhow::Context as _;
use clap::Args;
use setpoint::object::time::Clock;
use setpoint::process_node::{PodNetwork, ProcessNodes};
use setpoint::runtime::Manager;
use setpoint::runtime::election::machine_identity;
use setpoint::runtime::events::EventApi;
use setpoint::{ControlPlaneBuilder, STAGES_BYTES_MAX, SimulatedNodes, Stages};
use std::path::{Path, PathBuf};
use tokio_util::sync::CancellationToken;

/// Nodes without containers.
#[derive(Debug, Args)]
pub(crate) struct NodeOptions {
    /// Number of nodes without containers. With this option a scheduler places pods; their status
    /// moves as if their containers ran. 0: only nodes with the label
    /// nodes.setpoint.dev/simulated=true.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=12_000))]
    nodes: Option<u32>,
    /// A file of stages (YAML), which decide what becomes of nodes, pods and other objects. They
    /// are used beside the default stages; one with the name of a default stage replaces it. May be
    /// given several times.
    #[arg(long, value_name = "FILE", requires = "nodes")]
    stages: Vec<PathBuf>,
    /// Number of nodes whose pods run as processes of this machine, with the rights of this
    /// program: users who may create pods may run any command. With this option a scheduler places
    /// pods.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16))]
    process_nodes: Option<u32>,
    /// The folder of their pods, logs and volumes. Default: `nodes` in the data folder; without a
    /// data folder, one for this run that is removed at its end.
    #[arg(long, value_name = "DIR", requires = "process_nodes")]
    process_nodes_dir: Option<PathBuf>,
    /// The network of their pods' addresses, which must be local to this machine. Default:
    /// 127.64.0.0/10. Services have endpoints only with a network that is not of loopback.
    #[arg(long, value_name = "CIDR", requires = "process_nodes")]
    process_nodes_network: Option<PodNetwork>,
}

/// Process nodes that are ready to run.
pub(crate) struct Processes {
    nodes: ProcessNodes,
    /// A folder that is removed at the end.
    temporary: Option<PathBuf>,
}

impl NodeOptions {
    /// The nodes without containers; `None`: not wanted.
    pub(crate) async fn simulated(&self) -> anyhow::Result<Option<SimulatedNodes>> {
        let Some(n) = self.nodes else { return Ok(None) };
        let mut nodes = SimulatedNodes::new(n);
        let mut all: Option<Stages> = None;
        for path in &self.stages {
            let text = setpoint_small_file::read_text(path, STAGES_BYTES_MAX)?;
            let stages = Stages::parse(&text)
                .with_context(|| format!("use the stages of {}", path.display()))?;
            all = Some(match all {
                Some(earlier) => earlier.and(stages),
                None => stages,
            });
        }
        if let Some(stages) = all {
            nodes = nodes.stages(stages);
        }
        Ok(Some(nodes))
    }

    /// Adds the nodes with processes to a control plane.
    pub(crate) fn processes(
        &self,
        plane: ControlPlaneBuilder,
        data: Option<&Path>,
    ) -> anyhow::Result<(ControlPlaneBuilder, Option<Processes>)> {
        let Some(n) = self.process_nodes else { return Ok((plane, None)) };
        let run = machine_identity().context("read the operating system's randomness")?;
        let given = self.process_nodes_dir.clone().or_else(|| Some(data?.join("nodes")));
        let temporary =
            given.is_none().then(|| std::env::temp_dir().join(format!("setpoint-nodes-{run}")));
        let Some(folder) = given.or_else(|| temporary.clone()) else { return Ok((plane, None)) };
        let folder = std::path::absolute(&folder)
            .with_context(|| format!("use the folder {}", folder.display()))?;
        let mut nodes = ProcessNodes::new(n, folder, run);
        if let Some(network) = self.process_nodes_network {
            nodes = nodes.pod_network(network);
        }
        let plane = plane.node_agent(nodes.agent());
        Ok((plane, Some(Processes { nodes, temporary })))
    }
}

impl Processes {
    /// Runs the nodes as a client until `stop`, and ends their processes.
    pub(crate) async fn run(
        self,
        client: kube_client::Client,
        clock: Clock,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        let mut manager = Manager::builder(client).clock(clock).events(EventApi::Core).build();
        self.nodes.add_to(&mut manager)?;
        let ran = manager.run(stop).await;
        if let Some(folder) = self.temporary {
            // It may not have been made.
            _ = tokio::fs::remove_dir_all(folder).await;
        }
        ran.context("run the process nodes")
    }
}
