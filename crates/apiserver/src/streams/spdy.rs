//! SPDY/3.1 as Kubernetes' clients speak it: streams in both directions over one connection.
//!
//! The client opens streams, each with headers that say what it is. This server is a client of
//! kubelets ([`run_client`]). Flow control is not part of it:
//! the clients' library has none either. A stream that is not read holds up the connection.

mod frame;
mod headers;

use crate::body::Body;
use crate::websocket::{has_token, tokens};
use frame::{Frame, read_frame};
use headers::Inflater;
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode, header};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use setpoint_object::error::chain;
use setpoint_serve::Conversation;
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;
use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf,
};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The protocol in `Upgrade`.
const PROTOCOL: &str = "SPDY/3.1";
/// Where clients offer what they speak inside, and the server answers.
const INNER_PROTOCOL: &str = "x-stream-protocol-version";
/// Maximum open streams of a connection. A forward has two for each connection.
const STREAMS_MAX: usize = 512;
/// Bytes that wait in each direction of a stream.
const BUFFER_BYTES: usize = 64 << 10;
/// Maximum bytes in a frame that is sent.
const CHUNK_BYTES: usize = 16 << 10;
/// Frames that wait to be sent.
const FRAMES_WAITING: usize = 16;
/// The time for the last frames after the server's end.
const END_TIME_MAX: Duration = Duration::from_secs(5);

/// Streams that the client opens.
pub(super) type Streams = mpsc::Receiver<Stream>;

/// One stream.
#[derive(Debug)]
pub(super) struct Stream {
    headers: BTreeMap<String, String>,
    /// What the client sends and receives.
    pub(super) io: DuplexStream,
}

impl Stream {
    /// A header, empty if there is none.
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// A request to upgrade a connection to SPDY.
pub(super) struct Upgrade {
    offered: Vec<String>,
    connection: OnUpgrade,
}

impl Upgrade {
    /// Reads the request; `None` if it asks for no upgrade, or its connection cannot be upgraded.
    pub(super) fn of(parts: &Parts) -> Option<Self> {
        let headers = &parts.headers;
        let asked = has_token(headers, header::CONNECTION, "upgrade")
            && has_token(headers, header::UPGRADE, PROTOCOL);
        let offered = tokens(headers, http::HeaderName::from_static(INNER_PROTOCOL));
        Some(Self {
            offered: offered.map(str::to_owned).collect(),
            connection: parts.extensions.get::<OnUpgrade>().filter(|_| asked)?.clone(),
        })
    }

