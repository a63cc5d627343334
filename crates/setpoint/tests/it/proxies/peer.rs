//! A server on this machine that stands for a pod or a kubelet, and a plain client.

use bytes::Bytes;
use http::header::{self, HeaderMap};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// Answers with what it was asked. It runs until it is dropped.
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    _tasks: JoinSet<()>,
}

/// An address of this machine that others reach; `None`: it has no network.
pub(super) fn global_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Sends nothing.
    socket.connect("192.0.2.254:9").ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|address| !address.is_loopback())
}

impl Peer {
    pub(super) async fn start(ip: IpAddr) -> Self {
        Self::with(ip, None).await
    }

    /// With TLS: the certificate and key of a server, and the authority of its clients.
    pub(super) async fn secure(ip: IpAddr, files: &(String, String), clients: &str) -> Self {
        let (chain, key) = files;
        let roots = CertificateDer::pem_slice_iter(clients.as_bytes());
        let mut store = rustls::RootCertStore::empty();
        roots.for_each(|root| store.add(root.unwrap()).unwrap());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(store), provider.clone());
        let chain = CertificateDer::pem_slice_iter(chain.as_bytes()).map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.allow_unauthenticated().build().unwrap())
            .with_single_cert(chain, key)
            .unwrap();
        Self::with(ip, Some(TlsAcceptor::from(Arc::new(config)))).await
    }

    async fn with(ip: IpAddr, tls: Option<TlsAcceptor>) -> Self {
        let socket = TcpListener::bind((ip, 0)).await.unwrap();
        let address = socket.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((tcp, _)) = socket.accept().await {
                let tls = tls.clone();
                connections.spawn(async move {
                    match tls {
                        None => serve(tcp, false).await,
                        Some(tls) => {
                            let Ok(io) = tls.accept(tcp).await else { return };
                            let has_certificate = io.get_ref().1.peer_certificates().is_some();
                            serve(io, has_certificate).await;
                        }
                    }
                });
            }
        });
        Self { address, _tasks: tasks }
    }

    pub(super) fn port(&self) -> u16 {
        self.address.port()
    }
}

async fn serve(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, has_certificate: bool) {
    let answer = async |request| Ok::<_, Infallible>(answer(request, has_certificate).await);
    let service = hyper::service::service_fn(move |request| Box::pin(answer(request)));
    let connection = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(io), service)
        .with_upgrades();
    _ = connection.await;
}

async fn answer(mut request: Request<Incoming>, has_certificate: bool) -> Response<Full<Bytes>> {
    let path = request.uri().path().to_owned();
    let headers: Vec<_> = request
        .headers()
        .iter()
        .map(|(name, value)| json!([name.as_str(), String::from_utf8_lossy(value.as_bytes())]))
        .collect();
    let mut seen = json!({
        "method": request.method().as_str(), "target": request.uri().to_string(),
        "headers": headers, "certificate": has_certificate,
    });
    let respond = |code: u16, kind: &str, text: String| {
        Response::builder()
            .status(code)
            .header(header::CONTENT_TYPE, kind)
            .body(Full::from(text))
            .unwrap()
    };
    if let Some(protocol) = request.headers().get(header::UPGRADE).cloned() {
        if path.ends_with("/never") {
            return respond(403, "text/plain", "no other protocol".to_owned());
        }
        let is_spdy = protocol.as_bytes().starts_with(b"SPDY");
        let upgrade = hyper::upgrade::on(&mut request);
        background(async move {
            let io = TokioIo::new(upgrade.await.unwrap());
            match is_spdy && path.starts_with("/exec/") && path.contains("/spoken/") {
                true => speak(io).await,
                false => shout(io).await,
            }
        });
        return Response::builder()
            .status(StatusCode::SWITCHING_PROTOCOLS)
            .header(header::CONNECTION, "Upgrade")
            .header(header::UPGRADE, protocol)
            .header("x-seen", seen.to_string())
            .body(Full::default())
            .unwrap();
    }
    match path.rsplit('/').next().unwrap_or_default() {
        "redirect" => {
            let mut response = respond(302, "text/plain", String::new());
            response.headers_mut().insert(header::LOCATION, "/next".parse().unwrap());
            return response;
        }
        "page" => {
            let page = "<a href=\"/a?b=1&amp;c\">a</a><a href=\"b\">b</a>";
            return respond(200, "text/html", page.to_owned());
        }
        "missing" => return respond(404, "text/plain", "no such container".to_owned()),
        "waiting" => return respond(400, "text/plain", "it waits".to_owned()),
        "broken" => return respond(500, "text/plain", "it broke".to_owned()),
        "refused" => return respond(403, "text/plain", "not for you".to_owned()),
        _ => {}
    }
    let body = request.into_body().collect().await.unwrap().to_bytes();
    seen["n_bytes"] = body.len().into();
    let mut response = respond(200, "application/json", seen.to_string());
    response.headers_mut().insert("access-control-allow-origin", "*".parse().unwrap());
    response
}

