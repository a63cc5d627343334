//! Calls of a plugin: one HTTP/2 connection to a Unix socket.
//!
//! # Theory
//!
//! A call that finds no connection makes one, and tries again with pauses until its timeout, as a
//! Kubernetes API server (`WaitForReady`): a plugin may start later than the server. A call that
//! was sent is not repeated. The connection is a task of the client, and ends with it.

use crate::call::{Call, GrpcError, Malformed};
use crate::frame::{FrameError, frame};
use crate::status::{Code, STATUS_TEXT_BYTES_MAX};
use bytes::Bytes;
use h2::client::SendRequest;
use parking_lot::Mutex;
use prost::Message;
use setpoint_dial::dial_unix;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Maximum size of the headers of a response in bytes.
const HEADERS_BYTES_MAX: u32 = 16 << 10;
/// The pauses between attempts to connect: doubled from the first to the last.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];

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
    pub fn deadline() -> Self {
        Self::new(Code::DEADLINE_EXCEEDED, "context deadline exceeded")
    }

    /// Whether the plugin was not reached, or has not answered in time.
    pub fn is_unanswered(&self) -> bool {
        matches!(self.code, Code::DEADLINE_EXCEEDED | Code::UNAVAILABLE)
    }
}

impl From<GrpcError> for RpcError {
    fn from(error: GrpcError) -> Self {
        let (code, text) = match error {
            GrpcError::Status(status) => (status.code, status.text),
            GrpcError::Silent(_) => return Self::deadline(),
            GrpcError::Malformed(what) => of_malformed(&what),
            GrpcError::Lost(why) | GrpcError::NotProcessed(why) => {
                (Code::UNAVAILABLE, format!("error reading from server: {why}"))
            }
        };
        Self::new(code, text)
    }
}

/// The code and the text of Go for an answer that is not gRPC.
fn of_malformed(what: &Malformed) -> (Code, String) {
    let text = match what {
        Malformed::Http(status) => {
            let code = match status.as_u16() {
                429 | 502..=504 => Code::UNAVAILABLE,
                _ => Code::UNKNOWN,
            };
            let text = format!("unexpected HTTP status code received from server: {status}");
            return (code, text);
        }
        Malformed::Frame(FrameError::TooLarge { bytes, bytes_max }) => {
            let text = format!("grpc: received message larger than max ({bytes} vs. {bytes_max})");
            return (Code::RESOURCE_EXHAUSTED, text);
        }
        Malformed::NoStatus => "server closed the stream without sending trailers".to_owned(),
        Malformed::NoMessage => "cardinality violation: received no response message".to_owned(),
        Malformed::Frame(FrameError::Compressed) => "grpc: the message is compressed".to_owned(),
        Malformed::Message(error) => {
            format!("grpc: failed to unmarshal the received message: {error}")
        }
        _ => "grpc: the message does not have the length that it states".to_owned(),
    };
    (Code::INTERNAL, text)
}

/// The part of a plugin's text that is shown.
pub fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(STATUS_TEXT_BYTES_MAX)]
}

/// A client of one plugin. Connects when it is first called.
pub struct SocketClient {
    /// The socket.
    path: PathBuf,
    /// Maximum time of a call, with connecting.
    timeout: Duration,
    answer_bytes_max: usize,
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

impl fmt::Debug for SocketClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SocketClient").field("path", &self.path).finish_non_exhaustive()
    }
}

impl SocketClient {
    /// A client of the plugin at this socket. A path that begins with `@` is the name of an
    /// abstract socket. Answers have at most `answer_bytes_max` bytes.
    pub fn new(path: &str, timeout: Duration, answer_bytes_max: usize) -> Self {
        let path = match path.strip_prefix('@') {
            Some(name) => format!("\0{name}").into(),
            None => path.into(),
        };
        Self { path, timeout, answer_bytes_max, link: Mutex::default() }
    }

    /// Sends a message and returns the answer. Dropping the future cancels the call.
    ///
    /// # Errors
    ///
    /// There is no connection within the timeout, no answer, or one with another status than OK.
    pub async fn call<A: Message + Default>(
        &self,
        method: &'static str,
        question: &impl Message,
    ) -> Result<A, RpcError> {
        let question = frame(question);
        let mut cause = None;
        match timeout(self.timeout, self.exchange(method, question, &mut cause)).await {
            Ok(answer) => answer,
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
    async fn exchange<A: Message + Default>(
        &self,
        method: &'static str,
        question: Bytes,
        cause: &mut Option<String>,
    ) -> Result<A, RpcError> {
        let [mut pause, longest] = PAUSES;
        loop {
            match self.open(method).await {
                Ok(call) => {
                    *cause = None;
                    return Ok(call.unary(question, self.timeout).await?);
                }
                Err(error) => *cause = Some(error),
            }
            tokio::time::sleep(pause).await;
            pause = longest.min(pause * 2);
        }
    }

    /// Opens a call. If this fails, nothing was sent.
    async fn open(&self, method: &'static str) -> Result<Call, String> {
        let (requests, generation) = self.connection().await?;
        let request = crate::call::request("http", "localhost", method);
        Call::open(requests, request, self.answer_bytes_max).await.map_err(|error| {
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
        let socket = dial_unix(&self.path).await;
        let socket = socket.map_err(|why| format!("transport: Error while dialing: {why}"))?;
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
