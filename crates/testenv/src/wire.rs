//! A connection between a client and the server in this process. It records the traffic, and
//! injects faults of networks and servers.
//!
//! | a request may | a watch may also |
//! |---|---|
//! | be refused: 500, 429 with `Retry-After`, a write 409 | end after some frames |
//! | not reach the server | break in the middle of a frame |
//! | be carried out while its response is lost | expire: `410 Gone` |
//! | meet the [`Crash`] of its process | be slow |
//!
//! Seeded random numbers choose the faults: the same requests in the same order meet the same
//! faults.

mod trace;
mod watched;

pub use trace::Trace;

use bytes::Bytes;
use futures::future::pending;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use kube_client::Client;
use kube_client::client::Body;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Passed = UnsyncBoxBody<Bytes, BoxError>;

/// Maximum number of frames before an injected failure of a watch.
const FRAMES_MAX: u32 = 4;

/// The faults to inject, and how often.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Faults {
    /// The seed of the random numbers.
    pub seed: u64,
    /// Probability that a request meets a fault, from 0.0 to 1.0. Three times as high for a watch,
    /// because watches are few and long-lived.
    pub chance: f64,
    /// Maximum number of faults. After that everything works.
    pub faults_max: usize,
}

/// When a client's process is killed: at its write of this number, counted from 1 over all of its
/// lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// The write is not sent.
    Before(usize),
    /// The write is carried out, whatever the [`Faults`], but the process does not see the
    /// response.
    After(usize),
}

/// One client's connection to the server. Clones share it.
#[derive(Clone)]
pub struct Wire {
    inner: Client,
    who: Arc<str>,
    trace: Trace,
    shared: Arc<Shared>,
    /// The life of the client in which this connection was made. Connections of earlier lives are
    /// dead.
    life: usize,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").field("who", &self.who).field("life", &self.life).finish()
    }
}

struct Shared {
    state: Mutex<State>,
    crashed: Notify,
    chance: f64,
    crash: Option<Crash>,
}

struct State {
    rng: SmallRng,
    faults_left: usize,
    n_requests: usize,
    n_writes: usize,
    life: usize,
}

/// The fate of a request.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Pass,
    /// Answered with an error and not carried out.
    Refuse(StatusCode, &'static str),
    /// Does not reach the server.
    Unreachable,
    /// Carried out, but the response is lost.
    AnswerLost,
    /// The stream ends gracefully after this many frames.
    Ends(u32),
    /// The stream breaks in the middle of a frame, after this many frames.
    Breaks(u32),
    /// The stream expires after this many frames.
    Expires(u32),
    /// Each frame is delayed by this duration.
    Slow(Duration),
}

impl Wire {
    /// A connection over `inner`, of a client that the trace calls `who`.
    pub fn new(
        inner: Client,
        who: &str,
        trace: Trace,
        faults: Faults,
        crash: Option<Crash>,
    ) -> Self {
        let state = State {
            rng: SmallRng::seed_from_u64(faults.seed),
            faults_left: faults.faults_max,
            n_requests: 0,
            n_writes: 0,
            life: 0,
        };
        let shared = Shared {
            state: Mutex::new(state),
            crashed: Notify::new(),
            chance: faults.chance,
            crash,
        };
        Self { inner, who: who.into(), trace, shared: Arc::new(shared), life: 0 }
    }

    /// A connection without faults.
    pub fn clean(inner: Client, who: &str, trace: Trace) -> Self {
        Self::new(inner, who, trace, Faults::default(), None)
    }

    /// A client in the current life.
    pub fn client(&self) -> Client {
        let wire = Self { life: self.shared.state.lock().life, ..self.clone() };
        let service = tower::service_fn(move |request| {
            let wire = wire.clone();
            async move { wire.send(request).await }
        });
        Client::new(service, "default")
    }

    /// Waits until the client's process is killed. Cancel safe; one caller at a time.
    pub async fn crashed(&self) {
        self.shared.crashed.notified().await;
    }

    /// Stops injecting faults.
    pub fn stop_faults(&self) {
        self.shared.state.lock().faults_left = 0;
    }

    /// Number of requests, over all lives.
    pub fn n_requests(&self) -> usize {
        self.shared.state.lock().n_requests
    }

    /// Number of write requests, over all lives.
    pub fn n_writes(&self) -> usize {
        self.shared.state.lock().n_writes
    }

    fn is_dead(&self) -> bool {
        self.shared.state.lock().life != self.life
    }

    /// Kills the process: nothing that it started continues.
    async fn die<T>(&self) -> T {
        self.trace.line(format_args!("{} is killed", self.who));
        self.shared.state.lock().life += 1;
        self.shared.crashed.notify_one();
        pending().await
    }

