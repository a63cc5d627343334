//! A cluster, servers over it, and requests to them.

use crate::server::Server;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::{Api, Client, Config};
use serde_json::Value;
use setpoint_store_etcd::testing::Cluster;
use std::ffi::OsStr;
use std::time::{Duration, Instant};

/// Starts a server over a cluster. Returns once it serves.
pub(crate) fn serve(cluster: &Cluster) -> Server {
    serve_with(cluster, &[])
}

/// The same with further options.
pub(crate) fn serve_with(cluster: &Cluster, options: &[&str]) -> Server {
    let endpoints = cluster.endpoints_flag();
    let options = [&["--store", "etcd", "--etcd-endpoints", &endpoints], options].concat();
    let options: Vec<&OsStr> = options.into_iter().map(OsStr::new).collect();
    // Blocks until the program is ready; nothing else of the test has to run meanwhile.
    tokio::task::block_in_place(|| Server::start_with(&options))
}

/// A client of a server's plain endpoint, without a timeout.
pub(crate) fn client(server: &Server) -> Client {
    let mut config = Config::new(server.plain.parse().unwrap());
    config.read_timeout = None;
    Client::try_from(config).unwrap()
}

pub(crate) fn maps(client: &Client) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), "default")
}

/// Sends any request; returns the response as JSON.
pub(crate) async fn ask(
    client: &Client,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> Result<Value, kube_client::Error> {
    let content =
        if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = http::Request::builder().method(method).uri(path);
    let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
    client.request(request.header("content-type", content).body(body).unwrap()).await
}

/// The raw status and body of a path.
pub(crate) async fn text(client: &Client, path: &str) -> (u16, String) {
    use http_body_util::BodyExt as _;
    let request = http::Request::get(path).body(kube_client::client::Body::empty()).unwrap();
    let response = client.send(request).await.unwrap();
    let (head, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    (head.status.as_u16(), String::from_utf8_lossy(&bytes).into_owned())
}

/// Repeats a request until it returns `Some`; also returns how long that took.
pub(crate) async fn eventually<T>(
    what: &str,
    mut ask: impl AsyncFnMut() -> Option<T>,
) -> (T, Duration) {
    let started = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return (answer, started.elapsed());
        }
        assert!(started.elapsed() < crate::server::PATIENCE, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Formats durations as `median … longest …`, in milliseconds.
pub(crate) fn summary(spans: &mut [Duration]) -> String {
    spans.sort_unstable();
    let ms = |span: Duration| span.as_secs_f64() * 1e3;
    let (median, longest) = (spans[spans.len() / 2], spans[spans.len() - 1]);
    format!("median {:.1} ms, longest {:.1} ms", ms(median), ms(longest))
}
