//! Accepting connections.

#[cfg(feature = "tls")]
use crate::batch::Batched;
#[cfg(feature = "tls")]
use crate::certificate::CurrentCertificate;
#[cfg(feature = "tls")]
use crate::connection::serve_batched;
use crate::connection::{BoxError, ConnectionError, Protocol, serve_unbatched};
use crate::error::chain;
use crate::leftover::Received;
#[cfg(feature = "tls")]
use crate::limits::HANDSHAKE_MAX;
use crate::limits::Limits;
#[cfg(feature = "tls")]
use crate::linger::Linger;
use crate::slots::{Slot, Slots};
#[cfg(feature = "tls")]
use crate::tls::{Configs, TlsSource};
use crate::turn::Turns;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
#[cfg(feature = "tls")]
use std::collections::BTreeMap;
#[cfg(feature = "tls")]
use std::future::poll_fn;
#[cfg(feature = "tls")]
use std::io;
#[cfg(feature = "tls")]
use std::net::IpAddr;
use std::net::SocketAddr;
use std::sync::Arc;
#[cfg(feature = "tls")]
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
#[cfg(feature = "tls")]
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
#[cfg(feature = "tls")]
use tokio_rustls::LazyConfigAcceptor;
use tokio_util::sync::CancellationToken;

/// Pause after the system refused to accept (out of file descriptors), so that the server does not
/// spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A bound socket with its limits.
#[derive(Debug)]
#[must_use = "a server does nothing until it is run"]
pub struct Server {
    socket: TcpListener,
    limits: Limits,
    has_plain_http2: bool,
    #[cfg(feature = "tls")]
    tls: Option<Arc<dyn TlsSource>>,
    #[cfg(feature = "tls")]
    of_addresses: Arc<BTreeMap<IpAddr, CurrentCertificate>>,
    #[cfg(feature = "tls")]
    failed_handshakes: Arc<AtomicU64>,
}

impl Server {
    /// A server without TLS, for HTTP/1.
    pub fn new(socket: TcpListener, limits: Limits) -> Self {
        Self {
            socket,
            limits,
            has_plain_http2: false,
            #[cfg(feature = "tls")]
            tls: None,
            #[cfg(feature = "tls")]
            of_addresses: Arc::default(),
            #[cfg(feature = "tls")]
            failed_handshakes: Arc::default(),
        }
    }

    /// Without TLS, also speaks HTTP/2 with clients that begin with its preface, as gRPC's do.
    pub fn plain_http2(mut self) -> Self {
        self.has_plain_http2 = true;
        self
    }

