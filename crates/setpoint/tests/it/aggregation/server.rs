//! An extension server: an API server of its own behind TLS, which trusts the headers of clients
//! with the proxy's certificate.

use crate::https::Ca;
use futures::StreamExt as _;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use serde_json::{Value, json};
use setpoint::ControlPlane;
use setpoint::apiserver::{ApiServer, Body, Identity};
use setpoint::registry::AdmissionOptions;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// The name of the server's certificate.
const NAME: &str = "api.ext.svc";

/// How the server answers requests below `/apis/ext.example.com/v1/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// As an API server.
    Serve,
    /// Always with this code.
    Code(u16),
    /// Only `/apis`, where aggregated discovery is.
    OnlyDiscovery,
    /// With a redirect.
    Redirect,
    /// Not at all.
    Silent,
    /// With the first piece of an answer.
    Broken,
    /// By switching to a protocol that echoes.
    Echo,
}

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
}

impl Seen {
    /// The values of a header, joined with a bar.
    pub(crate) fn header(&self, name: &str) -> String {
        let values = self.headers.get_all(name).iter().map(|value| value.to_str().unwrap());
        values.collect::<Vec<_>>().join("|")
    }
}

#[derive(Clone)]
struct Shared {
    server: ApiServer,
    mode: Arc<Mutex<Mode>>,
    seen: Arc<Mutex<Vec<Seen>>>,
    broken: Arc<Notify>,
    /// Connections that have been upgraded.
    tunnels: Arc<Mutex<JoinSet<()>>>,
}

/// Serves until it is dropped.
pub(crate) struct Extension {
    pub(crate) port: u16,
    shared: Shared,
    listening: JoinSet<()>,
    _plane: JoinSet<()>,
}

/// The definition of what it serves.
fn definition() -> Value {
    let spec = json!({"type": "object", "properties": {"size": {"type": "integer", "description": "How large it is."}}});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.ext.example.com"},
        "spec": {"group": "ext.example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing", "shortNames": ["th"]},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}})
}

impl Extension {
    /// Starts a server with a certificate of `ca`, for clients with certificates of `client_ca`
    /// (PEM).
    pub(crate) async fn start(ca: &Ca, client_ca: &str) -> Self {
        // The namespaces are the other server's.
        let plugins = AdmissionOptions::default().disable("NamespaceLifecycle").build().unwrap();
        let plane = ControlPlane::builder()
            .controllers(false)
            .api_services(false)
            .aggregation(false)
            .admission_plugins(plugins)
            .build();
        let (server, client) = (plane.server().clone(), plane.client());
        let mut planes = JoinSet::new();
        planes.spawn(async move { plane.run(CancellationToken::new()).await.unwrap() });
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let request = Request::post(definitions).header("content-type", "application/json");
        let request = request.body(definition().to_string().into_bytes()).unwrap();
        client.request::<Value>(request).await.unwrap();
        let mut catalogs = server.registry().catalog_changes();
        let is_served = |catalog: &Arc<setpoint::registry::Catalog>| {
            catalog.get("ext.example.com", "v1", "things").is_some()
        };
        catalogs.wait_for(is_served).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Shared {
            server,
            mode: Arc::new(Mutex::new(Mode::Serve)),
            seen: Arc::default(),
            broken: Arc::default(),
            tunnels: Arc::default(),
        };
        let acceptor = TlsAcceptor::from(Arc::new(tls(ca, client_ca)));
        let mut listening = JoinSet::new();
        listening.spawn(serve(listener, acceptor, shared.clone()));
        Self { port, shared, listening, _plane: planes }
    }

    pub(crate) fn set(&self, mode: Mode) {
        *self.shared.mode.lock() = mode;
    }

    /// Closes the listener and all connections.
    pub(crate) async fn stop_listening(&mut self) {
        self.listening.shutdown().await;
    }

    /// Breaks an answer off.
    pub(crate) fn break_off(&self) {
        self.shared.broken.notify_one();
    }

    /// Takes the requests so far.
    pub(crate) fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.shared.seen.lock())
    }
}

fn tls(ca: &Ca, client_ca: &str) -> rustls::ServerConfig {
    let (certificate, key) = ca.sign_for(&[NAME]);
    let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(client_ca.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients.build().unwrap())
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, shared: Shared) {
    let mut connections = JoinSet::new();
    loop {
        let (tcp, _) = listener.accept().await.unwrap();
        let (acceptor, shared) = (acceptor.clone(), shared.clone());
        connections.spawn(async move {
            let Ok(tls) = acceptor.accept(tcp).await else { return };
            let service = service_fn(move |request| {
                let shared = shared.clone();
                async move { Ok::<_, Infallible>(answer(request, shared).await) }
            });
            let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            drop(builder.serve_connection_with_upgrades(TokioIo::new(tls), service).await);
        });
    }
}

async fn answer(mut request: Request<Incoming>, shared: Shared) -> Response<Body> {
    let (path, headers) = (request.uri().to_string(), request.headers().clone());
    shared.seen.lock().push(Seen { path: path.clone(), headers: headers.clone() });
    let mode = *shared.mode.lock();
    let of_code = |code: u16, body: &'static str| {
        let mut response = Response::new(Body::once(body));
        *response.status_mut() = code.try_into().unwrap();
        response
    };
    let is_below = request.uri().path().starts_with("/apis/ext.example.com/v1/");
    match mode {
        Mode::Code(code) => return of_code(code, "no\n"),
        Mode::OnlyDiscovery if request.uri().path() != "/apis" => return of_code(404, "no\n"),
        Mode::Redirect => {
            let mut response = of_code(302, "");
            response.headers_mut().insert(header::LOCATION, "https://evil/".parse().unwrap());
            return response;
        }
        Mode::Silent if is_below => std::future::pending().await,
        Mode::Broken if is_below => {
            let broken = shared.broken.clone();
            let pieces = futures::stream::once(async { Ok("{".into()) });
            let end = futures::stream::once(async move {
                broken.notified().await;
                Err(setpoint::apiserver::BodyError::Slow)
            });
            return Response::new(Body::try_stream(pieces.chain(end)));
        }
        Mode::Echo if is_below => {
            let on_upgrade = request.extensions_mut().remove::<OnUpgrade>().unwrap();
            shared.tunnels.lock().spawn(async move {
                let Ok(upgraded) = on_upgrade.await else { return };
                let (mut read, mut write) = tokio::io::split(TokioIo::new(upgraded));
                _ = tokio::io::copy(&mut read, &mut write).await;
            });
            let mut response = of_code(101, "");
            let head = response.headers_mut();
            head.insert(header::CONNECTION, "Upgrade".parse().unwrap());
            head.insert(header::UPGRADE, request.headers()[header::UPGRADE].clone());
            return response;
        }
        _ => {}
    }
    let groups: Vec<&str> =
        headers.get_all("x-remote-group").iter().map(|group| group.to_str().unwrap()).collect();
    let user = headers.get("x-remote-user").map_or("", |user| user.to_str().unwrap());
    request.extensions_mut().insert(Identity::new(user, groups));
    let (mut head, body) = request.into_parts();
    // What hyper knows about the connection is of no use to a server in the same process.
    head.extensions.remove::<OnUpgrade>();
    let response = shared.server.serve(Request::from_parts(head, body)).await;
    assert_ne!(response.status(), StatusCode::UNAUTHORIZED, "{path}");
    response
}

/// Reads a whole body.
pub(crate) async fn text<B: http_body::Body>(response: Response<B>) -> String
where
    B::Error: std::fmt::Debug,
{
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}
