//! Replays: a manager that is answered from a recording.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt, io,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use kube_client::client::Body;
use parking_lot::Mutex;
use serde_json::Value;
use setpoint_object::time::{Clock, Timestamp};
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt},
    time::{Instant, sleep_until},
};
use tower::Service;

use super::line::{Answer, Header, LINE_BYTES_MAX, Line, RecordedEvent, RecordedRequest};
use crate::{Manager, ManagerBuilder, error::BoxError};

/// The maximum size of a recording that can be read, in bytes: 1 GiB. It is held in memory during
/// the replay.
pub const RECORDING_BYTES_MAX: usize = 1 << 30;

/// The maximum number of differences that a replay stores: 100. More are only counted.
pub const DIFFERENCES_MAX: usize = 100;

/// A recording that cannot be replayed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// The reader failed.
    #[error("read line {line} of the recording")]
    Read {
        /// Counted from 1.
        line: u64,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A line is malformed, or not allowed in its place.
    #[error("line {line} of the recording is damaged: {what}")]
    Damaged {
        /// Counted from 1.
        line: u64,
        /// The problem.
        what: String,
    },
    /// A line, or the recording, is too large.
    #[error("line {line} of the recording exceeds {bytes_max} bytes")]
    TooLarge {
        /// Counted from 1.
        line: u64,
        /// The maximum size of a line, or of all lines.
        bytes_max: usize,
    },
}

/// A recording in memory.
pub struct Recording {
    started: Timestamp,
    seed: u64,
    exchanges: Vec<Exchange>,
    is_complete: bool,
    took: Duration,
}

/// A recorded request and its answer.
struct Exchange {
    request: RecordedRequest,
    /// The events of the answer in order, each with its time since the start.
    answer: VecDeque<(Duration, RecordedEvent)>,
}

impl Recording {
    /// Reads a recording. A recording that was truncated, by a kill or by
    /// [`bytes_max`](super::RecorderWorker::bytes_max), is read to its last complete line.
    ///
    /// # Errors
    ///
    /// The error of the reader, a malformed line, or more than [`RECORDING_BYTES_MAX`].
    pub async fn read(
        mut reader: impl AsyncBufRead + Send + Unpin,
    ) -> Result<Self, RecordingError> {
        let mut header: Option<Header> = None;
        let mut exchanges: BTreeMap<u64, Exchange> = BTreeMap::new();
        let (mut is_complete, mut took, mut n_bytes) = (false, Duration::ZERO, 0);
        for number in 1.. {
            let mut text = Vec::new();
            let mut limited = (&mut reader).take(LINE_BYTES_MAX as u64 + 1);
            let n_read = limited.read_until(b'\n', &mut text).await;
            let n_read = n_read.map_err(|source| RecordingError::Read { line: number, source })?;
            n_bytes += n_read;
            for (n, bytes_max) in [(n_read, LINE_BYTES_MAX), (n_bytes, RECORDING_BYTES_MAX)] {
                if n > bytes_max {
                    return Err(RecordingError::TooLarge { line: number, bytes_max });
                }
            }
            // The process ended while it wrote the last line.
            if text.pop() != Some(b'\n') {
                break;
            }
            let damaged = |what: String| RecordingError::Damaged { line: number, what };
            if header.is_none() {
                header = Some(Header::parse(&text).map_err(damaged)?);
                continue;
            }
            if is_complete {
                return Err(damaged("it follows the last line".into()));
            }
            let Line { at, exchange, event } =
                serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
            let at = Duration::from_micros(at);
            took = took.max(at);
            match (exchange, event) {
                (None, RecordedEvent::Over { lines }) if lines + 1 == number => is_complete = true,
                (None, RecordedEvent::Over { .. }) => {
                    return Err(damaged("lines are missing".into()));
                }
                (Some(exchange), RecordedEvent::Request(request)) => {
                    let new = Exchange { request, answer: VecDeque::new() };
                    if exchanges.insert(exchange, new).is_some() {
                        return Err(damaged("its exchange already exists".into()));
                    }
                }
                (Some(exchange), event) => match exchanges.get_mut(&exchange) {
                    Some(exchange) => exchange.answer.push_back((at, event)),
                    None => return Err(damaged("its exchange has no request".into())),
                },
                (None, _) => return Err(damaged("it has no exchange".into())),
            }
        }
        let damaged = |what: &str| RecordingError::Damaged { line: 1, what: what.into() };
        let header = header.ok_or_else(|| damaged("no header"))?;
        let started = Timestamp::parse(&header.started);
        Ok(Self {
            started: started.ok_or_else(|| damaged("`started` is not a date"))?,
            seed: header.seed,
            exchanges: exchanges.into_values().collect(),
            is_complete,
            took,
        })
    }