/// Sends everything back in capitals.
async fn shout(mut io: TokioIo<Upgraded>) {
    let mut buffer = [0; 1024];
    while let Ok(n @ 1..) = io.read(&mut buffer).await {
        if io.write_all(&buffer[..n].to_ascii_uppercase()).await.is_err() {
            return;
        }
    }
}

/// Serves one command over SPDY, as a kubelet does: the streams `error`, `stdin` and `stdout`,
/// which have the numbers 1, 3 and 5. Its output is its input, and its exit code is 3.
async fn speak(mut io: TokioIo<Upgraded>) {
    let data = |id: u32, bytes: &[u8], is_last: bool| {
        let mut frame = id.to_be_bytes().to_vec();
        frame.push(is_last.into());
        frame.extend_from_slice(&(bytes.len() as u32).to_be_bytes()[1..]);
        frame.extend_from_slice(bytes);
        frame
    };
    let mut input = Vec::new();
    loop {
        let mut head = [0; 8];
        io.read_exact(&mut head).await.unwrap();
        let n = u32::from_be_bytes([0, head[5], head[6], head[7]]);
        let mut body = vec![0; n as usize];
        io.read_exact(&mut body).await.unwrap();
        if head[..4] == 3_u32.to_be_bytes() {
            input.extend_from_slice(&body);
            if head[4] == 1 {
                break;
            }
        }
    }
    let outcome = json!({"status": "Failure", "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": "3"}]}});
    for frame in
        [data(5, &input, false), data(5, b"", true), data(1, outcome.to_string().as_bytes(), true)]
    {
        io.write_all(&frame).await.unwrap();
    }
    shout(io).await;
}

/// An answer with its complete body.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) code: u16,
    pub(super) headers: HeaderMap,
    pub(super) text: String,
}

impl Answer {
    /// What a [`Peer`] has seen.
    pub(super) fn seen(&self) -> Value {
        assert_eq!(self.code, 200, "{self:?}");
        serde_json::from_str(&self.text).unwrap()
    }

    /// Code and target of a redirect.
    pub(super) fn location(&self) -> (u16, &str) {
        (self.code, self.headers["location"].to_str().unwrap())
    }

    /// Code, reason and message of a `Status`.
    pub(super) fn status(&self) -> (u16, String, String) {
        let status: Value = serde_json::from_str(&self.text).unwrap_or_default();
        let text = |name: &str| status[name].as_str().unwrap_or_default().to_owned();
        (self.code, text("reason"), text("message"))
    }
}

/// A value of a header that a [`Peer`] has seen.
pub(super) fn header_of<'s>(seen: &'s Value, name: &str) -> Option<&'s str> {
    let headers = seen["headers"].as_array().unwrap();
    headers.iter().find(|pair| pair[0] == name).and_then(|pair| pair[1].as_str())
}

#[expect(clippy::disallowed_methods, reason = "a test's connections end with its runtime")]
fn background(task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(task);
}

/// Sends a request to a server without TLS.
pub(super) async fn ask(server: &str, request: Request<Full<Bytes>>) -> Response<Incoming> {
    let tcp = TcpStream::connect(server).await.unwrap();
    let shake = hyper::client::conn::http1::handshake(TokioIo::new(tcp));
    let (mut client, connection) = shake.await.unwrap();
    background(async move { _ = connection.with_upgrades().await });
    client.send_request(request).await.unwrap()
}

/// A request to a server.
pub(super) fn request(server: &str, method: &str, path: &str, body: &str) -> Request<Full<Bytes>> {
    Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, server)
        .body(Full::from(body.to_owned()))
        .unwrap()
}

/// The whole answer.
pub(super) async fn send(server: &str, request: Request<Full<Bytes>>) -> Answer {
    let (head, body) = ask(server, request).await.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&body).into_owned();
    Answer { code: head.status.as_u16(), headers: head.headers, text }
}

pub(super) async fn get(server: &str, path: &str) -> Answer {
    send(server, request(server, "GET", path, "")).await
}
