//! A replica's connection to the server, with the faults of a network.

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use kube_client::client::Body;
use parking_lot::Mutex;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use tokio::{sync::watch, time::Instant};
use tower_service::Service;

use crate::server::Server;

/// A replica's link. A clone is the same link.
#[derive(Clone)]
pub(crate) struct Link(Arc<Inner>);

struct Inner {
    server: Server,
    state: Mutex<State>,
    /// While true, nothing gets through in either direction.
    cut: watch::Sender<bool>,
    /// While true, requests wait in this process, between the first check and the hand-over of the
    /// body.
    held: watch::Sender<bool>,
}

struct State {
    rng: SmallRng,
    /// The longest delay of a request, in each direction.
    delay_max: Duration,
    /// One in this many writes loses its answer after it was done.
    lost_answers: u32,
    /// The writes that reached the server: time, method, path.
    writes: Vec<(Instant, Method, String)>,
}

impl Link {
    pub(crate) fn new(server: &Server, seed: u64) -> Self {
        Self(Arc::new(Inner {
            server: server.clone(),
            state: Mutex::new(State {
                rng: SmallRng::seed_from_u64(seed),
                delay_max: Duration::ZERO,
                lost_answers: 0,
                writes: Vec::new(),
            }),
            cut: watch::Sender::new(false),
            held: watch::Sender::new(false),
        }))
    }

    pub(crate) fn client(&self) -> kube_client::Client {
        kube_client::Client::new(self.clone(), "default")
    }

    /// Cuts or restores the link. Requests on the way wait.
    pub(crate) fn cut(&self, is_cut: bool) {
        self.0.cut.send_replace(is_cut);
    }

    /// Holds requests back inside the process, as a full queue or a blocked layer does.
    pub(crate) fn hold(&self, is_held: bool) {
        self.0.held.send_replace(is_held);
    }

    /// Delays every request by up to this time, in each direction.
    pub(crate) fn delay(&self, max: Duration) {
        self.0.state.lock().delay_max = max;
    }

    /// One in this many writes loses its answer; 0 for none.
    pub(crate) fn lose_answers(&self, one_in: u32) {
        self.0.state.lock().lost_answers = one_in;
    }

    /// The writes that have reached the server so far.
    pub(crate) fn writes(&self) -> Vec<(Instant, Method, String)> {
        self.0.state.lock().writes.clone()
    }

    async fn pass(&self) {
        let delay = {
            let mut state = self.0.state.lock();
            let max = u64::try_from(state.delay_max.as_micros()).unwrap();
            Duration::from_micros(if max == 0 { 0 } else { state.rng.random_range(0..=max) })
        };
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let mut cut = self.0.cut.subscribe();
        cut.wait_for(|is_cut| !is_cut).await.unwrap();
    }
}

impl Service<Request<Body>> for Link {
    type Response = Response<UnsyncBoxBody<Bytes, Infallible>>;
    type Error = std::io::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let link = self.clone();
        Box::pin(async move {
            let mut held = link.0.held.subscribe();
            held.wait_for(|is_held| !is_held).await.unwrap();
            let (parts, body) = request.into_parts();
            // The connection takes the body here: from now on the request is on the wire.
            let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
            let taken = Instant::now();
            link.pass().await;
            let is_write = parts.method != Method::GET;
            let is_lost = {
                let mut state = link.0.state.lock();
                if is_write {
                    let path = parts.uri.path().to_owned();
                    state.writes.push((taken, parts.method.clone(), path));
                }
                let one_in = state.lost_answers;
                is_write && one_in > 0 && state.rng.random_range(0..one_in) == 0
            };
            let request = Request::from_parts(parts, Body::from(body));
            let answer = link.0.server.clone().call(request).await;
            if is_lost {
                return Err(std::io::Error::new(std::io::ErrorKind::ConnectionReset, "lost"));
            }
            link.pass().await;
            let cut = link.0.cut.clone();
            answer.map(|answer| answer.map(|body| severed(body, &cut)))
        })
    }
}

/// An answer's body that does not get through while the link is cut.
fn severed(
    body: UnsyncBoxBody<Bytes, Infallible>,
    cut: &watch::Sender<bool>,
) -> UnsyncBoxBody<Bytes, Infallible> {
    let cut = cut.subscribe();
    let frames = futures::stream::unfold((body, cut), |(mut body, mut cut)| async move {
        let frame = body.frame().await?;
        cut.wait_for(|is_cut| !is_cut).await.ok()?;
        Some((frame, (body, cut)))
    });
    BodyExt::boxed_unsync(http_body_util::StreamBody::new(frames))
}