    /// Whether the recording was written to its end.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// The time from the recorder's start to the last line.
    pub fn took(&self) -> Duration {
        self.took
    }

    /// Starts a replay now, in tokio's time. Must be called within a runtime.
    pub fn replay(self) -> Replay {
        let mut exchanges: BTreeMap<Key, VecDeque<Exchange>> = BTreeMap::new();
        for exchange in self.exchanges {
            exchanges.entry(Key::of_recorded(&exchange.request)).or_default().push_back(exchange);
        }
        Replay(Arc::new(Inner {
            clock: Clock::starting_at(self.started),
            seed: self.seed,
            start: Instant::now(),
            took: self.took,
            state: Mutex::new(State { exchanges, differences: Vec::new(), n_differences: 0 }),
        }))
    }
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording")
            .field("started", &self.started)
            .field("seed", &self.seed)
            .field("n_exchanges", &self.exchanges.len())
            .field("is_complete", &self.is_complete)
            .field("took", &self.took)
            .finish()
    }
}

/// A recording that is being replayed. Cheap to clone.
#[derive(Clone)]
pub struct Replay(Arc<Inner>);

struct Inner {
    clock: Clock,
    seed: u64,
    start: Instant,
    took: Duration,
    state: Mutex<State>,
}

struct State {
    /// The exchanges that were not requested yet, in the order of their requests.
    exchanges: BTreeMap<Key, VecDeque<Exchange>>,
    differences: Vec<Difference>,
    n_differences: usize,
}

/// The parts of a request that are matched.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    method: String,
    path: String,
    parameters: Vec<String>,
}

/// A difference between a replay and the recorded run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Difference {
    /// A request that was not recorded, or was recorded fewer times.
    NotRecorded {
        /// The method.
        method: String,
        /// Path and parameters.
        uri: String,
    },
    /// A write with a different body.
    OtherBody {
        /// The method.
        method: String,
        /// Path and parameters.
        uri: String,
        /// The recorded body.
        recorded: String,
        /// The body that the replay sent.
        sent: String,
    },
    /// A recorded write that was not sent.
    NotSent {
        /// The method.
        method: String,
        /// Path and parameters.
        uri: String,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRecorded { method, uri } => write!(f, "{method} {uri}: not in the recording"),
            Self::OtherBody { method, uri, recorded, sent } => {
                write!(f, "{method} {uri}: recorded {recorded}, sent {sent}")
            }
            Self::NotSent { method, uri } => write!(f, "{method} {uri}: recorded, but not sent"),
        }
    }
}

impl Replay {
    /// Begins a manager over the recording, with the recorded time and seed. Give it the
    /// controllers and options of the recorded manager.
    pub fn manager(&self) -> ManagerBuilder {
        Manager::builder(self.client()).clock(self.clock()).seed(self.0.seed)
    }

    /// A client that is answered from the recording.
    pub fn client(&self) -> kube_client::Client {
        kube_client::Client::new(self.clone(), "default")
    }

    /// The time of the recorded run: its start, plus tokio's time since the replay began.
    pub fn clock(&self) -> Clock {
        self.0.clock.clone()
    }

    /// Waits until the time of the recording's last line. Cancel safe: has no side effects.
    pub async fn over(&self) {
        sleep_until(self.0.start + self.0.took).await;
    }

