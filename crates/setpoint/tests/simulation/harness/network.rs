//! The network between processes and the server: delayed packets and injected faults.
//!
//! A *talk* is one request with its response. A talk that loses a packet is broken, as a connection
//! would be: its client gets an error after [`HANG_MAX`], and no more of its packets arrive.

use super::fault::{Fate, Faults};
use super::journal::{Journal, WriteEntry};
use super::process::{Ground, ProcessId};
use super::tally::Tally;
use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::response::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use kube_client::Client;
use kube_client::client::Body;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use setpoint::runtime::client::Origin;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// How long a client keeps a connection on which nothing arrives.
pub(crate) const HANG_MAX: Duration = Duration::from_secs(20);

/// The last frame of an expired watch.
const EXPIRED: &[u8] = br#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version: 1 (2)","reason":"Expired","code":410}}
"#;

/// A packet that reaches the server.
pub(super) enum Inbound {
    Request { talk: u64, request: Box<Request<Bytes>> },
    Close { talk: u64 },
}

/// A packet that reaches a client.
enum Answer {
    Head(Box<Parts>),
    Frame(Bytes),
    End,
    Break(&'static str),
}

enum Packet {
    ToServer(Inbound),
    ToClient { talk: u64, answer: Answer },
}

/// The network. Clones share it.
#[derive(Clone)]
pub(crate) struct Network(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    journal: Journal,
}

struct State {
    rng: SmallRng,
    faults: Faults,
    /// Processes without faults: users.
    sheltered: HashSet<ProcessId>,
    cut_off: HashSet<ProcessId>,
    dead: HashSet<ProcessId>,
    server: mpsc::UnboundedSender<Inbound>,
    talks: HashMap<u64, Talk>,
    /// Ordered by arrival time, then by sending order.
    under_way: BTreeMap<(Duration, u64), Packet>,
    n_sent: u64,
    n_requests: u64,
    tally: Tally,
}

struct Talk {
    process: ProcessId,
    fate: Fate,
    write: Option<usize>,
    is_watch: bool,
    client: mpsc::UnboundedSender<Answer>,
    /// When the latest packet in each direction arrives: packets of a talk do not overtake each
    /// other.
    to_client: Duration,
    to_server: Duration,
    n_frames: u32,
    is_broken: bool,
}

impl Network {
    pub(super) fn new(seed: u64, server: mpsc::UnboundedSender<Inbound>) -> Self {
        let state = State {
            rng: SmallRng::seed_from_u64(seed),
            faults: Faults::default(),
            sheltered: HashSet::new(),
            cut_off: HashSet::new(),
            dead: HashSet::new(),
            server,
            talks: HashMap::new(),
            under_way: BTreeMap::new(),
            n_sent: 0,
            n_requests: 0,
            tally: Tally::default(),
        };
        Self(Arc::new(Shared { state: Mutex::new(state), journal: Journal::default() }))
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.0.state.lock().unwrap())
    }

    pub(super) fn journal(&self) -> &Journal {
        &self.0.journal
    }

    pub(super) fn set_faults(&self, faults: Faults) {
        self.with(|state| state.faults = faults);
    }

    pub(super) fn shelter(&self, process: ProcessId) {
        self.with(|state| state.sheltered.insert(process));
    }

    pub(super) fn cut_off(&self, process: ProcessId, is_cut_off: bool) {
        self.with(|state| {
            if is_cut_off {
                state.cut_off.insert(process);
            } else {
                state.cut_off.remove(&process);
            }
        });
    }

    pub(super) fn is_dead(&self, process: ProcessId) -> bool {
        self.with(|state| state.dead.contains(&process))
    }

    /// Closes all connections of a dead process.
    pub(super) fn bury(&self, process: ProcessId, now: Duration) {
        self.with(|state| {
            state.dead.insert(process);
            let mut talks: Vec<u64> = state
                .talks
                .iter()
                .filter(|(_, talk)| talk.process == process)
                .map(|(id, _)| *id)
                .collect();
            // The map's order is not deterministic.
            talks.sort_unstable();
            talks.into_iter().for_each(|talk| state.close(talk, now));
        });
    }

