//! Limits large answers: how many are made and sent at once, and how many bytes they hold, in total
//! and per user.
//!
//! # Theory
//!
//! | an answer | permit | bytes counted until the transport has released them |
//! |---|---|---|
//! | of at most [`LARGE_BYTES_MIN`] | none | none |
//! | a larger single object or document | none | its own |
//! | a larger list | one, until its last byte is made | its items while it holds them, and its chunks |
//!
//! A list holds references to the stored objects. These cost nothing while the objects are current.
//! They are counted in full anyway, because the objects may be replaced while a slow client reads.
//!
//! A request without a permit waits for a short time. A free permit goes to the waiting user with
//! the fewest permits, so that one user's flood delays nobody else. `system:masters` is not exempt:
//! this limits the server's load, not a user's rights.
//!
//! A client that reads nothing for [`READ_STALL_MAX`], or has not read its list within
//! [`SENDING_MAX`], loses it: the connection (over HTTP/2 the stream) is reset.
//! [`LargeAnswers::end_slow`] checks this while a listener runs; it is also checked whenever a
//! request finds no permit.

use crate::body::{self, Body, BodyError};
use bytes::Bytes;
use futures::Stream;
use http::Response;
use parking_lot::Mutex;
use setpoint_object::ApiError;
use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::Instant;

/// Answers up to this many bytes are not counted: 128 KiB, from which on the reference server also
/// compresses.
pub(crate) const LARGE_BYTES_MIN: usize = 128 * 1024;
/// Maximum concurrent large lists. Two of them keep two cores busy; the others wait for their
/// clients.
const LISTS_MAX: usize = 16;
/// Maximum concurrent large lists of one user.
const LISTS_PER_USER_MAX: usize = 4;
/// Maximum bytes of large answers: 512 MiB, an eighth of a small machine.
const BYTES_MAX: usize = 512 << 20;
/// Maximum bytes of one user's large answers.
pub(crate) const BYTES_PER_USER_MAX: usize = 256 << 20;
/// Maximum requests that wait for a permit.
const WAITING_MAX: usize = 128;
/// Maximum requests of one user that wait for a permit.
const WAITING_PER_USER_MAX: usize = 16;
/// How long a request waits for a permit. Longer than a few large lists take; then the client is
/// asked to retry.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// How long a client may read nothing of its list: as long as a connection may stall.
const READ_STALL_MAX: Duration = setpoint_serve::STALL_MAX;
/// How long sending a list may take: a minute, as the reference server's deadline for a request and
/// its answer.
const SENDING_MAX: Duration = Duration::from_secs(60);
/// Period of checks for slow clients, while there are large lists.
const CHECK_PERIOD: Duration = Duration::from_secs(5);
/// Maximum concurrent trees of large single objects. One of 1.5 MiB takes tens of milliseconds and
/// some 30 MiB.
const TREES_MAX: usize = 2;
/// `Retry-After`, in seconds.
const RETRY_SECONDS: u32 = 1;

/// The limits on large answers. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct LargeAnswers(Arc<Shared>);

impl Default for LargeAnswers {
    fn default() -> Self {
        Self::new(false)
    }
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Limits trees of large objects, which are made on blocking threads.
    trees: Arc<Semaphore>,
    /// They are made on the caller's thread.
    in_place: bool,
    /// A list has begun to be sent.
    begun: Notify,
}

#[derive(Debug, Default)]
struct State {
    all: Usage,
    /// Users with large answers.
    users: BTreeMap<Arc<str>, Usage>,
    /// In order of arrival.
    waiting: VecDeque<Waiting>,
    /// By number.
    sending: BTreeMap<u64, Weak<dyn Revoke>>,
    n_sendings: u64,
}

/// Permits and bytes in use.
#[derive(Debug, Clone, Copy, Default)]
struct Usage {
    permits: usize,
    bytes: usize,
}

#[derive(Debug)]
struct Waiting {
    user: Arc<str>,
    bytes: usize,
    ready: oneshot::Sender<Permit>,
}

impl State {
    fn usage(&self, user: &str) -> Usage {
        self.users.get(user).copied().unwrap_or_default()
    }

