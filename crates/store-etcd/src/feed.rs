//! A feed: one watch on one member at a time, resumed on another member where it stopped.
//!
//! # Theory
//!
//! A task, the follower, owns a connection and a watch, and sends batches into a short channel;
//! `next` receives them. Dropping the future of `next` drops only the wait for the channel, so
//! nothing is lost. A full channel stops the follower, then the connection's flow-control window,
//! then etcd, which stores the position of the watch instead of the changes.
//!
//! Everything up to `delivered` has been sent into the channel. A watch begins *at* `delivered`,
//! not after it, and older events are dropped. So etcd reports that `delivered` is compacted
//! exactly when a later change, or its previous value, might be missing.
//!
//! | the member sends | effect |
//! |---|---|
//! | events, the last part of a response | every revision in it is complete: a batch |
//! | events, with more parts to follow | the revisions before the last are complete: a batch; the last one waits |
//! | progress | a batch without changes, if progress is reliable |
//! | compacted; or an update whose previous value is compacted | the feed ends with [`StoreError::Compacted`] |
//! | anything else, or nothing for too long | the watch restarts on another member |
//!
//! **Progress.** If the store has returned a revision (from
//! [`Store::revision`](setpoint_store::Store::revision), or in any other response) that the feed
//! has not reached, the follower requests progress, at once and then every [`PROGRESS_PERIOD`]. The
//! response applies to the whole stream, so a stream has one watch. Since etcd 3.4.25 and 3.5.8 it
//! is sent after all events before it. Earlier versions send it at once, while older changes are
//! still in flight. With them the follower neither requests nor trusts progress, and watches *all*
//! keys instead: each revision then shows by its changes, and changes of other keys are dropped
//! here. (With etcd's own authentication, the user then needs permission to read all keys.)
//!
//! **A member that lags or hangs.** A follower that is behind, or has requested progress, and
//! receives nothing for a while moves to the next member. The patience doubles each time, from
//! [`PATIENCE_MIN`] to [`PATIENCE_MAX`]. A quiet follower requests progress every
//! [`IDLE_PROGRESS_PERIOD`]. Without progress requests, pings detect a dead member
//! ([`EtcdOptions::keep_alive_period`](crate::EtcdOptions::keep_alive_period)). A member without a
//! leader ends the watch by itself (`hasleader`).

pub(crate) mod assembler;

use self::assembler::{Assembled, Assembler};
use crate::{
    cluster::{BACKOFF_MAX, BACKOFF_MIN, Stream, describe},
    connection::{Connection, NotSent},
    keys::Namespace,
    proto::{WatchAnswer, WatchCall, WatchCreate, WatchProgress, WatchRequestUnion, path},
    shared::{Shared, at_exactly},
    store::Owner,
};
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use setpoint_store::{Batch, ChangeFeed, Revision, StoreError};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::mpsc,
    task::AbortHandle,
    time::{Instant, sleep, sleep_until, timeout},
};

/// Maximum number of batches that wait for the reader. A batch is one response of etcd (about 2 MiB
/// at most, unless one revision is larger).
pub const BATCHES_MAX: usize = 8;
/// Period of progress requests while a feed is behind a revision that the store has returned.
pub const PROGRESS_PERIOD: Duration = Duration::from_millis(100);
/// Period of progress requests while a feed is not known to be behind. It detects a member that
/// hangs, and keeps compaction from overtaking a quiet feed.
pub const IDLE_PROGRESS_PERIOD: Duration = Duration::from_secs(5);
/// How long a feed that is behind, or has requested progress, waits without a message before it
/// moves to another member.
pub const PATIENCE_MIN: Duration = Duration::from_secs(2);
/// Maximum of that time.
pub const PATIENCE_MAX: Duration = Duration::from_secs(60);

/// The reader's end of a feed.
pub(crate) struct EtcdFeed {
    batches: mpsc::Receiver<Result<Batch, StoreError>>,
    /// The error it ended with, returned again by later calls.
    ended: Option<StoreError>,
    follower: AbortHandle,
    /// Keeps the store alive.
    _owner: Arc<Owner>,
}

