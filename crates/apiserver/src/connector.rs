//! Connectors, which send requests to pods, Services, nodes and kubelets.

use crate::body::{Body, RequestBody};
use futures::future::BoxFuture;
use http::{Request, Response};
use serde_json::Value;
use setpoint_object::ApiError;
use std::fmt;

/// What reaches pods, Services, nodes and kubelets over the network.
///
/// The server has authorized the request, run admission, and found out where the request goes. Its
/// credentials are removed. A future is dropped when the client goes away: then the connector ends
/// what the future began.
pub trait Connector: fmt::Debug + Send + Sync {
    /// Host and port of the kubelet of a node; `None`: the node is an object without a machine.
    ///
    /// # Errors
    ///
    /// The `Status` for the client: the node has no usable address.
    fn kubelet(&self, node: &Value) -> Result<Option<(String, u16)>, ApiError>;

    /// Forwards a client's request, and returns the answer to it. If the client asks for another
    /// protocol, an answer with 101 has a [`Conversation`](crate::Conversation) in its extensions
    /// that joins both connections.
    ///
    /// # Errors
    ///
    /// The `Status` for the client: nobody answers there.
    fn forward(
        &self,
        to: Location,
        request: Request<RequestBody>,
    ) -> BoxFuture<'static, Result<Response<Body>, ApiError>>;

    /// Sends a request of the server's own. An answer with 101 has hyper's `OnUpgrade` in its
    /// extensions.
    ///
    /// # Errors
    ///
    /// As [`Connector::forward`].
    fn send(
        &self,
        to: Location,
        request: Request<RequestBody>,
    ) -> BoxFuture<'static, Result<Response<Body>, ApiError>>;
}

/// The beginning of an error's message of [`Connector::forward`] and [`Connector::send`] if a
/// connection that was to switch protocols cannot be made.
pub const DIALING: &str = "error dialing backend: ";

/// Where a request goes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Location {
    /// What is there.
    pub peer: Peer,
    /// Whether it is HTTPS.
    pub is_secure: bool,
    /// An IP address or a DNS name.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The path, decoded. Empty or with a slash at its start.
    pub path: String,
    /// The query, encoded, without `?`.
    pub query: String,
    /// The path of this server that stands before [`Self::path`], decoded, for links and redirects
    /// of answers. `None`: answers are passed on as they are.
    pub prefix: Option<String>,
    /// Whether only addresses are connected to that other machines reach. Others are a 400.
    pub is_global: bool,
}

/// The URL.
impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { is_secure, host, port, path, query, .. } = self;
        f.write_str(if *is_secure { "https://" } else { "http://" })?;
        match host.contains(':') {
            true => write!(f, "[{host}]:{port}")?,
            false => write!(f, "{host}:{port}")?,
        }
        f.write_str(&encoded_path(path.as_bytes()))?;
        if query.is_empty() { Ok(()) } else { write!(f, "?{query}") }
    }
}

/// Encodes a path as Go does.
pub fn encoded_path(path: &[u8]) -> String {
    let mut encoded = String::with_capacity(path.len());
    for &byte in path {
        match byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte) {
            true => encoded.push(char::from(byte)),
            false => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// Who is at a [`Location`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// A pod, an endpoint of a Service or another port of a node. Its certificate is not checked.
    Anyone,
    /// A kubelet. The server shows its client certificate, and checks the kubelet's, if it has an
    /// authority for it.
    Kubelet,
    /// A kubelet whose certificate is not checked, because the client asks for that.
    UnverifiedKubelet,
}
