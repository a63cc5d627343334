//! Options of nodes without containers.

use anyhow::Context as _;
use clap::Args;
use setpoint::{ControlPlaneBuilder, SimulatedNodes, Stages};
use std::path::PathBuf;

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
}

impl NodeOptions {
    /// Adds the nodes to a control plane.
    pub(crate) async fn apply(
        self,
        plane: ControlPlaneBuilder,
    ) -> anyhow::Result<ControlPlaneBuilder> {
        let Some(n) = self.nodes else { return Ok(plane) };
        let mut nodes = SimulatedNodes::new(n);
        let mut all: Option<Stages> = None;
        for path in &self.stages {
            let text = tokio::fs::read_to_string(path).await;
            let text = text.with_context(|| format!("read {}", path.display()))?;
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
        Ok(plane.nodes(nodes))
    }
}
