//! A server and functions to send it requests.

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use serde_json::Value;
use setpoint_apiserver::listen::{LIMITS, Limits, Listener, Pki};
use setpoint_apiserver::{ApiServer, ApiServerBuilder, BoxError, Credentials, Identity};
use setpoint_object::time::{Clock, Timestamp};
use setpoint_registry::{Feature, FeatureGates, Registry, RuntimeConfig};
use setpoint_store::MemoryStore;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// 2026-01-01T00:00:00Z.
pub(crate) const EPOCH: Timestamp = Timestamp::from_secs(1_767_225_600);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

/// A running server.
pub(crate) struct Server {
    pub(crate) api: ApiServer,
    transport: Transport,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

enum Transport {
    InProcess,
    Https { protocol: Protocol, address: SocketAddr, pki: Box<Pki> },
}

/// An answer with its complete body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Code, reason and message of a `Status`.
    #[track_caller]
    pub(crate) fn check_status(&self, code: u16, reason: &str, message: &str) -> Value {
        let status = self.json();
        let text = |name: &str| status[name].as_str().unwrap_or_default().to_owned();
        assert_eq!(
            (self.code, text("kind").as_str(), text("reason").as_str(), text("message").as_str()),
            (code, "Status", reason, message)
        );
        assert_eq!(status["code"], code);
        status
    }
}

/// An answer whose body is still being read.
pub(crate) struct Stream {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    body: http_body_util::combinators::UnsyncBoxBody<Bytes, BoxError>,
    line: Vec<u8>,
}

impl Stream {
    /// The next line as JSON; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.line.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.line.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            match self.body.frame().await {
                Some(frame) => self.line.extend_from_slice(&frame.unwrap().into_data().unwrap()),
                None => {
                    assert!(self.line.is_empty(), "a cut line: {:?}", self.line);
                    return None;
                }
            }
        }
    }

    /// Type, name and resourceVersion of the next event.
    pub(crate) async fn event(&mut self) -> (String, String) {
        let event = self.next().await.expect("the stream ended");
        let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        (event["type"].as_str().unwrap().to_owned(), name)
    }
}

impl Server {
    pub(crate) async fn in_process() -> Self {
        let (api, tasks, stop) = start(Credentials::none()).await;
        Self { api, transport: Transport::InProcess, stop, tasks }
    }

    /// In process, with bodies and answers in CBOR.
    pub(crate) async fn with_cbor() -> Self {
        Self::with_features([Feature::CBORServingAndStorage].into()).await
    }

    /// In process, with these features.
    pub(crate) async fn with_features(features: FeatureGates) -> Self {
        Self::gated(features, |builder| builder).await
    }

    /// In process, with these features and a changed builder.
    pub(crate) async fn gated(
        features: FeatureGates,
        change: impl FnOnce(ApiServerBuilder) -> ApiServerBuilder,
    ) -> Self {
        let (api, tasks, stop) = start_gated(Credentials::none(), features, change).await;
        Self { api, transport: Transport::InProcess, stop, tasks }
    }

    /// In process, with a changed builder.
    pub(crate) async fn built(change: impl FnOnce(ApiServerBuilder) -> ApiServerBuilder) -> Self {
        Self::gated(FeatureGates::default(), change).await
    }

    pub(crate) async fn https(protocol: Protocol) -> Self {
        Self::https_with_limits(protocol, LIMITS).await
    }

    pub(crate) async fn https_with_limits(protocol: Protocol, limits: Limits) -> Self {
        Self::https_built(protocol, limits, |builder| builder).await
    }

    /// With a changed builder.
    pub(crate) async fn https_built(
        protocol: Protocol,
        limits: Limits,
        change: impl FnOnce(ApiServerBuilder) -> ApiServerBuilder,
    ) -> Self {
        let pki = Pki::generate(EPOCH, &[]).unwrap();
        let credentials = Credentials::none().token(pki.admin_token(), Identity::admin());
        let (api, mut tasks, stop) = start_with(credentials, change).await;
        let listener = Listener::secure(api.clone(), SocketAddr::from(([127, 0, 0, 1], 0)), &pki)
            .await
            .unwrap();
        let listener = listener.limits(limits);
        let address = listener.address();
        let stop_listener = stop.clone();
        tasks.spawn(async move { listener.run(stop_listener).await });
        Self {
            api,
            transport: Transport::Https { protocol, address, pki: Box::new(pki) },
            stop,
            tasks,
        }
    }