    /// The differences so far, and the recorded writes that were not sent yet: at most
    /// [`DIFFERENCES_MAX`].
    pub fn differences(&self) -> Vec<Difference> {
        let state = self.0.state.lock();
        let left = state.exchanges.values().flatten().filter(|exchange| {
            // A recorded write without an answer is not required.
            exchange.request.method != Method::GET.as_str()
                && exchange
                    .answer
                    .iter()
                    .any(|(_, event)| matches!(event, RecordedEvent::Answer(_)))
        });
        let not_sent =
            left.map(|Exchange { request: RecordedRequest { method, uri, .. }, .. }| {
                Difference::NotSent { method: method.clone(), uri: uri.clone() }
            });
        state.differences.iter().cloned().chain(not_sent).take(DIFFERENCES_MAX).collect()
    }

    /// The number of requests that differed so far, including those beyond [`DIFFERENCES_MAX`].
    pub fn n_differences(&self) -> usize {
        self.0.state.lock().n_differences
    }

    async fn answer(self, request: Request<Body>) -> Result<Response<ReplayedBody>, BoxError> {
        let (parts, body) = request.into_parts();
        let sent = String::from_utf8_lossy(&body.collect().await?.to_bytes()).into_owned();
        let (method, uri) = (parts.method.to_string(), parts.uri.to_string());
        let key = Key::new(&method, &parts.uri);
        let is_watch = key.parameters.iter().any(|parameter| is_watch(parameter));
        let found = {
            let mut state = self.0.state.lock();
            let queue = state.exchanges.get_mut(&key);
            let found = queue.and_then(VecDeque::pop_front);
            match &found {
                None if is_watch => {}
                None => state.note(Difference::NotRecorded { method, uri }),
                // The body of a new Event has its name.
                Some(_) if parts.method == Method::POST && is_events(&key.path) => {}
                Some(Exchange { request, .. }) if !is_same(&key.path, &request.body, &sent) => {
                    let recorded = request.body.clone();
                    state.note(Difference::OtherBody { method, uri, recorded, sent });
                }
                Some(_) => {}
            }
            found
        };
        let start = self.0.start;
        let Some(mut exchange) = found else {
            return match is_watch {
                true => Ok(Response::new(StreamBody::new(stream::pending()).boxed_unsync())),
                false => Err("not in the recording".into()),
            };
        };
        let Answer { status, headers } = loop {
            match exchange.answer.pop_front() {
                Some((at, RecordedEvent::Answer(answer))) => {
                    sleep_until(start + at).await;
                    break answer;
                }
                Some((at, RecordedEvent::Failed(why))) => {
                    sleep_until(start + at).await;
                    return Err(why.into());
                }
                // The recorded caller dropped the request, or the recording ended. This caller
                // waits.
                Some((_, RecordedEvent::Dropped {})) | None => std::future::pending::<()>().await,
                Some(_) => {}
            }
        };
        let pieces = stream::unfold(exchange.answer, move |mut answer| async move {
            let Some((at, event)) = answer.pop_front() else {
                return std::future::pending().await;
            };
            sleep_until(start + at).await;
            let piece = match event {
                RecordedEvent::Failed(why) => Err(why.into()),
                RecordedEvent::Dropped {} => return std::future::pending().await,
                RecordedEvent::End {} => return None,
                event => Ok(Frame::data(Bytes::from(event.bytes().unwrap_or_default()))),
            };
            Some((piece, answer))
        });
        let mut response = Response::new(StreamBody::new(pieces.boxed()).boxed_unsync());
        *response.status_mut() = StatusCode::from_u16(status)?;
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes())?;
            response.headers_mut().append(name, HeaderValue::from_str(&value)?);
        }
        Ok(response)
    }
}

type ReplayedBody = UnsyncBoxBody<Bytes, BoxError>;

impl State {
    fn note(&mut self, difference: Difference) {
        self.n_differences += 1;
        if self.differences.len() < DIFFERENCES_MAX {
            self.differences.push(difference);
        }
    }
}

