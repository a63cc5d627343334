//! An HTTPS server in a process of its own.

use super::{hook, issuer};
use crate::server::PATIENCE;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::fs::{self, File};
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// The full name of the test that is the process.
const TEST: &str = "gate::process::child";
/// The environment variable with its role.
const ROLE: &str = "SETPOINT_TEST_HTTPS_SERVER";

/// What a program answers.
#[derive(Debug)]
pub(super) enum Answer {
    /// A code and a body.
    Now(u16, String),
    /// A redirect to a path of the same server.
    Redirect(&'static str),
    /// The head and the beginning of a body that does not end.
    Endless,
    /// Nothing.
    Never,
}

/// A program: answers a path and a body.
pub(super) type Program = dyn Fn(String, Bytes) -> BoxFuture<'static, Answer> + Send + Sync;

/// The certificate that a process shows.
#[derive(Debug, Clone, Copy)]
pub(super) enum Certificate {
    Good,
    /// Signed by another authority.
    OtherAuthority,
    /// For another name.
    OtherName,
    Expired,
}

/// A place for one process after the other: an address, an authority, files.
pub(super) struct Place {
    program: &'static str,
    pub(super) address: SocketAddr,
    /// Bound and not listening, so that no other program gets the port between two processes.
    _held: TcpSocket,
    folder: tempfile::TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
    process: Option<Child>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            eprintln!("{}:\n{log}", self.program);
        }
    }
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

impl Place {
    pub(super) fn new(program: &'static str) -> Self {
        let held = TcpSocket::new_v4().unwrap();
        held.set_reuseaddr(true).unwrap();
        held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = held.local_addr().unwrap();
        let folder = tempfile::tempdir().unwrap();
        Self { program, address, _held: held, folder, authority: authority(), process: None }
    }

    pub(super) fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The authority of its good certificates, in PEM.
    pub(super) fn pem(&self) -> String {
        self.authority.pem()
    }

    /// Starts a process, and waits until it listens.
    pub(super) fn start(&mut self, certificate: Certificate) {
        self.kill();
        let name = match certificate {
            Certificate::OtherName => "other.example.com",
            _ => "127.0.0.1",
        };
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        if let Certificate::Expired = certificate {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2021, 1, 1);
        }
        let key = KeyPair::generate().unwrap();
        let signed = match certificate {
            Certificate::OtherAuthority => params.signed_by(&key, &authority()),
            _ => params.signed_by(&key, &self.authority),
        };
        let folder = self.folder.path();
        fs::write(folder.join("certificate"), signed.unwrap().pem()).unwrap();
        fs::write(folder.join("key"), key.serialize_pem()).unwrap();
        let role = json!({
            "program": self.program, "address": self.address, "folder": folder,
        });
        let log = File::options().create(true).append(true).open(folder.join("log")).unwrap();
        let process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", TEST, "--nocapture"])
            .env(ROLE, role.to_string())
            .stdin(Stdio::piped())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.process = Some(process);
        let started = Instant::now();
        while std::net::TcpStream::connect(self.address).is_err() {
            assert!(started.elapsed() < PATIENCE, "the {} does not listen", self.program);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// As a crash does.
    pub(super) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Freezes the process.
    pub(super) fn freeze(&self) {
        self.signal("STOP");
        // Its threads may run on for a moment after the signal was sent.
        let tasks = format!("/proc/{}/task", self.process.as_ref().unwrap().id());
        let is_frozen = |task: fs::DirEntry| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with('T'))
        };
        let started = Instant::now();
        while !fs::read_dir(&tasks).unwrap().flatten().all(is_frozen) {
            assert!(started.elapsed() < PATIENCE, "the {} does not stop", self.program);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Lets a frozen process go on.
    pub(super) fn thaw(&self) {
        self.signal("CONT");
    }

    fn signal(&self, signal: &str) {
        let id = self.process.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &id]).status().unwrap().success());
    }

    /// The lines that its processes have written to their journal.
    pub(super) fn journal(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.folder.path().join("journal")).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Posts to the process itself.
    pub(super) async fn post(&self, path: &str, body: &Value) -> String {
        let request = Request::post(path).body(Full::from(body.to_string())).unwrap();
        let (code, body) = send(self.address, &self.pem(), request).await;
        assert_eq!(code, 200, "{body}");
        body
    }
}

/// Sends a request over HTTPS to a server with a certificate of this authority; returns code and
/// body.
pub(super) async fn send(
    address: SocketAddr,
    authority: &str,
    mut request: Request<Full<Bytes>>,
) -> (u16, String) {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    request.headers_mut().insert("host", address.to_string().parse().unwrap());
    let answered = async {
        let tcp = TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from(address.ip().to_string()).unwrap();
        let tls = TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap();
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(tls)).await;
        let (mut sender, connection) = handshake.unwrap();
        let asked = async {
            let response = sender.send_request(request).await.unwrap();
            let code = response.status().as_u16();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            (code, String::from_utf8_lossy(&body).into_owned())
        };
        tokio::pin!(asked);
        tokio::select! {
            biased;
            answer = &mut asked => answer,
            _ = connection => asked.await,
        }
    };
    tokio::time::timeout(PATIENCE, answered).await.expect("an answer in time")
}

/// What a process is.
pub(super) struct Role {
    pub(super) folder: PathBuf,
    pub(super) url: String,
}

async fn serve(address: SocketAddr, folder: &Path, program: Arc<Program>) {
    let read = |name: &str| fs::read(folder.join(name)).unwrap();
    let certificate = CertificateDer::from_pem_slice(&read("certificate")).unwrap();
    let key = PrivateKeyDer::from_pem_slice(&read("key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind(address).await.unwrap();
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (tcp, _) = listener.accept().await.unwrap();
        let (acceptor, program) = (acceptor.clone(), program.clone());
        connections.spawn(async move {
            let Ok(tls) = acceptor.accept(tcp).await else { return };
            let service = service_fn(move |request| respond(program.clone(), request));
            let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            drop(builder.serve_connection(TokioIo::new(tls), service).await);
        });
    }
}

async fn respond(
    program: Arc<Program>,
    request: Request<hyper::body::Incoming>,
) -> Result<Response<BoxBody<Bytes, Infallible>>, hyper::Error> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await?.to_bytes();
    let head = Response::builder().header("content-type", "application/json");
    let (head, body) = match program(path, body).await {
        Answer::Now(code, body) => (head.status(code), Full::from(body).boxed()),
        Answer::Redirect(target) => {
            (head.status(302).header("location", target), Full::from("").boxed())
        }
        Answer::Endless => {
            let parts = futures::stream::unfold((), async |()| {
                tokio::time::sleep(Duration::from_millis(50)).await;
                Some((Ok(hyper::body::Frame::data(Bytes::from_static(b" "))), ()))
            });
            (head, StreamBody::new(Box::pin(parts)).boxed())
        }
        Answer::Never => std::future::pending().await,
    };
    Ok(head.body(body).unwrap())
}

/// Not a test, but the process that the tests start. Otherwise does nothing.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    // It ends with its parent.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let role: Value = serde_json::from_str(&role).unwrap();
    let word = |name: &str| role[name].as_str().unwrap();
    let address: SocketAddr = word("address").parse().unwrap();
    let own = Role { folder: word("folder").into(), url: format!("https://{address}") };
    let folder = own.folder.clone();
    let program = match word("program") {
        "issuer" => issuer::program(own),
        "hook" => hook::program(own),
        other => panic!("no program {other}"),
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(serve(address, &folder, program));
}
