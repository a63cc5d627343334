//! The server: its options, its pages over HTTP, and the end of leases.

use crate::calls::{Shared, answer};
use crate::grpc::AnswerBody;
use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use setpoint_serve::{Limits, Received, Server};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The reported version. Clients choose features by it.
pub const VERSION: &str = "3.6.0";

/// The member of the page `/version` that distinguishes this server from an etcd.
pub const MARK: &str = "setpoint";

/// Options of a server. Start with `Options::default()`.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// The member's name.
    pub name: String,
    /// The advertised client URLs.
    pub advertised: Vec<String>,
    /// Maximum size of all versions of all keys. 2 GiB by default, as etcd.
    pub quota_bytes: usize,
    /// Maximum size of a request. 1.5 MiB by default, as etcd.
    pub request_bytes_max: usize,
    /// Maximum number of operations, and of compares, of a transaction. 128 by default, as etcd.
    pub txn_ops_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: "default".to_owned(),
            advertised: Vec::new(),
            quota_bytes: 2 << 30,
            request_bytes_max: 3 << 19,
            txn_ops_max: 128,
        }
    }
}

/// A server, not yet running. Clones serve the same data.
#[derive(Debug, Clone)]
pub struct EtcdServer {
    shared: Arc<Shared>,
}

impl EtcdServer {
    /// An empty one.
    pub fn new(options: Options) -> Self {
        Self { shared: Shared::new(options) }
    }

    /// Serves a socket until `stop`. Dropping the future ends every connection.
    pub async fn run(&self, socket: TcpListener, stop: CancellationToken) {
        // A watch may be idle forever, and its client stays connected.
        let limits = Limits { http2_idle_max: None, ..Limits::default() };
        let shared = self.shared.clone();
        let serve = move |request: Request<Received>| {
            let shared = shared.clone();
            async move { serve(shared, request).await }
        };
        let server = Server::new(socket, limits).plain_http2();
        tokio::select! {
            biased;
            // Streams of watches never end by themselves.
            () = stop.cancelled() => {}
            () = server.run(serve, stop.clone()) => {}
            () = self.end_leases() => {}
        }
    }

    /// Ends leases in time. Never returns.
    async fn end_leases(&self) {
        loop {
            let changed = self.shared.leases_changed.notified();
            let next = self.shared.keys.lock().leases.next_end();
            let ends = async {
                match next {
                    Some(next) => tokio::time::sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // Cancel safe: the next round looks again.
                () = changed => {}
                // Cancel safe: a sleep holds no state.
                () = ends => self.shared.change(|keys| {
                    let ended = keys.leases.take_ended(Instant::now());
                    keys.end_leases(ended);
                }),
            }
        }
    }
}

async fn serve(shared: Arc<Shared>, request: Request<Received>) -> Response<AnswerBody> {
    let is_grpc = request
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    let (parts, body) = request.into_parts();
    if is_grpc {
        return answer(shared, parts.uri.path(), body).await;
    }
    match parts.uri.path() {
        "/health" => json(r#"{"health":"true","reason":""}"#.to_owned()),
        "/livez" | "/readyz" => page(StatusCode::OK, "text/plain; charset=utf-8", "ok\n".into()),
        "/version" => json(format!(
            r#"{{"etcdserver":"{VERSION}","etcdcluster":"3.6.0","storage":"3.6.0","{MARK}":"{}"}}"#,
            env!("CARGO_PKG_VERSION")
        )),
        _ => {
            page(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "404 page not found\n".into())
        }
    }
}

fn json(body: String) -> Response<AnswerBody> {
    page(StatusCode::OK, "application/json", body)
}

fn page(code: StatusCode, kind: &'static str, body: String) -> Response<AnswerBody> {
    let mut answer = Response::new(Full::new(Bytes::from(body)).boxed_unsync());
    *answer.status_mut() = code;
    answer.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
    answer
}
