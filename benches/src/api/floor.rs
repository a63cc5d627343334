//! The lower bound of a small request: a bare hyper server over rustls, on one thread, that reads
//! the body and answers as many bytes as the program does.

use super::client::{Ask, Endpoint};
use super::small::{Load, N_CONNECTIONS, connect};
use super::{Figures, Goal, Unit};
use crate::process::thread_cpu;
use anyhow::Context as _;
use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// Adds the rows of a get and of a create. `real` is the program, whose answers have the sizes.
pub(super) fn measure(real: &Endpoint, figures: &mut Figures) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for load in [Load::Get, Load::Create] {
        let n_bytes = runtime.block_on(answer_of(load, real))?;
        let server = Server::start(n_bytes)?;
        let driven = runtime.block_on(async {
            let mut connections = Vec::new();
            for _ in 0..N_CONNECTIONS {
                connections.push(server.endpoint.connect().await?);
            }
            load.drive(&mut connections, "floor", || server.cpu()).await
        })?;
        let each = driven.cpu.as_secs_f64() * 1e6 / driven.took.len() as f64;
        let name = format!(
            "{}: CPU of a bare hyper server over rustls that answers as many bytes",
            load.name()
        );
        figures.add(&name, Unit::Micros, Goal::None, each);
    }
    Ok(())
}

/// The size of the program's answer.
async fn answer_of(load: Load, real: &Endpoint) -> anyhow::Result<usize> {
    let mut connection = connect(real, 1).await?.pop().context("a connection")?;
    let (method, path, _, body) = load.request("floor", 0, 0);
    let answer = connection.send(Ask::write(method, &path), body).await?.ok()?;
    Ok(answer.n_bytes)
}

/// The bare server.
struct Server {
    endpoint: Endpoint,
    /// Asks its thread for the CPU time that it has used.
    asks: tokio::sync::mpsc::UnboundedSender<mpsc::Sender<Duration>>,
}

impl Server {
    fn start(n_bytes: usize) -> anyhow::Result<Self> {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
        let certificate = made.cert.der().clone();
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let builder = ServerConfig::builder().with_no_client_auth();
        let chain = vec![certificate.clone()];
        let mut config = builder.with_single_cert(chain, PrivateKeyDer::from(key))?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        let (address, bound) = mpsc::channel();
        let (asks, asked) = tokio::sync::mpsc::unbounded_channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(serve(config, address, asked, Bytes::from(vec![b'x'; n_bytes])))
        });
        let address = bound.recv().context("the bare server did not start")?;
        Ok(Self { endpoint: Endpoint::trusting(address.port(), certificate)?, asks })
    }

    fn cpu(&self) -> anyhow::Result<Duration> {
        let (reply, cpu) = mpsc::channel();
        self.asks.send(reply)?;
        cpu.recv().context("the bare server has ended")
    }
}

/// Serves until nobody asks for its CPU time any more.
async fn serve(
    config: ServerConfig,
    address: mpsc::Sender<SocketAddr>,
    mut asked: tokio::sync::mpsc::UnboundedReceiver<mpsc::Sender<Duration>>,
    answer: Bytes,
) -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    address.send(listener.local_addr()?)?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            ask = asked.recv() => match ask {
                Some(reply) => reply.send(thread_cpu()?)?,
                None => return Ok(()),
            },
            accepted = listener.accept() => {
                let (stream, _) = accepted?;
                stream.set_nodelay(true)?;
                let (acceptor, answer) = (acceptor.clone(), answer.clone());
                connections.spawn(async move {
                    let stream = TokioIo::new(acceptor.accept(stream).await?);
                    let service = service_fn(move |request| respond(request, answer.clone()));
                    let http2 = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    anyhow::Ok(http2.serve_connection(stream, service).await?)
                });
            }
        }
    }
}

async fn respond(
    request: Request<Incoming>,
    answer: Bytes,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let is_create = request.method() == http::Method::POST;
    request.into_body().collect().await?;
    let mut response = Response::new(Full::new(answer));
    if is_create {
        *response.status_mut() = StatusCode::CREATED;
    }
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    Ok(response)
}
