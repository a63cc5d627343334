//! Runs the injector in the cluster that KUBECONFIG names, or that its pod is in.
//!
//! `sidecar-injector` is called as a Service: apply `manifests/injector.yaml`.
//! `sidecar-injector --here` serves on 127.0.0.1 and registers itself there, for a server on this
//! machine.

use setpoint::kube_client::Client;
use setpoint::log::{self, LogFormat};
use setpoint::prelude::*;
use sidecar_injector::{Place, install, manager};
use std::net::{Ipv4Addr, SocketAddr};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    log::init(LogFormat::Text)?;
    let client = Client::try_default().await?;
    let is_here = std::env::args().any(|argument| argument == "--here");
    let builder = Manager::builder(client.clone()).namespaces([sidecar_injector::NAMESPACE])?;
    let manager = if is_here {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 9443));
        install(&client, address).await?;
        manager(builder, Place::Host("127.0.0.1"), |server| server.listen(address)).await?.0
    } else {
        manager(builder, Place::Cluster, |server| server).await?.0
    };
    Ok(manager.run_until_signal().await?)
}
