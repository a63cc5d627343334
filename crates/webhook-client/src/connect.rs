//! Connections to one server: lookup of services, TLS.

use crate::config::{Endpoint, Service};
use futures::future::BoxFuture;
use http::Uri;
use http::uri::Scheme;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConfig};
use setpoint_dial::{ADDRESSES_MAX, DialError, Dialer, Socket};
use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A place to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// An IP address or a DNS name.
    pub host: String,
    /// The port to connect to.
    pub port: u16,
}

impl Address {
    /// Of a URL, whose host may be an IPv6 address in brackets. Without a port it is 443, or 80 for
    /// the scheme `http`.
    pub fn of(url: &Uri) -> Self {
        let host = url.host().unwrap_or_default();
        let is_plain = url.scheme() == Some(&Scheme::HTTP);
        Self {
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: url.port_u16().unwrap_or(if is_plain { 80 } else { 443 }),
        }
    }
}

/// Shows `host:port`, with an IPv6 address in brackets.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// Why a service has no address. Shown to clients as it is: `service "x" not found`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ResolveError(pub String);

/// Looks up services.
pub trait ServiceResolver: fmt::Debug + Send + Sync {
    /// The addresses of a service's port, best first. Called for each new connection. At most eight
    /// are tried, starting with another one each time.
    ///
    /// # Errors
    ///
    /// There is no such service or port, or nothing serves it. An empty list counts as that too.
    ///
    /// Dropping the future must leave no effect.
    fn resolve<'a>(
        &'a self,
        service: &'a Service,
    ) -> BoxFuture<'a, Result<Vec<Address>, ResolveError>>;
}

/// Why there is no connection, in the words of Go's network library.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ConnectError(pub(crate) String);

impl From<DialError> for ConnectError {
    fn from(DialError(text): DialError) -> Self {
        Self(text)
    }
}

/// Connects to one server.
#[derive(Clone)]
pub(crate) struct Connector {
    pub(crate) endpoint: Endpoint,
    pub(crate) server_name: String,
    pub(crate) tls: Arc<ClientConfig>,
    pub(crate) resolver: Arc<dyn ServiceResolver>,
    pub(crate) dialer: Dialer,
    /// Which of several addresses the next connection tries first.
    pub(crate) turn: Arc<AtomicUsize>,
}

impl Connector {
    async fn connect(self) -> Result<Stream, ConnectError> {
        let mut addresses = match &self.endpoint {
            Endpoint::Host(host, port) => vec![Address { host: host.clone(), port: *port }],
            Endpoint::Service(service) => {
                let found = self.resolver.resolve(service).await;
                found.map_err(|error| ConnectError(error.to_string()))?
            }
        };
        if !addresses.is_empty() {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed) % addresses.len();
            addresses.rotate_left(turn);
        }
        let mut failure = ConnectError(format!("no address of {} is known", self.server_name));
        for address in addresses.into_iter().take(ADDRESSES_MAX) {
            match self.dialer.dial(&address.host, address.port).await {
                Ok(socket) => return handshake(self.tls, &self.server_name, socket).await,
                Err(error) => failure = error.into(),
            }
        }
        Err(failure)
    }
}

/// The TLS handshake with a server of this name.
pub(crate) async fn handshake(
    tls: Arc<ClientConfig>,
    server_name: &str,
    socket: Socket,
) -> Result<Stream, ConnectError> {
    let stream = secure(tls, server_name, socket).await?;
    Ok(Stream::secured(stream))
}

/// TLS over a connection to a server whose certificate has this name, for other protocols than
/// those of this crate.
///
/// # Errors
///
/// The handshake has failed, in the words of Go's TLS library.
pub async fn secure(
    tls: Arc<ClientConfig>,
    server_name: &str,
    socket: Socket,
) -> Result<TlsStream<Socket>, DialError> {
    let name = ServerName::try_from(server_name.to_owned())
        .map_err(|error| DialError(format!("tls: {error}")))?;
    let secured = TlsConnector::from(tls).connect(name, socket).await;
    secured.map_err(|error| DialError(tls_text(&error)))
}

