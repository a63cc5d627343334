//! One connection: handshake, protocol, requests, polite end.

use super::leftover::{self, Leftover, Lent};
use super::patience::Patient;
use crate::BoxError;
use crate::identity::Identity;
use crate::server::ApiServer;
use crate::websocket::Conversation;
use bytes::Bytes;
use http::Request;
use hyper::body::Incoming;
use hyper::rt::{Executor as _, Read, Write};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// How long a TLS handshake may take.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// How long the head of a request may take, and how long an HTTP/1 connection may idle after one.
const HEAD_MAX: Duration = Duration::from_secs(60);
/// Bytes of a request's head: 1 MiB, as Go's server.
const HEAD_BYTES_MAX: usize = 1024 * 1024;
/// Header lines of a request.
const HEADERS_MAX: usize = 200;
/// Streams of one HTTP/2 connection at once; 250 is what Go's server and client expect.
const STREAMS_MAX: u32 = 250;
/// How often an idle HTTP/2 connection is asked whether it lives.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// How long it may take to answer.
const PING_MAX: Duration = Duration::from_secs(15);

/// How a listener turns a socket into a peer.
#[derive(Debug, Clone)]
pub(super) enum Acceptor {
    /// Without TLS: everyone is this identity.
    Plain(Identity),
    /// With TLS: a peer with this certificate is the administrator, others bring a token.
    Tls {
        /// TLS.
        config: Arc<rustls::ServerConfig>,
        /// The administrator's certificate.
        admin: CertificateDer<'static>,
    },
}

/// Serves one connection until its peer closes it or `stop` has let it finish.
pub(super) async fn serve(
    server: ApiServer,
    acceptor: Acceptor,
    stream: TcpStream,
    stop: CancellationToken,
) -> Result<(), BoxError> {
    // Watch events are small and must not wait for each other.
    stream.set_nodelay(true)?;
    match acceptor {
        Acceptor::Plain(identity) => {
            // HTTP/2 over plain text would need a guess that can wait for ever; kubectl and curl speak HTTP/1 there.
            requests(server, TokioIo::new(Patient::new(stream)), Some(identity), false, stop).await
        }
        Acceptor::Tls { config, admin } => {
            let handshake = TlsAcceptor::from(config).accept(stream);
            let stream = tokio::select! {
                // Cancel safe: the connection ends with it.
                stream = tokio::time::timeout(HANDSHAKE_MAX, handshake) => stream??,
                () = stop.cancelled() => return Ok(()),
            };
            let session = stream.get_ref().1;
            let http2 = session.alpn_protocol() == Some(b"h2");
            let identity = session
                .peer_certificates()
                .and_then(|chain| chain.first())
                .filter(|certificate| **certificate == admin)
                .map(|_| Identity::admin());
            requests(server, TokioIo::new(Patient::new(stream)), identity, http2, stop).await
        }
    }
}

async fn requests<I>(
    server: ApiServer,
    io: I,
    identity: Option<Identity>,
    http2: bool,
    stop: CancellationToken,
) -> Result<(), BoxError>
where
    I: Read + Write + Unpin + Send + 'static,
{
    let streams = Streams::default();
    let mut builder = auto::Builder::new(streams.clone());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_MAX)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX as u32)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_MAX);
    let builder = if http2 { builder.http2_only() } else { builder.http1_only() };
    let conversations = streams.clone();
    let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
        // What a peer may not bring itself: this connection says who it is.
        if let Some(identity) = &identity {
            request.extensions_mut().insert(identity.clone());
        }
        let (server, conversations) = (server.clone(), conversations.clone());
        async move {
            let leftover = Leftover::default();
            let request = request.map(|body| leftover.lend(body));
            let mut response = server.serve::<Lent>(request).await;
            if let Some(unread) = leftover.take().filter(|_| !http2) {
                conversations.execute(leftover::drain(unread));
            }
            if let Some(conversation) = Conversation::take(&mut response) {
                conversations.execute(conversation);
            }
            Ok::<_, std::convert::Infallible>(response)
        }
    });
    let mut connection = pin!(builder.serve_connection_with_upgrades(io, service));
    tokio::select! {
        // Not cancelled by the other arm: it goes on below.
        ended = connection.as_mut() => ended?,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await?;
        }
    }
    streams.finish().await;
    Ok(())
}

/// The tasks of one connection: streams of HTTP/2, the conversation after an upgrade.
#[derive(Debug, Clone, Default)]
struct Streams(Arc<Mutex<JoinSet<()>>>);

impl Streams {
    /// Waits for what still runs. Dropping it drops the tasks.
    async fn finish(&self) {
        let mut left = std::mem::take(&mut *self.0.lock());
        while left.join_next().await.is_some() {}
    }
}

impl<F> hyper::rt::Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let mut streams = self.0.lock();
        while streams.try_join_next().is_some() {}
        streams.spawn(stream);
    }
}

/// Bodies of responses are `Bytes`.
const _: fn() = || {
    fn is_body<B: http_body::Body<Data = Bytes>>() {}
    is_body::<crate::Body>();
};