    pub(super) fn tally(&self) -> Tally {
        self.with(|state| state.tally.clone())
    }

    pub(super) fn note(&self, what: &'static str) {
        self.with(|state| state.tally.note(what));
    }

    pub(super) fn n_requests(&self) -> u64 {
        self.with(|state| state.n_requests)
    }

    /// Number of packets sent so far.
    pub(super) fn n_sent(&self) -> u64 {
        self.with(|state| state.n_sent)
    }

    /// When the next packet arrives.
    pub(super) fn next_arrival(&self) -> Option<Duration> {
        self.with(|state| state.under_way.first_key_value().map(|((at, _), _)| *at))
    }

    /// Delivers the packets that have arrived by now.
    pub(super) fn deliver(&self, now: Duration) {
        self.with(|state| {
            while let Some(entry) = state.under_way.first_entry() {
                if entry.key().0 > now {
                    return;
                }
                match entry.remove() {
                    Packet::ToServer(inbound) => {
                        state.deliver_to_server(inbound, now, &self.0.journal)
                    }
                    Packet::ToClient { talk, answer } => state.deliver_to_client(talk, answer, now),
                }
            }
        });
    }

    /// A process's client of the server.
    pub(super) fn client(&self, ground: &Ground) -> Client {
        let ground = ground.clone();
        let service = tower::service_fn(move |request| {
            let ground = ground.clone();
            async move { send(ground, request).await }
        });
        Client::new(service, "default")
    }

    pub(super) fn answer_head(&self, talk: u64, head: Parts, now: Duration) {
        self.with(|state| {
            let Some(found) = state.talks.get(&talk) else { return };
            if let Some(write) = found.write {
                self.0.journal.answer(write, now, head.status);
            }
            match found.fate {
                Fate::AnswerLost => state.break_talk(talk, "connection reset by peer", now),
                Fate::AnswerNever => state.hang(talk, now),
                _ => state.send_to_client(talk, Answer::Head(Box::new(head)), now),
            }
        });
    }

    pub(super) fn answer_frame(&self, talk: u64, frame: Bytes, now: Duration) {
        self.with(|state| {
            let Some(found) = state.talks.get_mut(&talk) else { return };
            let n = found.n_frames;
            found.n_frames += 1;
            let is_write = found.write.is_some();
            let fate = found.fate;
            match fate {
                Fate::Ends(at) if at == n => {
                    state.tally.note(fate.name(is_write));
                    state.send_to_client(talk, Answer::End, now);
                    state.close_server_side(talk, now);
                }
                Fate::Expires(at) if at == n => {
                    state.tally.note(fate.name(is_write));
                    state.send_to_client(talk, Answer::Frame(Bytes::from_static(EXPIRED)), now);
                    state.send_to_client(talk, Answer::End, now);
                    state.close_server_side(talk, now);
                }
                Fate::Breaks(at) if at == n => {
                    state.tally.note(fate.name(is_write));
                    state.break_talk(talk, "connection reset by peer", now);
                }
                Fate::Lags(lag) => {
                    state.tally.note(fate.name(is_write));
                    state.send_to_client(talk, Answer::Frame(frame), now + lag);
                }
                _ => state.send_to_client(talk, Answer::Frame(frame), now),
            }
        });
    }

    pub(super) fn answer_ends(&self, talk: u64, now: Duration) {
        self.with(|state| state.send_to_client(talk, Answer::End, now));
    }

    pub(super) fn answer_breaks(&self, talk: u64, now: Duration) {
        self.with(|state| state.break_talk(talk, "the server broke off", now));
    }

