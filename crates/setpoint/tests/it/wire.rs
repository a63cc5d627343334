//! What lies between a client and the server in this process: it writes down what passes, and does
//! what networks and servers do to clients.

use bytes::Bytes;
use futures::StreamExt;
use futures::future::pending;
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyDataStream, BodyExt, Full, StreamBody};
use kube_client::Client;
use kube_client::client::Body;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Passed = UnsyncBoxBody<Bytes, BoxError>;

/// An expired watch, as it ends.
const EXPIRED: &[u8] = br#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version: 1 (2)","reason":"Expired","code":410}}
"#;

/// How many frames a broken watch brings at most before it breaks.
const FRAMES_MAX: u32 = 4;

/// Everything that passed, one line each, with the time since the start in ms.
#[derive(Clone)]
pub(crate) struct Trace(Arc<Lines>);

struct Lines {
    started: Instant,
    lines: Mutex<String>,
    /// A replay shows them as they come.
    is_replay: bool,
}

impl Trace {
    pub(crate) fn new() -> Self {
        let is_replay = std::env::var_os("SEED").is_some();
        Self(Arc::new(Lines { started: Instant::now(), lines: Mutex::default(), is_replay }))
    }

    pub(crate) fn say(&self, line: impl std::fmt::Display) {
        let Lines { started, lines, is_replay } = &*self.0;
        let line = format!("{:>8} {line}", started.elapsed().as_millis());
        if *is_replay {
            eprintln!("{line}");
        }
        writeln!(lines.lock().unwrap(), "{line}").unwrap();
    }

    pub(crate) fn told(&self) -> String {
        self.0.lines.lock().unwrap().clone()
    }
}

/// Fails at the first line in which two traces differ.
pub(crate) fn assert_same(left: &str, right: &str) {
    for (n, (left, right)) in left.lines().zip(right.lines()).enumerate() {
        assert_eq!(left, right, "line {n}");
    }
    assert_eq!(left.lines().count(), right.lines().count());
}

/// Says how to play a seed again when the test fails with it.
pub(crate) struct Replay {
    pub(crate) seed: u64,
    pub(crate) test: &'static str,
}

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { seed, test } = self;
            let package = env!("CARGO_PKG_NAME");
            eprintln!(
                "replay: SEED={seed} cargo test -p {package} --test it {test} -- --nocapture"
            );
        }
    }
}

/// The seeds to try: `SEED` alone, or as many as `SEEDS` says, or `n`.
pub(crate) fn seeds(n: u64) -> std::ops::Range<u64> {
    let asked = |name| std::env::var(name).ok().map(|number| number.parse::<u64>().unwrap());
    match asked("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..asked("SEEDS").unwrap_or(n),
    }
}

/// What goes wrong, and how often.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    /// The seed of the dice.
    pub seed: u64,
    /// How likely each request is to meet a fault, from 0.0 to 1.0.
    pub chance: f64,
    /// After so many faults everything works.
    pub faults_max: usize,
}

/// When a client's process dies: at its write of this number, counted from 1 over all of its lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Crash {
    Before(usize),
    After(usize),
}

/// One client's connection to the server. Clones share it.
#[derive(Clone)]
pub(crate) struct Wire {
    inner: Client,
    who: &'static str,
    trace: Trace,
    shared: Arc<Shared>,
    /// In which life of the client this connection was made; one of an earlier life is dead.
    life: usize,
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

/// What happens to a request.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Pass,
    /// Answered without being carried out.
    Refuse(StatusCode, &'static str),
    /// Never gets there.
    Unreachable,
    /// Carried out, but the answer is lost.
    AnswerLost,
    /// The stream ends politely after so many frames.
    Ends(u32),
    /// The stream breaks in the middle of a frame after so many.
    Breaks(u32),
    /// The stream expires after so many frames.
    Expires(u32),
    /// Each frame comes so much later.
    Slow(Duration),
}

impl Wire {
    pub(crate) fn new(
        inner: Client,
        who: &'static str,
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
        Self { inner, who, trace, shared: Arc::new(shared), life: 0 }
    }

    /// A connection without faults.
    pub(crate) fn clean(inner: Client, who: &'static str, trace: Trace) -> Self {
        Self::new(inner, who, trace, Faults::default(), None)
    }

    /// The client, in its present life.
    pub(crate) fn client(&self) -> Client {
        let wire = Self { life: self.shared.state.lock().unwrap().life, ..self.clone() };
        let service = tower::service_fn(move |request| {
            let wire = wire.clone();
            async move { wire.send(request).await }
        });
        Client::new(service, "default")
    }

    /// Waits until the client's process dies.
    pub(crate) async fn crashed(&self) {
        self.shared.crashed.notified().await;
    }

    /// From now on everything works.
    pub(crate) fn heal(&self) {
        self.shared.state.lock().unwrap().faults_left = 0;
    }

    pub(crate) fn n_requests(&self) -> usize {
        self.shared.state.lock().unwrap().n_requests
    }

    pub(crate) fn n_writes(&self) -> usize {
        self.shared.state.lock().unwrap().n_writes
    }

    fn is_dead(&self) -> bool {
        self.shared.state.lock().unwrap().life != self.life
    }

