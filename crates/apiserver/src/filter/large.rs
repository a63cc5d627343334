//! Large answers: how many are made and sent at once, and how many bytes they hold, in sum and per
//! user.
//!
//! # Theory
//!
//! | an answer                          | place                          | bytes counted, until the transport has let go of them   |
//! |------------------------------------|--------------------------------|---------------------------------------------------------|
//! | of at most [`LARGE_BYTES_MIN`]     | none                           | none                                                    |
//! | a larger single object or document | none                           | its own                                                 |
//! | a larger list                      | one, until its last byte is made | of its items while it holds them, and of its chunks   |
//!
//! A list holds references to the stored objects, which cost nothing while they are current. They
//! are counted in full all the same, because they may be replaced while a slow client reads.
//!
//! Who finds no place waits a moment. When one is free, it goes to the user who has the fewest
//! among those who wait, so that one user's flood delays nobody else. `system:masters` is no
//! exception: what is bounded here is the work of the server, not what a user may do.
//!
//! A client that takes nothing for [`TAKING_MAX`], or has not read its list within [`SENDING_MAX`],
//! loses it: the connection, over HTTP/2 the stream, is reset. [`LargeAnswers::end_slow`] watches
//! over that while a listener runs; it is also done whenever somebody finds no place.

use crate::body::BodyError;
use bytes::Bytes;
use futures::Stream;
use parking_lot::Mutex;
use setpoint_object::ApiError;
use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::Instant;

/// Answers up to this many bytes are not counted: 128 KiB, from which on the reference server
/// compresses, too.
pub(crate) const LARGE_BYTES_MIN: usize = 128 * 1024;
/// Large lists at once. Two cores are busy with two of them; the others wait for their clients.
const PLACES_MAX: usize = 16;
/// Large lists of one user at once.
const PLACES_PER_USER_MAX: usize = 4;
/// Bytes of large answers at once: 512 MiB, an eighth of a small machine.
const BYTES_MAX: usize = 512 << 20;
/// Bytes of one user's large answers at once.
const BYTES_PER_USER_MAX: usize = 256 << 20;
/// Requests that may wait for a place.
const WAITING_MAX: usize = 128;
/// Requests of one user that may wait for a place.
const WAITING_PER_USER_MAX: usize = 16;
/// How long a request waits for a place. Longer than a few large lists take; after it the client is
/// told to come again.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// How long a client may take nothing of its list: as long as a connection may stall.
const TAKING_MAX: Duration = setpoint_serve::STALL_MAX;
/// How long a list may take to be sent: a minute, as the reference server's deadline for a request
/// and its answer.
const SENDING_MAX: Duration = Duration::from_secs(60);
/// How often slow clients are looked for, while there are any large lists.
const LOOK_PERIOD: Duration = Duration::from_secs(5);
/// Trees of large single objects at once. One of 1.5 MiB takes tens of milliseconds and some 30
/// MiB.
const TREES_MAX: usize = 2;
/// When to come again, in seconds.
const RETRY_SECONDS: u32 = 1;

/// The places and the bytes. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct LargeAnswers(Arc<Shared>);

impl Default for LargeAnswers {
    fn default() -> Self {
        let trees = Arc::new(Semaphore::new(TREES_MAX));
        let (state, begun) = (Mutex::default(), Notify::new());
        Self(Arc::new(Shared { state, trees, begun }))
    }
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Trees of large objects at once, off the threads that serve.
    trees: Arc<Semaphore>,
    /// A list has begun to be sent.
    begun: Notify,
}

#[derive(Debug, Default)]
struct State {
    all: Share,
    /// Of users who have any.
    users: BTreeMap<Arc<str>, Share>,
    /// In the order in which they came.
    waiting: VecDeque<Waiting>,
    /// By number.
    sending: BTreeMap<u64, Weak<dyn Revoke>>,
    n_sendings: u64,
}

/// What is taken.
#[derive(Debug, Clone, Copy, Default)]
struct Share {
    places: usize,
    bytes: usize,
}

#[derive(Debug)]
struct Waiting {
    user: Arc<str>,
    bytes: usize,
    ready: oneshot::Sender<Place>,
}

