//! The members as one cluster: a call goes to a member that can serve, and to another one if a
//! repeat is safe.
//!
//! | event | a call that may be repeated | a commit |
//! |---|---|---|
//! | no connection, nothing sent | the next member | the next member |
//! | connected, but the member does not confirm in time that it can serve | the next member | the next member |
//! | sent, and the connection broke | the next member | unknown |
//! | sent, and no response in time | the next member | unknown |
//! | the member has no leader, or is a learner | the next member | the next member |
//! | the token was refused | a new token, the same member | the same |
//! | too many requests | the same member after a pause | the same |
//! | timeout, leader changed, stopped | the next member | unknown |
//! | the request is invalid | refused | refused |

use crate::{
    auth::Auth,
    connection::{CallError, Connection, NotSent},
    endpoint::Endpoint,
    error::EtcdError,
    failure::{Refusal, Verdict, is_unauthorized, refusal, verdict},
    keys::Namespace,
    options::EtcdOptions,
    proto::{RangeAnswer, RangeCall, path},
    status::{self, VERSION_MIN},
    tasks::Tasks,
};
use bytes::Bytes;
use futures::stream::{FuturesUnordered, StreamExt};
use http::HeaderValue;
use parking_lot::Mutex;
use prost::Message;
use setpoint_grpc::{Call, GrpcError, frame};
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

/// The first pause after every member failed. Each further pause is twice as long.
pub(crate) const BACKOFF_MIN: Duration = Duration::from_millis(50);
/// The longest pause.
pub(crate) const BACKOFF_MAX: Duration = Duration::from_secs(2);
/// Time to reach one member before the next one is tried in parallel, as RFC 8305 recommends for
/// addresses.
const DIAL_STAGGER: Duration = Duration::from_millis(250);
/// Maximum number of doublings of the time to reach a member, while none could be reached.
const PATIENCE_SHIFT_MAX: u32 = 3;
/// Maximum number of concurrent calls. Further calls wait.
pub const CALLS_MAX: usize = 1024;
/// Maximum number of refused tokens per call.
const TOKENS_MAX: u32 = 3;

/// Whether a call may be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It has no effects that matter.
    Freely,
    /// Only if it certainly did nothing.
    Never,
}

/// Why a call has no result.
#[derive(Debug, Clone)]
pub(crate) enum Failure {
    /// Nothing happened.
    Unavailable(String),
    /// It was sent, and may have happened.
    Unknown(String),
    /// etcd refused the request; nothing happened.
    Refused(GrpcError),
    Closed,
}

impl Failure {
    /// The error of the contract, for refusals without a special meaning.
    pub(crate) fn into_store_error(self) -> StoreError {
        match self {
            Self::Unavailable(why) => StoreError::Unavailable(why),
            Self::Unknown(why) => StoreError::Unknown(why),
            Self::Refused(error) if refusal(&error) == Refusal::Full => {
                StoreError::Full(error.to_string())
            }
            Self::Refused(error) => StoreError::Unavailable(format!("etcd refused: {error}")),
            Self::Closed => StoreError::Closed,
        }
    }
}

/// The members of a cluster.
pub(crate) struct Cluster {
    pub(crate) options: EtcdOptions,
    pub(crate) endpoints: Vec<Arc<Endpoint>>,
    pub(crate) auth: Auth,
    pub(crate) tasks: Tasks,
    state: Mutex<State>,
    /// etcd's id of the cluster, once a member has reported it.
    id: Mutex<Option<u64>>,
    dialling: Semaphore,
    calls: Semaphore,
}

struct State {
    /// Index of the endpoint in use.
    current: usize,
    /// Consecutive failures to reach any member.
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

    /// Index of the endpoint that calls go to.
    pub(crate) fn current(&self) -> usize {
        self.state.lock().current
    }

    fn present(&self) -> Option<Connection> {
        self.state.lock().connection.clone().filter(Connection::is_up)
    }

