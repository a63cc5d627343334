//! A tunnel of konnectivity: one connection behind a proxy over one gRPC stream.

use crate::observer::{DialFailure, DialObserver, Segment, TunnelStatus};
use crate::packets::{CloseRequest, Data, DialRequest, DialResponse, PROXY, Packet, Payload};
use bytes::{BufMut as _, BytesMut};
use parking_lot::Mutex;
use setpoint_dial::{DialError, Socket};
use setpoint_grpc::{Answers, Call, GrpcError, Requests, RpcError, frame, request};
use std::io;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadBuf, ReadHalf,
    WriteHalf,
};
use tokio::net::UnixStream;
use tokio::task::JoinSet;

/// Maximum bytes of a packet that is received: 4 MiB, as gRPC's default in Go. Agents send some
/// kilobytes.
pub const PACKET_BYTES_MAX: usize = 4 << 20;
/// Bytes that a tunnel holds in each direction, beside one packet: 64 KiB.
pub const WAITING_BYTES_MAX: usize = 64 << 10;
/// How long the answer to a close may take: 10 s, as in konnectivity's client.
pub const CLOSE_MAX: Duration = Duration::from_secs(10);

/// Bytes of one packet that is sent: 32 KiB, those of a copy in Go.
const SENT_BYTES_MAX: usize = 32 << 10;

/// Asks the proxy behind a socket for a connection to `target`, `host:port`. `random` tells this
/// dial apart from all others of the proxy's clients. `observer` is told of the tunnel.
///
/// # Errors
///
/// The proxy refuses, or breaks the stream off.
pub(crate) async fn open(
    socket: UnixStream,
    target: &str,
    random: i64,
    observer: Arc<dyn DialObserver>,
) -> Result<Socket, DialError> {
    let mut http2 = h2::client::Builder::new();
    let http2 = http2.enable_push(false).handshake(socket).await;
    let (connection, driver) = http2.map_err(|error| broken(&error))?;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        // Its end ends the stream.
        let _ = driver.await;
    });
    let call = Call::open(connection, request("http", "localhost", PROXY), PACKET_BYTES_MAX).await;
    let (requests, answers) = call.map_err(|error| broken(&error))?.split();
    let mut stream = Stream {
        requests: Sender { requests, observer: observer.clone() },
        answers: Receiver { answers, observer: observer.clone() },
    };
    let life = Life::begin(observer);
    let connect_id = dial(&mut stream, target, random, &life).await?;
    let (near, far) = tokio::io::duplex(WAITING_BYTES_MAX);
    let is_broken = Arc::new(AtomicBool::new(false));
    let pump = Pump { connect_id, stream, far, life };
    let told = is_broken.clone();
    tasks.spawn(async move { pump.run(&told).await });
    Ok(Socket::Other(Box::new(Tunnel { near, is_broken, _tasks: tasks })))
}

fn broken(why: &dyn std::fmt::Display) -> DialError {
    DialError(format!("tunnel closed: {why}"))
}

/// Asks for a connection. Returns its number.
async fn dial(
    stream: &mut Stream,
    target: &str,
    random: i64,
    life: &Life,
) -> Result<i64, DialError> {
    life.is(TunnelStatus::Dialing);
    let mut failure = Failure { observer: &*life.observer, why: Some(DialFailure::Context) };
    let asked = DialRequest { protocol: "tcp".to_owned(), address: target.to_owned(), random };
    if let Err(error) = stream.requests.send(Payload::DialRequest(asked)) {
        return Err(failure.is(DialFailure::Unknown, broken(&error)));
    }
    loop {
        let closed = |error| (DialFailure::TunnelClosed, error);
        let answer = match stream.answers.next().await {
            Ok(answer) => answer.ok_or_else(|| closed(DialError("tunnel closed".to_owned()))),
            Err(error) => Err(closed(broken(&error))),
        };
        let refused = match answer.map(|packet| packet.payload) {
            Ok(Some(Payload::DialResponse(DialResponse { error, connect_id, random: of }))) => {
                match (of == random, error.is_empty()) {
                    (true, true) => {
                        failure.why = None;
                        life.is(TunnelStatus::Ok);
                        return Ok(connect_id);
                    }
                    (true, false) => (DialFailure::Endpoint, DialError(error)),
                    (false, _) => closed(DialError("tunnel closed".to_owned())),
                }
            }
            Ok(Some(Payload::CloseDial(_))) => {
                (DialFailure::DialClosed, DialError("dial closed".to_owned()))
            }
            // Of no meaning before there is a connection.
            Ok(_) => continue,
            Err(refused) => refused,
        };
        return Err(failure.is(refused.0, refused.1));
    }
}

/// What a dial has failed of, told at its end.
struct Failure<'o> {
    observer: &'o dyn DialObserver,
    why: Option<DialFailure>,
}

impl Failure<'_> {
    fn is(&mut self, why: DialFailure, error: DialError) -> DialError {
        self.why = Some(why);
        error
    }
}

