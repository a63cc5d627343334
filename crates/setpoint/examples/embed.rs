//! Serves kubectl over TLS out of the folder `data`, until SIGINT or SIGTERM: `embed [PORT]`.

use setpoint::{ControlPlane, ServeOptions, store::DiskOptions, store::DiskStore};
use std::{error::Error, net::Ipv4Addr, sync::Arc};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let port = std::env::args().nth(1).map_or(Ok(6443), |port| port.parse())?;
    let disk = DiskStore::open("data", DiskOptions::default())?;
    let plane = ControlPlane::builder().store(Arc::new(disk.clone())).build();
    let options = ServeOptions::new((Ipv4Addr::LOCALHOST, port)).cert_dir("data/pki");
    plane.serve(options.kubeconfig("kubeconfig")).await?.run_until_signal().await?;
    disk.close().await;
    Ok(())
}
