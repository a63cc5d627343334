//! The members as one: a call goes to a member that serves, and to another one when that is safe.
//!
//! | what happened | a call that may be repeated | a commit |
//! |---|---|---|
//! | no connection, nothing sent | the next member | the next member |
//! | connected, and it does not show in time that it can serve | the next member | the next member |
//! | sent, and the connection broke | the next member | unknown |
//! | sent, and no answer in time | the next member | unknown |
//! | the member has no leader, or is a learner | the next member | the next member |
//! | the token was refused | a new token, the same member | the same |
//! | too many requests | again in a while | again in a while |
//! | time-out, leader changed, stopped | the next member | unknown |
//! | the request is wrong | refused | refused |

use crate::{
    auth::Auth,
    connection::{CallError, Connection, NotSent},
    endpoint::Endpoint,
    error::EtcdError,
    failure::{Verdict, is_for_others, verdict},
    grpc::{self, Answers, GrpcError, frame},
    keys::Namespace,
    options::EtcdOptions,
    proto::{RangeAnswer, RangeCall, path},
    status::{self, VERSION_MIN},
    tasks::Tasks,
};
use bytes::Bytes;
use futures::stream::{FuturesUnordered, StreamExt};
use h2::SendStream;
use http::HeaderValue;
use parking_lot::Mutex;
use prost::Message;
use setpoint_store::StoreError;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep, timeout_at},
};

/// The first pause after every member failed; each later one is twice as long.
pub(crate) const BACKOFF_MIN: Duration = Duration::from_millis(50);
/// The longest pause.
pub(crate) const BACKOFF_MAX: Duration = Duration::from_secs(2);
/// How long one member may take to be reached until the next one is tried beside it: as RFC 8305
/// recommends for addresses.
const DIAL_STAGGER: Duration = Duration::from_millis(250);
/// How often the time for reaching a member is doubled at most, when none could be reached.
const PATIENCE_SHIFT_MAX: u32 = 3;
/// How many calls are under way at most; the next one waits for its turn.
pub const CALLS_MAX: usize = 1024;
/// How many tokens one call may have refused.
const TOKENS_MAX: u32 = 3;

/// Whether a call may be made twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It changes nothing, or nothing that matters.
    Freely,
    /// Only while it surely did nothing.
    Never,
}

/// Why a call has no answer.
#[derive(Debug, Clone)]
pub(crate) enum Failure {
    /// Nothing happened.
    Unavailable(String),
    /// It was sent, and may have happened.
    Unknown(String),
    /// etcd refused the request itself; nothing happened.
    Refused(GrpcError),
    Closed,
}

impl Failure {
    /// As the contract says it, for refusals that have no meaning of their own.
    pub(crate) fn told(self) -> StoreError {
        match self {
            Self::Unavailable(why) => StoreError::Unavailable(why),
            Self::Unknown(why) => StoreError::Unknown(why),
            Self::Refused(error) => StoreError::Unavailable(format!("etcd refused: {error}")),
            Self::Closed => StoreError::Closed,
        }
    }
}

/// The members.
pub(crate) struct Cluster {
    pub(crate) options: EtcdOptions,
    pub(crate) endpoints: Vec<Arc<Endpoint>>,
    pub(crate) auth: Auth,
    pub(crate) tasks: Tasks,
    state: Mutex<State>,
    /// etcd's id of the cluster, once a member has told it.
    id: Mutex<Option<u64>>,
    dialling: Semaphore,
    calls: Semaphore,
}

struct State {
    /// Which endpoint is asked.
    current: usize,
    /// How often, since a member was reached last, none could be.
    n_failed: u32,
    connection: Option<Connection>,
}

impl Cluster {
    pub(crate) fn new(options: EtcdOptions) -> Result<Self, EtcdError> {
        Ok(Self {
            endpoints: Endpoint::all(&options)?,
            options,
            auth: Auth::new(),
            tasks: Tasks::new(),
            state: Mutex::new(State { current: 0, n_failed: 0, connection: None }),
            id: Mutex::new(None),
            dialling: Semaphore::new(1),
            calls: Semaphore::new(CALLS_MAX),
        })
    }

