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
    /// How many pods are looked at at a time.
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// With an informer and a queue that are wired by hand.
    #[arg(long, conflicts_with = "bare")]
    by_hand: bool,
    /// Without an informer: plain HTTP against this address, such as http://localhost:8080.
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
    let stop = CancellationToken::new();
    let running = async {
        match cli.bare {
            Some(url) => {
                let token = cli.token.or_else(|| std::env::var("POD_PRINTER_TOKEN").ok());
                bare::run(&bare::Endpoint { url, token }, |line| println!("{line}"), stop.clone())
                    .await;
                Ok(())
            }
            None => {
                let client =
                    Client::try_default().await.context("find the cluster: set KUBECONFIG")?;
                let (job, stop) = (controller::print, stop.clone());
                if cli.by_hand {
                    let pods = ClientSource::all::<Pod>(client);
                    by_hand::run(pods, cli.workers, job, stop).await
                } else {
                    controller::run(Manager::new(client), cli.workers, job, stop).await
                }
            }
        }
    };
    let signalled = async {
        let outcome = tokio::signal::ctrl_c().await;
        stop.cancel();
        // The controller ends in its own time; it is what the other arm waits for.
        match outcome {
            Ok(()) => std::future::pending().await,
            Err(error) => error,
        }
    };
    tokio::select! {
        ended = running => ended,
        error = signalled => Err(error).context("listen for Ctrl-C"),
    }
}
