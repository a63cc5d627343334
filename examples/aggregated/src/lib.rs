//! An extension API server with two resources:
//!
//! | resource | its objects |
//! |---|---|
//! | `loads.metrics.example.dev` | are computed when they are read: [`loads`] |
//! | `notes.store.example.dev` | are in a store of this server: [`notes`] |
//!
//! Users and rights are those of the server that it extends ([`Delegation`]).

pub mod loads;
pub mod notes;

use serde_json::{Value, json};
use setpoint::delegation::{Delegation, Registration};
use setpoint::kube_client::{Client, Config};
use setpoint::prelude::BoxError;
use setpoint::store::{DiskOptions, DiskStore};
use setpoint::{ServeOptions, Serving};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// The namespace of the Service.
pub const NAMESPACE: &str = "aggregated";
/// The name of the Service.
pub const SERVICE: &str = "api";

/// The place where the server runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In a pod behind the Service of `manifests/aggregated.yaml`.
    Cluster,
    /// On the machine of the server that it extends: it creates a Service that leads to itself.
    Here,
}

/// The options of the server.
#[derive(Debug, Clone)]
pub struct Options {
    /// The server that it extends.
    pub host: Config,
    /// The folder of its store, certificates and the host's authorities.
    pub folder: PathBuf,
    /// The address of its listener; port 0 picks a free one.
    pub address: SocketAddr,
    /// The place where it runs.
    pub place: Place,
}

/// Runs the server until `stop`.
///
/// # Errors
///
/// The host cannot be reached or does not accept it, a file cannot be used, or the address is
/// taken.
pub async fn run(options: Options, stop: CancellationToken) -> Result<(), BoxError> {
    let Options { host, folder, address, place } = options;
    let delegation = Delegation::open(host.clone(), folder.join("host")).await?;
    let disk = DiskStore::open(folder.join("store"), DiskOptions::default())?;
    let plane =
        delegation.builder()?.store(Arc::new(disk.clone())).backend(loads::backend()?).build();
    let options = ServeOptions::new(address)
        .cert_dir(folder.join("certificates"))
        .tls_san(format!("{SERVICE}.{NAMESPACE}.svc"));
    let serving = plane.serve(delegation.apply(options)).await?;
    let own = serving.client();
    let port = serving.port();
    let registrations = registrations(&serving, place);
    let registering = async {
        let register = async {
            notes::define(&own).await?;
            if place == Place::Here {
                lead_here(&Client::try_from(host)?, port).await?;
            }
            for registration in &registrations {
                delegation.register(registration).await?;
            }
            Ok::<_, BoxError>(())
        };
        let registered = register.await;
        if registered.is_err() {
            stop.cancel();
        }
        registered
    };
    let (served, registered, ()) =
        tokio::join!(serving.run(stop.clone()), registering, delegation.follow(stop.clone()));
    disk.close().await;
    registered?;
    Ok(served?)
}

/// The group versions, as the host lists them.
fn registrations(serving: &Serving, place: Place) -> Vec<Registration> {
    let port = match place {
        Place::Cluster => 443,
        Place::Here => serving.port(),
    };
    let registration = |(group, version): (&str, &str)| Registration {
        group: group.to_owned(),
        version: version.to_owned(),
        service: (NAMESPACE.to_owned(), SERVICE.to_owned()),
        port,
        ca: serving.ca().to_owned(),
        group_priority: 1000,
        version_priority: 15,
    };
    [(loads::GROUP, loads::VERSION), (notes::GROUP, notes::VERSION)].map(registration).into()
}

/// Creates a Service at the host that leads to this machine.
async fn lead_here(host: &Client, port: u16) -> Result<(), BoxError> {
    let objects = [
        (
            format!("/api/v1/namespaces/{NAMESPACE}"),
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        ),
        (
            format!("/api/v1/namespaces/{NAMESPACE}/services/{SERVICE}"),
            json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {"name": SERVICE, "namespace": NAMESPACE},
                "spec": {
                    "type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}],
                },
            }),
        ),
    ];
    for (path, object) in objects {
        apply(host, &path, &object).await?;
    }
    Ok(())
}

/// Server-side apply.
async fn apply(client: &Client, path: &str, object: &Value) -> Result<(), BoxError> {
    let request = http::Request::patch(format!("{path}?fieldManager=aggregated&force=true"))
        .header(http::header::CONTENT_TYPE, "application/apply-patch+yaml")
        .body(object.to_string().into_bytes())?;
    client.request::<Value>(request).await?;
    Ok(())
}