    /// Whether requests go through a socket.
    pub(crate) fn is_remote(&self) -> bool {
        matches!(self.transport, Transport::Https { .. })
    }

    /// Stops the server cleanly.
    pub(crate) async fn stop(&mut self) {
        self.api.drain();
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
    }

    pub(crate) fn begin_stop(&self) {
        self.api.drain();
        self.stop.cancel();
    }

    /// Sends a request as the administrator and returns the answer's head.
    pub(crate) async fn open(&self, mut request: Request<Full<Bytes>>) -> Stream {
        if !self.is_remote() {
            request.extensions_mut().insert(Identity::admin());
        }
        self.open_as(request, true).await
    }

    /// As [`Server::open`]; `certificate`: with the administrator's certificate.
    pub(crate) async fn open_as(&self, request: Request<Full<Bytes>>, certificate: bool) -> Stream {
        let response = match &self.transport {
            Transport::InProcess => self
                .api
                .serve(request)
                .await
                .map(|body| body.map_err(BoxError::from).boxed_unsync()),
            Transport::Https { protocol, address, pki } => {
                remote(request, *protocol, *address, pki, certificate).await
            }
        };
        let (parts, body) = response.into_parts();
        Stream { code: parts.status.as_u16(), headers: parts.headers, body, line: Vec::new() }
    }

    /// Sends a request as the administrator.
    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Answer {
        let stream = self.open(request).await;
        finish(stream).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(request("GET", path, "")).await
    }

    pub(crate) async fn accept(&self, path: &str, accept: &str) -> Answer {
        let mut request = request("GET", path, "");
        request.headers_mut().insert("accept", accept.parse().unwrap());
        self.send(request).await
    }

    pub(crate) async fn post(&self, path: &str, body: impl ToString) -> Answer {
        self.send(request("POST", path, &body.to_string())).await
    }

    pub(crate) async fn put(&self, path: &str, body: impl ToString) -> Answer {
        self.send(request("PUT", path, &body.to_string())).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send(request("DELETE", path, "")).await
    }

    pub(crate) async fn patch(
        &self,
        path: &str,
        content_type: &str,
        body: impl ToString,
    ) -> Answer {
        let mut request = request("PATCH", path, &body.to_string());
        request.headers_mut().insert("content-type", content_type.parse().unwrap());
        self.send(request).await
    }

    pub(crate) async fn watch(&self, path: &str) -> Stream {
        self.open(request("GET", path, "")).await
    }
}

/// Reads a body to its end.
pub(crate) async fn finish(stream: Stream) -> Answer {
    let body = stream.body.collect().await.unwrap().to_bytes();
    Answer { code: stream.code, headers: stream.headers, body }
}

/// A request with a JSON body.
pub(crate) fn request(method: &str, path: &str, body: &str) -> Request<Full<Bytes>> {
    Request::builder()
        .method(method)
        .uri(path)
        .header("user-agent", "test/1.0")
        .body(Full::from(body.to_owned()))
        .unwrap()
}

/// A ConfigMap.
pub(crate) fn config_map(name: &str, data: &str) -> Value {
    serde_json::json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": data},
    })
}

pub(crate) async fn start(credentials: Credentials) -> (ApiServer, JoinSet<()>, CancellationToken) {
    start_with(credentials, |builder| builder).await
}

async fn start_with(
    credentials: Credentials,
    change: impl FnOnce(ApiServerBuilder) -> ApiServerBuilder,
) -> (ApiServer, JoinSet<()>, CancellationToken) {
    start_gated(credentials, FeatureGates::default(), change).await
}

