//! What is large is worked on while other requests are served.

use crate::harness::{EPOCH, request};
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use setpoint_apiserver::{ApiServer, Credentials, Identity};
use setpoint_object::time::Clock;
use setpoint_registry::Registry;
use setpoint_store::MemoryStore;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A server without a seed. One with a seed does everything on one thread.
fn start() -> (ApiServer, JoinSet<()>) {
    let store = Arc::new(MemoryStore::default());
    let (registry, worker) = Registry::builder(store, Clock::starting_at(EPOCH)).build();
    let api = ApiServer::builder(registry).credentials(Credentials::none()).build();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { worker.run(CancellationToken::new()).await.unwrap() });
    (api, tasks)
}

/// Sends a request. Returns its code, the time it took, and the longest time for which it held its
/// thread.
#[expect(clippy::disallowed_methods, reason = "the time that a processor takes is real")]
async fn hold(api: &ApiServer, mut request: Request<Full<Bytes>>) -> (u16, Duration, Duration) {
    request.extensions_mut().insert(Identity::admin());
    let begun = Instant::now();
    let mut longest = Duration::ZERO;
    let mut answer = std::pin::pin!(api.serve(request));
    loop {
        let polled_at = Instant::now();
        let polled = futures::poll!(answer.as_mut());
        longest = longest.max(polled_at.elapsed());
        if let Poll::Ready(response) = polled {
            return (response.status().as_u16(), begun.elapsed(), longest);
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_error_that_repeats_a_large_body_is_written_on_another_thread() {
    let (api, _tasks) = start();
    let body = format!(r#"{{"metadata": {{"name": "{}"}}}}"#, "<".repeat(2_000_000));
    let (code, total, longest) = hold(&api, request("POST", MAPS, &body)).await;
    assert_eq!(code, 422);
    assert!(longest < total / 4, "{longest:?} of {total:?}");
}

#[tokio::test]
async fn large_options_of_a_delete_are_read_on_another_thread() {
    let (api, _tasks) = start();
    let entries = "a: {}, ".repeat(50_000);
    let body = format!("kind: DeleteOptions\napiVersion: v1\nx: {{{entries}}}");
    for (path, expected) in [(&*format!("{MAPS}/none"), 404), (MAPS, 200)] {
        let mut delete = request("DELETE", path, &body);
        delete.headers_mut().insert("content-type", "application/yaml".parse().unwrap());
        let (code, total, longest) = hold(&api, delete).await;
        assert_eq!(code, expected);
        assert!(longest < total / 4, "{path}: {longest:?} of {total:?}");
    }
}
