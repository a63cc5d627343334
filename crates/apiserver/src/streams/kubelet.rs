//! Streams of pods whose node has a kubelet: the client's request goes there.
//!
//! | request | at the kubelet |
//! |---|---|
//! | `log` | `GET /containerLogs/{namespace}/{pod}/{container}` |
//! | `exec`, `attach` | `/exec/…`, `/attach/…`, with the client's protocol |
//! | `portforward` | `/portForward/{namespace}/{pod}`, with the client's protocol |
//! | `exec`, `attach` over `v5.channel.k8s.io` | over SPDY, unless the kubelet says that it speaks both |
//! | `portforward` with SPDY inside a WebSocket | the SPDY alone, unless it says so |

use super::forward::carry;
use super::{CHANNELS, FORWARD, FORWARD_TUNNEL, PodStream, channels, ended, no_upgrade, options};
use crate::body::{Body, RequestBody};
use crate::connector::{Connector, DIALING, Location, Peer};
use crate::filter::authenticate::strip_credentials;
use crate::location::Kubelet;
use crate::proxy::follow;
use crate::websocket::{Upgrade, is_upgrade};
use bytes::Bytes;
use futures::StreamExt as _;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use setpoint_object::meta::ObjectExt as _;
use setpoint_object::status::Details;
use setpoint_object::{ApiError, Reason};
use setpoint_registry::Subresource;

/// Maximum bytes of a kubelet's error that are read, as kube-apiserver.
const ERROR_BYTES_MAX: usize = 50_000;
/// The protocol of the client's streams, in SPDY.
const SPDY: &str = "SPDY/3.1";

impl PodStream<'_> {
    /// The answer of the node's kubelet; `None`: it has none.
    pub(super) async fn at_kubelet(
        &self,
        subresource: &Subresource,
        node: &str,
    ) -> Result<Option<Response<Body>>, ApiError> {
        let (Some(connector), Some(locator)) =
            (self.agents.connector.clone(), self.agents.locator(self.registry))
        else {
            return Ok(None);
        };
        if *subresource == Subresource::Log {
            self.log_options()?;
        }
        let container = match subresource {
            Subresource::PortForward => None,
            _ => Some(self.container()?.container),
        };
        if node.is_empty() {
            return Ok(None);
        }
        let Some(Kubelet { mut location, has_websockets }) = locator.of_kubelet(node).await? else {
            return Ok(None);
        };
        let (namespace, pod) = (self.pod.namespace(), self.pod.name());
        let (word, query) = match subresource {
            Subresource::Log => {
                ("containerLogs", options::log_query(self.query, self.has_log_streams()))
            }
            Subresource::PortForward => ("portForward", options::ports_query(self.query)),
            Subresource::Attach => ("attach", options::run_query(self.query, false)),
            _ => ("exec", options::run_query(self.query, true)),
        };
        location.query = query;
        location.path = match container {
            Some(container) => format!("/{word}/{namespace}/{pod}/{container}"),
            None => format!("/{word}/{namespace}/{pod}"),
        };
        if *subresource == Subresource::Log {
            return self.kubelet_log(&*connector, location).await.map(Some);
        }
        if !is_upgrade(&self.parts.headers) {
            return Err(no_upgrade());
        }
        let slot = self.slot(&self.pod_ref())?;
        if *subresource == Subresource::PortForward
            && !has_websockets
            && let Some(upgrade) = Upgrade::of(self.parts)
            && let Some(protocol) = upgrade.offered(&[FORWARD_TUNNEL])
        {
            return self.tunnel(&*connector, location, upgrade, protocol, slot).await.map(Some);
        }
        if *subresource != Subresource::PortForward
            && !has_websockets
            && let Some(upgrade) = Upgrade::of(self.parts)
            && let Some(protocol) = upgrade.offered(&CHANNELS[..1])
        {
            let is_attach = *subresource == Subresource::Attach;
            let wanted = options::run(self.query, is_attach)?;
            // The client's connection is there first, so what the kubelet says against it is the
            // outcome of the command.
            let opened = open(&*connector, location);
            return Ok(Some(self.switch(upgrade, protocol, slot, async move |io| {
                let run = async |streams| match opened.await {
                    Ok(io) => channels::at_kubelet(io, wanted.clone(), streams).await,
                    Err(error) => channels::failure(error),
                };
                channels::websocket(io, wanted.clone(), is_attach, run).await
            })));
        }
        let mut request = Request::from_parts(self.parts.clone(), no_body());
        strip_credentials(request.headers_mut());
        let answer = connector.forward(location, request).await?;
        Ok(Some(follow(answer, slot, None, self.drain)))
    }

    async fn kubelet_log(
        &self,
        connector: &dyn Connector,
        mut location: Location,
    ) -> Result<Response<Body>, ApiError> {
        if self.query.flag("insecureSkipTLSVerifyBackend") == Some(true) {
            location.peer = Peer::UnverifiedKubelet;
        }
        let slot = self.slot(&self.pod_ref())?;
        let answer = connector.send(location, Request::new(no_body())).await?;
        let (head, body) = answer.into_parts();
        if head.status.is_redirection() && head.headers.contains_key(header::LOCATION) {
            let to = head.headers[header::LOCATION].to_str().unwrap_or_default();
            return Err(ApiError::unclassified(format!("Get {to:?}: redirects forbidden")));
        }
        if !(200..=206).contains(&head.status.as_u16()) {
            let text = start_of(body).await?;
            return Err(kubelet_error(head.status, self.pod.name(), text));
        }
        let mut response = Response::new(body);
        let text = HeaderValue::from_static("text/plain");
        response.headers_mut().insert(header::CONTENT_TYPE, text);
        Ok(follow(response, slot, None, self.drain))
    }

    /// SPDY inside the client's WebSocket, for a kubelet that speaks SPDY alone.
    async fn tunnel(
        &self,
        connector: &dyn Connector,
        location: Location,
        upgrade: Upgrade,
        protocol: &'static str,
        held: impl Send + 'static,
    ) -> Result<Response<Body>, ApiError> {
        let mut answer = connector.send(location, for_spdy(FORWARD)).await?;
        let Some(of_kubelet) = upgraded(&mut answer) else { return Ok(answer) };
        Ok(self.switch(upgrade, protocol, held, async move |io| {
            carry(io, TokioIo::new(of_kubelet.await.map_err(std::io::Error::other)?)).await
        }))
    }

    /// Switches protocols with the client, and converses until either ends or the server stops.
    fn switch<F, Fut>(
        &self,
        upgrade: Upgrade,
        protocol: &'static str,
        held: impl Send + 'static,
        converse: F,
    ) -> Response<Body>
    where
        F: FnOnce(TokioIo<Upgraded>) -> Fut + Send + 'static,
        Fut: Future<Output = std::io::Result<()>> + Send,
    {
        let drain = self.drain.clone();
        upgrade.switch(Some(protocol), async move |io| {
            ended(drain, converse(io)).await;
            drop(held);
        })
    }
}