    fn take(&mut self, user: &Arc<str>, permits: usize, bytes: usize) {
        for usage in [&mut self.all, self.users.entry(user.clone()).or_default()] {
            usage.permits += permits;
            usage.bytes += bytes;
        }
    }

    fn release(&mut self, user: &Arc<str>, permits: usize, bytes: usize) {
        self.all.permits -= permits;
        self.all.bytes -= bytes;
        if let Some(usage) = self.users.get_mut(user) {
            usage.permits -= permits;
            usage.bytes -= bytes;
            if usage.permits == 0 && usage.bytes == 0 {
                self.users.remove(user);
            }
        }
    }

    /// Whether `bytes` fit within the limits. An answer that is larger than a limit is allowed if
    /// it is the only one.
    fn has_room(&self, user: &str, bytes: usize) -> bool {
        let fits = |held: usize, most: usize| held == 0 || held + bytes <= most;
        fits(self.all.bytes, BYTES_MAX) && fits(self.usage(user).bytes, BYTES_PER_USER_MAX)
    }

    fn has_place(&self, user: &str, bytes: usize) -> bool {
        self.all.permits < LISTS_MAX
            && self.usage(user).permits < LISTS_PER_USER_MAX
            && self.has_room(user, bytes)
    }

    /// Takes a permit for a waiting request, if possible. The permit is taken under the lock; the
    /// request is notified outside it.
    fn next_waiting(&mut self) -> Option<Waiting> {
        self.waiting.retain(|waiting| !waiting.ready.is_closed());
        let permits = |waiting: &Waiting| self.usage(&waiting.user).permits;
        let fitting = self.waiting.iter().enumerate();
        let fitting = fitting.filter(|(_, waiting)| self.has_place(&waiting.user, waiting.bytes));
        let (at, _) = fitting.min_by_key(|(at, waiting)| (permits(waiting), *at))?;
        let waiting = self.waiting.remove(at)?;
        self.take(&waiting.user, 1, waiting.bytes);
        Some(waiting)
    }
}