    /// The connection for calls: the current one, or a new one to the first member that accepts.
    async fn connection(&self) -> Result<Connection, NotSent> {
        if let Some(connection) = self.present() {
            return Ok(connection);
        }
        // One caller dials, the others wait.
        let turn = self.dialling.acquire().await;
        if let Some(connection) = self.present() {
            return Ok(connection);
        }
        let n_endpoints = self.endpoints.len();
        let (mut next, patience) = {
            let mut state = self.state.lock();
            let first = state.current;
            // If this caller gives up, the next one starts with the next member.
            state.current = (first + 1) % n_endpoints;
            // If all members are slow, they get more time at each attempt.
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
                // Does not wait for a member that hangs; the first one to connect is used.
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

    /// Checks the member of a new connection before using it. Rejects a member that hangs, has no
    /// leader, is too old or belongs to another cluster. Returns whether its progress notifications
    /// are reliable.
    pub(crate) async fn admit(
        &self,
        connection: &Connection,
        patience: Duration,
    ) -> Result<bool, NotSent> {
        let status = status::query_as(connection, None, patience).await;
        let refused = |why: String| NotSent(format!("{}: {why}", connection.address()));
        let answer = match status {
            Ok(answer) => answer,
            // Since 3.5.28 and 3.6 (etcd issue 21663) only administrators may read the status. Such
            // a member is new enough.
            Err(CallError::Grpc(error)) if is_unauthorized(&error) => return Ok(true),
            Err(error) => return Err(refused(describe(&error))),
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
                Ok(status::has_reliable_progress(&answer.version))
            }
        }
    }

    /// The smallest request for the current revision.
    pub(crate) fn probe(&self) -> RangeCall {
        let key = Namespace::of(&self.options).full(&self.options.probe_key);
        let key = key.unwrap_or_else(|| Namespace::everything().0);
        RangeCall { key, count_only: true, ..RangeCall::default() }
    }

    /// Has a member confirm with a linearizable read that a majority follows its leader. A member
    /// that does not know its leader is dead would accept a commit and lose it, and report that
    /// only after seconds, when the outcome can no longer be determined.
    async fn confirm(&self, connection: &Connection, patience: Duration) -> Result<(), NotSent> {
        let (question, sent) = (frame(&self.probe()), AtomicBool::new(false));
        match connection.call::<RangeAnswer>(path::RANGE, None, question, &sent, patience).await {
            Ok(_) => Ok(()),
            // Authorization is checked last. Sends no token, because requesting one is a write.
            Err(CallError::Grpc(error))
                if matches!(verdict(&error), Verdict::Final | Verdict::Token) =>
            {
                Ok(())
            }
            Err(error) => Err(NotSent(format!("{}: {}", connection.address(), describe(&error)))),
        }
    }

    /// Moves on to the next member, because this connection's member does not serve. Calls in
    /// flight on the connection are not affected.
    fn leave(&self, connection: &Connection, why: &str) {
        let mut state = self.state.lock();
        if state.connection.as_ref().is_some_and(|present| present.is(connection)) {
            state.connection = None;
            state.current = (connection.endpoint + 1) % self.endpoints.len();
            tracing::warn!(endpoint = connection.address(), why, "leave an etcd member");
        }
    }

    /// Calls until there is a response, a repeat is not safe, or the time is up.
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
                    // The next member is tried at once. After all members failed, there is a pause.
                    (why, failures % self.endpoints.len() == 0)
                }
                Attempt::Later(why) => (why, true),
                // The earlier failure says more than the timeout.
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
                let why = format!("{address}: authenticate: {}", describe(&error));
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
        let why = format!("{address}: {}", describe(&error));
        let verdict = match &error {
            CallError::NotSent(_) => Verdict::Elsewhere,
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
    /// Opens a bidirectional stream to the current member.
    pub(crate) async fn stream(&self, path: &'static str) -> Result<Stream, CallError> {
        let not_sent = |NotSent(why)| CallError::NotSent(why);
        let connection = self.connection().await.map_err(not_sent)?;
        self.stream_on(&connection, path).await
    }

    /// Opens a bidirectional stream on a connection.
    pub(crate) async fn stream_on(
        &self,
        connection: &Connection,
        path: &'static str,
    ) -> Result<Stream, CallError> {
        let token = self.auth.token(connection, &self.options).await?;
        let opened = connection.open(path, token.as_ref()).await;
        let call = opened.map_err(|NotSent(why)| CallError::NotSent(why))?;
        Ok(Stream { call, token })
    }
}

/// A bidirectional stream. Dropping it ends both directions.
pub(crate) struct Stream {
    call: Call,
    /// The token it was opened with.
    pub(crate) token: Option<HeaderValue>,
}

impl Stream {
    /// Sends a request.
    pub(crate) fn send(&mut self, question: &impl Message) -> Result<(), GrpcError> {
        self.call.send(frame(question), false)
    }

    /// The next response; `None` when the member ended the stream. Cancel safe.
    pub(crate) async fn next<A: Message + Default>(&mut self) -> Result<Option<A>, GrpcError> {
        self.call.next().await
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

/// The error as text.
pub(crate) fn describe(error: &CallError) -> String {
    match error {
        CallError::NotSent(why) => why.clone(),
        CallError::Grpc(error) => error.to_string(),
    }
}