    /// A request leaves its process now.
    fn leave(&self, ground: &Ground, parts: http::request::Parts, body: Bytes) -> Answers {
        let now = ground.now();
        let is_write = parts.method != Method::GET;
        let is_watch = parts.uri.query().is_some_and(|query| query.contains("watch="));
        let can_conflict = parts.method == Method::PUT || parts.method == Method::PATCH;
        let write = is_write.then(|| {
            let origin = parts.extensions.get::<Origin>();
            self.0.journal.leave(WriteEntry {
                process: ground.process,
                who: ground.who.clone(),
                method: parts.method.clone(),
                path: parts.uri.path().into(),
                body: body.clone(),
                origin: origin.map(|origin| (origin.controller.clone(), origin.request.clone())),
                left: now,
                arrived: None,
                answered: None,
            })
        });
        let (client, answers) = mpsc::unbounded_channel();
        let talk = self.with(|state| {
            state.n_requests += 1;
            let id = state.n_requests;
            let fate = if state.sheltered.contains(&ground.process) {
                Fate::Pass
            } else {
                state.faults.fate(&mut state.rng, is_write, is_watch, can_conflict)
            };
            if !matches!(fate, Fate::Ends(_) | Fate::Breaks(_) | Fate::Expires(_) | Fate::Lags(_)) {
                state.tally.note(fate.name(is_write));
            }
            let process = ground.process;
            let talk = Talk {
                process,
                fate,
                write,
                is_watch,
                client,
                to_client: now,
                to_server: now,
                n_frames: 0,
                is_broken: false,
            };
            state.talks.insert(id, talk);
            let request = Box::new(Request::from_parts(parts, body));
            match fate {
                _ if state.cut_off.contains(&process) => {
                    state.tally.note("request into a partition");
                    state.hang(id, now);
                }
                Fate::Refuse(status, reason) => {
                    let (head, body) = refusal(status, reason).into_parts();
                    state.send_to_client(id, Answer::Head(Box::new(head)), now);
                    state.send_to_client(id, Answer::Frame(body), now);
                    state.send_to_client(id, Answer::End, now);
                }
                Fate::Unreachable => state.break_talk(id, "connection refused", now),
                Fate::RequestLost => state.hang(id, now),
                Fate::Slow(pause) => {
                    state.send_to_server(id, Inbound::Request { talk: id, request }, now + pause)
                }
                _ => state.send_to_server(id, Inbound::Request { talk: id, request }, now),
            }
            id
        });
        Answers { ground: ground.clone(), talk, answers }
    }
}

impl State {
    fn send(&mut self, at: Duration, packet: Packet) {
        self.n_sent += 1;
        self.under_way.insert((at, self.n_sent), packet);
    }

    /// The latency of a packet of a talk.
    fn latency(&mut self, process: ProcessId) -> Duration {
        if self.sheltered.contains(&process) {
            return Duration::from_millis(1);
        }
        self.faults.latency(&mut self.rng)
    }

    fn send_to_client(&mut self, talk: u64, answer: Answer, now: Duration) {
        let Some(process) = self.talks.get(&talk).map(|talk| talk.process) else { return };
        let at = now + self.latency(process);
        let Some(found) = self.talks.get_mut(&talk).filter(|talk| !talk.is_broken) else { return };
        found.to_client = found.to_client.max(at);
        let at = found.to_client;
        self.send(at, Packet::ToClient { talk, answer });
    }

    fn send_to_server(&mut self, talk: u64, inbound: Inbound, now: Duration) {
        let Some(process) = self.talks.get(&talk).map(|talk| talk.process) else { return };
        let at = now + self.latency(process);
        let Some(found) = self.talks.get_mut(&talk) else { return };
        found.to_server = found.to_server.max(at);
        let at = found.to_server;
        self.send(at, Packet::ToServer(inbound));
    }

    /// Breaks the connection at the client.
    fn break_talk(&mut self, talk: u64, why: &'static str, now: Duration) {
        self.send_to_client(talk, Answer::Break(why), now);
        if let Some(talk) = self.talks.get_mut(&talk) {
            talk.is_broken = true;
        }
        self.close_server_side(talk, now);
    }

