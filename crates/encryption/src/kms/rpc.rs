//! Calls of a plugin: gRPC over one HTTP/2 connection to a Unix socket.
//!
//! # Theory
//!
//! A call that finds no connection makes one, and tries again with pauses until its timeout, as a
//! Kubernetes API server (`WaitForReady`): a plugin may start later than the server. A call that
//! was sent is not repeated. The connection is a task of the client, and ends with it.

use bytes::{BufMut as _, Bytes, BytesMut};
use h2::RecvStream;
use h2::client::SendRequest;
use http::{HeaderMap, Method, Request, StatusCode};
use parking_lot::Mutex;
use prost::Message;
use std::fmt;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Maximum size of a response in bytes: 4 MiB, the default of gRPC in Go.
pub(crate) const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Maximum size of the headers of a response in bytes.
const HEADERS_BYTES_MAX: u32 = 16 << 10;
/// Maximum length of a plugin's text that is repeated in errors, in bytes.
const TEXT_BYTES_MAX: usize = 1024;
/// The pauses between attempts to connect: doubled from the first to the last.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];

/// A gRPC status code that is not `OK`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code(pub u32);

impl Code {
    pub(crate) const UNKNOWN: Self = Self(2);
    pub(crate) const DEADLINE_EXCEEDED: Self = Self(4);
    pub(crate) const RESOURCE_EXHAUSTED: Self = Self(8);
    pub(crate) const INTERNAL: Self = Self(13);
    pub(crate) const UNAVAILABLE: Self = Self(14);

    /// The name in Go, which is also the label of metrics; `None` for an unknown code.
    pub fn name(self) -> Option<&'static str> {
        const NAMES: [&str; 17] = [
            "OK",
            "Canceled",
            "Unknown",
            "InvalidArgument",
            "DeadlineExceeded",
            "NotFound",
            "AlreadyExists",
            "PermissionDenied",
            "ResourceExhausted",
            "FailedPrecondition",
            "Aborted",
            "OutOfRange",
            "Unimplemented",
            "Internal",
            "Unavailable",
            "DataLoss",
            "Unauthenticated",
        ];
        NAMES.get(usize::try_from(self.0).ok()?).copied()
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "Code({})", self.0),
        }
    }
}

/// A failed call, in the words of gRPC in Go.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rpc error: code = {code} desc = {message}")]
pub struct RpcError {
    /// The status.
    pub code: Code,
    /// The plugin's text, or why there is no answer. At most a kibibyte.
    pub message: String,
}

impl RpcError {
    fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// No answer within the timeout.
    pub(crate) fn deadline() -> Self {
        Self::new(Code::DEADLINE_EXCEEDED, "context deadline exceeded")
    }

    fn lost(error: h2::Error) -> Self {
        let message = format!("error reading from server: {error}");
        Self::new(Code::UNAVAILABLE, message)
    }

    fn malformed(message: impl Into<String>) -> Self {
        Self::new(Code::INTERNAL, message)
    }

    /// Whether the plugin was not reached, or has not answered in time.
    pub(crate) fn is_unanswered(&self) -> bool {
        matches!(self.code, Code::DEADLINE_EXCEEDED | Code::UNAVAILABLE)
    }
}

/// The part of a plugin's text that is shown.
pub(crate) fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

/// A client of one plugin. Connects when it is first called.
pub(crate) struct Client {
    /// The socket.
    path: PathBuf,
    /// Maximum time of a call, with connecting.
    timeout: Duration,
    link: Mutex<Link>,
}

