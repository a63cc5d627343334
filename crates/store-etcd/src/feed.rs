//! A feed: one watch at one member at a time, taken up again at another one where it was left.
//!
//! # Theory
//!
//! A task, the follower, owns a connection and a watch of its own and puts batches into a short
//! channel; `next` takes them out. What is dropped is the wait for the channel, so `next` loses
//! nothing. A full channel holds the follower back, the follower the connection's window, and the
//! window etcd, which then keeps its place in history instead of the changes.
//!
//! Everything up to `delivered` has been put into the channel. A watch begins *at* `delivered`, not
//! after it, and what is not newer is dropped: so etcd says that `delivered` is compacted exactly
//! when a change after it might be missing, or its previous value.
//!
//! | the member says | then |
//! |---|---|
//! | events, the last part of an answer | every revision in it is whole: a batch |
//! | events, and that more parts follow | whole are the revisions before the last: a batch; the last one waits |
//! | progress | a batch without changes, if it may be believed |
//! | compacted; or an update whose previous value is compacted | the feed ends with [`StoreError::Compacted`] |
//! | anything else, or nothing for too long | the watch is begun anew, at another member |
//!
//! **Progress.** When the store has told a revision (by
//! [`Store::revision`](setpoint_store::Store::revision), or by any other answer) that the feed has
//! not reached, the follower asks for progress, at once and then every [`PROGRESS_PERIOD`]. The
//! answer is for the stream as a whole, so there is one watch on it. Since etcd 3.4.25 and 3.5.8 it
//! comes when the watch has all that was before, and behind it. Earlier versions answer at once,
//! past changes still on their way; there it is not asked for and not believed, and the watch is on
//! *all* keys instead: then each revision shows itself by its changes, and those of other keys are
//! dropped here. (A user of etcd's own authentication needs to be allowed to read all keys for
//! that.)
//!
//! **A member that lags or hangs.** A follower that is behind, or has asked for progress, and hears
//! nothing for a while goes to the next member; the patience doubles each time, from
//! [`PATIENCE_MIN`] to [`PATIENCE_MAX`]. A quiet one asks every [`IDLE_PROGRESS_PERIOD`]; where
//! progress is not asked for, pings notice it
//! ([`EtcdOptions::keep_alive_period`](crate::EtcdOptions::keep_alive_period)). A member without a
//! leader ends the watch by itself (`hasleader`).

pub(crate) mod assembler;