    /// The process dies here: nothing that it began goes on.
    async fn die<T>(&self) -> T {
        self.trace.say(format_args!("{} dies", self.who));
        self.shared.state.lock().unwrap().life += 1;
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
            let mut state = self.shared.state.lock().unwrap();
            state.n_requests += 1;
            state.n_writes += usize::from(is_write);
            (state.fate(is_write, is_watch, self.shared.chance), state.n_writes)
        };
        if is_write && self.shared.crash == Some(Crash::Before(n_writes)) {
            return self.die().await;
        }
        if let Fate::Refuse(status, reason) = fate {
            self.trace.say(format_args!("{line}: {fate:?}"));
            return Ok(refusal(status, reason));
        }
        let answer: Result<_, BoxError> = match fate {
            Fate::Unreachable => Err("connection refused".into()),
            Fate::AnswerLost => {
                let answer = self.inner.send(request).await?;
                self.trace.say(format_args!("{line}: {} on its way back", answer.status()));
                Err("connection reset by peer".into())
            }
            _ => Ok(self.inner.send(request).await?),
        };
        match &answer {
            Ok(answer) => self.trace.say(format_args!("{line}: {} {fate:?}", answer.status())),
            Err(error) => self.trace.say(format_args!("{line}: {error}")),
        }
        if is_write && self.shared.crash == Some(Crash::After(n_writes)) {
            return self.die().await;
        }
        if self.is_dead() {
            return pending().await;
        }
        match answer {
            Ok(answer) if is_watch && answer.status().is_success() => {
                Ok(self.watched(answer, line, fate))
            }
            other => Ok(other?.map(|body| body.map_err(BoxError::from).boxed_unsync())),
        }
    }

    /// A watch's answer, frame by frame.
    fn watched(self, answer: Response<Body>, line: String, fate: Fate) -> Response<Passed> {
        let (parts, body) = answer.into_parts();
        let watched = Watched { wire: self, line, fate, frames: body.into_data_stream(), n: 0 };
        let frames = futures::stream::unfold(Some(watched), |watched| async {
            let mut watched = watched?;
            let frame = watched.next().await?;
            let goes_on = frame.is_ok() && !matches!(&frame, Ok(frame) if frame == EXPIRED);
            Some((frame.map(Frame::data), goes_on.then_some(watched)))
        });
        Response::from_parts(parts, StreamBody::new(frames).boxed_unsync())
    }
}

impl State {
    /// Throws the dice once for whether, once for what: the same calls meet the same faults.
    fn fate(&mut self, is_write: bool, is_watch: bool, chance: f64) -> Fate {
        let (whether, what, when) = (
            self.rng.random::<f64>(),
            self.rng.random_range(0..7_u32),
            self.rng.random_range(0..FRAMES_MAX),
        );
        // There are few watches, and each lives long.
        let chance = if is_watch { chance * 3.0 } else { chance };
        if self.faults_left == 0 || whether >= chance {
            return Fate::Pass;
        }
        self.faults_left -= 1;
        match what {
            0 => Fate::Refuse(StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
            1 => Fate::Refuse(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests"),
            2 => Fate::Unreachable,
            3 if is_watch => Fate::Ends(when),
            4 if is_watch => Fate::Breaks(when),
            5 if is_watch => Fate::Expires(when),
            _ if is_watch => Fate::Slow(Duration::from_millis(700) * (when + 1)),
            3 | 4 if is_write => Fate::Refuse(StatusCode::CONFLICT, "Conflict"),
            _ => Fate::AnswerLost,
        }
    }
}

/// A refusal as the server words it.
fn refusal(code: StatusCode, reason: &str) -> Response<Passed> {
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("injected {reason}"), "reason": reason, "code": code.as_u16(),
    });
    let body = Full::new(Bytes::from(status.to_string())).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = code;
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    if code == StatusCode::TOO_MANY_REQUESTS {
        response
            .headers_mut()
            .insert(http::header::RETRY_AFTER, http::HeaderValue::from_static("1"));
    }
    response
}

/// A watch under way.
struct Watched {
    wire: Wire,
    line: String,
    fate: Fate,
    frames: BodyDataStream<Body>,
    /// How many frames have come.
    n: u32,
}

impl Watched {
    async fn next(&mut self) -> Option<Result<Bytes, BoxError>> {
        match self.fate {
            Fate::Ends(n) if n == self.n => return None,
            Fate::Expires(n) if n == self.n => return Some(Ok(Bytes::from_static(EXPIRED))),
            Fate::Slow(pause) => tokio::time::sleep(pause).await,
            _ => {}
        }
        let frame = self.frames.next().await?;
        if self.wire.is_dead() {
            return pending().await;
        }
        if self.fate.breaks_at(self.n) {
            return Some(Err("connection reset by peer".into()));
        }
        self.n += 1;
        if let Ok(frame) = &frame {
            let text = String::from_utf8_lossy(frame);
            self.wire.trace.say(format_args!("{}: {}", self.line, text.trim_end()));
        }
        Some(frame.map_err(BoxError::from))
    }
}

impl Fate {
    fn breaks_at(self, n_frames: u32) -> bool {
        matches!(self, Self::Breaks(n) if n == n_frames)
    }
}