impl Drop for EtcdFeed {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

impl ChangeFeed for EtcdFeed {
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, StoreError>> {
        async move {
            if let Some(error) = &self.ended {
                return Err(error.clone());
            }
            // Cancel safe: a dropped `recv` has received nothing.
            let error = match self.batches.recv().await {
                Some(Ok(batch)) => return Ok(batch),
                Some(Err(error)) => error,
                None => StoreError::Closed,
            };
            self.ended = Some(error.clone());
            Err(error)
        }
        .boxed()
    }
}

/// Starts to follow the changes of keys under `prefix` after `after`.
pub(crate) fn open(
    owner: &Arc<Owner>,
    prefix: &[u8],
    after: Revision,
) -> Result<EtcdFeed, StoreError> {
    let shared = owner.shared.clone();
    let Some((range, prefix)) = shared.namespace.prefix(prefix) else {
        return Err(shared.outside(prefix));
    };
    let (batches, received) = mpsc::channel(BATCHES_MAX);
    let follower = Follower {
        range,
        assembler: Assembler::new(shared.namespace.clone(), prefix, after),
        endpoint: shared.cluster.current(),
        patience: PATIENCE_MIN,
        shared,
        batches,
    };
    let follower = owner.shared.cluster.tasks.spawn(follower.run()).ok_or(StoreError::Closed)?;
    Ok(EtcdFeed { batches: received, ended: None, follower, _owner: owner.clone() })
}

struct Follower {
    shared: Arc<Shared>,
    /// The watched range, in etcd's encoding.
    range: (Bytes, Bytes),
    batches: mpsc::Sender<Result<Batch, StoreError>>,

    /// Index of the endpoint to use next.
    endpoint: usize,
    /// Maximum time without a message.
    patience: Duration,
    assembler: Assembler,
}

/// Why a watch ended.
enum End {
    /// Restart on another member.
    Lost(String),
    /// The feed ends with this error.
    Error(StoreError),
    /// The reader is gone.
    ReaderGone,
}

/// Why the follower woke up.
enum Woken {
    Answer(WatchAnswer),
    /// It is time to request progress.
    Ask,
    Silence,
}

impl Follower {
    async fn run(mut self) {
        let mut pause = BACKOFF_MIN;
        loop {
            let (before, begun) = (self.assembler.delivered(), Instant::now());
            match self.watch().await {
                End::ReaderGone => return,
                End::Error(error) => {
                    // Fails if the reader is gone.
                    drop(self.batches.send(Err(error)).await);
                    return;
                }
                End::Lost(why) => {
                    let delivered = self.assembler.delivered();
                    tracing::info!(%delivered, why, "restarting a watch of etcd");
                    if delivered > before || begun.elapsed() > BACKOFF_MAX {
                        pause = BACKOFF_MIN;
                    }
                }
            }
            self.endpoint = (self.endpoint + 1) % self.shared.cluster.endpoints.len();
            sleep(pause).await;
            pause = (pause * 2).min(BACKOFF_MAX);
        }
    }

    /// Runs one watch to its end.
    async fn watch(&mut self) -> End {
        let begun = timeout(self.patience, self.begin()).await;
        let (mut stream, is_reliable) = match begun {
            Ok(Ok(begun)) => begun,
            Ok(Err(end)) => return end,
            Err(_) => return End::Lost("the watch was not created in time".into()),
        };
        self.assembler.begin();
        let mut progress = self.shared.progress.subscribe();
        let mut last_message = Instant::now();
        // Since when it has been behind; when progress was last requested, and for which revision.
        let mut behind: Option<Instant> = None;
        let (mut asked_at, mut asked_for) = (Instant::now(), 0);
        // Since when a progress request has had no response.
        let mut unanswered: Option<Instant> = None;
        loop {
            let (delivered, now) = (self.assembler.delivered().0, Instant::now());
            let goal = *progress.borrow_and_update();
            let is_behind = goal.seen > delivered;
            behind = if is_behind { behind.or(Some(now)) } else { None };
            let waits_since = [behind, unanswered].into_iter().flatten().min();
            let silent_from = waits_since.map(|since| since.max(last_message));
            // A caller has the revision and probably waits for it: request progress at once, unless
            // a response is in flight, after which this is checked again. Otherwise give changes in
            // flight some time to arrive.
            let is_urgent = goal.asked > delivered.max(asked_for) && unanswered.is_none();
            let period = if is_behind { PROGRESS_PERIOD } else { IDLE_PROGRESS_PERIOD };
            let ask_at =
                if is_urgent { now } else { asked_at.max(behind.unwrap_or(asked_at)) + period };
            let woken = tokio::select! {
                biased;
                // Cancel safe: the stream stores a partial response.
                answer = stream.next::<WatchAnswer>() => match answer {
                    Ok(Some(answer)) => Woken::Answer(answer),
                    Ok(None) => return End::Lost("the member ended the watch".into()),
                    Err(error) => return End::Lost(error.to_string()),
                },
                () = self.batches.closed() => return End::ReaderGone,
                // Cancel safe: a dropped `changed` has marked nothing as seen. The sender lives as
                // long as `self`.
                _ = progress.changed() => continue,
                // Cancel safe: each round recomputes the times.
                () = sleep_until(ask_at), if is_reliable => Woken::Ask,
                () = until(silent_from.map(|from| from + self.patience)) => Woken::Silence,
            };
            match woken {
                Woken::Answer(answer) => {
                    match self.take(answer, is_reliable).await {
                        Ok(true) => self.patience = PATIENCE_MIN,
                        Ok(false) => {}
                        Err(end) => return end,
                    }
                    // Set only now, because the time of a slow reader is not the member's silence.
                    (last_message, unanswered) = (Instant::now(), None);
                }
                Woken::Ask => {
                    (asked_at, asked_for) = (now, goal.asked);
                    unanswered = unanswered.or(Some(now));
                    let question =
                        WatchCall { request: Some(WatchRequestUnion::Progress(WatchProgress {})) };
                    if let Err(error) = stream.send(&question) {
                        return End::Lost(error.to_string());
                    }
                }
                Woken::Silence => {
                    let why = format!("no message for {:?}", self.patience);
                    self.patience = (self.patience * 2).min(PATIENCE_MAX);
                    return End::Lost(why);
                }
            }
        }
    }