impl LargeAnswers {
    /// `in_place`: everything runs on the caller's thread, for simulations.
    pub(crate) fn new(in_place: bool) -> Self {
        let trees = Arc::new(Semaphore::new(TREES_MAX));
        let (state, begun) = (Mutex::default(), Notify::new());
        Self(Arc::new(Shared { state, trees, in_place, begun }))
    }
    /// Waits for a permit for a list whose items have `bytes` bytes. Dropping the future stops
    /// waiting.
    ///
    /// # Errors
    ///
    /// 429 if there is none within a second, or too many requests wait already.
    pub(crate) async fn acquire(&self, user: &Arc<str>, bytes: usize) -> Result<Permit, ApiError> {
        let ready = match self.try_acquire(user, bytes) {
            Some(permit) => return Ok(permit),
            None => {
                self.end_slow_now();
                let mut state = self.0.state.lock();
                state.waiting.retain(|waiting| !waiting.ready.is_closed());
                let n_own = state.waiting.iter().filter(|w| w.user == *user).count();
                if state.waiting.len() >= WAITING_MAX || n_own >= WAITING_PER_USER_MAX {
                    return Err(crowded());
                }
                let (sender, ready) = oneshot::channel();
                state.waiting.push_back(Waiting { user: user.clone(), bytes, ready: sender });
                ready
            }
        };
        // A permit may have become free before this request was queued.
        self.serve_waiting();
        match tokio::time::timeout(WAIT_MAX, ready).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => Err(crowded()),
        }
    }

    /// Takes a permit even beyond the limits, for the answer of a completed write.
    pub(crate) fn acquire_at_once(&self, user: &Arc<str>, bytes: usize) -> Permit {
        self.0.state.lock().take(user, 1, bytes);
        self.new_permit(user, bytes)
    }

    fn try_acquire(&self, user: &Arc<str>, bytes: usize) -> Option<Permit> {
        {
            let mut state = self.0.state.lock();
            if !state.has_place(user, bytes) {
                return None;
            }
            state.take(user, 1, bytes);
        }
        Some(self.new_permit(user, bytes))
    }

    /// Bytes that are counted.
    #[cfg(test)]
    pub(crate) fn n_bytes(&self) -> usize {
        self.0.state.lock().all.bytes
    }

    fn new_permit(&self, user: &Arc<str>, bytes: usize) -> Permit {
        Permit { large: self.clone(), user: user.clone(), bytes }
    }

    fn serve_waiting(&self) {
        loop {
            let Some(waiting) = self.0.state.lock().next_waiting() else { return };
            let permit = self.new_permit(&waiting.user, waiting.bytes);
            // If the request was dropped in the meantime, dropping the permit releases it.
            let _ = waiting.ready.send(permit);
        }
    }

    fn release(&self, user: &Arc<str>, permits: usize, bytes: usize) {
        self.0.state.lock().release(user, permits, bytes);
        self.serve_waiting();
    }

    /// Reserves room for a single answer that is made of `n_bytes` bytes. Small ones need none.
    ///
    /// # Errors
    ///
    /// 429 if they exceed the limits.
    pub(crate) fn reserve(&self, user: &Arc<str>, n_bytes: usize) -> Result<Room, ApiError> {
        if n_bytes > LARGE_BYTES_MIN && !self.0.state.lock().has_room(user, n_bytes) {
            self.end_slow_now();
            if !self.0.state.lock().has_room(user, n_bytes) {
                return Err(crowded());
            }
        }
        Ok(self.reserve_at_once(user, n_bytes))
    }

    /// The same, even beyond the limits, for the answer of a completed write.
    pub(crate) fn reserve_at_once(&self, user: &Arc<str>, n_bytes: usize) -> Room {
        let mut room = Room { large: self.clone(), user: user.clone(), n_bytes: 0 };
        room.resize(if n_bytes > LARGE_BYTES_MIN { n_bytes } else { 0 });
        room
    }

    /// Runs work on one large object on a blocking thread, with limited concurrency; in place, in a
    /// simulation. Work that has started continues if the future is dropped.
    ///
    /// # Errors
    ///
    /// The work panicked.
    pub(crate) async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, BodyError> {
        if self.0.in_place {
            return Ok(work());
        }
        let failed = |error: &dyn std::fmt::Display| BodyError::Encode(error.to_string());
        let permit = self.0.trees.clone().acquire_owned().await.map_err(|error| failed(&error))?;
        let work = move || {
            let _permit = permit;
            work()
        };
        tokio::task::spawn_blocking(work).await.map_err(|error| failed(&error))
    }

    /// Ends lists that clients read too slowly. Never returns. Sleeps while there are no large
    /// lists.
    pub(crate) async fn end_slow(&self) {
        loop {
            // Created before the check, so that a list that begins after the check wakes this task.
            let begun = self.0.begun.notified();
            if self.0.state.lock().sending.is_empty() {
                begun.await;
            }
            tokio::time::sleep(CHECK_PERIOD).await;
            self.end_slow_now();
        }
    }

    fn end_slow_now(&self) {
        let sending: Vec<_> = {
            let state = self.0.state.lock();
            state.sending.values().filter_map(Weak::upgrade).collect()
        };
        let now = Instant::now();
        // Outside the lock: dropping a list releases its permit.
        sending.iter().for_each(|sending| sending.end_if_slow(now));
    }
}

fn crowded() -> ApiError {
    ApiError::too_many_requests(
        "Too many large answers are being sent, please try again later.",
        RETRY_SECONDS,
    )
}

/// The permit to make and send a large list, released on drop.
#[derive(Debug)]
pub(crate) struct Permit {
    large: LargeAnswers,
    user: Arc<str>,
    bytes: usize,
}

