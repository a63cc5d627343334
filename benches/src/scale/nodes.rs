//! Nodes and the scheduler as a process of their own: ordinary clients of any cluster.

use anyhow::Context;
use setpoint::prelude::CancellationToken;
use setpoint::runtime::Manager;
use setpoint::runtime::events::EventApi;
use setpoint_nodes::Nodes;
use setpoint_scheduler::Scheduler;
use std::path::PathBuf;

/// Options.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The cluster.
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// Number of nodes.
    #[arg(long, value_name = "N")]
    nodes: u32,
}

/// Runs them until the process is killed.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let kubeconfig = std::fs::read_to_string(&args.kubeconfig)
        .with_context(|| args.kubeconfig.display().to_string())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = crate::envtest::environment::client(&kubeconfig).await?;
        let mut manager = Manager::builder(client).events(EventApi::Core).build();
        Scheduler::new(1).add_to(&mut manager)?;
        Nodes::new(args.nodes, 2).add_to(&mut manager)?;
        manager.run(CancellationToken::new()).await.context("run the nodes")
    })
}