    /// Connects and creates the watch. Returns whether the member's progress is reliable.
    async fn begin(&mut self) -> Result<(Stream, bool), End> {
        let cluster = &self.shared.cluster;
        let target = &cluster.endpoints[self.endpoint];
        let (options, tasks) = (&cluster.options, &cluster.tasks);
        let dialled = Connection::dial(self.endpoint, target, options, tasks, true).await;
        let connection = dialled.map_err(|NotSent(why)| End::Lost(why))?;
        let admitted = cluster.admit(&connection, self.patience).await;
        let is_reliable = admitted.map_err(|NotSent(why)| End::Lost(why))?;
        let (key, range_end) =
            if is_reliable { self.range.clone() } else { Namespace::everything() };
        let create = WatchCreate {
            key,
            range_end,
            start_revision: at_exactly(self.assembler.delivered()),
            progress_notify: true,
            prev_kv: true,
            fragment: true,
        };
        let question = WatchCall { request: Some(WatchRequestUnion::Create(create)) };
        let opened = cluster.stream_on(&connection, path::WATCH).await;
        let mut stream = opened.map_err(|error| End::Lost(describe(&error)))?;
        stream.send(&question).map_err(|error| End::Lost(error.to_string()))?;
        match stream.next::<WatchAnswer>().await {
            Ok(Some(answer)) if answer.canceled => {
                // An invalid token is also reported this way.
                cluster.auth.refused(stream.token.as_ref());
                Err(self.canceled(&answer))
            }
            Ok(Some(answer)) if answer.created => Ok((stream, is_reliable)),
            Ok(Some(_)) => Err(End::Lost("a message came before the watch was created".into())),
            Ok(None) => Err(End::Lost("the member ended the watch".into())),
            Err(error) => Err(End::Lost(error.to_string())),
        }
    }

    fn canceled(&self, answer: &WatchAnswer) -> End {
        let asked = self.assembler.delivered();
        match u64::try_from(answer.compact_revision) {
            Ok(oldest) if oldest > 0 => {
                End::Error(StoreError::Compacted { asked, oldest: Revision(oldest) })
            }
            _ if answer.cancel_reason.contains("permission denied") => {
                let why = format!(
                    "etcd: watch: {} (before 3.4.25 and 3.5.8 a feed needs to read all keys)",
                    answer.cancel_reason
                );
                End::Error(StoreError::Unavailable(why))
            }
            _ => End::Lost(format!("the member cancelled the watch: {}", answer.cancel_reason)),
        }
    }

    /// Processes a response. Returns whether the feed moved on.
    async fn take(&mut self, answer: WatchAnswer, is_reliable: bool) -> Result<bool, End> {
        if answer.canceled {
            return Err(self.canceled(&answer));
        }
        match self.assembler.take(answer, is_reliable) {
            Assembled::Nothing => Ok(false),
            Assembled::Batch(batch) => {
                // A full channel waits for the reader, which also stops etcd.
                self.batches.send(Ok(batch)).await.map_err(|_| End::ReaderGone)?;
                Ok(true)
            }
            Assembled::PreviousCompacted => {
                let asked = self.assembler.delivered();
                // etcd may retain more than this revision; the check returns the exact error.
                let failed = self.shared.check_not_compacted(asked).await.err();
                Err(match failed {
                    Some(error @ StoreError::Compacted { .. }) => End::Error(error),
                    Some(error) => End::Lost(error.to_string()),
                    None => End::Lost("a previous value is missing".into()),
                })
            }
            Assembled::Broken(why) => Err(End::Lost(format!("the watch is invalid: {why}"))),
        }
    }
}

async fn until(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when).await,
        None => std::future::pending().await,
    }
}