impl Key {
    fn of_recorded(request: &RecordedRequest) -> Self {
        let uri = request.uri.parse().unwrap_or_default();
        Self::new(&request.method, &uri)
    }

    fn new(method: &str, uri: &Uri) -> Self {
        // The name of an Event contains the time.
        let path = events_of(uri.path()).unwrap_or(uri.path()).to_owned();
        let mut parameters: Vec<String> = uri
            .query()
            .unwrap_or_default()
            .split('&')
            .filter(|parameter| !parameter.is_empty() && !parameter.starts_with("timeoutSeconds="))
            .map(str::to_owned)
            .collect();
        parameters.sort();
        Self { method: method.to_owned(), path, parameters }
    }
}

fn is_watch(parameter: &str) -> bool {
    matches!(parameter, "watch" | "watch=1" | "watch=true")
}

/// The path of the Events of a namespace, if this is the path of one of them.
fn events_of(path: &str) -> Option<&str> {
    path.rsplit_once('/').map(|(collection, _)| collection).filter(|path| is_events(path))
}

/// Whether this is the path of the Events of a namespace. Namespaces and kinds of other groups may
/// have the name `events` too.
fn is_events(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    matches!(
        parts[..],
        ["", "api", "v1", "namespaces", _, "events"]
            | ["", "apis", "events.k8s.io", _, "namespaces", _, "events"]
    )
}

/// Whether two bodies are the same. Ignores dates, and the holders of Leases: each process has an
/// identity of its own.
fn is_same(path: &str, recorded: &str, sent: &str) -> bool {
    let is_lease = path.starts_with("/apis/coordination.k8s.io/");
    let tree = |text: &str| {
        let mut tree = serde_json::from_str::<Value>(text).ok()?;
        if is_lease && let Some(holder) = tree.pointer_mut("/spec/holderIdentity") {
            *holder = Value::Bool(!holder.is_null());
        }
        Some(tree)
    };
    match (tree(recorded), tree(sent)) {
        (Some(recorded), Some(sent)) => is_same_value(&recorded, &sent),
        _ => recorded == sent,
    }
}

/// The recursion depth is bounded by `serde_json`'s limit.
fn is_same_value(recorded: &Value, sent: &Value) -> bool {
    match (recorded, sent) {
        (Value::Object(recorded), Value::Object(sent)) => {
            recorded.len() == sent.len()
                && recorded.iter().all(|(name, value)| {
                    sent.get(name).is_some_and(|sent| is_same_value(value, sent))
                })
        }
        (Value::Array(recorded), Value::Array(sent)) => {
            recorded.len() == sent.len()
                && recorded.iter().zip(sent).all(|(recorded, sent)| is_same_value(recorded, sent))
        }
        (Value::String(recorded), Value::String(sent)) => {
            recorded == sent
                || (Timestamp::parse(recorded).is_some() && Timestamp::parse(sent).is_some())
        }
        (recorded, sent) => recorded == sent,
    }
}

