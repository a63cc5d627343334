//! One connection to a collector: HTTP/2 without TLS, and one gRPC call at a time.

use crate::config::Endpoint;
use crate::proto::{EXPORT, ExportTraceServiceResponse};
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt as _};
use h2::client::SendRequest;
use prost::Message;
use setpoint_grpc::{Call, Code, GrpcError, Malformed, OpenError, frame, request};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// Maximum size of a response in bytes: it has a number and a message.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// gRPC codes after which a batch may be sent again, by the standard of OTLP.
const TRANSIENT: [Code; 7] = [
    Code::CANCELLED,
    Code::DEADLINE_EXCEEDED,
    Code::RESOURCE_EXHAUSTED,
    Code::ABORTED,
    Code::OUT_OF_RANGE,
    Code::UNAVAILABLE,
    Code::DATA_LOSS,
];

/// Why a call has failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CollectorError {
    /// No connection.
    #[error("connect to the collector: {0}")]
    Connect(#[source] io::Error),
    /// The connection has ended.
    #[error("the connection to the collector was lost: {0}")]
    Lost(String),
    /// The connection takes no calls, or the address is no URL's.
    #[error("the spans were not sent: {0}")]
    Open(#[from] OpenError),
    /// The collector has refused the spans, or has not answered in gRPC.
    #[error("the collector has not taken the spans: {0}")]
    Call(#[from] GrpcError),
}

impl CollectorError {
    /// Whether the same call may succeed later.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Connect(_) | Self::Lost(_) | Self::Open(OpenError::Connection(_)) => true,
            Self::Open(_) | Self::Call(GrpcError::Malformed(_)) => false,
            Self::Call(GrpcError::Status(status)) => TRANSIENT.contains(&status.code),
            Self::Call(_) => true,
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
        let (requests, connection) = h2::client::handshake(socket)
            .await
            .map_err(|error| CollectorError::Lost(error.to_string()))?;
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
    /// `silence`: the maximum time without any bytes of the answer.
    pub(crate) async fn export(
        &mut self,
        message: &impl Message,
        silence: Duration,
    ) -> Result<(i64, String), CollectorError> {
        let Self { requests, driver, authority } = self;
        let call = async {
            let request = request("http", authority, EXPORT);
            let call = Call::open(requests.clone(), request, ANSWER_BYTES_MAX).await?;
            match call.unary::<ExportTraceServiceResponse>(frame(message), silence).await {
                // Nothing to say is said in different ways.
                Err(GrpcError::Malformed(Malformed::NoMessage)) => Ok((0, String::new())),
                answer => {
                    let partial = answer?.partial_success.unwrap_or_default();
                    Ok((partial.rejected_spans, partial.error_message))
                }
            }
        };
        tokio::select! {
            biased;
            // Cancel safe: without a connection there is no answer.
            answer = call => answer,
            reason = driver => Err(CollectorError::Lost(reason)),
        }
    }
}
