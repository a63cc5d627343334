//! The dialers of a configuration.

use crate::config::{self, EgressConfig, Route};
use crate::http_connect;
use crate::observer::{DialObserver, Protocol, Stage, Transport};
use crate::tunnel;
use futures::future::{BoxFuture, FutureExt as _};
use http::Uri;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use rustls::ClientConfig;
use setpoint_dial::{Dial, DialError, Dialer, EgressSelector, Socket, dial_unix};
use setpoint_object::time::Clock;
use setpoint_small_file::SmallFileError;
use setpoint_webhook_client::{Address, ConfigError, Identity, Trust, secure};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::time::Instant;

/// Maximum size of a file with certificates or a key in bytes: 1 MiB.
const PEM_BYTES_MAX: usize = 1 << 20;

/// Why a configuration has no dialers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EgressError {
    /// A file with certificates or a key cannot be read.
    #[error("failed to setup egress selector")]
    File(#[from] SmallFileError),
    /// They cannot be used.
    #[error("failed to setup egress selector")]
    Tls(#[from] ConfigError),
    /// The URL of a proxy has no host.
    #[error("failed to setup egress selector: invalid proxy server url {0:?}")]
    Url(String),
}

impl EgressConfig {
    /// The dialers. Reads the certificates of proxies once; the clock decides whether those that
    /// proxies show are valid. `seed` must differ from those of other servers that use the same
    /// proxies. `observer` is told of dials through proxies.
    ///
    /// # Errors
    ///
    /// The certificates of a proxy cannot be read or used.
    pub async fn selector(
        &self,
        clock: &Clock,
        seed: u64,
        observer: Arc<dyn DialObserver>,
    ) -> Result<EgressSelector, EgressError> {
        let Some(routes) = &self.routes else { return Ok(EgressSelector::default()) };
        let dials = Arc::new(Mutex::new(SmallRng::seed_from_u64(seed)));
        let mut dialers = Vec::new();
        for (traffic, route) in routes {
            let way = match route {
                Route::Direct => {
                    dialers.push((*traffic, Dialer::default()));
                    continue;
                }
                Route::HttpConnect(proxy) => Way::Tcp(TcpProxy::open(proxy, clock).await?),
                Route::HttpConnectUnix(path) => Way::Unix(path.clone()),
                Route::Grpc(path) => Way::Grpc(path.clone(), dials.clone()),
            };
            let dial = Proxied { way, observer: observer.clone() };
            dialers.push((*traffic, Dialer::of(Arc::new(dial))));
        }
        Ok(EgressSelector::new(dialers))
    }
}

/// Connects through a proxy.
#[derive(Debug)]
struct Proxied {
    way: Way,
    observer: Arc<dyn DialObserver>,
}

/// Where a proxy is, and what it speaks.
#[derive(Debug)]
enum Way {
    Tcp(TcpProxy),
    Unix(PathBuf),
    /// With the numbers of dials.
    Grpc(PathBuf, Arc<Mutex<SmallRng>>),
}

/// A proxy at a URL.
struct TcpProxy {
    address: Address,
    /// With the name in its certificate; `None`: without TLS.
    tls: Option<(Arc<ClientConfig>, String)>,
}

impl fmt::Debug for TcpProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpProxy").field("address", &self.address).finish_non_exhaustive()
    }
}

impl TcpProxy {
    async fn open(proxy: &config::Proxy, clock: &Clock) -> Result<Self, EgressError> {
        let url = proxy.url.parse::<Uri>().ok().filter(|url| url.host().is_some());
        let url = url.ok_or_else(|| EgressError::Url(proxy.url.clone()))?;
        let address = Address::of(&url);
        let Some(files) = &proxy.tls else { return Ok(Self { address, tls: None }) };
        let read = async |path| setpoint_small_file::read_async(path, PEM_BYTES_MAX).await;
        let identity = Identity {
            certificates: read(&files.client_cert).await?.into(),
            key: read(&files.client_key).await?.into(),
        };
        let trust = match files.ca_bundle.as_os_str().is_empty() {
            true => Trust::System,
            false => Trust::Bundle(read(&files.ca_bundle).await?.into()),
        };
        let mut tls = trust.tls(Some(&identity), clock).await?;
        // What follows is HTTP/1.1, and proxies need not know the negotiation.
        tls.alpn_protocols.clear();
        let name = match &*files.tls_server_name {
            "" => address.host.clone(),
            name => name.to_owned(),
        };
        Ok(Self { address, tls: Some((Arc::new(tls), name)) })
    }

    async fn connect(&self) -> Result<Socket, DialError> {
        let Self { address: Address { host, port }, tls } = self;
        let socket = Dialer::default().dial(host, *port).await?;
        match tls {
            None => Ok(socket),
            Some((tls, name)) => {
                let secured = secure(tls.clone(), name, socket).await?;
                Ok(Socket::Other(Box::new(secured)))
            }
        }
    }
}

impl Way {
    fn labels(&self) -> (Protocol, Transport) {
        match self {
            Self::Tcp(_) => (Protocol::HttpConnect, Transport::Tcp),
            Self::Unix(_) => (Protocol::HttpConnect, Transport::Uds),
            Self::Grpc(..) => (Protocol::Grpc, Transport::Uds),
        }
    }

    /// Connects to the proxy, and asks it to connect to `target`.
    async fn dial(
        &self,
        target: &str,
        observer: &Arc<dyn DialObserver>,
    ) -> Result<Socket, (Stage, DialError)> {
        let connect = |error| (Stage::Connect, error);
        let dialed = match self {
            Self::Tcp(proxy) => {
                let socket = proxy.connect().await.map_err(connect)?;
                http_connect::connect(socket, &proxy.address.to_string(), target).await
            }
            Self::Unix(path) => {
                let socket = dial_unix(path).await.map_err(connect)?;
                http_connect::connect(socket, &path.display().to_string(), target).await
            }
            Self::Grpc(path, dials) => {
                let socket = dial_unix(path).await.map_err(connect)?;
                // Positive, as in konnectivity's client.
                let random = dials.lock().random_range(0..=i64::MAX);
                tunnel::open(socket, target, random, observer.clone()).await
            }
        };
        dialed.map_err(|error| (Stage::Proxy, error))
    }
}

impl Dial for Proxied {
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, Result<Socket, DialError>> {
        async move {
            let (protocol, transport) = self.way.labels();
            let begun = Instant::now();
            self.observer.started(protocol, transport);
            let target = Address { host: host.to_owned(), port }.to_string();
            match self.way.dial(&target, &self.observer).await {
                Ok(socket) => {
                    self.observer.dialed(protocol, transport, begun.elapsed());
                    Ok(socket)
                }
                Err((stage, error)) => {
                    self.observer.failed(protocol, transport, stage);
                    Err(error)
                }
            }
        }
        .boxed()
    }
}
