//! A client with little overhead: one HTTP/2 connection over TLS, which counts bodies and discards
//! them.

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube_client::Config;
use kube_client::client::ConfigExt as _;
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

/// The address and credentials of a program.
#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    uri: Uri,
    tls: Arc<rustls::ClientConfig>,
}

impl Endpoint {
    /// Reads the kubeconfig written by the program.
    pub(super) fn of(kubeconfig: &Path) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
        let options = KubeConfigOptions::default();
        let config = runtime.block_on(Config::from_custom_kubeconfig(kubeconfig, &options))?;
        let mut tls = config.rustls_client_config()?;
        tls.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Self { uri: config.cluster_url, tls: Arc::new(tls) })
    }

    /// Opens a separate connection.
    pub(super) async fn connect(&self) -> anyhow::Result<Connection> {
        let host = self.uri.host().context("host")?.to_owned();
        let stream = TcpStream::connect((&*host, self.uri.port_u16().context("port")?)).await?;
        stream.set_nodelay(true)?;
        let name = rustls::pki_types::ServerName::try_from(host)?;
        let stream = TlsConnector::from(self.tls.clone()).connect(name, stream).await?;
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await?;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            // It ends when the sender is dropped, or with an error that the sender returns.
            let _ = connection.await;
        });
        let base = self.uri.to_string().trim_end_matches('/').to_owned();
        Ok(Connection { sender, base, _driver: driver })
    }
}

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    base: String,
    _driver: JoinSet<()>,
}

/// A request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ask<'a> {
    pub(super) method: &'static str,
    pub(super) path: &'a str,
    pub(super) content_type: &'static str,
    pub(super) accept: &'static str,
    pub(super) gzip: bool,
}

impl<'a> Ask<'a> {
    /// A GET of JSON.
    pub(super) fn get(path: &'a str) -> Self {
        let content_type = "application/json";
        Self { method: "GET", path, content_type, accept: "application/json", gzip: false }
    }

    /// A write of JSON.
    pub(super) fn write(method: &'static str, path: &'a str) -> Self {
        Self { method, ..Self::get(path) }
    }
}

/// The result of a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    /// Time from the request to the first bytes of the body.
    pub(super) first: Duration,
    /// Time from the request to the last byte.
    pub(super) whole: Duration,
    /// Size of the body, as sent.
    pub(super) n_bytes: usize,
}

impl Answer {
    /// Returns an error unless the status is a success.
    pub(super) fn ok(self) -> anyhow::Result<Self> {
        ensure!(self.status.is_success(), "the server answered {}", self.status);
        Ok(self)
    }
}

impl Connection {
    /// Sends a request and reads the response to its end.
    pub(super) async fn send(&mut self, ask: Ask<'_>, body: Bytes) -> anyhow::Result<Answer> {
        let started = Instant::now();
        let response = self.begin(ask, body).await?;
        let status = response.status();
        let mut body = response.into_body();
        let (mut first, mut n_bytes) = (None, 0);
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame?.into_data() {
                first.get_or_insert_with(|| started.elapsed());
                n_bytes += data.len();
            }
        }
        let whole = started.elapsed();
        Ok(Answer { status, first: first.unwrap_or(whole), whole, n_bytes })
    }

    /// Sends a request and returns the response when its head has arrived.
    pub(super) async fn begin(
        &mut self,
        ask: Ask<'_>,
        body: Bytes,
    ) -> anyhow::Result<http::Response<Incoming>> {
        let mut request = Request::builder()
            .method(ask.method)
            .uri(format!("{}{}", self.base, ask.path))
            .header("accept", ask.accept)
            .header("user-agent", "setpoint-benches");
        if !body.is_empty() {
            request = request.header("content-type", ask.content_type);
        }
        if ask.gzip {
            request = request.header("accept-encoding", "gzip");
        }
        self.sender.ready().await?;
        Ok(self.sender.send_request(request.body(Full::new(body))?).await?)
    }
}
