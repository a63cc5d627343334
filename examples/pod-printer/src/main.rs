//! `pod-printer`: prints a line whenever a pod changes.

use anyhow::Context;
use clap::Parser;
use k8s_openapi::api::core::v1::Pod;
use pod_printer::{bare, by_hand, controller};
use setpoint::kube_client::Client;
use setpoint::log::{self, LogFormat};
use setpoint::prelude::*;

/// Prints a line whenever a pod changes.
#[derive(Debug, Parser)]
struct Cli {
    /// Number of workers.
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// Use an informer and a queue that are wired by hand.
    #[arg(long, conflicts_with = "bare")]
    by_hand: bool,
    /// Use plain HTTP without an informer, with this address, such as http://localhost:8080.
    #[arg(long, value_name = "URL")]
    bare: Option<String>,
    /// The bearer token for --bare; better given as the environment variable POD_PRINTER_TOKEN.
    #[arg(long, requires = "bare")]
    token: Option<String>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    log::init(LogFormat::Text)?;
    let cli = Cli::parse();
    if let Some(url) = cli.bare {
        let token = cli.token.or_else(|| std::env::var("POD_PRINTER_TOKEN").ok());
        let endpoint = bare::Endpoint { url, token };
        return until_signal(async |stop| {
            bare::run(&endpoint, |line| println!("{line}"), stop).await;
            Ok(())
        })
        .await;
    }
    let client = Client::try_default().await.context("find the cluster: set KUBECONFIG")?;
    if cli.by_hand {
        let pods = ClientSource::all::<Pod>(client);
        return until_signal(async |stop| {
            by_hand::run(pods, cli.workers, controller::print, stop).await
        })
        .await;
    }
    let mut manager = Manager::new(client);
    manager.add(controller::controller(cli.workers, controller::print)?)?;
    Ok(manager.run_until_signal().await?)
}

/// Stops the run at SIGINT or SIGTERM and waits for its end, as a manager does by itself.
async fn until_signal(
    run: impl AsyncFnOnce(CancellationToken) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    tokio::select! {
        ended = run(stop.clone()) => ended,
        Err(error) = cancel_on_signal(stop) => Err(error).context("listen for signals"),
    }
}
