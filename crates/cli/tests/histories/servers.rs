//! API servers that start and stop, each over a store that may be shared.

use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use kube_client::Client;
use kube_client::client::Body;
use serde_json::Value;
use setpoint::ControlPlane;
use setpoint::control_plane::ControlPlaneError;
use setpoint::store::Store;
use std::sync::{Arc, Mutex};
use tokio::sync::{RwLock, RwLockReadGuard};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How many revisions before its start a server's watches may begin at.
const REPLAYED_REVISIONS: u64 = 1000;

/// One API server, running or not.
#[derive(Default)]
pub(crate) struct Server {
    up: Mutex<Option<Up>>,
    running: tokio::sync::Mutex<JoinSet<Result<(), ControlPlaneError>>>,
    /// Held by requests in progress, except watches.
    answering: RwLock<()>,
}

#[derive(Clone)]
struct Up {
    client: Client,
    stop: CancellationToken,
    /// Cancelled when its process is gone.
    dead: CancellationToken,
}

/// The outcome of a request.
#[derive(Debug)]
pub(crate) enum Answer {
    /// A response.
    Response(StatusCode, Value),
    /// The connection broke.
    Cut,
}

/// A watch's stream.
pub(crate) struct Stream {
    body: Body,
    /// The bytes of an incomplete line.
    rest: Vec<u8>,
    dead: CancellationToken,
}

impl Server {
    /// Starts a server over a store and waits until it is ready.
    ///
    /// # Errors
    ///
    /// If it ended while it started.
    pub(crate) async fn try_start(&self, store: Arc<dyn Store>, seed: u64) -> Result<(), String> {
        let plane = ControlPlane::builder()
            .store(store)
            .simulated(seed)
            .controllers(false)
            .replayed_revisions(REPLAYED_REVISIONS)
            .build();
        let (stop, dead) = (CancellationToken::new(), CancellationToken::new());
        let (client, mut ready) = (plane.client(), plane.ready());
        let mut running = self.running.lock().await;
        running.spawn(plane.run(stop.clone()));
        tokio::select! {
            ready = ready.wait_for(|ready| *ready) => drop(ready.expect("it starts")),
            ended = running.join_next() => return Err(format!("{ended:?}")),
        }
        *self.up.lock().unwrap() = Some(Up { client, stop, dead });
        Ok(())
    }

    /// Connects this client to a server that is a separate process.
    #[cfg(feature = "real-clients")]
    pub(crate) fn attach(&self, client: Client) {
        let (stop, dead) = (CancellationToken::new(), CancellationToken::new());
        *self.up.lock().unwrap() = Some(Up { client, stop, dead });
    }

    /// The separate process is gone.
    #[cfg(feature = "real-clients")]
    pub(crate) fn detach(&self) {
        if let Some(up) = self.up.lock().unwrap().take() {
            up.dead.cancel();
        }
    }

    /// Completes its requests, ends watches, and stops.
    pub(crate) async fn stop(&self) {
        let Some(up) = self.up.lock().unwrap().take() else { return };
        drop(self.answering.write().await);
        up.stop.cancel();
        let mut running = self.running.lock().await;
        while let Some(ended) = running.join_next().await {
            ended.unwrap().unwrap();
        }
        up.dead.cancel();
    }

    /// Stops immediately, with everything that it was doing.
    pub(crate) async fn crash(&self) {
        let Some(up) = self.up.lock().unwrap().take() else { return };
        up.dead.cancel();
        self.running.lock().await.shutdown().await;
    }

    fn up(&self) -> Option<Up> {
        self.up.lock().unwrap().clone()
    }

    /// Whether it accepts requests.
    pub(crate) fn is_up(&self) -> bool {
        self.up().is_some()
    }

    async fn answering(&self) -> RwLockReadGuard<'_, ()> {
        self.answering.read().await
    }

    /// Sends a request. [`Answer::Cut`] also if the server is down.
    pub(crate) async fn ask(
        &self,
        method: &Method,
        path: &str,
        kind: &str,
        body: &Value,
    ) -> Answer {
        let _answering = self.answering().await;
        let Some(Up { client, dead, .. }) = self.up() else { return Answer::Cut };
        let asking = async {
            let answer = client.send(request(method, path, kind, body)).await.ok()?;
            let code = answer.status();
            let bytes = answer.into_body().collect().await.ok()?.to_bytes();
            Some((code, serde_json::from_slice(&bytes).unwrap()))
        };
        tokio::select! {
            biased;
            // When the server dies, so do its requests, at any point.
            () = dead.cancelled() => Answer::Cut,
            answer = asking => answer.map_or(Answer::Cut, |(code, body)| Answer::Response(code, body)),
        }
    }

    /// Creates a namespace.
    #[cfg(feature = "real-clients")]
    pub(crate) async fn insist_on_namespace(&self, name: &str) {
        let body = serde_json::json!({"metadata": {"name": name}});
        for _ in 0..100 {
            let answer =
                self.ask(&Method::POST, "/api/v1/namespaces", "application/json", &body).await;
            if let Answer::Response(StatusCode::CREATED | StatusCode::CONFLICT, _) = answer {
                return;
            }
        }
        panic!("the namespace {name} cannot be made");
    }

    /// Starts a watch; `None` if it is refused.
    pub(crate) async fn watch(&self, path: &str) -> Option<Stream> {
        let Up { client, dead, .. } = self.up()?;
        let asking = client.send(request(&Method::GET, path, "", &Value::Null));
        let answer = tokio::select! {
            biased;
            () = dead.cancelled() => return None,
            answer = asking => answer.ok()?,
        };
        let is_stream = answer.status() == StatusCode::OK;
        is_stream.then(|| Stream { body: answer.into_body(), rest: Vec::new(), dead })
    }
}

fn request(method: &Method, path: &str, kind: &str, body: &Value) -> Request<Body> {
    let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = Request::builder().method(method).uri(path);
    request.header(http::header::CONTENT_TYPE, kind).body(Body::from(bytes)).unwrap()
}

impl Stream {
    /// The next event; `None` at the end of the stream for any reason. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = tokio::select! {
                biased;
                () = self.dead.cancelled() => return None,
                frame = self.body.frame() => frame?.ok()?,
            };
            self.rest.extend(frame.into_data().ok()?);
        }
    }
}
