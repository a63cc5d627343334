//! `port-rule`: opens and closes ports on nodes.

use anyhow::Context;
use clap::{Parser, Subcommand, ValueEnum};
use port_rule::backend::{Backend, Firewalld, Iptables, Nftables, Program};
use port_rule::ruleset::Ruleset;
use port_rule::{agent, controller};
use setpoint::kube_client::Client;
use setpoint::log::{self, LogFormat};
use setpoint::prelude::{ElectionOptions, Manager};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Opens and closes ports on nodes, as PortRule objects say.
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the controller in the cluster that KUBECONFIG names, or that its pod is in.
    Controller {
        /// Works only while it holds the Lease `port-rule-controller` of this namespace, so that
        /// several may run.
        #[arg(long, value_name = "NAMESPACE")]
        leader_elect: Option<String>,
    },
    /// Runs the agent of a node. Needs CAP_NET_ADMIN in the node's network namespace.
    Agent {
        /// The name of this machine's Node object.
        #[arg(long)]
        node: String,
        #[command(flatten)]
        firewall: Firewall,
        /// Time between two checks of the firewall without an event.
        #[arg(long, default_value_t = agent::CHECK_PERIOD.as_secs(), value_parser = clap::value_parser!(u64).range(1..))]
        check_seconds: u64,
    },
    /// Removes all rules of this program from the machine's firewall. Needs no cluster. Stop the
    /// agent first: it would restore them.
    Remove {
        #[command(flatten)]
        firewall: Firewall,
    },
}

#[derive(Debug, clap::Args)]
struct Firewall {
    /// The firewall. `auto` takes the first that answers, in the order of this list.
    #[arg(long, value_enum, default_value = "auto")]
    backend: Kind,
    /// The folder of `nft`, `busctl` and iptables-nft's programs. Default: the folders of PATH.
    #[arg(long, value_name = "FOLDER")]
    programs: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    /// Uses the first firewall that is found on this machine.
    Auto,
    /// firewalld, by D-Bus and `busctl`.
    Firewalld,
    /// nftables, by `nft`.
    Nftables,
    /// nftables, by `iptables-nft-restore`.
    Iptables,
}

impl Firewall {
    fn program(&self, name: &str) -> Program {
        let folder = self.programs.as_ref();
        Program::new(folder.map_or_else(|| PathBuf::from(name), |folder| folder.join(name)))
    }

    async fn open(&self, kind: Kind) -> anyhow::Result<Arc<dyn Backend>> {
        let backend: Arc<dyn Backend> = match kind {
            Kind::Auto => return self.detect().await,
            Kind::Firewalld => Arc::new(Firewalld::new(self.program("busctl"))),
            Kind::Nftables => Arc::new(Nftables::new(self.program("nft"))),
            Kind::Iptables => Arc::new(Iptables::new(|name| self.program(name))),
        };
        // A query needs the same rights and programs as a change.
        backend.holds(&Ruleset::default()).await?;
        Ok(backend)
    }

    /// The first back end that answers. firewalld comes first: where it runs, an `Allow` in
    /// another table opens nothing.
    async fn detect(&self) -> anyhow::Result<Arc<dyn Backend>> {
        let mut failures = Vec::new();
        for kind in Kind::value_variants() {
            if matches!(kind, Kind::Auto) {
                continue;
            }
            match Box::pin(self.open(*kind)).await {
                Ok(backend) => return Ok(backend),
                Err(error) => failures.push(format!("{kind:?}: {error:#}")),
            }
        }
        anyhow::bail!("no firewall answers:\n{}", failures.join("\n"))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    log::init(LogFormat::Text)?;
    match Cli::parse().command {
        Command::Controller { leader_elect } => {
            let mut builder = Manager::builder(client().await?);
            if let Some(namespace) = leader_elect {
                let options = ElectionOptions::new(controller::NAME).namespace(namespace);
                builder = builder.leader_election(options.release_on_stop(true))?;
            }
            let mut manager = builder.build();
            manager.add(controller::controller()?)?;
            Ok(manager.run_until_signal().await?)
        }
        Command::Agent { node, firewall, check_seconds } => {
            let backend = firewall.open(firewall.backend).await.context("find the firewall")?;
            tracing::info!(node, backend = backend.name(), "starts");
            let mut manager = Manager::builder(client().await?).cache(agent::cache(&node)?).build();
            agent::Agent::new(&node, Arc::new(backend))
                .check_period(Duration::from_secs(check_seconds))
                .add_to(&mut manager)?;
            Ok(manager.run_until_signal().await?)
        }
        Command::Remove { firewall } => {
            let backend = firewall.open(firewall.backend).await.context("find the firewall")?;
            let removed = backend.replace(&Ruleset::default()).await;
            removed.context("remove")?;
            println!("nothing of port-rule is in {}", backend.name());
            Ok(())
        }
    }
}

async fn client() -> anyhow::Result<Client> {
    Client::try_default().await.context("find the cluster: set KUBECONFIG")
}
