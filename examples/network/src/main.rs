//! `network-controller`: gives Network objects real networks, in the cluster that KUBECONFIG names.

mod openstack;

use anyhow::Context;
use clap::{Parser, ValueEnum};
use network::backend::{Backend, LinuxBackend, LocalBackend};
use network::controller;
use openstack::OpenStackArgs;
use setpoint::kube_client::Client;
use setpoint::log::{self, LogFormat};
use setpoint::prelude::{ElectionOptions, Manager};
use std::path::PathBuf;
use std::sync::Arc;

/// Gives Network objects real networks.
#[derive(Debug, Parser)]
struct Cli {
    /// Where networks are made.
    #[arg(long, value_enum, default_value = "local")]
    backend: BackendKind,
    /// The address registry of the local back end.
    #[arg(long, default_value = "networks.json")]
    registry: PathBuf,
    /// Works only while it holds the Lease `network-controller` of this namespace, so that several
    /// may run. Not with the local back end, which reads its registry only at start.
    #[arg(long, value_name = "NAMESPACE")]
    leader_elect: Option<String>,
    #[command(flatten)]
    openstack: OpenStackArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum BackendKind {
    /// Addresses out of a registry on disk.
    Local,
    /// Bridges in the current network namespace (needs CAP_NET_ADMIN).
    Linux,
    /// Networks of an OpenStack project, by Neutron.
    Neutron,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    log::init(LogFormat::Text)?;
    let cli = Cli::parse();
    let client = Client::try_default().await.context("find the cluster: set KUBECONFIG")?;
    match cli.backend {
        BackendKind::Local if cli.leader_elect.is_some() => {
            anyhow::bail!(
                "--leader-elect does not go with --backend local: a registry has one user"
            )
        }
        BackendKind::Local => run(client, LocalBackend::open(cli.registry).await?, None).await,
        BackendKind::Linux => {
            let (backend, connection) = LinuxBackend::open().context("open a netlink socket")?;
            tokio::select! {
                ended = run(client, backend, cli.leader_elect) => ended,
                () = connection => anyhow::bail!("the netlink connection ended"),
            }
        }
        BackendKind::Neutron => run(client, cli.openstack.backend()?, cli.leader_elect).await,
    }
}

async fn run(
    client: Client,
    backend: impl Backend,
    leader_elect: Option<String>,
) -> anyhow::Result<()> {
    let mut builder = Manager::builder(client).cache(controller::cache());
    if let Some(namespace) = leader_elect {
        let options =
            ElectionOptions::new(controller::NAME).namespace(namespace).release_on_stop(true);
        builder = builder.leader_election(options)?;
    }
    let mut manager = builder.build();
    manager.add(controller::controller(Arc::new(backend))?)?;
    Ok(manager.run_until_signal().await?)
}
