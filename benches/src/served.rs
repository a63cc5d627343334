//! A control plane served as `setpoint up` does, with the same allocator, which counts. Each line
//! on standard input is answered with a line of figures.

use anyhow::Context as _;
use cap::Cap;
use clap::{Parser, Subcommand};
use mimalloc::MiMalloc;
use setpoint::ControlPlane;
use setpoint::prelude::CancellationToken;
use setpoint::runtime::metrics::Metrics;
use setpoint::serve::ServeOptions;
use std::io::{BufRead as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

#[global_allocator]
static ALLOCATOR: Cap<MiMalloc> = Cap::new(MiMalloc, usize::MAX);

/// The used part of `setpoint`'s command line.
#[derive(Debug, Parser)]
#[command(name = "setpoint-benches-served", about = "A control plane whose memory is counted")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve until standard input ends.
    Up {
        /// The HTTPS port; 0 picks a free one.
        #[arg(long)]
        secure_port: u16,
        /// Path of the kubeconfig.
        #[arg(long)]
        kubeconfig: PathBuf,
    },
}

fn main() -> anyhow::Result<()> {
    let Command::Up { secure_port, kubeconfig } = Cli::parse().command;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, secure_port));
    let options = ServeOptions::new(address).kubeconfig(&kubeconfig);
    let (stop, mut ready, running) = runtime.block_on(async {
        let plane = ControlPlane::builder().serve_metrics(&Metrics::new()).build();
        let serving = plane.serve(options).await?;
        let (stop, ready) = (CancellationToken::new(), serving.ready());
        let mut running = tokio::task::JoinSet::new();
        running.spawn(serving.run(stop.clone()));
        anyhow::Ok((stop, ready, running))
    })?;
    runtime.block_on(ready.wait_for(|ready| *ready)).context("it has ended")?;
    println!("ready kubeconfig={}", kubeconfig.display());
    for line in std::io::stdin().lock().lines() {
        line?;
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", ALLOCATOR.allocated())?;
        out.flush()?;
    }
    stop.cancel();
    runtime.block_on(running.join_all()).into_iter().collect::<Result<(), _>>()?;
    Ok(())
}
