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

/// Others take far more turns while a large body is worked on on another thread, and a few if that
/// is done in a turn of the request.
const MANY: usize = 100;

/// Sends a request. Returns its code, and how many turns others had before it was answered.
async fn turns_of_others(api: &ApiServer, mut request: Request<Full<Bytes>>) -> (u16, usize) {
    request.extensions_mut().insert(Identity::admin());
    let mut answer = std::pin::pin!(api.serve(request));
    let mut n_turns = 0;
    loop {
        if let Poll::Ready(response) = futures::poll!(answer.as_mut()) {
            return (response.status().as_u16(), n_turns);
        }
        tokio::task::yield_now().await;
        n_turns += 1;
    }
}

#[tokio::test]
async fn an_error_that_repeats_a_large_body_is_written_on_another_thread() {
    let (api, _tasks) = start();
    let body = format!(r#"{{"metadata": {{"name": "{}"}}}}"#, "<".repeat(2_000_000));
    let (code, n_turns) = turns_of_others(&api, request("POST", MAPS, &body)).await;
    assert_eq!(code, 422);
    assert!(n_turns > MANY, "{n_turns}");
}

#[tokio::test]
async fn large_options_of_a_delete_are_read_on_another_thread() {
    let (api, _tasks) = start();
    let entries = "a: {}, ".repeat(50_000);
    let body = format!("kind: DeleteOptions\napiVersion: v1\nx: {{{entries}}}");
    for (path, expected) in [(&*format!("{MAPS}/none"), 404), (MAPS, 200)] {
        let mut delete = request("DELETE", path, &body);
        delete.headers_mut().insert("content-type", "application/yaml".parse().unwrap());
        let (code, n_turns) = turns_of_others(&api, delete).await;
        assert_eq!(code, expected);
        assert!(n_turns > MANY, "{path}: {n_turns}");
    }
}
