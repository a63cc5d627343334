//! Runs the program in the cluster that KUBECONFIG names, or that its pod is in. Webhooks are on
//! port 9443, with the certificate in `/tmp/k8s-webhook-server/serving-certs`.

use setpoint::kube_client::Client;
use setpoint::log::{self, LogFormat};
use setpoint::prelude::*;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    log::init(LogFormat::Text)?;
    let builder = Manager::builder(Client::try_default().await?);
    let (manager, _served) = team::manager(builder, |server| server).await?;
    Ok(manager.run_until_signal().await?)
}
