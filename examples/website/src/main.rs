//! Runs the operator in the cluster that KUBECONFIG names, or that its pod is in.

use setpoint::kube_client::Client;
use setpoint::log::{self, LogFormat};
use setpoint::prelude::*;
use website::{Website, controller};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    log::init(LogFormat::Text)?;
    let mut manager = Manager::new(Client::try_default().await?);
    manager.install_crds([Website::crd()]).await?;
    manager.add(controller()?)?;
    Ok(manager.run_until_signal().await?)
}