    /// The first known protocol that the client offers.
    pub(super) fn offered(&self, known: &[&'static str]) -> Option<&'static str> {
        known.iter().copied().find(|known| self.offered.iter().any(|offered| offered == known))
    }

    /// Switches protocols.
    pub(super) fn switch<F, Fut>(self, protocol: &'static str, run: F) -> Response<Body>
    where
        F: FnOnce(TokioIo<Upgraded>) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send,
    {
        let connection = self.connection;
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static(PROTOCOL));
        headers.insert(INNER_PROTOCOL, HeaderValue::from_static(protocol));
        response.extensions_mut().insert(Conversation::new(async move {
            match connection.await {
                Ok(upgraded) => run(TokioIo::new(upgraded)).await,
                Err(error) => tracing::debug!(error = chain(&error), "upgrade to SPDY"),
            }
        }));
        response
    }
}

/// Speaks SPDY until `serve`, which gets the client's streams, or the client ends.
///
/// # Errors
///
/// The connection breaks, or the client sends what is no SPDY.
pub(super) async fn run<I, Fut>(io: I, serve: impl FnOnce(Streams) -> Fut) -> io::Result<()>
where
    I: AsyncRead + AsyncWrite + Send + 'static,
    Fut: Future<Output = ()>,
{
    converse(io, &[], |streams, _| serve(streams)).await
}

/// Speaks SPDY as a client: opens a stream of each kind, and runs `serve` with them until it or the
/// server ends.
///
/// # Errors
///
/// As [`run`].
pub(super) async fn run_client<I, Fut>(
    io: I,
    kinds: &[&str],
    serve: impl FnOnce(Vec<DuplexStream>) -> Fut,
) -> io::Result<()>
where
    I: AsyncRead + AsyncWrite + Send + 'static,
    Fut: Future<Output = ()>,
{
    converse(io, kinds, |_, opened| serve(opened)).await
}

async fn converse<I, Fut>(
    io: I,
    kinds: &[&str],
    serve: impl FnOnce(Streams, Vec<DuplexStream>) -> Fut,
) -> io::Result<()>
where
    I: AsyncRead + AsyncWrite + Send + 'static,
    Fut: Future<Output = ()>,
{
    let (read, write) = tokio::io::split(io);
    let (frames, waiting) = mpsc::channel(FRAMES_WAITING);
    let (to_serve, streams) = mpsc::channel(FRAMES_WAITING);
    let (mut writer, mut pumps) = (JoinSet::new(), JoinSet::new());
    writer.spawn(write_frames(write, waiting));
    {
        let mut session = Session {
            frames: frames.clone(),
            to_serve,
            pumps: &mut pumps,
            open: BTreeMap::new(),
            inflater: Inflater::new(),
            has_replied: false,
        };
        let mut opened = Vec::new();
        // A client's streams have odd numbers.
        for (id, kind) in (1..).step_by(2).zip(kinds) {
            session.send(frame::open(id, "streamtype", kind, id == 1)).await?;
            opened.push(session.add(id, false).await);
        }
        tokio::select! {
            // Cancel safe: the connection ends, and with it the tasks.
            ended = session.receive(read) => return ended,
            () = serve(streams, opened) => {}
        }
    }
    // What was written is sent before the connection ends.
    drop(frames);
    let finish = async {
        while pumps.join_next().await.is_some() {}
        while writer.join_next().await.is_some() {}
    };
    _ = tokio::time::timeout(END_TIME_MAX, finish).await;
    Ok(())
}

async fn write_frames(mut write: impl AsyncWrite + Unpin, mut frames: mpsc::Receiver<Vec<u8>>) {
    while let Some(frame) = frames.recv().await {
        if write.write_all(&frame).await.is_err() || write.flush().await.is_err() {
            return;
        }
    }
    // The client reads the end, or has left.
    _ = write.shutdown().await;
}

/// The receiving half of a connection.
struct Session<'a> {
    frames: mpsc::Sender<Vec<u8>>,
    to_serve: mpsc::Sender<Stream>,
    pumps: &'a mut JoinSet<()>,
    open: BTreeMap<u32, Open>,
    inflater: Inflater,
    has_replied: bool,
}

/// An open stream.
struct Open {
    /// Where the client's data goes; `None` after its end.
    input: Option<WriteHalf<DuplexStream>>,
    /// Cancelled if the client resets it.
    reset: CancellationToken,
    /// Dropped by its pump.
    is_sending: std::sync::Weak<()>,
}

impl Session<'_> {
    async fn receive(&mut self, mut read: impl AsyncRead + Unpin) -> io::Result<()> {
        while let Some(frame) = read_frame(&mut read).await? {
            while self.pumps.try_join_next().is_some() {}
            match frame {
                Frame::Open { id, is_last, headers } => {
                    let headers = self.inflater.read(&headers)?;
                    self.open(id, headers, is_last).await?;
                }
                Frame::Data { id, bytes, is_last } => {
                    let Some(open) = self.open.get_mut(&id) else { continue };
                    if let Some(input) = &mut open.input
                        && input.write_all(&bytes).await.is_err()
                    {
                        // Nobody reads it.
                        open.input = None;
                    }
                    if is_last && let Some(mut input) = open.input.take() {
                        _ = input.shutdown().await;
                    }
                }
                Frame::Headers { headers } => drop(self.inflater.read(&headers)?),
                Frame::Reset { id } => {
                    if let Some(open) = self.open.remove(&id) {
                        open.reset.cancel();
                    }
                }
                Frame::Ping(frame) => self.send(frame).await?,
                Frame::GoAway => return Ok(()),
                Frame::Other => {}
            }
        }
        Ok(())
    }

    async fn open(
        &mut self,
        id: u32,
        headers: BTreeMap<String, String>,
        is_last: bool,
    ) -> io::Result<()> {
        // Streams whose both directions have ended.
        self.open.retain(|_, open| open.input.is_some() || open.is_sending.strong_count() > 0);
        if self.open.len() >= STREAMS_MAX || self.open.contains_key(&id) {
            return self.send(frame::reset(id)).await;
        }
        let reply = frame::reply(id, std::mem::replace(&mut self.has_replied, true));
        self.send(reply).await?;
        let io = self.add(id, is_last).await;
        let gone = |_| io::Error::other("the streams are not served any more");
        self.to_serve.send(Stream { headers, io }).await.map_err(gone)
    }

    /// Adds an open stream. `is_last`: the other side sends nothing.
    async fn add(&mut self, id: u32, is_last: bool) -> DuplexStream {
        let (io, own) = tokio::io::duplex(BUFFER_BYTES);
        let (output, mut input) = tokio::io::split(own);
        if is_last {
            _ = input.shutdown().await;
        }
        let (reset, alive) = (CancellationToken::new(), std::sync::Arc::new(()));
        let is_sending = std::sync::Arc::downgrade(&alive);
        let input = (!is_last).then_some(input);
        self.open.insert(id, Open { input, reset: reset.clone(), is_sending });
        let frames = self.frames.clone();
        self.pumps.spawn(async move {
            let _alive = alive;
            tokio::select! {
                // Cancel safe: nothing more is to be sent.
                () = reset.cancelled() => {}
                () = pump(id, output, frames) => {}
            }
        });
        io
    }

    async fn send(&self, frame: Vec<u8>) -> io::Result<()> {
        let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        self.frames.send(frame).await.map_err(gone)
    }
}

/// Sends what is written to a stream, and its end.
async fn pump(id: u32, mut from: ReadHalf<DuplexStream>, frames: mpsc::Sender<Vec<u8>>) {
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let n = from.read(&mut buffer).await.unwrap_or(0);
        let sent = frames.send(frame::data(id, &buffer[..n], n == 0)).await;
        if n == 0 || sent.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
