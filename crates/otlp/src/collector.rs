//! One connection to a collector: HTTP/2 without TLS, and one gRPC call at a time.

use crate::config::Endpoint;
use crate::proto::{EXPORT, ExportTraceServiceResponse};
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use futures::future::{BoxFuture, FutureExt as _};
use h2::RecvStream;
use h2::client::SendRequest;
use http::{HeaderMap, Method, Request};
use prost::Message;
use std::io;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// Maximum size of a response in bytes: it has a number and a message.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// gRPC codes after which a batch may be sent again, by the standard of OTLP: cancelled, deadline
/// exceeded, resource exhausted, aborted, out of range, unavailable, data loss.
const TRANSIENT: [u32; 7] = [1, 4, 8, 10, 11, 14, 15];

/// Why a call has failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CollectorError {
    /// No connection.
    #[error("connect to the collector: {0}")]
    Connect(#[source] io::Error),
    /// The connection or the stream broke.
    #[error("the connection to the collector was lost: {0}")]
    Lost(String),
    /// The collector does not answer in gRPC.
    #[error("the collector's answer is malformed: {0}")]
    Malformed(String),
    /// An error of the collector.
    #[error("the collector has refused the spans: {message} (code {code})")]
    Status {
        /// gRPC code.
        code: u32,
        /// Text.
        message: String,
    },
}

impl CollectorError {
    /// Whether the same call may succeed later.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Connect(_) | Self::Lost(_) => true,
            Self::Malformed(_) => false,
            Self::Status { code, .. } => TRANSIENT.contains(code),
        }
    }
}

/// A connection. Its owner polls [`Connection::closed`] between calls.
pub(crate) struct Connection {
    requests: SendRequest<Bytes>,
    /// Runs the connection; ends with it.
    driver: BoxFuture<'static, String>,
    authority: String,
}

trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Socket for S {}

impl Connection {
    /// Connects.
    pub(crate) async fn open(endpoint: &Endpoint) -> Result<Self, CollectorError> {
        let (socket, authority): (Box<dyn Socket>, _) = match endpoint {
            Endpoint::Tcp(address) => {
                let socket = TcpStream::connect(address).await.map_err(CollectorError::Connect)?;
                socket.set_nodelay(true).map_err(CollectorError::Connect)?;
                (Box::new(socket), address.clone())
            }
            Endpoint::Unix(path) => {
                let socket = UnixStream::connect(path).await.map_err(CollectorError::Connect)?;
                (Box::new(socket), "localhost".to_owned())
            }
        };
        let (requests, connection) = h2::client::handshake(socket).await.map_err(lost)?;
        let driver = connection.map(|end| match end {
            Ok(()) => "closed".to_owned(),
            Err(error) => error.to_string(),
        });
        Ok(Self { requests, driver: driver.boxed(), authority })
    }

    /// Ends with the connection. Dropping the future leaves it open.
    pub(crate) async fn closed(&mut self) {
        (&mut self.driver).await;
    }

    /// Sends a message, and returns how many spans the collector has rejected, with its text.
    pub(crate) async fn export(
        &mut self,
        message: &impl Message,
    ) -> Result<(i64, String), CollectorError> {
        let Self { requests, driver, authority } = self;
        let call = call(requests, authority, frame(message));
        tokio::select! {
            biased;
            // Cancel safe: without a connection there is no answer.
            answer = call => answer,
            reason = driver => Err(CollectorError::Lost(reason)),
        }
    }
}

fn lost(error: h2::Error) -> CollectorError {
    CollectorError::Lost(error.to_string())
}

/// A message with the head of gRPC: not compressed, and its length.
fn frame(message: &impl Message) -> Bytes {
    let mut frame = BytesMut::with_capacity(5 + message.encoded_len());
    frame.put_u8(0);
    // A batch is far below the maximum; `encode` needs room, which grows.
    frame.put_u32(u32::try_from(message.encoded_len()).unwrap_or(u32::MAX));
    frame.extend_from_slice(&message.encode_to_vec());
    frame.freeze()
}

async fn call(
    requests: &SendRequest<Bytes>,
    authority: &str,
    frame: Bytes,
) -> Result<(i64, String), CollectorError> {
    let malformed = |error: http::Error| CollectorError::Malformed(error.to_string());
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("http://{authority}{EXPORT}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("user-agent", concat!("setpoint/", env!("CARGO_PKG_VERSION")))
        .body(())
        .map_err(malformed)?;
    let mut requests = requests.clone().ready().await.map_err(lost)?;
    let (response, mut body) = requests.send_request(request, false).map_err(lost)?;
    // h2 keeps the frame until the peer has room; there is one at a time.
    body.send_data(frame, true).map_err(lost)?;
    let response = response.await.map_err(lost)?;
    if !response.status().is_success() {
        return Err(CollectorError::Malformed(format!("HTTP status {}", response.status())));
    }
    let (head, mut body) = response.into_parts();
    // An error alone comes with the head.
    if head.headers.contains_key("grpc-status") {
        status(&head.headers)?;
    }
    let answer = read(&mut body).await?;
    if let Some(trailers) = body.trailers().await.map_err(lost)? {
        status(&trailers)?;
    }
    let mut answer = answer.freeze();
    if answer.len() < 5 {
        return Ok((0, String::new()));
    }
    answer.advance(5);
    let answer = ExportTraceServiceResponse::decode(answer)
        .map_err(|error| CollectorError::Malformed(error.to_string()))?;
    let partial = answer.partial_success.unwrap_or_default();
    Ok((partial.rejected_spans, partial.error_message))
}

async fn read(body: &mut RecvStream) -> Result<BytesMut, CollectorError> {
    let mut answer = BytesMut::new();
    while let Some(piece) = body.data().await {
        let piece = piece.map_err(lost)?;
        // Gives the peer room for the next one.
        body.flow_control().release_capacity(piece.len()).map_err(lost)?;
        if answer.len() + piece.len() > ANSWER_BYTES_MAX {
            return Err(CollectorError::Malformed(format!("more than {ANSWER_BYTES_MAX} bytes")));
        }
        answer.extend_from_slice(&piece);
    }
    Ok(answer)
}

/// The status in headers or trailers.
fn status(headers: &HeaderMap) -> Result<(), CollectorError> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let code = text("grpc-status").and_then(|code| code.parse().ok());
    match code {
        Some(0) => Ok(()),
        Some(code) => {
            let message = text("grpc-message").unwrap_or_default().to_owned();
            Err(CollectorError::Status { code, message })
        }
        None => Err(CollectorError::Malformed("no status".to_owned())),
    }
}