    /// Serves over TLS; HTTP/2 if negotiated. A client certificate is in the extensions of each
    /// request as a [`PeerCertificate`](crate::tls::PeerCertificate). It does not authenticate the
    /// connection by itself, because the configuration may accept certificates of any authority.
    ///
    /// A client that prefers AES gets the first of the configuration's cipher suites that it knows;
    /// any other client gets its own preference, as from Go's servers.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, source: impl TlsSource + 'static) -> Self {
        self.tls = Some(Arc::new(source));
        self
    }

    /// The certificates for clients that connect to these addresses of the server and name no host,
    /// in place of that of the configuration. Default: none.
    #[cfg(feature = "tls")]
    pub fn address_certificates(
        mut self,
        certificates: impl IntoIterator<Item = (IpAddr, CurrentCertificate)>,
    ) -> Self {
        self.of_addresses = Arc::new(certificates.into_iter().collect());
        self
    }

    /// Counts failed TLS handshakes in `counter`.
    #[cfg(feature = "tls")]
    pub fn count_failed_handshakes(mut self, counter: Arc<AtomicU64>) -> Self {
        self.failed_handshakes = counter;
        self
    }

    /// Serves until `stop`, then until connections have finished or [`Limits::drain_max`] has
    /// passed. Dropping the future drops every connection.
    ///
    /// `answer` is called in the task of a connection or of one of its streams. A panic in it ends
    /// that task, and over HTTP/1 the connection.
    pub async fn run<A, Fut, B>(self, answer: A, stop: CancellationToken)
    where
        A: Fn(Request<Received>) -> Fut + Clone + Send + 'static,
        Fut: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin + Send + 'static,
    {
        let mut connections = JoinSet::new();
        let slots = Slots::new(&self.limits);
        let acceptor = self.acceptor();
        loop {
            let socket = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                // Cancel safe: a dropped `wait` has taken no slot.
                socket = slots.wait() => socket,
            };
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                // Cancel safe: a dropped `join_next` has taken no result.
                Some(_) = connections.join_next() => continue,
                // Cancel safe: a dropped `accept` has taken no connection.
                accepted = self.socket.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => {
                    let slot = slots.enter(socket);
                    let (acceptor, answer) = (acceptor.clone(), answer.clone());
                    let stop = stop.clone();
                    connections.spawn(async move {
                        let ended = tokio::select! {
                            biased;
                            // Cancel safe: the connection ends with it.
                            () = slot.evicted() => Err(ConnectionError::PushedOut),
                            ended = acceptor.serve((stream, peer), &slot, answer, stop) => ended,
                        };
                        if let Err(error) = ended {
                            tracing::debug!(%peer, error = chain(&error), "connection ended");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(error = chain(&error), "accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(self.socket);
        let drained = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(self.limits.drain_max, drained).await.is_err() {
            tracing::warn!(left = connections.len(), "connections did not finish in time");
        }
    }

    fn acceptor(&self) -> Acceptor {
        Acceptor {
            limits: Arc::new(self.limits.clone()),
            turns: Turns::default(),
            has_plain_http2: self.has_plain_http2,
            #[cfg(feature = "tls")]
            tls: self.tls.clone().map(|source| Configs::new(source, self.of_addresses.clone())),
            #[cfg(feature = "tls")]
            failed_handshakes: self.failed_handshakes.clone(),
        }
    }
}

/// The address of a connection's peer, in the extensions of its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerAddress(pub SocketAddr);

/// Turns a socket into a connection.
#[derive(Clone)]
struct Acceptor {
    limits: Arc<Limits>,
    turns: Turns,
    has_plain_http2: bool,
    #[cfg(feature = "tls")]
    tls: Option<Configs>,
    #[cfg(feature = "tls")]
    failed_handshakes: Arc<AtomicU64>,
}

impl Acceptor {
    async fn serve<A, Fut, B>(
        self,
        (stream, peer): (TcpStream, SocketAddr),
        slot: &Slot,
        answer: A,
        stop: CancellationToken,
    ) -> Result<(), ConnectionError>
    where
        A: Fn(Request<Received>) -> Fut + Clone + Send + 'static,
        Fut: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin + Send + 'static,
    {
        // Events of a watch are small and must not be delayed.
        stream.set_nodelay(true)?;
        let connection = slot.connection().cloned();
        let answer = move |mut request: Request<Received>| {
            if let Some(slot) = connection.as_ref().filter(|slot| !slot.is_authenticated()) {
                request.extensions_mut().insert(slot.clone());
            }
            request.extensions_mut().insert(PeerAddress(peer));
            answer(request)
        };
        #[cfg(feature = "tls")]
        if let Some(configs) = &self.tls {
            let local = stream.local_addr()?.ip();
            let handshake = async {
                let mut stream = stream;
                refuse_plain_text(&mut stream).await?;
                let hello = LazyConfigAcceptor::new(Default::default(), stream).await?;
                let config = configs.for_client(&hello.client_hello(), local);
                hello.into_stream(config).await
            };
            let handshake_max = self.limits.of_peer(HANDSHAKE_MAX);
            let stream = tokio::select! {
                // Cancel safe: the connection ends with it.
                stream = tokio::time::timeout(handshake_max, handshake) => {
                    let stream = stream.map_err(|_| ConnectionError::Handshake);
                    let stream = stream.and_then(|stream| Ok(stream?));
                    stream.inspect_err(|_| _ = self.failed_handshakes.fetch_add(1, Relaxed))?
                }
                () = stop.cancelled() => return Ok(()),
            };
            let (protocol, peer) = crate::tls::agreed(stream.get_ref().1);
            let answer = move |mut request: Request<Received>| {
                // Overwrites what the peer may have sent: the identity comes from the handshake.
                if let Some(peer) = &peer {
                    request.extensions_mut().insert(peer.clone());
                }
                answer(request)
            };
            // After an upgrade of HTTP/1, another task writes.
            return match protocol {
                Protocol::Http1 => {
                    serve_unbatched(stream, protocol, &self.limits, &self.turns, answer, stop).await
                }
                Protocol::Http2 => {
                    serve_batched(Batched::new(stream), &self.limits, &self.turns, answer, stop)
                        .await
                }
            };
        }
        let protocol = tokio::select! {
            // Cancel safe: the connection ends with it.
            protocol = self.plain_protocol(&stream) => protocol?,
            () = stop.cancelled() => return Ok(()),
        };
        serve_unbatched(stream, protocol, &self.limits, &self.turns, answer, stop).await
    }

    /// The protocol without TLS. HTTP/2 begins with `PRI`, which is no method of HTTP/1.
    async fn plain_protocol(&self, stream: &TcpStream) -> Result<Protocol, ConnectionError> {
        if !self.has_plain_http2 {
            return Ok(Protocol::Http1);
        }
        let head_max = self.limits.of_peer(self.limits.head_max);
        let mut start = [0; 1];
        let n = tokio::time::timeout(head_max, stream.peek(&mut start)).await;
        // Nothing yet: HTTP/1 has the timeout for it. `P` may also begin POST, PUT or PATCH.
        if !matches!(n, Ok(Ok(1))) || start != *b"P" {
            return Ok(Protocol::Http1);
        }
        let mut start = [0; 2];
        let deadline = tokio::time::Instant::now() + head_max;
        while stream.peek(&mut start).await? < start.len() {
            if tokio::time::Instant::now() >= deadline {
                return Err(ConnectionError::Overdue(crate::Overdue::Head));
            }
            tokio::time::sleep(ACCEPT_PAUSE).await;
        }
        Ok(if start == *b"PR" { Protocol::Http2 } else { Protocol::Http1 })
    }
}

/// Answers a peer that speaks HTTP without TLS, as Go's server.
///
/// # Errors
///
/// The peer did, or its connection failed.
#[cfg(feature = "tls")]
async fn refuse_plain_text(stream: &mut TcpStream) -> io::Result<()> {
    const ANSWER: &[u8] =
        b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
    let mut start = [0; 5];
    let n_bytes = stream.peek(&mut start).await?;
    // A record of TLS begins with another byte. A start that is shorter is left to the handshake.
    if !matches!(&start[..n_bytes], b"GET /" | b"HEAD " | b"POST " | b"PUT /" | b"OPTIO") {
        return Ok(());
    }
    stream.write_all(ANSWER).await?;
    stream.shutdown().await?;
    let mut linger = Linger::new();
    poll_fn(|cx| linger.poll(stream, cx)).await;
    Err(io::Error::new(io::ErrorKind::InvalidData, "an HTTP request without TLS"))
}
