//! Runs the operator in the cluster that KUBECONFIG names, or that its pod is in.

use setpoint::kube_client::Client;
use setpoint::log::{self, LogFormat};
use setpoint::prelude::*;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    log::init(LogFormat::Text)?;
    let builder = Manager::builder(Client::try_default().await?);
    let manager = website::manager(builder).await?;
    Ok(manager.run_until_signal().await?)
}
