//! Webhooks over HTTPS on the loopback interface, and the user of a control plane that calls them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::{Value, json};
use setpoint::ControlPlane;
use setpoint::apiserver::{ApiServer, Identity};
use setpoint::prelude::*;
use setpoint::webhook::Webhooks;
use setpoint::webhook::certificate::Certificate;
use setpoint::webhook::server::{Listen, WebhookServer};
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// A CA.
pub(crate) struct Ca(CertifiedIssuer<'static, KeyPair>);

impl Ca {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }
    /// As in a `caBundle`.
    pub(crate) fn bundle(&self) -> String {
        STANDARD.encode(self.0.pem())
    }
    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }
    /// An authority that is itself the certificate of 127.0.0.1, and its key in PEM.
    pub(crate) fn of_itself() -> (Self, String) {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = key.serialize_pem();
        (Self(CertifiedIssuer::self_signed(params, key).unwrap()), pem)
    }
    /// Certificate and key for 127.0.0.1 and some services, in PEM.
    fn sign(&self) -> (String, String) {
        self.sign_for(&["127.0.0.1", "hook.default.svc"])
    }
    /// Certificate and key for these names, in PEM.
    pub(crate) fn sign_for(&self, names: &[&str]) -> (String, String) {
        let names = names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &self.0).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
    /// Serves webhooks.
    pub(crate) async fn serve(&self, webhooks: Webhooks) -> Hooks {
        let (certificate, key) = self.sign();
        let certificate = Certificate::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap();
        let server = WebhookServer::builder(webhooks, Clock::wall())
            .listen(Listen::Address((Ipv4Addr::LOCALHOST, 0).into()))
            .certificate(certificate)
            .bind()
            .await
            .unwrap();
        let address = server.address().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { server.run(CancellationToken::new()).await.unwrap() });
        Hooks { address, bundle: self.bundle(), _tasks: tasks }
    }
    /// Serves the answers of a function of the path and the body, which has the header
    /// `Authorization`, if there is one, as a member `authorization`. It returns the code and the
    /// body; code 0: no answer.
    pub(crate) async fn serve_raw(
        &self,
        answer: impl Fn(&str, Value) -> (u16, String) + Send + Sync + 'static,
    ) -> Hooks {
        let (certificate, key) = self.sign();
        self.serve_raw_as(&certificate, &key, answer).await
    }
    /// The same with this certificate and key, in PEM.
    pub(crate) async fn serve_raw_as(
        &self,
        certificate: &str,
        key: &str,
        answer: impl Fn(&str, Value) -> (u16, String) + Send + Sync + 'static,
    ) -> Hooks {
        self.serve_raw_with(tls_config(certificate, key, None), answer).await
    }
    /// The same for clients with a certificate of another CA. Others are refused.
    pub(crate) async fn serve_raw_for(
        &self,
        clients: &Self,
        answer: impl Fn(&str, Value) -> (u16, String) + Send + Sync + 'static,
    ) -> Hooks {
        let (certificate, key) = self.sign();
        self.serve_raw_with(tls_config(&certificate, &key, Some(clients)), answer).await
    }
    async fn serve_raw_with(
        &self,
        config: rustls::ServerConfig,
        answer: impl Fn(&str, Value) -> (u16, String) + Send + Sync + 'static,
    ) -> Hooks {
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let answer: Arc<Answer> = Arc::new(answer);
        let mut tasks = JoinSet::new();
        tasks.spawn(serve_raw(listener, acceptor, answer));
        Hooks { address, bundle: self.bundle(), _tasks: tasks }
    }
}

type Answer = dyn Fn(&str, Value) -> (u16, String) + Send + Sync;

/// `clients`: their certificates are of this CA; `None`: they need none.
pub(crate) fn tls_config(
    certificate: &str,
    key: &str,
    clients: Option<&Ca>,
) -> rustls::ServerConfig {
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::server::WebPkiClientVerifier;
    let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = clients.map(|clients| {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(clients.0.der().clone()).unwrap();
        let builder = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
        builder.build().unwrap()
    });
    rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.unwrap_or_else(WebPkiClientVerifier::no_client_auth))
        .with_single_cert(chain, key)
        .unwrap()
}