impl State {
    fn share(&self, user: &str) -> Share {
        self.users.get(user).copied().unwrap_or_default()
    }

    fn take(&mut self, user: &Arc<str>, places: usize, bytes: usize) {
        for share in [&mut self.all, self.users.entry(user.clone()).or_default()] {
            share.places += places;
            share.bytes += bytes;
        }
    }

    fn give_back(&mut self, user: &Arc<str>, places: usize, bytes: usize) {
        self.all.places -= places;
        self.all.bytes -= bytes;
        if let Some(share) = self.users.get_mut(user) {
            share.places -= places;
            share.bytes -= bytes;
            if share.places == 0 && share.bytes == 0 {
                self.users.remove(user);
            }
        }
    }

    /// Whether there is room for so many bytes. An answer that is larger than the bounds is alone
    /// in its bound.
    fn has_room(&self, user: &str, bytes: usize) -> bool {
        let fits = |held: usize, most: usize| held == 0 || held + bytes <= most;
        fits(self.all.bytes, BYTES_MAX) && fits(self.share(user).bytes, BYTES_PER_USER_MAX)
    }

    fn has_place(&self, user: &str, bytes: usize) -> bool {
        self.all.places < PLACES_MAX
            && self.share(user).places < PLACES_PER_USER_MAX
            && self.has_room(user, bytes)
    }

    /// Takes places for those who wait, as far as there are any. The places are taken; who asked is
    /// told outside the lock.
    fn next_waiting(&mut self) -> Option<Waiting> {
        self.waiting.retain(|waiting| !waiting.ready.is_closed());
        let places = |waiting: &Waiting| self.share(&waiting.user).places;
        let fitting = self.waiting.iter().enumerate();
        let fitting = fitting.filter(|(_, waiting)| self.has_place(&waiting.user, waiting.bytes));
        let (at, _) = fitting.min_by_key(|(at, waiting)| (places(waiting), *at))?;
        let waiting = self.waiting.remove(at)?;
        self.take(&waiting.user, 1, waiting.bytes);
        Some(waiting)
    }
}