impl Drop for Failure<'_> {
    fn drop(&mut self) {
        if let Some(why) = self.why {
            self.observer.tunnel_failed(why);
        }
    }
}

/// Where a tunnel is in its life, for its observer.
struct Life {
    observer: Arc<dyn DialObserver>,
    status: Mutex<TunnelStatus>,
}

impl Life {
    fn begin(observer: Arc<dyn DialObserver>) -> Self {
        observer.tunnel(None, Some(TunnelStatus::Created));
        Self { observer, status: Mutex::new(TunnelStatus::Created) }
    }

    fn is(&self, status: TunnelStatus) {
        let before = mem::replace(&mut *self.status.lock(), status);
        self.observer.tunnel(Some(before), Some(status));
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.observer.tunnel(Some(*self.status.get_mut()), None);
    }
}

/// The end of a tunnel.
struct Tunnel {
    near: DuplexStream,
    /// Whether it has ended without a close.
    is_broken: Arc<AtomicBool>,
    /// The connection to the proxy, and the pump.
    _tasks: JoinSet<()>,
}

impl AsyncRead for Tunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let n_before = buf.filled().len();
        ready!(Pin::new(&mut self.near).poll_read(cx, buf))?;
        let is_end = buf.filled().len() == n_before && buf.remaining() > 0;
        if is_end && self.is_broken.load(Ordering::Acquire) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.near).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.near).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.near).poll_shutdown(cx)
    }
}

/// Both directions of a stream, whose packets an observer is told of.
struct Stream {
    requests: Sender,
    answers: Receiver,
}

/// Packets to the proxy.
struct Sender {
    requests: Requests,
    observer: Arc<dyn DialObserver>,
}

impl Sender {
    fn send(&mut self, payload: Payload) -> Result<(), GrpcError> {
        let packet = Packet::from(payload);
        self.observer.packet(Segment::FromClient, packet.kind());
        self.requests.send(frame(&packet), false)
    }
}

/// Packets from the proxy.
struct Receiver {
    answers: Answers,
    observer: Arc<dyn DialObserver>,
}

impl Receiver {
    async fn next(&mut self) -> Result<Option<Packet>, GrpcError> {
        let next = self.answers.next::<Packet>().await;
        match &next {
            Ok(Some(packet)) => self.observer.packet(Segment::ToClient, packet.kind()),
            Ok(None) => {}
            Err(error) => {
                let code = RpcError::from(error.clone()).code;
                self.observer.stream_failed(Segment::ToClient, code.name().unwrap_or("Unknown"));
            }
        }
        next
    }
}

/// Carries bytes between the end and the stream.
struct Pump {
    connect_id: i64,
    stream: Stream,
    far: DuplexStream,
    life: Life,
}

impl Pump {
    async fn run(self, is_broken: &AtomicBool) {
        let Self { connect_id, stream: Stream { mut requests, answers }, far, life } = self;
        let (reader, mut writer) = tokio::io::split(far);
        let sent = async {
            send(&mut requests, reader, connect_id).await?;
            life.is(TunnelStatus::Closing);
            tokio::time::sleep(CLOSE_MAX).await;
            Ok(())
        };
        let ended: Result<(), GrpcError> = tokio::select! {
            ended = receive(answers, &mut writer) => ended,
            // Only without an answer to the close, or with a broken stream.
            ended = sent => ended,
        };
        // Before the end of the bytes can be seen.
        is_broken.store(ended.is_err(), Ordering::Release);
    }
}

/// Sends what is written until it is shut down, and then a close.
async fn send(
    sender: &mut Sender,
    mut reader: ReadHalf<DuplexStream>,
    connect_id: i64,
) -> Result<(), GrpcError> {
    let mut buffer = BytesMut::new();
    loop {
        sender.requests.room().await?;
        buffer.reserve(SENT_BYTES_MAX);
        // A duplex stream has no errors to read.
        let n = reader.read_buf(&mut (&mut buffer).limit(SENT_BYTES_MAX)).await.unwrap_or(0);
        let payload = match n {
            0 => Payload::CloseRequest(CloseRequest { connect_id }),
            _ => {
                let data = buffer.split().freeze();
                Payload::Data(Data { connect_id, data, error: String::new() })
            }
        };
        sender.send(payload)?;
        if n == 0 {
            return Ok(());
        }
    }
}

/// Receives bytes until the connection is closed.
async fn receive(
    mut receiver: Receiver,
    writer: &mut WriteHalf<DuplexStream>,
) -> Result<(), GrpcError> {
    while let Some(packet) = receiver.next().await? {
        match packet.payload {
            Some(Payload::Data(Data { data, .. })) => match writer.write_all(&data).await {
                Ok(()) => {}
                // Nobody reads any more.
                Err(_) => return Ok(()),
            },
            Some(Payload::CloseResponse(_)) => return Ok(()),
            _ => {}
        }
    }
    Err(GrpcError::Lost("the proxy has ended the stream".to_owned()))
}

#[cfg(test)]
mod tests;