/// The connection.
#[derive(Default)]
struct Link {
    requests: Option<SendRequest<Bytes>>,
    /// Incremented with each connection.
    generation: u64,
    /// Drives it.
    task: JoinSet<()>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Client {
    /// A client of the plugin at this socket. A path that begins with `@` is the name of an
    /// abstract socket.
    pub(crate) fn new(path: &str, timeout: Duration) -> Self {
        let path = match path.strip_prefix('@') {
            Some(name) => format!("\0{name}").into(),
            None => path.into(),
        };
        Self { path, timeout, link: Mutex::default() }
    }

    /// Sends a message and returns the answer. Dropping the future cancels the call.
    pub(crate) async fn call<A: Message + Default>(
        &self,
        method: &'static str,
        question: &impl Message,
    ) -> Result<A, RpcError> {
        let question = frame(question);
        let mut cause = None;
        match timeout(self.timeout, self.exchange(method, question, &mut cause)).await {
            Ok(answer) => A::decode(answer?).map_err(|error| {
                RpcError::malformed(format!(
                    "grpc: failed to unmarshal the received message: {error}"
                ))
            }),
            Err(_) => {
                let mut error = RpcError::deadline();
                if let Some(cause) = cause {
                    error.message =
                        format!("latest balancer error: connection error: desc = {cause:?}");
                }
                Err(error)
            }
        }
    }

    /// Sends a frame and returns the message of the answer. `cause` is why there is no connection.
    async fn exchange(
        &self,
        method: &'static str,
        question: Bytes,
        cause: &mut Option<String>,
    ) -> Result<Bytes, RpcError> {
        let [mut pause, longest] = PAUSES;
        loop {
            match self.open(method).await {
                Ok((response, mut body)) => {
                    *cause = None;
                    body.send_data(question, true).map_err(RpcError::lost)?;
                    return read(response.await.map_err(RpcError::lost)?).await;
                }
                Err(error) => *cause = Some(error),
            }
            tokio::time::sleep(pause).await;
            pause = longest.min(pause * 2);
        }
    }

    /// Opens a stream. If this fails, nothing was sent.
    async fn open(
        &self,
        method: &'static str,
    ) -> Result<(h2::client::ResponseFuture, h2::SendStream<Bytes>), String> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("http://localhost{method}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("user-agent", concat!("setpoint/", env!("CARGO_PKG_VERSION")))
            .body(())
            .map_err(|error| error.to_string())?;
        let (requests, generation) = self.connection().await?;
        let opened = match requests.ready().await {
            Ok(mut requests) => requests.send_request(request, false),
            Err(error) => Err(error),
        };
        opened.map_err(|error| {
            self.forget(generation);
            error.to_string()
        })
    }

    /// The connection, or a new one.
    async fn connection(&self) -> Result<(SendRequest<Bytes>, u64), String> {
        let before = {
            let link = self.link.lock();
            if let Some(requests) = &link.requests {
                return Ok((requests.clone(), link.generation));
            }
            link.generation
        };
        let socket = UnixStream::connect(&self.path);
        let path = self.path.display();
        let socket = socket.await.map_err(|error| {
            let text = error.to_string();
            let why = match error.kind() {
                ErrorKind::NotFound => "no such file or directory",
                ErrorKind::ConnectionRefused => "connection refused",
                ErrorKind::PermissionDenied => "permission denied",
                _ => &text,
            };
            format!("transport: Error while dialing: dial unix {path}: connect: {why}")
        })?;
        let mut http2 = h2::client::Builder::new();
        http2.max_header_list_size(HEADERS_BYTES_MAX).enable_push(false);
        let (requests, connection) =
            http2.handshake(socket).await.map_err(|error| error.to_string())?;
        let mut link = self.link.lock();
        // Of two callers that connect at the same time, the first one wins.
        if let Some(requests) = link.requests.as_ref().filter(|_| link.generation != before) {
            return Ok((requests.clone(), link.generation));
        }
        link.task.abort_all();
        while link.task.try_join_next().is_some() {}
        link.task.spawn(async move {
            // Its end is seen by the next call.
            let _ = connection.await;
        });
        link.generation += 1;
        link.requests = Some(requests.clone());
        Ok((requests, link.generation))
    }

    /// Makes the next call connect, unless somebody has done so already.
    fn forget(&self, generation: u64) {
        let mut link = self.link.lock();
        if link.generation == generation {
            link.requests = None;
        }
    }
}

/// A message with the head of gRPC: not compressed, and its length.
pub(crate) fn frame(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(5 + length);
    frame.put_u8(0);
    // The requests have some kilobytes.
    frame.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    frame.extend_from_slice(&message.encode_to_vec());
    frame.freeze()
}

/// Reads the message of a response, and its status.
async fn read(response: http::Response<RecvStream>) -> Result<Bytes, RpcError> {
    let (head, mut body) = response.into_parts();
    if head.status != StatusCode::OK {
        let code = match head.status.as_u16() {
            429 | 502..=504 => Code::UNAVAILABLE,
            _ => Code::UNKNOWN,
        };
        let text = format!("unexpected HTTP status code received from server: {}", head.status);
        return Err(RpcError::new(code, text));
    }
    // An error alone comes with the head.
    if head.headers.contains_key("grpc-status") {
        status(&head.headers)?;
    }
    let mut answer = BytesMut::new();
    while let Some(piece) = body.data().await {
        let piece = piece.map_err(RpcError::lost)?;
        // Gives the plugin room for the next one.
        body.flow_control().release_capacity(piece.len()).map_err(RpcError::lost)?;
        answer.extend_from_slice(&piece);
        let stated = answer.get(1..5).and_then(|length| <[u8; 4]>::try_from(length).ok());
        let stated = stated.map_or(0, u32::from_be_bytes) as usize;
        if stated > ANSWER_BYTES_MAX || answer.len() > ANSWER_BYTES_MAX + 5 {
            let got = stated.max(answer.len());
            return Err(RpcError::new(
                Code::RESOURCE_EXHAUSTED,
                format!("grpc: received message larger than max ({got} vs. {ANSWER_BYTES_MAX})"),
            ));
        }
    }
    match body.trailers().await.map_err(RpcError::lost)? {
        Some(trailers) => status(&trailers)?,
        None => {
            return Err(RpcError::malformed("server closed the stream without sending trailers"));
        }
    }
    let answer = answer.freeze();
    match answer.split_at_checked(5) {
        None if answer.is_empty() => {
            Err(RpcError::malformed("cardinality violation: received no response message"))
        }
        Some((head, message))
            if head[0] == 0 && head[1..] == (message.len() as u32).to_be_bytes() =>
        {
            Ok(answer.slice_ref(message))
        }
        Some((head, _)) if head[0] != 0 => {
            Err(RpcError::malformed("grpc: the message is compressed"))
        }
        _ => Err(RpcError::malformed("grpc: the message does not have the length that it states")),
    }
}

/// The status in headers or trailers.
fn status(headers: &HeaderMap) -> Result<(), RpcError> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let code = text("grpc-status").and_then(|code| code.parse().ok());
    match code {
        Some(0) => Ok(()),
        Some(code) => {
            let text = text("grpc-message").unwrap_or_default();
            let text = percent_encoding::percent_decode_str(text).decode_utf8_lossy();
            Err(RpcError::new(Code(code), shortened(&text)))
        }
        None => Err(RpcError::malformed("the response has no gRPC status")),
    }
}