    async fn send(self, request: Request<Body>) -> Result<Response<Passed>, BoxError> {
        if self.is_dead() {
            return pending().await;
        }
        let is_write = request.method() != Method::GET;
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch="));
        let line = format!("{} {} {}", self.who, request.method(), request.uri());
        let (fate, n_writes) = {
            let mut state = self.shared.state.lock();
            state.n_requests += 1;
            state.n_writes += usize::from(is_write);
            (state.fate(is_write, is_watch, self.shared.chance), state.n_writes)
        };
        if is_write && self.shared.crash == Some(Crash::Before(n_writes)) {
            return self.die().await;
        }
        let is_last = is_write && self.shared.crash == Some(Crash::After(n_writes));
        // A fault would keep it from being carried out.
        let fate = if is_last { Fate::Pass } else { fate };
        if let Fate::Refuse(status, reason) = fate {
            self.trace.line(format_args!("{line}: {fate:?}"));
            return Ok(refusal(status, reason));
        }
        let answer: Result<_, BoxError> = match fate {
            Fate::Unreachable => Err("connection refused".into()),
            Fate::AnswerLost => {
                let answer = self.inner.send(request).await?;
                self.trace.line(format_args!("{line}: {} on its way back", answer.status()));
                Err("connection reset by peer".into())
            }
            _ => Ok(self.inner.send(request).await?),
        };
        match &answer {
            Ok(answer) => self.trace.line(format_args!("{line}: {} {fate:?}", answer.status())),
            Err(error) => self.trace.line(format_args!("{line}: {error}")),
        }
        if is_last {
            return self.die().await;
        }
        if self.is_dead() {
            return pending().await;
        }
        match answer {
            Ok(answer) if is_watch && answer.status().is_success() => {
                Ok(watched::pass(self, answer, line, fate))
            }
            other => Ok(other?.map(|body| body.map_err(BoxError::from).boxed_unsync())),
        }
    }
}

impl State {
    /// Draws whether a fault happens, and which: the same calls meet the same faults.
    fn fate(&mut self, is_write: bool, is_watch: bool, chance: f64) -> Fate {
        let (chance_draw, kind, frames) = (
            self.rng.random::<f64>(),
            self.rng.random_range(0..7_u32),
            self.rng.random_range(0..FRAMES_MAX),
        );
        // Watches are few and long-lived.
        let chance = if is_watch { chance * 3.0 } else { chance };
        if self.faults_left == 0 || chance_draw >= chance {
            return Fate::Pass;
        }
        self.faults_left -= 1;
        match kind {
            0 => Fate::Refuse(StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
            1 => Fate::Refuse(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests"),
            2 => Fate::Unreachable,
            3 if is_watch => Fate::Ends(frames),
            4 if is_watch => Fate::Breaks(frames),
            5 if is_watch => Fate::Expires(frames),
            _ if is_watch => Fate::Slow(Duration::from_millis(700) * (frames + 1)),
            3 | 4 if is_write => Fate::Refuse(StatusCode::CONFLICT, "Conflict"),
            _ => Fate::AnswerLost,
        }
    }
}

/// An error response in the server's words.
fn refusal(code: StatusCode, reason: &str) -> Response<Passed> {
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("injected {reason}"), "reason": reason, "code": code.as_u16(),
    });
    let body = Full::new(Bytes::from(status.to_string())).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if code == StatusCode::TOO_MANY_REQUESTS {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    /// The write at which a process was to be killed could be refused. Then it was never killed.
    #[tokio::test(start_paused = true)]
    async fn write_of_a_crash_is_carried_out_whatever_the_faults() {
        for seed in 0..50 {
            let written = Arc::new(AtomicUsize::new(0));
            let server = tower::service_fn({
                let written = written.clone();
                move |_: Request<Body>| {
                    written.fetch_add(1, Relaxed);
                    async { Ok::<_, std::io::Error>(Response::new(Body::empty())) }
                }
            });
            let faults = Faults { seed, chance: 1.0, faults_max: 100 };
            let (inner, trace) = (Client::new(server, "default"), Trace::new(false));
            let wire = Wire::new(inner, "it", trace, faults, Some(Crash::After(1)));
            let client = wire.client();
            let write = Request::post("/api/v1/namespaces").body(Body::empty()).unwrap();
            tokio::select! {
                biased;
                () = wire.crashed() => {}
                answer = client.send(write) => {
                    panic!("seed {seed}: {:?}", answer.map(|answer| answer.status()));
                }
            }
            assert_eq!(written.load(Relaxed), 1, "seed {seed}");
        }
    }
}