use self::assembler::{Assembled, Assembler};
use crate::{
    cluster::{BACKOFF_MAX, BACKOFF_MIN, Stream, told},
    connection::{Connection, NotSent},
    keys::Namespace,
    proto::{WatchAnswer, WatchAsk, WatchCall, WatchCreate, WatchProgress, path},
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

/// How many batches wait for their reader; a batch is one answer of etcd (about 2 MiB at most,
/// unless one revision is larger).
pub const BATCHES_MAX: usize = 8;
/// How often progress is asked for while a feed is behind what the store has told.
pub const PROGRESS_PERIOD: Duration = Duration::from_millis(100);
/// How often progress is asked for while it is not known to be behind: so a member that hangs is
/// noticed, and compaction does not overtake a quiet feed.
pub const IDLE_PROGRESS_PERIOD: Duration = Duration::from_secs(5);
/// How long a feed that is behind, or that has asked, hears nothing until it goes to another
/// member.
pub const PATIENCE_MIN: Duration = Duration::from_secs(2);
/// The longest it becomes.
pub const PATIENCE_MAX: Duration = Duration::from_secs(60);

/// The reader's end.
pub(crate) struct EtcdFeed {
    batches: mpsc::Receiver<Result<Batch, StoreError>>,
    /// How it ended, said again to who asks again.
    ended: Option<StoreError>,
    follower: AbortHandle,
    /// A feed keeps its store alive.
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
            // Cancel safe: a dropped `recv` has taken nothing.
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

/// Starts to follow every change of keys under `prefix` after `after`.
pub(crate) fn open(
    owner: &Arc<Owner>,
    prefix: &[u8],
    after: Revision,
) -> Result<EtcdFeed, StoreError> {
    let shared = owner.shared.clone();
    let (batches, received) = mpsc::channel(BATCHES_MAX);
    let follower = Follower {
        range: shared.namespace.prefix(prefix),
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
    /// What is watched, as etcd has it.
    range: (Bytes, Bytes),
    batches: mpsc::Sender<Result<Batch, StoreError>>,

    /// Which member is asked next.
    endpoint: usize,
    /// How long a silence may last.
    patience: Duration,
    assembler: Assembler,
}

/// Why a watch ended.
enum End {
    /// Begin anew elsewhere.
    Lost(String),
    /// The feed ends with this.
    Error(StoreError),
    /// Nobody listens.
    Unheard,
}

/// What woke the follower.
enum Woken {
    Answer(WatchAnswer),
    /// The store told something, or it is time to ask.
    Ask,
    Silence,
}

impl Follower {
    async fn run(mut self) {
        let mut pause = BACKOFF_MIN;
        loop {
            let (before, begun) = (self.assembler.delivered(), Instant::now());
            match self.watch().await {
                End::Unheard => return,
                End::Error(error) => {
                    // Nobody may listen.
                    drop(self.batches.send(Err(error)).await);
                    return;
                }
                End::Lost(why) => {
                    let delivered = self.assembler.delivered();
                    tracing::info!(%delivered, why, "a watch of etcd is begun anew");
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

    /// One watch, to its end.
    async fn watch(&mut self) -> End {
        let begun = timeout(self.patience, self.begin()).await;
        let (mut stream, believes) = match begun {
            Ok(Ok(begun)) => begun,
            Ok(Err(end)) => return end,
            Err(_) => return End::Lost("the watch was not begun in time".into()),
        };
        self.assembler.begin();
        let mut told = self.shared.told.subscribe();
        let mut heard = Instant::now();
        // Since when it has been behind; and when progress was asked for last, and for which
        // revision.
        let mut behind: Option<Instant> = None;
        let (mut asked_at, mut asked_for) = (Instant::now(), 0);
        // Since when it has waited for an answer.
        let mut unanswered: Option<Instant> = None;
        loop {
            let (delivered, now) = (self.assembler.delivered().0, Instant::now());
            let goal = *told.borrow_and_update();
            let is_behind = goal.seen > delivered;
            behind = if is_behind { behind.or(Some(now)) } else { None };
            let waits_since = [behind, unanswered].into_iter().flatten().min();
            let silent_from = waits_since.map(|since| since.max(heard));
            // Somebody waits: ask at once, unless an answer is on its way, after which it is looked
            // at again. When nobody waits, a change that is on its way gets the time to arrive.
            let is_urgent = goal.asked > delivered.max(asked_for) && unanswered.is_none();
            let period = if is_behind { PROGRESS_PERIOD } else { IDLE_PROGRESS_PERIOD };
            let ask_at =
                if is_urgent { now } else { asked_at.max(behind.unwrap_or(asked_at)) + period };
            let woken = tokio::select! {
                biased;
                // Cancel safe: what came of an answer is kept in the stream.
                answer = stream.next::<WatchAnswer>() => match answer {
                    Ok(Some(answer)) => Woken::Answer(answer),
                    Ok(None) => return End::Lost("the member ended the watch".into()),
                    Err(error) => return End::Lost(error.to_string()),
                },
                () = self.batches.closed() => return End::Unheard,
                // Cancel safe: a dropped `changed` has marked nothing as seen; the sender lives as
                // long as `self`.
                _ = told.changed() => continue,
                // Cancel safe: the times are worked out anew.
                () = sleep_until(ask_at), if believes => Woken::Ask,
                () = until(silent_from.map(|from| from + self.patience)) => Woken::Silence,
            };
            match woken {
                Woken::Answer(answer) => {
                    match self.take(answer, believes).await {
                        Ok(true) => self.patience = PATIENCE_MIN,
                        Ok(false) => {}
                        Err(end) => return end,
                    }
                    // Not before: a slow reader's time is not the member's silence.
                    (heard, unanswered) = (Instant::now(), None);
                }
                Woken::Ask => {
                    (asked_at, asked_for) = (now, goal.asked);
                    unanswered = unanswered.or(Some(now));
                    let question =
                        WatchCall { request: Some(WatchAsk::Progress(WatchProgress {})) };
                    if let Err(error) = stream.send(&question) {
                        return End::Lost(error.to_string());
                    }
                }
                Woken::Silence => {
                    let why = format!("nothing heard for {:?}", self.patience);
                    self.patience = (self.patience * 2).min(PATIENCE_MAX);
                    return End::Lost(why);
                }
            }
        }
    }

    /// Connects and asks for the watch; says whether the member's progress may be believed.
    async fn begin(&mut self) -> Result<(Stream, bool), End> {
        let cluster = &self.shared.cluster;
        let target = &cluster.endpoints[self.endpoint];
        let (options, tasks) = (&cluster.options, &cluster.tasks);
        let dialled = Connection::dial(self.endpoint, target, options, tasks, true).await;
        let connection = dialled.map_err(|NotSent(why)| End::Lost(why))?;
        let admitted = cluster.admit(&connection, self.patience).await;
        let believes = admitted.map_err(|NotSent(why)| End::Lost(why))?;
        let (key, range_end) = if believes { self.range.clone() } else { Namespace::everything() };
        let create = WatchCreate {
            key,
            range_end,
            start_revision: at_exactly(self.assembler.delivered()),
            progress_notify: true,
            prev_kv: true,
            fragment: true,
        };
        let question = WatchCall { request: Some(WatchAsk::Create(create)) };
        let opened = cluster.stream_on(&connection, path::WATCH).await;
        let mut stream = opened.map_err(|error| End::Lost(told(&error)))?;
        stream.send(&question).map_err(|error| End::Lost(error.to_string()))?;
        match stream.next::<WatchAnswer>().await {
            Ok(Some(answer)) if answer.canceled => {
                // A token that is not good any more is told like this too.
                cluster.auth.refused(stream.token.as_ref());
                Err(self.canceled(&answer))
            }
            Ok(Some(answer)) if answer.created => Ok((stream, believes)),
            Ok(Some(_)) => Err(End::Lost("something came before the watch was begun".into())),
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

    /// Takes an answer in, and says whether the feed went on.
    async fn take(&mut self, answer: WatchAnswer, believes: bool) -> Result<bool, End> {
        if answer.canceled {
            return Err(self.canceled(&answer));
        }
        match self.assembler.take(answer, believes) {
            Assembled::Nothing => Ok(false),
            Assembled::Batch(batch) => {
                // A full channel waits for its reader, and etcd with it.
                self.batches.send(Ok(batch)).await.map_err(|_| End::Unheard)?;
                Ok(true)
            }
            Assembled::PreviousCompacted => {
                let asked = self.assembler.delivered();
                // What etcd keeps is at least what it can still tell; who asks again is told
                // exactly.
                let failed = self.shared.check_kept(asked).await.err();
                Err(match failed {
                    Some(error @ StoreError::Compacted { .. }) => End::Error(error),
                    Some(error) => End::Lost(error.to_string()),
                    None => End::Lost("a previous value is missing".into()),
                })
            }
            Assembled::Broken(why) => Err(End::Lost(format!("the watch makes no sense: {why}"))),
        }
    }
}

async fn until(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when).await,
        None => std::future::pending().await,
    }
}