impl LargeAnswers {
    /// A place for a list whose items have so many bytes; waits for one. Dropping the future gives
    /// up waiting.
    ///
    /// # Errors
    ///
    /// 429 when there is none within a second, or too many wait already.
    pub(crate) async fn place(&self, user: &Arc<str>, bytes: usize) -> Result<Place, ApiError> {
        let ready = match self.try_place(user, bytes) {
            Some(place) => return Ok(place),
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
        // What became free before this one waited.
        self.serve_waiting();
        match tokio::time::timeout(WAIT_MAX, ready).await {
            Ok(Ok(place)) => Ok(place),
            Ok(Err(_)) | Err(_) => Err(crowded()),
        }
    }

    /// A place that there must be: what is answered has been done.
    pub(crate) fn place_at_once(&self, user: &Arc<str>, bytes: usize) -> Place {
        self.0.state.lock().take(user, 1, bytes);
        self.new_place(user, bytes)
    }

    fn try_place(&self, user: &Arc<str>, bytes: usize) -> Option<Place> {
        {
            let mut state = self.0.state.lock();
            if !state.has_place(user, bytes) {
                return None;
            }
            state.take(user, 1, bytes);
        }
        Some(self.new_place(user, bytes))
    }

    fn new_place(&self, user: &Arc<str>, bytes: usize) -> Place {
        Place { large: self.clone(), user: user.clone(), bytes }
    }

    fn serve_waiting(&self) {
        loop {
            let Some(waiting) = self.0.state.lock().next_waiting() else { return };
            let place = self.new_place(&waiting.user, waiting.bytes);
            // Who has gone meanwhile gives its place back by dropping it.
            let _ = waiting.ready.send(place);
        }
    }

    fn give_back(&self, user: &Arc<str>, places: usize, bytes: usize) {
        self.0.state.lock().give_back(user, places, bytes);
        self.serve_waiting();
    }

    /// The bytes of a single answer, counted until the last part of it is dropped if there are
    /// many.
    ///
    /// # Errors
    ///
    /// 429 when there is no room for them.
    pub(crate) fn count(&self, user: &Arc<str>, bytes: Bytes) -> Result<Bytes, ApiError> {
        if bytes.len() <= LARGE_BYTES_MIN {
            return Ok(bytes);
        }
        if !self.0.state.lock().has_room(user, bytes.len()) {
            self.end_slow_now();
            if !self.0.state.lock().has_room(user, bytes.len()) {
                return Err(crowded());
            }
        }
        Ok(self.count_at_once(user, bytes))
    }

    /// The same where there must be room: what is answered has been done.
    pub(crate) fn count_at_once(&self, user: &Arc<str>, bytes: Bytes) -> Bytes {
        if bytes.len() <= LARGE_BYTES_MIN {
            return bytes;
        }
        self.counted(user, bytes)
    }

    fn counted(&self, user: &Arc<str>, bytes: Bytes) -> Bytes {
        self.0.state.lock().take(user, 0, bytes.len());
        Bytes::from_owner(Counted { large: self.clone(), user: user.clone(), bytes })
    }

    /// Does work on one large object off the threads that serve, few at a time. Work that has begun
    /// goes on when the future is dropped, and keeps its turn.
    ///
    /// # Errors
    ///
    /// The work panicked.
    pub(crate) async fn off_threads<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, BodyError> {
        let failed = |error: &dyn std::fmt::Display| BodyError::Encode(error.to_string());
        let turn = self.0.trees.clone().acquire_owned().await.map_err(|error| failed(&error))?;
        let work = move || {
            let _turn = turn;
            work()
        };
        tokio::task::spawn_blocking(work).await.map_err(|error| failed(&error))
    }

    /// Ends the lists that clients take too slowly, until it is dropped. Sleeps while there are no
    /// large lists.
    pub(crate) async fn end_slow(&self) {
        loop {
            // Taken before the look: what begins after it wakes this.
            let begun = self.0.begun.notified();
            if self.0.state.lock().sending.is_empty() {
                begun.await;
            }
            tokio::time::sleep(LOOK_PERIOD).await;
            self.end_slow_now();
        }
    }

    fn end_slow_now(&self) {
        let sending: Vec<_> = {
            let state = self.0.state.lock();
            state.sending.values().filter_map(Weak::upgrade).collect()
        };
        let now = Instant::now();
        // Outside the lock: what is dropped gives back its place.
        sending.iter().for_each(|sending| sending.end_if_slow(now));
    }
}

fn crowded() -> ApiError {
    ApiError::too_many_requests(
        "Too many large answers are being sent, please try again later.",
        RETRY_SECONDS,
    )
}

/// The right to make and send a large list, given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    large: LargeAnswers,
    user: Arc<str>,
    bytes: usize,
}

impl Place {
    /// Sends the rest of an answer under this place. Ends with an error when its client is too
    /// slow.
    pub(crate) fn send(
        self,
        chunks: impl Stream<Item = Result<Vec<u8>, BodyError>> + Send + 'static,
    ) -> impl Stream<Item = Result<Bytes, BodyError>> + Send {
        let (large, user) = (self.large.clone(), self.user.clone());
        let now = Instant::now();
        let source = Source { chunks: Box::pin(chunks), place: self };
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

impl Drop for Place {
    fn drop(&mut self) {
        self.large.give_back(&self.user, 1, self.bytes);
    }
}

/// Bytes that are counted as long as somebody holds a part of them.
struct Counted {
    large: LargeAnswers,
    user: Arc<str>,
    bytes: Bytes,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.large.give_back(&self.user, 0, self.bytes.len());
    }
}

/// What makes the chunks, with its place.
struct Source {
    chunks: Pin<Box<dyn Stream<Item = Result<Vec<u8>, BodyError>> + Send>>,
    #[expect(dead_code, reason = "its end gives the place back")]
    place: Place,
}

/// What is taken away from slow clients.
trait Revoke: std::fmt::Debug + Send + Sync {
    fn end_if_slow(&self, now: Instant);
}

struct Cell {
    begun: Instant,
    /// When the client asked last, and the source: taken out while it is asked, and for good when
    /// the client was too slow.
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
            let is_slow = now.duration_since(state.0) >= TAKING_MAX
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
                Poll::Ready(Some(Ok(self.large.counted(&self.user, chunk.into()))))
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
