//! `etcd-operator`: runs etcd clusters in the cluster that KUBECONFIG names, or that its pod is in.

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use etcd_operator::backup::Agent;
use etcd_operator::etcd::Gateway;
use etcd_operator::{manager, save};
use setpoint::kube_client::Client;
use setpoint::log::{self, LogFormat};
use setpoint::prelude::{ElectionOptions, Manager};
use std::path::PathBuf;
use std::sync::Arc;

/// Runs etcd clusters from objects of the kinds EtcdCluster and EtcdBackup.
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// The image of this program, for the pods of backups.
    #[arg(long, default_value = "etcd-operator")]
    image: String,
    /// Works only while it holds the Lease `etcd-operator` of this namespace, so that several may
    /// run.
    #[arg(long, value_name = "NAMESPACE")]
    leader_elect: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Saves a snapshot of a member: what the pods of backups run.
    Save {
        /// A member's address, as http://10.0.0.1:2379. The first that answers is used.
        #[arg(long = "endpoint", required = true)]
        endpoints: Vec<String>,
        /// The file to write.
        #[arg(long)]
        file: PathBuf,
        /// Where revision, size and version are written, as JSON.
        #[arg(long)]
        report: Option<PathBuf>,
    },
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    log::init(LogFormat::Text)?;
    let cli = Cli::parse();
    if let Some(Command::Save { endpoints, file, report }) = cli.command {
        let saved = save::save(&endpoints, &file).await?;
        let text = serde_json::to_string(&saved)?;
        if let Some(report) = report {
            let written = tokio::fs::write(&report, &text).await;
            written.with_context(|| format!("write {}", report.display()))?;
        }
        println!("{text}");
        return Ok(());
    }
    let client = Client::try_default().await.context("find the cluster: set KUBECONFIG")?;
    let mut builder = Manager::builder(client);
    if let Some(namespace) = cli.leader_elect {
        let options =
            ElectionOptions::new("etcd-operator").namespace(namespace).release_on_stop(true);
        builder = builder.leader_election(options)?;
    }
    let command = std::env::current_exe().context("find this program")?;
    let agent = Agent { image: cli.image, command: command.to_string_lossy().into_owned() };
    let manager = manager(builder, Arc::new(Gateway), agent).await;
    let manager = manager.map_err(|error| anyhow::anyhow!(error))?;
    Ok(manager.run_until_signal().await?)
}
