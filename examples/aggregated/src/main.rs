//! Extends the server that KUBECONFIG names, or whose pod it is in.
//!
//! `aggregated` listens on port 6443, behind a Service: apply `manifests/aggregated.yaml`.
//! `aggregated --here` is for a server on this machine, which reaches it on a free port.
//! `--data FOLDER` is where it keeps its objects; default: `data`.

use aggregated::{Options, Place, run};
use setpoint::kube_client::Config;
use setpoint::log::{self, LogFormat};
use setpoint::prelude::BoxError;
use std::net::{Ipv4Addr, SocketAddr};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    log::init(LogFormat::Text)?;
    let arguments: Vec<String> = std::env::args().collect();
    let place = match arguments.iter().any(|argument| argument == "--here") {
        true => Place::Here,
        false => Place::Cluster,
    };
    let folder = arguments.iter().skip_while(|argument| *argument != "--data").nth(1);
    let address = match place {
        Place::Here => SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        Place::Cluster => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 6443)),
    };
    let options = Options {
        host: Config::infer().await?,
        folder: folder.map_or("data", String::as_str).into(),
        address,
        place,
    };
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let running = async {
        let ended = run(options, stop.clone()).await;
        stop.cancel();
        ended
    };
    let stopping = async {
        tokio::select! {
            // Cancel safe: the first signal ends the program.
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
            () = stop.cancelled() => {}
        }
        stop.cancel();
    };
    tokio::join!(running, stopping).0
}