    /// Nothing arrives any more; the client notices when its timeout expires.
    fn hang(&mut self, talk: u64, now: Duration) {
        let Some(found) = self.talks.get_mut(&talk).filter(|talk| !talk.is_broken) else { return };
        found.is_broken = true;
        self.send(now + HANG_MAX, Packet::ToClient { talk, answer: Answer::Break("timed out") });
    }

    fn close_server_side(&mut self, talk: u64, now: Duration) {
        self.send_to_server(talk, Inbound::Close { talk }, now);
    }

    /// The client has closed its end.
    fn close(&mut self, talk: u64, now: Duration) {
        self.close_server_side(talk, now);
        self.talks.remove(&talk);
    }

    fn deliver_to_server(&mut self, inbound: Inbound, now: Duration, journal: &Journal) {
        if let Inbound::Request { talk, .. } = &inbound
            && let Some(found) = self.talks.get(talk)
        {
            if self.cut_off.contains(&found.process) {
                self.tally.note("request lost in a partition");
                return self.hang(*talk, now);
            }
            if let Some(write) = found.write {
                journal.arrive(write, now);
            }
        }
        // A server that has ended reads nothing.
        let _ = self.server.send(inbound);
    }

    fn deliver_to_client(&mut self, talk: u64, answer: Answer, now: Duration) {
        let Some(found) = self.talks.get(&talk) else { return };
        let is_break = matches!(answer, Answer::Break(_));
        if self.cut_off.contains(&found.process) && !is_break {
            self.tally.note(if found.is_watch {
                "watch cut off"
            } else {
                "answer lost in a partition"
            });
            return self.hang(talk, now);
        }
        if found.is_broken && !is_break {
            return;
        }
        // A client that is gone reads nothing.
        let _ = found.client.send(answer);
    }
}

/// Sends a request through a process: out of the client's layers, into the connection, and back.
async fn send(
    ground: Ground,
    request: Request<Body>,
) -> Result<Response<StreamBody<impl Stream<Item = Result<Frame<Bytes>, BoxError>>>>, BoxError> {
    let network = ground.network.clone();
    let busy = network.with(|state| {
        let is_sheltered = state.sheltered.contains(&ground.process);
        if is_sheltered { Duration::ZERO } else { state.faults.connection(&mut state.rng) }
    });
    if !busy.is_zero() {
        tokio::time::sleep(busy).await;
    }
    let (parts, body) = request.into_parts();
    // The connection takes the body now: the last moment at which a layer can stop the request.
    let body = body.collect().await?.to_bytes();
    let mut answers = network.leave(&ground, parts, body);
    let head = match answers.answers.recv().await {
        Some(Answer::Head(head)) => *head,
        Some(Answer::Break(why)) => return Err(why.into()),
        Some(Answer::Frame(_) | Answer::End) | None => return Err("no answer".into()),
    };
    let frames = futures::stream::unfold(Some(answers), |answers| async {
        let mut answers = answers?;
        match answers.answers.recv().await {
            Some(Answer::Frame(frame)) => Some((Ok(Frame::data(frame)), Some(answers))),
            Some(Answer::Break(why)) => Some((Err(BoxError::from(why)), None)),
            Some(Answer::Head(_) | Answer::End) | None => None,
        }
    });
    Ok(Response::from_parts(head, StreamBody::new(frames.boxed())))
}

/// The client's end of a talk; closes it when dropped.
struct Answers {
    ground: Ground,
    talk: u64,
    answers: mpsc::UnboundedReceiver<Answer>,
}

impl Drop for Answers {
    fn drop(&mut self) {
        let network = &self.ground.network;
        if !network.is_dead(self.ground.process) {
            let now = self.ground.now();
            network.with(|state| state.close(self.talk, now));
        }
    }
}

/// An error response in the server's words.
fn refusal(code: StatusCode, reason: &str) -> Response<Bytes> {
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("injected {reason}"), "reason": reason, "code": code.as_u16(),
    });
    let mut response = Response::new(Bytes::from(status.to_string()));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if code == StatusCode::TOO_MANY_REQUESTS {
        headers.insert(http::header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}
