//! The lower bound of small requests and of deliveries: hyper and rustls with fixed bytes, and
//! nothing else. What they cost beyond that is the API server's own.

use super::client::Endpoint;
use super::fan_out::Crowd;
use super::small::{Load, N_CONNECTIONS, connect_only};
use super::{Figures, Goal, Unit};
use crate::process::Program;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::json;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast::{self, Sender};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// Length of each answer and event: about that of a stored ConfigMap of the loads.
const ANSWER_BYTES: usize = 1450;
/// Events that a watcher may be behind.
const BEHIND_MAX: usize = 1024;

type Body = BoxBody<Bytes, Infallible>;

/// The command line of `setpoint up`, as far as [`Program`] uses it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Ignored: the port is free.
    #[arg(long)]
    secure_port: u16,
    /// Where to write the kubeconfig.
    #[arg(long)]
    kubeconfig: PathBuf,
}

/// Serves until the process is ended.
pub(crate) fn serve(args: &Args) -> anyhow::Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
        let own = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
        let key = PrivateKeyDer::Pkcs8(own.signing_key.serialize_der().into());
        let mut config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let server = format!("https://{}", listener.local_addr()?);
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "bare",
            "clusters": [{"name": "bare", "cluster": {"server": server, "insecure-skip-tls-verify": true}}],
            "users": [{"name": "bare", "user": {}}],
            "contexts": [{"name": "bare", "context": {"cluster": "bare", "user": "bare"}}],
        });
        std::fs::write(&args.kubeconfig, kubeconfig.to_string())?;
        println!("ready {server}");
        let mut answer = vec![b' '; ANSWER_BYTES];
        answer[ANSWER_BYTES - 1] = b'\n';
        let answer = Bytes::from(answer);
        let (events, _) = broadcast::channel(BEHIND_MAX);
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await?;
            let (answer, events) = (answer.clone(), events.clone());
            connections.spawn(converse(acceptor.clone(), stream, answer, events));
            while connections.try_join_next().is_some() {}
        }
    })
}

/// Answers every request with the same bytes. A write also sends them to whoever watches.
async fn converse(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    answer: Bytes,
    events: Sender<Bytes>,
) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let stream = TokioIo::new(acceptor.accept(stream).await?);
    let service = service_fn(move |request: http::Request<Incoming>| {
        let (answer, events) = (answer.clone(), events.clone());
        async move {
            let is_create = request.method() == Method::POST;
            let body: Body = match request.uri().query() {
                Some(query) if query.contains("watch=true") => {
                    let events = futures::stream::unfold(events.subscribe(), |mut events| async {
                        Some((Ok(Frame::data(events.recv().await.ok()?)), events))
                    });
                    BodyExt::boxed(StreamBody::new(Box::pin(events)))
                }
                _ => {
                    if request.method() == Method::PUT {
                        // Without watchers, nobody wants it.
                        let _ = events.send(answer.clone());
                    }
                    // A body that breaks off ends the connection by itself.
                    let _ = request.into_body().collect().await;
                    Full::new(answer).boxed()
                }
            };
            let mut response = Response::new(body);
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(CONTENT_TYPE, json);
            if is_create {
                *response.status_mut() = StatusCode::CREATED;
            }
            Ok::<_, Infallible>(response)
        }
    });
    let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    Ok(builder.serve_connection(stream, service).await?)
}

/// The same loads as of the program.
pub(super) fn measure(figures: &mut Figures) -> anyhow::Result<()> {
    let program = Program::start_binary(&std::env::current_exe()?, &[])?;
    let endpoint = Endpoint::of(&program.kubeconfig)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut connections = connect_only(&endpoint, N_CONNECTIONS).await?;
        for load in [Load::Get, Load::Create, Load::PodCreate] {
            let driven = load.drive(&mut connections, "bare", || program.cpu()).await?;
            let n = driven.took.len() as f64;
            let name = format!("{}, a bare server: CPU", load.name());
            figures.add(&name, Unit::Micros, Goal::None, driven.cpu.as_secs_f64() * 1e6 / n);
        }
        anyhow::Ok(())
    })?;
    let crowd = Crowd::MANY;
    let each = crowd.deliver(&endpoint, || program.cpu())?.cpu.as_secs_f64() * 1e6;
    let watchers = crowd.watchers;
    let name =
        format!("delivery of a change of 1 KiB to {watchers} watchers, a bare server: CPU each");
    figures.add(&name, Unit::Micros, Goal::None, each);
    Ok(())
}