/// A request to a kubelet for SPDY with a protocol inside.
fn for_spdy(protocol: &'static str) -> Request<RequestBody> {
    let mut request = Request::new(no_body());
    *request.method_mut() = Method::POST;
    let headers = request.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(SPDY));
    headers.insert("x-stream-protocol-version", HeaderValue::from_static(protocol));
    request
}

/// What becomes the connection, if the kubelet has switched protocols.
fn upgraded(answer: &mut Response<Body>) -> Option<OnUpgrade> {
    let has_switched = answer.status() == StatusCode::SWITCHING_PROTOCOLS;
    answer.extensions_mut().remove::<OnUpgrade>().filter(|_| has_switched)
}

/// Opens a connection to a kubelet over SPDY, for a command.
fn open(
    connector: &dyn Connector,
    location: Location,
) -> impl Future<Output = Result<TokioIo<Upgraded>, ApiError>> + Send + use<> {
    let url = location.to_string();
    let sent = connector.send(location, for_spdy(CHANNELS[1]));
    async move {
        let mut answer = sent.await.map_err(|error| {
            let why = error.0.message.strip_prefix(DIALING).unwrap_or(&error.0.message);
            ApiError::internal(format!("error sending request: Post {url:?}: {why}"))
        })?;
        let refused =
            |text: &str| ApiError::internal(format!("unable to upgrade connection: {text}"));
        match upgraded(&mut answer) {
            Some(io) => Ok(TokioIo::new(io.await.map_err(|error| refused(&error.to_string()))?)),
            None => Err(refused(&refusal(&start_of(answer.into_body()).await?))),
        }
    }
}

/// What a kubelet says against a connection: the message of a Status, or the text.
fn refusal(text: &str) -> String {
    let status = serde_json::from_str::<serde_json::Value>(text).unwrap_or_default();
    let words =
        [&status["message"], &status["error"]].map(|word| word.as_str().unwrap_or_default());
    let mut words = words.into_iter().chain([text]).map(str::trim).filter(|word| !word.is_empty());
    words.next().unwrap_or("empty server response").to_owned()
}

fn no_body() -> RequestBody {
    Empty::<Bytes>::new().map_err(|never| match never {}).boxed_unsync()
}

/// The start of an error's text.
async fn start_of(body: Body) -> Result<String, ApiError> {
    let mut pieces = body.into_data_stream();
    let mut text = Vec::new();
    while let Some(piece) = pieces.next().await {
        text.extend_from_slice(&piece.map_err(ApiError::internal)?);
        if text.len() >= ERROR_BYTES_MAX {
            text.truncate(ERROR_BYTES_MAX);
            break;
        }
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// A kubelet's error, as kube-apiserver passes it on.
fn kubelet_error(code: StatusCode, pod: &str, text: String) -> ApiError {
    let (reason, why) = match code.as_u16() {
        400 => return ApiError::bad_request(text),
        500 => return ApiError::internal(text),
        401 => (
            Reason::Unauthorized,
            "the server has asked for the client to provide credentials".to_owned(),
        ),
        403 => (Reason::Forbidden, text),
        404 => {
            (Reason::NotFound, "the server could not find the requested resource".to_owned())
        }
        405 => (
            Reason::MethodNotAllowed,
            "the server does not allow this method on the requested resource".to_owned(),
        ),
        429 => (
            Reason::TooManyRequests,
            "the server has received too many requests and has asked us to try again later"
                .to_owned(),
        ),
        503 => (
            Reason::ServiceUnavailable,
            "the server is currently unable to handle the request".to_owned(),
        ),
        504 => (
            Reason::Timeout,
            "the server was unable to return a response in the time allotted, but may still be processing the request".to_owned(),
        ),
        other if other > 500 => (
            Reason::InternalError,
            format!("an error on the server ({text:?}) has prevented the request from succeeding"),
        ),
        other => (
            Reason::Unknown,
            format!(
                "the server responded with the status code {other} but did not return more information"
            ),
        ),
    };
    // The gap is where a verb would be.
    let message = format!("{why} ( pods/log {pod})");
    let details =
        Details { name: pod.to_owned(), kind: "pods/log".to_owned(), ..Details::default() };
    ApiError::new(code.as_u16(), reason, message).with_details(details)
}
