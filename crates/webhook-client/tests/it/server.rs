//! An HTTPS server whose answers depend on the path.

use bytes::Bytes;
use flate2::write::GzEncoder;
use futures::future::{BoxFuture, FutureExt as _};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use rcgen::{BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use setpoint_webhook_client::{Address, ResolveError, Service, ServiceResolver};
use std::collections::HashMap;
use std::convert::Infallible;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
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
    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) connections: AtomicUsize,
    pub(crate) requests: AtomicUsize,
    pub(crate) headers: Mutex<Vec<String>>,
}

/// Serves until it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// Its certificate in PEM.
    pub(crate) certificate: String,
    pub(crate) seen: Arc<Seen>,
    _tasks: JoinSet<()>,
}

impl Server {
    /// A server with a certificate for `names`.
    pub(crate) async fn start(ca: &Ca, names: &[&str], protocol: &str) -> Self {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let params = CertificateParams::new(names).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &ca.0).unwrap();
        Self::start_with(&key, &certificate, protocol).await
    }
    /// A server with a certificate that is its own authority.
    pub(crate) async fn start_self_signed(names: &[&str], protocol: &str) -> Self {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self::start_with(&key, &certificate, protocol).await
    }
    async fn start_with(key: &KeyPair, certificate: &Certificate, protocol: &str) -> Self {
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Seen::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(listener, acceptor, seen.clone()));
        Self { address, certificate: certificate.pem(), seen, _tasks: tasks }
    }
    pub(crate) fn n_connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }
    pub(crate) fn n_requests(&self) -> usize {
        self.seen.requests.load(Ordering::SeqCst)
    }
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, seen: Arc<Seen>) {
    let mut connections = JoinSet::new();
    loop {
        let (tcp, _) = listener.accept().await.unwrap();
        let (acceptor, seen) = (acceptor.clone(), seen.clone());
        connections.spawn(async move {
            let Ok(tls) = acceptor.accept(tcp).await else { return };
            seen.connections.fetch_add(1, Ordering::SeqCst);
            let service = service_fn(move |request| answer(request, seen.clone()));
            let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            drop(builder.serve_connection(TokioIo::new(tls), service).await);
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    seen: Arc<Seen>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let nth = seen.requests.fetch_add(1, Ordering::SeqCst);
    let mut headers: Vec<String> = request
        .headers()
        .iter()
        .filter(|(name, _)| *name != "host" && *name != "content-length")
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .collect();
    headers.sort();
    *seen.headers.lock() = headers;
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let response = Response::builder();
    let full = |text: &str| Full::new(Bytes::from(text.to_owned()));
    let response = match path.as_str() {
        "/echo" => response.body(Full::new([&body[..], query.as_bytes()].concat().into())),
        "/gzip" | "/bomb" => {
            let mut gzip = GzEncoder::new(Vec::new(), flate2::Compression::default());
            let n_bytes = if path == "/bomb" { 17 << 20 } else { 100_000 };
            gzip.write_all(&vec![b'x'; n_bytes]).unwrap();
            let body = gzip.finish().unwrap();
            response.header("content-encoding", "gzip").body(Full::new(body.into()))
        }
        "/large" => response.body(Full::new(vec![b'x'; 17 << 20].into())),
        "/slow" => std::future::pending().await,
        "/busy" if nth < 2 => response.status(503).header("retry-after", "0").body(full("")),
        "/busy" => response.body(full("at last")),
        "/fire" => response.status(500).header("content-type", "text/plain").body(full("on fire")),
        "/moved" => response.status(302).header("location", "/echo").body(full("")),
        _ => response.status(404).body(full("")),
    };
    Ok(response.unwrap())
}

/// Services by name.
#[derive(Debug, Default)]
pub(crate) struct Services(pub(crate) Mutex<HashMap<String, Vec<SocketAddr>>>);

impl ServiceResolver for Services {
    fn resolve<'a>(
        &'a self,
        service: &'a Service,
    ) -> BoxFuture<'a, Result<Vec<Address>, ResolveError>> {
        let found = self.0.lock().get(&service.to_string()).cloned();
        let found = found.map(|found| {
            let address = |at: SocketAddr| Address { host: at.ip().to_string(), port: at.port() };
            found.into_iter().map(address).collect()
        });
        let missing = || ResolveError(format!("service {:?} not found", service.name));
        async move { found.ok_or_else(missing) }.boxed()
    }
}