impl Service<Request<Body>> for Replay {
    type Response = Response<ReplayedBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    /// Always ready: waiting happens in the call.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.clone().answer(request).boxed()
    }
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.state.lock();
        f.debug_struct("Replay")
            .field("n_exchanges_left", &state.exchanges.values().map(VecDeque::len).sum::<usize>())
            .field("n_differences", &state.n_differences)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    const SAMPLE: &str = r#"{"recording":"setpoint-client","version":1,"started":"2026-01-01T00:00:00.000000Z","seed":7}
{"at":1,"exchange":0,"request":{"method":"GET","uri":"/api/v1/pods?limit=500"}}
{"at":2,"exchange":0,"answer":{"status":200,"headers":[["content-type","application/json"]]}}
{"at":3,"exchange":0,"data":"{}"}
{"at":4,"exchange":0,"end":{}}
{"at":5,"exchange":1,"request":{"method":"PATCH","uri":"/api/v1/pods/a","body":"{}"}}
{"at":6,"exchange":1,"failed":"gone"}
{"at":7,"over":{"lines":7}}
"#;

    fn read(bytes: &[u8]) -> Result<Recording, RecordingError> {
        Recording::read(bytes).now_or_never().unwrap()
    }

    proptest! {
        /// Any bytes are parsed or rejected.
        #[test]
        fn changed_recordings_are_parsed_or_rejected(
            at in 0..SAMPLE.len(),
            len in 0..40_usize,
            new: Vec<u8>,
        ) {
            let mut bytes = SAMPLE.as_bytes().to_vec();
            let end = (at + len).min(bytes.len());
            bytes.splice(at..end, new);
            let _ = read(&bytes);
        }
    }

    #[test]
    fn sample_is_a_complete_recording() {
        let recording = read(SAMPLE.as_bytes()).unwrap();
        assert!(recording.is_complete());
        assert_eq!((recording.exchanges.len(), recording.took()), (2, Duration::from_micros(7)));
    }

    #[test]
    fn same_requests_have_the_same_key() {
        let key = |uri: &str| Key::new("GET", &uri.parse().unwrap());
        let one = key("http://localhost/api/v1/pods?watch=true&timeoutSeconds=300&limit=5");
        assert_eq!(one, key("/api/v1/pods?limit=5&watch=true&timeoutSeconds=301"));
        assert_ne!(one, key("/api/v1/pods?limit=6&watch=true"));
        let events = key("/api/v1/namespaces/default/events/a.1");
        assert_eq!(events, key("/api/v1/namespaces/default/events/a.2"));
        let events = key("/apis/events.k8s.io/v1/namespaces/default/events/a.1");
        assert_eq!(events, key("/apis/events.k8s.io/v1/namespaces/default/events/a.2"));
    }

    /// Whatever had `/events/` in its path was taken for an Event: all requests in a namespace of
    /// that name got each other's answers.
    #[test]
    fn other_requests_with_events_in_their_path_are_distinct() {
        let key = |uri: &str| Key::new("GET", &uri.parse().unwrap());
        for [one, other] in [
            ["/api/v1/namespaces/events/configmaps", "/api/v1/namespaces/events/secrets"],
            ["/api/v1/namespaces/events/configmaps/a", "/api/v1/namespaces/events/configmaps/b"],
            [
                "/apis/example.com/v1/namespaces/n/events/a",
                "/apis/example.com/v1/namespaces/n/events/b",
            ],
            ["/apis/example.com/v1/events/a", "/apis/example.com/v1/events/b"],
        ] {
            assert_ne!(key(one), key(other), "{one}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_of_other_kinds_named_event_are_compared() {
        let path = "/apis/example.com/v1/namespaces/n/events";
        let request =
            json!({"method": "POST", "uri": path, "body": r#"{"kind":"Event","spec":1}"#});
        let lines = [
            json!({"recording": "setpoint-client", "version": 1, "started": "2026-01-01T00:00:00Z", "seed": 7}),
            json!({"at": 1, "exchange": 0, "request": request}),
            json!({"at": 2, "exchange": 0, "answer": {"status": 201}}),
            json!({"at": 3, "exchange": 0, "end": {}}),
        ];
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let replay = read(text.as_bytes()).unwrap().replay();
        let body = Body::from(br#"{"kind":"Event","spec":2}"#.to_vec());
        let request = Request::post(path).body(body).unwrap();
        replay.clone().answer(request).await.unwrap();
        assert!(matches!(&replay.differences()[..], [Difference::OtherBody { .. }]));
    }

    #[test]
    fn bodies_are_compared_without_dates() {
        let same = |one: &str, other: &str| is_same("/api/v1/nodes/n", one, other);
        assert!(same(r#"{"a":1,"b":["x"]}"#, r#"{"b":["x"],"a":1}"#));
        assert!(same(
            r#"{"at":"2026-01-01T00:00:00Z"}"#,
            r#"{"at":"2026-01-01T00:00:00.000001Z"}"#
        ));
        assert!(!same(r#"{"a":1}"#, r#"{"a":2}"#));
        assert!(!same(r#"{"a":[1]}"#, r#"{"a":[1,2]}"#));
        assert!(!same("{}", ""));
    }
}
