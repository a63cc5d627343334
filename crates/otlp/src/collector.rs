//! One connection to a collector: HTTP/2 without TLS, and one gRPC call at a time.

use crate::config::Endpoint;
use crate::proto::{EXPORT, ExportTraceServiceResponse};
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt as _};
use h2::client::SendRequest;
use prost::Message;
use setpoint_dial::{DialError, Dialer, Wire};
use setpoint_grpc::{Call, Code, GrpcError, Malformed, OpenError, frame, request};
use std::time::Duration;
use tokio::net::UnixStream;

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
    Connect(String),
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

impl Connection {
    /// Connects, over TCP with the dialer.
    pub(crate) async fn open(endpoint: &Endpoint, dialer: &Dialer) -> Result<Self, CollectorError> {
        let (socket, authority): (Box<dyn Wire>, _) = match endpoint {
            Endpoint::Tcp(address) => {
                let (host, port) = host_and_port(address);
                let socket = dialer.dial(host, port).await;
                let failed = |DialError(why)| CollectorError::Connect(why);
                (Box::new(socket.map_err(failed)?), address.clone())
            }
            Endpoint::Unix(path) => {
                let socket = UnixStream::connect(path).await;
                let failed = |error: std::io::Error| CollectorError::Connect(error.to_string());
                (Box::new(socket.map_err(failed)?), "localhost".to_owned())
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

/// The parts of a checked `host:port`; a host without the brackets of an IPv6 address.
fn host_and_port(address: &str) -> (&str, u16) {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    (host.trim_start_matches('[').trim_end_matches(']'), port.parse().unwrap_or_default())
}
