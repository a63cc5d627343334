//! A control plane with its listeners: how they run, and the order in which they stop.

use super::authorities::AuthorityFiles;
use super::certificates::Freshness;
use super::{ServeError, kubeconfig};
use crate::control_plane::{ControlPlane, ControlPlaneError};
use kube_client::Client;
use setpoint_apiserver::listen::{CertificateWatcher, Listener};
use setpoint_runtime::cancel_on_signal;
use std::fmt;
use std::path::Path;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// A control plane with its listeners, bound but not yet running.
#[must_use = "nothing is served until it is run"]
pub struct Serving {
    pub(super) plane: ControlPlane,
    pub(super) listeners: Vec<Listener>,
    pub(super) freshness: Freshness,
    /// The certificates for certain hosts.
    pub(super) named: Vec<CertificateWatcher>,
    pub(super) authorities: AuthorityFiles,
    pub(super) shutdown_delay: Duration,
    pub(super) is_retried_at_end: bool,
    /// Cancelled to withdraw the published addresses of the listeners.
    pub(super) leaves: CancellationToken,
    pub(super) url: String,
    pub(super) port: u16,
    pub(super) insecure_url: Option<String>,
    pub(super) kubeconfig: String,
    pub(super) ca: String,
    pub(super) token: String,
}

/// Omits the credentials.
impl fmt::Debug for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url, insecure_url, .. } = self;
        f.debug_struct("Serving")
            .field("url", url)
            .field("insecure_url", insecure_url)
            .finish_non_exhaustive()
    }
}

impl Serving {
    /// URL of the secure listener, for clients on this machine.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Port of the secure listener.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Writes the administrator's kubeconfig atomically, readable by its owner only.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn write_kubeconfig(&self, path: impl AsRef<Path>) -> Result<(), ServeError> {
        let path = path.as_ref();
        kubeconfig::write(path, &self.kubeconfig)
            .map_err(|source| ServeError::Kubeconfig { path: path.to_owned(), source })
    }

    /// The administrator's kubeconfig as YAML. It contains a private key.
    pub fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }

    /// The authority of the server's certificate, in PEM: what clients trust, as in the kubeconfig.
    pub fn ca(&self) -> &str {
        &self.ca
    }

    /// The administrator's token, as in the kubeconfig.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// URL of the listener without authentication; `None` if there is none.
    pub fn insecure_url(&self) -> Option<&str> {
        self.insecure_url.as_deref()
    }

    /// An in-process client, as [`ControlPlane::client`].
    pub fn client(&self) -> Client {
        self.plane.client()
    }

    /// Becomes true once requests are served, as [`ControlPlane::ready`].
    pub fn ready(&self) -> watch::Receiver<bool> {
        self.plane.ready()
    }

    /// Serves until `stop`, and for the [delay](super::ServeOptions::shutdown_delay). Then ends
    /// watches, completes requests in progress, and stops the control plane. Dropping it stops
    /// everything at once; acknowledged writes are never lost.
    ///
    /// # Errors
    ///
    /// If the control plane ends before `stop`.
    pub async fn run(self, stop: CancellationToken) -> Result<(), ServeError> {
        let Self {
            plane,
            listeners,
            freshness,
            named,
            authorities,
            leaves,
            shutdown_delay,
            is_retried_at_end,
            kubeconfig,
            ca,
            token,
            ..
        } = self;
        // Nobody asks for them any more.
        drop((kubeconfig, ca, token));
        let (stop_listeners, stop_plane) = (CancellationToken::new(), CancellationToken::new());
        let (stop_controllers, controllers_ended) =
            (stop_plane.child_token(), CancellationToken::new());
        let (mut edge, mut planes) = (JoinSet::new(), JoinSet::new());
        let server = plane.server().clone();
        planes.spawn(plane.run_in_steps(
            stop_controllers.clone(),
            stop_plane.clone(),
            controllers_ended.clone(),
        ));
        edge.spawn(freshness.run(stop_listeners.clone()));
        for watcher in named {
            let stop = stop_listeners.clone();
            edge.spawn(async move { watcher.run(stop, |_| {}).await });
        }
        if authorities.has_files() {
            edge.spawn(authorities.run(stop_listeners.clone()));
        }
        for listener in listeners {
            edge.spawn(listener.run(stop_listeners.clone()));
        }
        let mut ended = tokio::select! {
            biased;
            () = stop.cancelled() => None,
            // Cancel safe: a dropped `join_next` has taken no result.
            ended = planes.join_next() => ended,
        };
        server.begin_shutdown();
        leaves.cancel();
        if ended.is_none() && !shutdown_delay.is_zero() {
            ended = tokio::select! {
                biased;
                // Cancel safe: as above.
                ended = planes.join_next() => ended,
                () = tokio::time::sleep(shutdown_delay) => None,
            };
        }
        if is_retried_at_end {
            server.refuse_requests();
        }
        // Controllers stop first, because listeners end their watches too. Listeners stop before
        // the rest, so that requests in progress still get their responses.
        stop_controllers.cancel();
        controllers_ended.cancelled().await;
        if is_retried_at_end {
            server.requests_ended().await;
        }
        stop_listeners.cancel();
        while edge.join_next().await.is_some() {}
        stop_plane.cancel();
        let ended = match ended {
            Some(ended) => Some(ended),
            None => planes.join_next().await,
        };
        match ended {
            Some(ended) => Ok(ended.map_err(ControlPlaneError::Part)??),
            None => Ok(()),
        }
    }

    /// Serves until SIGINT or SIGTERM. A second signal exits at once.
    ///
    /// # Errors
    ///
    /// If the signal handlers cannot be installed, or the control plane ends before a signal.
    pub async fn run_until_signal(self) -> Result<(), ServeError> {
        let stop = CancellationToken::new();
        tokio::select! {
            biased;
            ended = self.run(stop.clone()) => ended,
            signal = cancel_on_signal(stop) => match signal.map_err(ServeError::Signals)? {},
        }
    }
}