    /// Which endpoint calls go to now.
    pub(crate) fn current(&self) -> usize {
        self.state.lock().current
    }

    fn present(&self) -> Option<Connection> {
        self.state.lock().connection.clone().filter(Connection::is_up)
    }

    /// The connection for calls: the present one, or one to the first member that takes one.
    async fn connection(&self) -> Result<Connection, NotSent> {
        if let Some(connection) = self.present() {
            return Ok(connection);
        }
        // One dials, the others wait.
        let turn = self.dialling.acquire().await;
        if let Some(connection) = self.present() {
            return Ok(connection);
        }
        let n_endpoints = self.endpoints.len();
        let (mut next, patience) = {
            let mut state = self.state.lock();
            let first = state.current;
            // Who gives up meanwhile leaves the next member to the next caller.
            state.current = (first + 1) % n_endpoints;
            // Members that are slow, all of them, get more time each time.
            let patience =
                self.options.connect_timeout * (1 << state.n_failed.min(PATIENCE_SHIFT_MAX));
            ((first..first + n_endpoints).map(|i| i % n_endpoints), patience)
        };
        let mut why = NotSent("there is no endpoint".into());
        let mut reaching = FuturesUnordered::new();
        reaching.extend(next.next().map(|endpoint| self.reach(endpoint, patience)));
        while !reaching.is_empty() {
            let reached = tokio::select! {
                reached = reaching.next() => reached,
                // A member that hangs is not waited for; whichever is there first is taken.
                () = sleep(DIAL_STAGGER), if next.len() > 0 => None,
            };
            match reached {
                Some(Ok(connection)) => {
                    let mut state = self.state.lock();
                    (state.current, state.n_failed) = (connection.endpoint, 0);
                    state.connection = Some(connection.clone());
                    return Ok(connection);
                }
                Some(Err(error)) => why = error,
                None => {}
            }
            reaching.extend(next.next().map(|endpoint| self.reach(endpoint, patience)));
        }
        self.state.lock().n_failed += 1;
        drop(turn);
        Err(why)
    }

    /// Connects to a member that can serve.
    async fn reach(&self, endpoint: usize, patience: Duration) -> Result<Connection, NotSent> {
        let (target, options) = (&self.endpoints[endpoint], &self.options);
        let connection = Connection::dial(endpoint, target, options, &self.tasks, false).await?;
        self.confirm(&connection, patience).await?;
        self.admit(&connection, patience).await?;
        Ok(connection)
    }

    /// Asks the member at the other end of a new connection how it is, before anything is entrusted
    /// to it: one that hangs, has no leader, is too old or of another cluster is not used. Gives
    /// whether its progress may be believed.
    pub(crate) async fn admit(
        &self,
        connection: &Connection,
        patience: Duration,
    ) -> Result<bool, NotSent> {
        let said = status::ask_as(connection, None, patience).await;
        let refused = |why: String| NotSent(format!("{}: {why}", connection.address()));
        let answer = match said {
            Ok(answer) => answer,
            // Since 3.5.28 and 3.6 (etcd issue 21663) it tells administrators alone: new enough in
            // any case.
            Err(CallError::Grpc(error)) if is_for_others(&error) => return Ok(true),
            Err(error) => return Err(refused(told(&error))),
        };
        if status::version(&answer.version).is_some_and(|version| version < VERSION_MIN) {
            return Err(refused(format!("etcd {} is too old", answer.version)));
        }
        if answer.leader == 0 {
            return Err(refused("it has no leader".into()));
        }
        let cluster = answer.header.map_or(0, |header| header.cluster_id);
        let mut first = self.id.lock();
        match *first {
            Some(first) if first != cluster => {
                Err(refused("it belongs to another cluster than the members before".into()))
            }
            _ => {
                *first = Some(cluster);
                Ok(status::tells_progress(&answer.version))
            }
        }
    }

