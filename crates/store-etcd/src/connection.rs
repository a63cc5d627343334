//! A connection to one member: TLS, HTTP/2, and pings that detect a dead peer.

use crate::{endpoint::Endpoint, options::EtcdOptions, tasks::Tasks, tls};
use bytes::Bytes;
use h2::{Ping, PingPong, client::SendRequest};
use http::HeaderValue;
use parking_lot::Mutex;
use prost::Message;
use setpoint_dial::Wire;
use setpoint_grpc::{Call, GrpcError, request};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::time::{sleep, timeout};

/// Flow-control window of one stream: one response of etcd's usual size, so that a slow reader
/// buffers little.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
/// Flow-control window of all streams of a connection.
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;

/// Maximum size of a response message. A page of a range may be large, but a broken server's length
/// must not be trusted.
const ANSWER_BYTES_MAX: usize = 1 << 30;

/// A handle of a connection, which closes when the last handle and the last stream are dropped.
#[derive(Clone)]
pub(crate) struct Connection {
    /// Index of the endpoint.
    pub(crate) endpoint: usize,
    send: SendRequest<Bytes>,
    target: Arc<Endpoint>,
    health: Arc<Health>,
}

#[derive(Default)]
struct Health {
    is_down: AtomicBool,
    why: Mutex<String>,
}

/// A failure before anything of a call was sent.
#[derive(Debug, Clone)]
pub(crate) struct NotSent(pub(crate) String);

impl Connection {
    /// Connects within [`EtcdOptions::connect_timeout`]. `keep_alive`: whether to ping; etcd
    /// tolerates pings only while a stream is open.
    pub(crate) async fn dial(
        endpoint: usize,
        target: &Arc<Endpoint>,
        options: &EtcdOptions,
        tasks: &Tasks,
        keep_alive: bool,
    ) -> Result<Self, NotSent> {
        let connect = Self::connect(endpoint, target, options, tasks, keep_alive);
        let dialled = timeout(options.connect_timeout, connect);
        let failed = |why: String| NotSent(format!("{}: {why}", target.text));
        match dialled.await {
            Ok(connection) => connection.map_err(failed),
            Err(_) => Err(failed(format!("not connected within {:?}", options.connect_timeout))),
        }
    }

    async fn connect(
        endpoint: usize,
        target: &Arc<Endpoint>,
        options: &EtcdOptions,
        tasks: &Tasks,
        pings: bool,
    ) -> Result<Self, String> {
        let socket = options.dialer.dial(&target.host, target.port);
        let socket = socket.await.map_err(|error| error.to_string())?;
        let wire: Box<dyn Wire> = match (&options.tls, target.is_tls) {
            (Some(tls), true) => Box::new(tls::handshake(tls, &target.host, socket).await?),
            _ => Box::new(socket),
        };
        let mut http2 = h2::client::Builder::new();
        http2.initial_window_size(STREAM_WINDOW_BYTES);
        http2.initial_connection_window_size(CONNECTION_WINDOW_BYTES).enable_push(false);
        let (send, mut driver) = http2.handshake(wire).await.map_err(|error| error.to_string())?;
        let health = Arc::new(Health::default());
        let ping_pong = if pings { driver.ping_pong() } else { None };
        let (period, patience) = (options.keep_alive_period, options.keep_alive_timeout);
        let shared = health.clone();
        let drive = async move {
            let why = tokio::select! {
                ended = driver => match ended {
                    Ok(()) => "it was closed".to_owned(),
                    Err(error) => error.to_string(),
                },
                why = keep_alive(ping_pong, period, patience) => why,
            };
            *shared.why.lock() = why;
            shared.is_down.store(true, Ordering::Release);
        };
        tasks.spawn(drive).ok_or("the store is closed")?;
        Ok(Self { endpoint, send, target: target.clone(), health })
    }

    /// Whether the connection is up, as far as is known.
    pub(crate) fn is_up(&self) -> bool {
        !self.health.is_down.load(Ordering::Acquire)
    }

    /// The member's address, as configured.
    pub(crate) fn address(&self) -> &str {
        &self.target.text
    }

    /// Whether two handles share one connection.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.health, &other.health)
    }

    /// Opens a stream. If this fails, nothing was sent. On success, the headers are sent.
    pub(crate) async fn open(
        &self,
        path: &'static str,
        token: Option<&HeaderValue>,
    ) -> Result<Call, NotSent> {
        let scheme = if self.target.is_tls { "https" } else { "http" };
        let mut request = request(scheme, &self.target.authority, path)
            // Makes a member without a leader fail at once.
            .header("hasleader", "true");
        if let Some(token) = token {
            request = request.header("token", token);
        }
        let opened = Call::open(self.send.clone(), request, ANSWER_BYTES_MAX).await;
        opened.map_err(|error| NotSent(format!("{}: {error}", self.target.text)))
    }

    /// One request, one response. `sent` becomes true before anything can reach the member.
    /// `silence` is the maximum time without any bytes from it.
    pub(crate) async fn call<A: Message + Default>(
        &self,
        path: &'static str,
        token: Option<&HeaderValue>,
        question: Bytes,
        sent: &AtomicBool,
        silence: Duration,
    ) -> Result<A, CallError> {
        let opened = timeout(silence, self.open(path, token)).await;
        let call = match opened {
            Ok(opened) => opened.map_err(|NotSent(why)| CallError::NotSent(why))?,
            Err(_) => return Err(CallError::NotSent("the connection accepts no request".into())),
        };
        sent.store(true, Ordering::Release);
        call.unary(question, silence).await.map_err(CallError::Grpc)
    }
}

/// Why a call failed.
#[derive(Debug, Clone)]
pub(crate) enum CallError {
    /// Nothing reached the member.
    NotSent(String),
    /// Sent, but no response came in time, the connection broke or the member returned an error.
    Grpc(GrpcError),
}

/// Pings until one is not answered.
async fn keep_alive(ping_pong: Option<PingPong>, period: Duration, patience: Duration) -> String {
    let Some(mut ping_pong) = ping_pong else { return std::future::pending().await };
    loop {
        sleep(period).await;
        match timeout(patience, ping_pong.ping(Ping::opaque())).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return error.to_string(),
            Err(_) => return format!("no answer to a ping within {patience:?}"),
        }
    }
}