/// The text for a failed handshake.
fn tls_text(error: &io::Error) -> String {
    let Some(tls) = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>()) else {
        return io_text(error);
    };
    let verify = |why: String| format!("tls: failed to verify certificate: x509: {why}");
    match tls {
        rustls::Error::InvalidCertificate(error) => match error {
            // Another CA of the same name is unknown too.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                verify("certificate signed by unknown authority".to_owned())
            }
            CertificateError::NotValidForName => {
                verify("certificate is not valid for any names".to_owned())
            }
            CertificateError::NotValidForNameContext { expected, presented } => {
                verify(name_text(&expected.to_str(), presented))
            }
            CertificateError::Expired
            | CertificateError::NotValidYet
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYetContext { .. } => {
                verify("certificate has expired or is not yet valid".to_owned())
            }
            // That of an authority, which is itself unknown.
            CertificateError::Other(why) if format!("{why:?}").contains("CaUsedAsEndEntity") => {
                verify("certificate signed by unknown authority".to_owned())
            }
            other => verify(other.to_string()),
        },
        rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType) => {
            "http: server gave HTTP response to HTTPS client".to_owned()
        }
        rustls::Error::AlertReceived(alert) => format!("remote error: tls: {alert:?}"),
        other => format!("tls: {other}"),
    }
}

/// `presented` are the certificate's names as rustls shows them: `DnsName("a.b")`, `IpAddress(…)`.
fn name_text(expected: &str, presented: &[String]) -> String {
    let quoted = presented.iter().filter_map(|name| name.split('"').nth(1));
    let names: Vec<&str> = quoted.collect();
    let is_address = expected.parse::<std::net::IpAddr>().is_ok();
    match (is_address, names.is_empty()) {
        (true, _) => format!(
            "cannot validate certificate for {expected} because it doesn't contain any IP SANs"
        ),
        (false, true) => {
            format!("certificate is not valid for any names, but wanted to match {expected}")
        }
        (false, false) => {
            format!("certificate is valid for {}, not {expected}", names.join(", "))
        }
    }
}

/// The text for a broken connection.
pub(crate) fn io_text(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
        io::ErrorKind::ConnectionReset => "read: connection reset by peer".to_owned(),
        io::ErrorKind::BrokenPipe => "write: broken pipe".to_owned(),
        _ => error.to_string(),
    }
}

impl tower_service::Service<Uri> for Connector {
    type Response = Stream;
    type Error = ConnectError;
    type Future = BoxFuture<'static, Result<Stream, ConnectError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        // One connector per server: the URI is that of every request.
        Box::pin(self.clone().connect())
    }
}

/// A connection after the handshake, if there is one.
///
/// After each read that has read something, other tasks have their turn: a server that sends
/// without a pause, such as interim answers, would keep the thread as long as its budget of reads
/// lasts.
pub(crate) struct Stream {
    io: TokioIo<Socket>,
    /// Whether the handshake has chosen HTTP/2.
    is_h2: bool,
    has_read: bool,
}

impl Stream {
    /// A connection without TLS.
    pub(crate) fn plain(socket: Socket) -> Self {
        Self { io: TokioIo::new(socket), is_h2: false, has_read: false }
    }

    fn secured(tls: TlsStream<Socket>) -> Self {
        let is_h2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
        Self { is_h2, ..Self::plain(Socket::Other(Box::new(tls))) }
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        if self.is_h2 { Connected::new().negotiated_h2() } else { Connected::new() }
    }
}

impl Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if std::mem::take(&mut self.has_read) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let read = Pin::new(&mut self.io).poll_read(cx, buf);
        self.has_read = read.is_ready();
        read
    }
}

impl Write for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }
    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}
