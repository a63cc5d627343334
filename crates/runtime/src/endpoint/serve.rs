//! The life of an endpoint.

use std::sync::Arc;

use setpoint_serve::{Limits, Server};
use tokio::{net::TcpListener, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{CONNECTIONS_MAX, DRAIN_MAX, Endpoint, HEAD_MAX, IDLE_MAX, answer::Answerer};
use crate::error::BoxError;

/// How much is read of a body that no handler gets: 256 KiB, as Go's server.
const LEFTOVER_BYTES_MAX: usize = 256 * 1024;

/// The limits of an endpoint.
pub(super) const LIMITS: Limits = Limits {
    connections_max: CONNECTIONS_MAX,
    unauthenticated_max: None,
    head_max: HEAD_MAX,
    idle_max: IDLE_MAX,
    http2_idle_max: Some(IDLE_MAX),
    leftover_bytes_max: LEFTOVER_BYTES_MAX,
    drain_max: DRAIN_MAX,
};

/// Serves until `stop`, then until connections have finished or [`DRAIN_MAX`] is over. Dropping it
/// drops every connection.
pub(super) async fn serve(endpoint: Endpoint, stop: CancellationToken) -> Result<(), BoxError> {
    let Endpoint { socket, address, certificates, bearer, routes } = endpoint;
    let answerer = Arc::new(Answerer { routes, bearer });
    let mut server = Server::new(TcpListener::from_std(socket)?, LIMITS);
    tracing::info!(%address, tls = certificates.is_some(), "serving");
    // Ends with the endpoint.
    let mut background = JoinSet::new();
    if let Some(certificates) = certificates {
        server = server.tls(Arc::new(certificates.server_config()?));
        background.spawn(certificates.keep_fresh(stop.clone()));
    }
    server.run(move |request| answerer.clone().answer(request), stop).await;
    Ok(())
}
