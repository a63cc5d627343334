//! Configuration of a server.

use super::error::ServerError;
use super::started::StartedCheck;
use super::{Bound, WebhookServer};
use crate::certificate::{
    Callback, Certificate, CertificateFiles, CertificateWatcher, CurrentCertificate,
};
use crate::webhooks::Webhooks;
use setpoint_object::time::Clock;
use setpoint_serve::certificate::{read_chain, read_file};
use setpoint_serve::tls;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::TcpListener;

/// Default port of webhooks: 9443 (WHK-1).
pub const PORT: u16 = 9443;

/// The address to listen on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listen {
    /// This port on every address, IPv6 and IPv4; 0 picks a free one.
    Port(u16),
    /// This address.
    Address(SocketAddr),
    /// None: [`WebhookServer::run`] only waits for its stop. For replicas that leave webhooks to
    /// others.
    Disabled,
}

impl Default for Listen {
    fn default() -> Self {
        Self::Port(PORT)
    }
}

impl From<SocketAddr> for Listen {
    fn from(address: SocketAddr) -> Self {
        Self::Address(address)
    }
}

impl From<u16> for Listen {
    fn from(port: u16) -> Self {
        Self::Port(port)
    }
}

/// The source of the certificate.
#[derive(Debug)]
enum Source {
    Files(CertificateFiles),
    Given(Certificate),
    Followed(CurrentCertificate),
}

/// The source of the CA of client certificates.
#[derive(Debug)]
enum ClientCa {
    File(PathBuf),
    Pem(Vec<u8>),
}

/// Configures a server. Everything has a default.
#[must_use = "a builder does nothing until `bind`"]
pub struct WebhookServerBuilder {
    webhooks: Webhooks,
    clock: Clock,
    listen: Listen,
    source: Source,
    client_ca: Option<ClientCa>,
    callbacks: Vec<Callback>,
}

impl fmt::Debug for WebhookServerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookServerBuilder")
            .field("webhooks", &self.webhooks)
            .field("listen", &self.listen)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

impl WebhookServerBuilder {
    pub(super) fn new(webhooks: Webhooks, clock: Clock) -> Self {
        Self {
            webhooks,
            clock,
            listen: Listen::default(),
            source: Source::Files(CertificateFiles::default()),
            client_ca: None,
            callbacks: Vec::new(),
        }
    }

    /// The address to listen on: a port, an address, or none. Default: [`PORT`] on every address.
    pub fn listen(mut self, listen: impl Into<Listen>) -> Self {
        self.listen = listen.into();
        self
    }

    /// Reads the certificate from these files and reloads it on change. Default:
    /// [`CertificateFiles::default`].
    pub fn certificate_files(mut self, files: CertificateFiles) -> Self {
        self.source = Source::Files(files);
        self
    }

    /// Uses a fixed certificate.
    pub fn certificate(mut self, certificate: Certificate) -> Self {
        self.source = Source::Given(certificate);
        self
    }

    /// Uses the certificate of another [`CertificateWatcher`].
    pub fn certificate_of(mut self, current: CurrentCertificate) -> Self {
        self.source = Source::Followed(current);
        self
    }

    /// Requires a client certificate signed by this CA (PEM; mutual TLS). Default: no client
    /// certificate required.
    pub fn client_ca(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.client_ca = Some(ClientCa::Pem(pem.into()));
        self
    }

    /// As [`client_ca`](Self::client_ca), from a file that is read once, when the server is bound.
    pub fn client_ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.client_ca = Some(ClientCa::File(path.into()));
        self
    }

    /// Calls `callback` with the certificate when the server is bound, and with each replacement;
    /// see [`CertificateWatcher::on_change`]. Only for
    /// [`certificate_files`](Self::certificate_files).
    pub fn on_certificate_change(
        mut self,
        callback: impl Fn(&Certificate) + Send + Sync + 'static,
    ) -> Self {
        self.callbacks.push(Box::new(callback));
        self
    }

    /// Reads the certificate and binds the address. Does neither if the server is disabled.
    ///
    /// # Errors
    ///
    /// If the certificate or the CA cannot be read or used, or the address cannot be bound.
    pub async fn bind(self) -> Result<WebhookServer, ServerError> {
        let Self { webhooks, clock, listen, source, client_ca, callbacks } = self;
        if listen == Listen::Disabled {
            return Ok(WebhookServer { webhooks, bound: None, started: StartedCheck::disabled() });
        }
        let (current, watcher) = match source {
            Source::Files(files) => {
                let opened = CertificateWatcher::open(files, webhooks.metrics().clone()).await;
                let mut watcher = opened.map_err(ServerError::Certificate)?;
                callbacks.into_iter().for_each(|callback| watcher.on_change(callback));
                (watcher.current(), Some(watcher))
            }
            Source::Given(certificate) => (CurrentCertificate::new(certificate), None),
            Source::Followed(current) => (current, None),
        };
        let client_ca = match client_ca {
            None => None,
            Some(ClientCa::Pem(pem)) => Some(pem),
            Some(ClientCa::File(path)) => Some(read_file(&path).map_err(ServerError::ClientCa)?),
        };
        let roots = client_ca.map(|pem| read_chain(&pem)).transpose();
        let roots = roots.map_err(ServerError::ClientCa)?;
        let clock = Arc::new(tls::TlsClock(move || clock.now().0));
        let config = Arc::new(tls::server_config(current.clone(), roots, clock.clone())?);
        let (socket, address) = bind_address(listen).await?;
        let started = StartedCheck::of(address, current, clock)?;
        let bound = Some(Bound { socket, address, config, watcher });
        Ok(WebhookServer { webhooks, bound, started })
    }
}

async fn bind_address(listen: Listen) -> Result<(TcpListener, SocketAddr), ServerError> {
    let bind = async |address: SocketAddr| {
        let socket = TcpListener::bind(address).await?;
        let address = socket.local_addr()?;
        Ok::<_, std::io::Error>((socket, address))
    };
    let (address, other) = match listen {
        Listen::Address(address) => (address, None),
        // A machine without IPv6 supports only IPv4.
        Listen::Port(port) => {
            ((Ipv6Addr::UNSPECIFIED, port).into(), Some((Ipv4Addr::UNSPECIFIED, port).into()))
        }
        Listen::Disabled => ((Ipv4Addr::LOCALHOST, 0).into(), None),
    };
    let failed = |source: std::io::Error| ServerError::Bind { address, source };
    match (bind(address).await, other) {
        (Err(error), Some(other)) if error.kind() != std::io::ErrorKind::AddrInUse => {
            bind(other).await.map_err(|source| ServerError::Bind { address: other, source })
        }
        (bound, _) => bound.map_err(failed),
    }
}