async fn serve_raw(listener: TcpListener, acceptor: TlsAcceptor, answer: Arc<Answer>) {
    let mut connections = JoinSet::new();
    loop {
        let (tcp, _) = listener.accept().await.unwrap();
        let (acceptor, answer) = (acceptor.clone(), answer.clone());
        connections.spawn(async move {
            let Ok(tls) = acceptor.accept(tcp).await else { return };
            let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                let answer = answer.clone();
                async move {
                    let path = request.uri().path().to_owned();
                    let shown = request.headers().get("authorization").cloned();
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    let mut review: Value = serde_json::from_slice(&body).unwrap_or_default();
                    if let Some(shown) = shown {
                        review["authorization"] = shown.to_str().unwrap().into();
                    }
                    let (code, text) = answer(&path, review);
                    if code == 0 {
                        std::future::pending::<()>().await;
                    }
                    let mut response =
                        http::Response::builder().status(code).header("content-type", "text/plain");
                    if (300..400).contains(&code) {
                        // Whoever follows it arrives at this server again.
                        response = response.header("location", "/allow");
                    }
                    let response = response.body(Full::new(Bytes::from(text)));
                    Ok::<_, Infallible>(response.unwrap())
                }
            });
            let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            drop(builder.serve_connection(TokioIo::new(tls), service).await);
        });
    }
}

/// Served webhooks.
pub(crate) struct Hooks {
    pub(crate) address: SocketAddr,
    pub(crate) bundle: String,
    _tasks: JoinSet<()>,
}

impl Hooks {
    /// `clientConfig` with a URL.
    pub(crate) fn config(&self, path: &str) -> Value {
        json!({"url": self.url(path), "caBundle": self.bundle})
    }
    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }
}

/// The answer to a request: code, body, texts of warnings.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) code: u16,
    pub(crate) body: Value,
    pub(crate) warnings: Vec<String>,
}

impl Answered {
    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert!(self.code < 300, "{} {}", self.code, self.body);
        self.body
    }
    /// `code message`.
    pub(crate) fn shown(&self) -> String {
        let message = self.body["message"].as_str().unwrap_or("ok");
        format!("{} {message}", self.code)
    }
}

/// A user of a control plane.
pub(crate) struct User(kube_client::Client);

impl User {
    pub(crate) async fn send(&self, method: &str, path: &str, body: &Value) -> Answered {
        let kind = match method {
            "PATCH" => "application/merge-patch+json",
            "APPLY" => "application/apply-patch+yaml",
            _ => "application/json",
        };
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = http::Request::builder()
            .method(if method == "APPLY" { "PATCH" } else { method })
            .uri(path)
            .header("content-type", kind)
            .body(kube_client::client::Body::from(bytes))
            .unwrap();
        let answer = self.0.send(request).await.unwrap();
        let code = answer.status().as_u16();
        let warnings = answer.headers().get_all("warning").iter();
        let warnings = warnings
            .map(|text| {
                let text = text.to_str().unwrap();
                text.trim_start_matches("299 - \"").trim_end_matches('"').to_owned()
            })
            .collect();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        Answered { code, body: serde_json::from_slice(&body).unwrap_or_default(), warnings }
    }
    pub(crate) async fn create(&self, path: &str, object: &Value) -> Value {
        self.send("POST", path, object).await.ok()
    }
    /// Repeats a request until its answer is as wanted: a configuration takes effect a moment after
    /// it is written.
    pub(crate) async fn until(
        &self,
        method: &str,
        path: &str,
        body: &Value,
        is_wanted: impl Fn(&Answered) -> bool,
    ) -> Answered {
        let mut last = String::new();
        for _ in 0..1000 {
            let answer = self.send(method, path, body).await;
            if is_wanted(&answer) {
                return answer;
            }
            last = answer.shown();
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("{method} {path} is never answered as wanted, last: {last}")
    }
}

/// Runs a control plane in real time while `act` uses it as the administrator.
pub(crate) async fn with_user<T>(
    plane: setpoint::ControlPlaneBuilder,
    act: impl AsyncFnOnce(User, ApiServer) -> T,
) -> T {
    let plane: ControlPlane = plane.controllers(false).build();
    let server = plane.server().clone();
    let identity = Identity::new("alice", ["system:masters", "system:authenticated"]);
    let user = User(server.client_as(identity));
    let stop = CancellationToken::new();
    let acting = async {
        let answer = act(user, server).await;
        stop.cancel();
        answer
    };
    let (ended, answer) = tokio::join!(plane.run(stop.clone()), acting);
    ended.unwrap();
    answer
}

/// What hooks were asked: reviews by path.
#[derive(Clone, Default)]
pub(crate) struct Reviews(Arc<Mutex<Vec<(String, Value)>>>);

impl Reviews {
    pub(crate) fn add(&self, path: &str, review: &Value) {
        self.0.lock().push((path.to_owned(), review.clone()));
    }
    /// Takes the requests of the reviews so far.
    pub(crate) fn take(&self) -> Vec<(String, Value)> {
        let taken = std::mem::take(&mut *self.0.lock());
        taken.into_iter().map(|(path, review)| (path, review["request"].clone())).collect()
    }
}