impl Permit {
    /// Sends the rest of an answer with this permit. Ends with an error if its client is too slow.
    pub(crate) fn send(
        self,
        chunks: impl Stream<Item = Result<Vec<u8>, BodyError>> + Send + 'static,
    ) -> impl Stream<Item = Result<Bytes, BodyError>> + Send {
        let (large, user) = (self.large.clone(), self.user.clone());
        let now = Instant::now();
        let source = Source { chunks: Box::pin(chunks), permit: self };
        let cell = Cell { begun: now, state: Mutex::new((now, Some(source))) };
        let cell = Arc::new(cell);
        let revoke: Weak<dyn Revoke> = Arc::downgrade(&(cell.clone() as Arc<dyn Revoke>));
        let number = {
            let mut state = large.0.state.lock();
            state.n_sendings += 1;
            let number = state.n_sendings;
            state.sending.insert(number, revoke);
            number
        };
        large.0.begun.notify_waiters();
        Sending { large, user, number, cell, is_done: false }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.large.release(&self.user, 1, self.bytes);
    }
}

/// Bytes that are counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Room {
    large: LargeAnswers,
    user: Arc<str>,
    n_bytes: usize,
}

impl Room {
    /// The same answer, which is counted until the last part of it is dropped. Its own bytes are
    /// counted, whatever it was made of. The bytes of a stream are those that it was made of.
    pub(crate) fn hold(mut self, answer: Response<Body>) -> Response<Body> {
        if let Some(bytes) = answer.body().as_bytes() {
            self.resize(if bytes.len() > LARGE_BYTES_MIN { bytes.len() } else { 0 });
        }
        match self.n_bytes {
            0 => answer,
            _ => answer.map(|body| body.holding(self)),
        }
    }

    fn resize(&mut self, n_bytes: usize) {
        let former = std::mem::replace(&mut self.n_bytes, n_bytes);
        if n_bytes > former {
            self.large.0.state.lock().take(&self.user, 0, n_bytes - former);
        } else if n_bytes < former {
            self.large.release(&self.user, 0, former - n_bytes);
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.resize(0);
    }
}

/// The source of chunks, with its permit.
struct Source {
    chunks: Pin<Box<dyn Stream<Item = Result<Vec<u8>, BodyError>> + Send>>,
    #[expect(dead_code, reason = "its end gives the permit back")]
    permit: Permit,
}

/// Resources that can be taken from slow clients.
trait Revoke: std::fmt::Debug + Send + Sync {
    fn end_if_slow(&self, now: Instant);
}

struct Cell {
    begun: Instant,
    /// Time of the client's last read, and the source. The source is taken out while it is polled,
    /// and for good if the client was too slow.
    state: Mutex<(Instant, Option<Source>)>,
}

impl std::fmt::Debug for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cell").field("begun", &self.begun).finish_non_exhaustive()
    }
}

impl Revoke for Cell {
    fn end_if_slow(&self, now: Instant) {
        let ended = {
            let mut state = self.state.lock();
            let is_slow = now.duration_since(state.0) >= READ_STALL_MAX
                || now.duration_since(self.begun) >= SENDING_MAX;
            if is_slow { state.1.take() } else { None }
        };
        drop(ended);
    }
}

/// A list that is being sent.
struct Sending {
    large: LargeAnswers,
    user: Arc<str>,
    number: u64,
    cell: Arc<Cell>,
    is_done: bool,
}

impl Stream for Sending {
    type Item = Result<Bytes, BodyError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_done {
            return Poll::Ready(None);
        }
        let Some(mut source) = self.cell.state.lock().1.take() else {
            self.is_done = true;
            return Poll::Ready(Some(Err(BodyError::Slow)));
        };
        match source.chunks.as_mut().poll_next(cx) {
            Poll::Ready(Some(Ok(chunk))) => {
                *self.cell.state.lock() = (Instant::now(), Some(source));
                let mut room = self.large.reserve_at_once(&self.user, 0);
                room.resize(chunk.len());
                Poll::Ready(Some(Ok(body::held(chunk.into(), room))))
            }
            Poll::Ready(end) => {
                self.is_done = true;
                Poll::Ready(end.map(|failed| failed.map(Bytes::from)))
            }
            Poll::Pending => {
                *self.cell.state.lock() = (Instant::now(), Some(source));
                Poll::Pending
            }
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.large.0.state.lock().sending.remove(&self.number);
    }
}

#[cfg(test)]
mod tests;