    /// The least question there is about the present.
    pub(crate) fn probe(&self) -> RangeCall {
        let key = Namespace(self.options.namespace.clone()).full(&self.options.probe_key);
        RangeCall { key, count_only: true, ..RangeCall::default() }
    }

    /// Has a member confirm that a majority follows the leader it knows, by a linearizable read.
    /// One that takes a dead leader for alive would take a commit in too, lose it, and say so only
    /// after seconds, when nobody can tell any more what became of it.
    async fn confirm(&self, connection: &Connection, patience: Duration) -> Result<(), NotSent> {
        let (question, sent) = (frame(&self.probe()), AtomicBool::new(false));
        match connection.call::<RangeAnswer>(path::RANGE, None, question, &sent, patience).await {
            Ok(_) => Ok(()),
            // Who may ask is looked at last; the token is not asked for, since that is a write of
            // its own.
            Err(CallError::Grpc(error))
                if matches!(verdict(&error), Verdict::Final | Verdict::Token) =>
            {
                Ok(())
            }
            Err(error) => Err(NotSent(format!("{}: {}", connection.address(), told(&error)))),
        }
    }

    /// This connection's member does not serve: the next call goes to the next one. Calls that are
    /// under way there are not touched.
    fn leave(&self, connection: &Connection, why: &str) {
        let mut state = self.state.lock();
        if state.connection.as_ref().is_some_and(|present| present.is(connection)) {
            state.connection = None;
            state.current = (connection.endpoint + 1) % self.endpoints.len();
            tracing::warn!(endpoint = connection.address(), why, "leave an etcd member");
        }
    }

    /// Asks, until there is an answer, it must not be asked again, or time is up.
    pub(crate) async fn call<A: Message + Default>(
        &self,
        path: &'static str,
        question: &impl Message,
        repeat: Repeat,
    ) -> Result<A, Failure> {
        let deadline = Instant::now() + self.options.request_timeout;
        let out_of_time = |why: &str| {
            Failure::Unavailable(format!("{why}; tried for {:?}", self.options.request_timeout))
        };
        let Ok(Ok(_turn)) = timeout_at(deadline, self.calls.acquire()).await else {
            return Err(out_of_time("too many calls are under way"));
        };
        let question = frame(question);
        let (mut pause, mut tokens, mut failures) = (BACKOFF_MIN, 0, 0);
        let mut before = "no member was reached in time".to_owned();
        loop {
            let attempt = self.attempt(path, question.clone(), repeat, deadline).await;
            let (why, wait) = match attempt {
                Attempt::Answer(answer) => return Ok(answer),
                Attempt::Failed(failure) => return Err(failure),
                Attempt::Token(why) => {
                    tokens += 1;
                    if tokens > TOKENS_MAX {
                        return Err(Failure::Unavailable(why));
                    }
                    continue;
                }
                Attempt::Again(why) => {
                    failures += 1;
                    // The next member is asked at once; all of them in vain, and there is a pause.
                    (why, failures % self.endpoints.len() == 0)
                }
                Attempt::Later(why) => (why, true),
                // What was in the way before says more than that time is up.
                Attempt::OutOfTime => return Err(out_of_time(&before)),
            };
            if self.tasks.is_closed() {
                return Err(Failure::Closed);
            }
            if Instant::now() + pause >= deadline {
                return Err(out_of_time(&why));
            }
            before = why;
            if wait {
                sleep(pause).await;
                pause = (pause * 2).min(BACKOFF_MAX);
            }
        }
    }