async fn start_gated(
    credentials: Credentials,
    features: FeatureGates,
    change: impl FnOnce(ApiServerBuilder) -> ApiServerBuilder,
) -> (ApiServer, JoinSet<()>, CancellationToken) {
    let store = Arc::new(MemoryStore::default());
    let config = RuntimeConfig::with_gates("", features).unwrap();
    let builder = Registry::builder(store, Clock::starting_at(EPOCH)).seed(1);
    let (registry, worker) = builder.runtime_config(config).build();
    let api = change(ApiServer::builder(registry).credentials(credentials).seed(2)).build();
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    let stop_worker = stop.clone();
    tasks.spawn(async move { worker.run(stop_worker).await.unwrap() });
    (api, tasks, stop)
}

async fn remote(
    mut request: Request<Full<Bytes>>,
    protocol: Protocol,
    address: SocketAddr,
    pki: &Pki,
    certificate: bool,
) -> Response<http_body_util::combinators::UnsyncBoxBody<Bytes, BoxError>> {
    let socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let config = tls(pki, protocol, certificate);
    let name = ServerName::try_from("localhost").unwrap();
    let stream =
        tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, socket).await.unwrap();
    let io = TokioIo::new(stream);
    let response = match protocol {
        Protocol::Http1 => {
            request.headers_mut().insert("host", "localhost".parse().unwrap());
            let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
            drive(connection);
            sender.send_request(request).await.unwrap()
        }
        Protocol::Http2 => {
            let uri = format!("https://localhost{}", request.uri());
            *request.uri_mut() = uri.parse().unwrap();
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
            drive(connection);
            let response = sender.send_request(request).await.unwrap();
            // The connection closes with its last sender: the body still needs it.
            std::mem::forget(sender);
            response
        }
    };
    response.map(|body| body.map_err(BoxError::from).boxed_unsync())
}

#[expect(clippy::disallowed_methods, reason = "a test's client connection ends with its runtime")]
pub(crate) fn drive<E>(connection: impl Future<Output = Result<(), E>> + Send + 'static) {
    tokio::spawn(async move { connection.await.is_ok() });
}

fn tls(pki: &Pki, protocol: Protocol, certificate: bool) -> rustls::ClientConfig {
    #[derive(Debug)]
    struct Epoch;
    impl rustls::time_provider::TimeProvider for Epoch {
        fn current_time(&self) -> Option<UnixTime> {
            Some(UnixTime::since_unix_epoch(EPOCH.0))
        }
    }
    let pem = |text: &str| CertificateDer::from_pem_slice(text.as_bytes()).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(pem(pki.ca_pem())).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_details(provider, Arc::new(Epoch))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let (admin, key) = pki.admin_pem();
    let key = rustls::pki_types::PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let mut config = if certificate {
        builder.with_client_auth_cert(vec![pem(admin)], key).unwrap()
    } else {
        builder.with_no_client_auth()
    };
    config.alpn_protocols = match protocol {
        Protocol::Http1 => vec![b"http/1.1".to_vec()],
        Protocol::Http2 => vec![b"h2".to_vec()],
    };
    config
}

impl Server {
    /// The administrator's token, over a socket.
    pub(crate) fn token(&self) -> Option<&str> {
        match &self.transport {
            Transport::InProcess => None,
            Transport::Https { pki, .. } => Some(pki.admin_token()),
        }
    }
}

impl Server {
    /// An HTTP/2 connection over TLS without credentials that sends no requests; its settings and
    /// pings are answered.
    pub(crate) async fn idle_http2(
        &self,
    ) -> Option<hyper::client::conn::http2::SendRequest<Full<Bytes>>> {
        let Transport::Https { address, pki, .. } = &self.transport else { return None };
        let socket = tokio::net::TcpStream::connect(address).await.ok()?;
        let connector =
            tokio_rustls::TlsConnector::from(Arc::new(tls(pki, Protocol::Http2, false)));
        let name = ServerName::try_from("localhost").unwrap();
        // A connection of a crowd may be closed before its handshake.
        let io = TokioIo::new(connector.connect(name, socket).await.ok()?);
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.ok()?;
        drive(connection);
        Some(sender)
    }
}