    async fn attempt<A: Message + Default>(
        &self,
        path: &'static str,
        question: Bytes,
        repeat: Repeat,
        deadline: Instant,
    ) -> Attempt<A> {
        if self.tasks.is_closed() {
            return Attempt::Failed(Failure::Closed);
        }
        let connection = match timeout_at(deadline, self.connection()).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(NotSent(why))) => return Attempt::Again(why),
            Err(_) => return Attempt::OutOfTime,
        };
        let address = connection.address();
        let token = match timeout_at(deadline, self.auth.token(&connection, &self.options)).await {
            Ok(Ok(token)) => token,
            Ok(Err(CallError::Grpc(error))) if verdict(&error) == Verdict::Final => {
                return Attempt::Failed(Failure::Refused(error));
            }
            Ok(Err(error)) => {
                let why = format!("{address}: authenticate: {}", told(&error));
                self.leave(&connection, &why);
                return Attempt::Again(why);
            }
            Err(_) => return Attempt::Again(format!("{address}: authenticate: no answer")),
        };
        let remaining = deadline.saturating_duration_since(Instant::now());
        let silence = match repeat {
            Repeat::Freely => remaining.min(self.options.attempt_timeout),
            Repeat::Never => remaining,
        };
        let sent = AtomicBool::new(false);
        let called = connection.call(path, token.as_ref(), question, &sent, silence).await;
        let error = match called {
            Ok(answer) => return Attempt::Answer(answer),
            Err(error) => error,
        };
        let why = format!("{address}: {}", told(&error));
        let verdict = match &error {
            CallError::NotSent(_) => Verdict::Elsewhere,
            CallError::Silent => Verdict::Unsure,
            CallError::Grpc(error) => verdict(error),
        };
        debug_assert!(sent.load(Ordering::Acquire) || verdict == Verdict::Elsewhere, "{error:?}");
        match (verdict, error) {
            (Verdict::Final, CallError::Grpc(error)) => Attempt::Failed(Failure::Refused(error)),
            (Verdict::Token, _) if self.options.user.is_some() => {
                self.auth.refused(token.as_ref());
                Attempt::Token(why)
            }
            (Verdict::Final | Verdict::Token, _) => Attempt::Failed(Failure::Unavailable(why)),
            (Verdict::Later, _) => Attempt::Later(why),
            (Verdict::Elsewhere, _) => {
                self.leave(&connection, &why);
                Attempt::Again(why)
            }
            (Verdict::Unsure, _) => {
                self.leave(&connection, &why);
                match repeat {
                    Repeat::Freely => Attempt::Again(why),
                    Repeat::Never => Attempt::Failed(Failure::Unknown(why)),
                }
            }
        }
    }
}

impl Cluster {
    /// Opens a stream of questions and answers to the member that calls go to now.
    pub(crate) async fn stream(&self, path: &'static str) -> Result<Stream, CallError> {
        let not_sent = |NotSent(why)| CallError::NotSent(why);
        let connection = self.connection().await.map_err(not_sent)?;
        self.stream_on(&connection, path).await
    }

    /// Opens one on a connection.
    pub(crate) async fn stream_on(
        &self,
        connection: &Connection,
        path: &'static str,
    ) -> Result<Stream, CallError> {
        let token = self.auth.token(connection, &self.options).await?;
        let opened = connection.open(path, token.as_ref()).await;
        let (send, answers) = opened.map_err(|NotSent(why)| CallError::NotSent(why))?;
        Ok(Stream { send, answers, token })
    }
}

/// Questions and answers on one stream. Dropping it ends both.
pub(crate) struct Stream {
    send: SendStream<Bytes>,
    answers: Answers,
    /// What it was opened with.
    pub(crate) token: Option<HeaderValue>,
}

impl Stream {
    /// Sends a question.
    pub(crate) fn send(&mut self, question: &impl Message) -> Result<(), GrpcError> {
        self.send.send_data(frame(question), false).map_err(GrpcError::lost)
    }

    /// The next answer; `None` when the member ended the stream. Cancel safe.
    pub(crate) async fn next<A: Message + Default>(&mut self) -> Result<Option<A>, GrpcError> {
        self.answers.next().await?.map(grpc::decode).transpose()
    }
}

enum Attempt<A> {
    Answer(A),
    Again(String),
    Later(String),
    OutOfTime,
    Token(String),
    Failed(Failure),
}

/// In words.
pub(crate) fn told(error: &CallError) -> String {
    match error {
        CallError::NotSent(why) => why.clone(),
        CallError::Silent => "no answer in time".into(),
        CallError::Grpc(error) => error.to_string(),
    }
}
