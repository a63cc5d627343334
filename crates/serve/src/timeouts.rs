//! Timeouts of a connection.
//!
//! # Theory
//!
//! | the connection | since | at most |
//! |---|---|---|
//! | is new, or a head has begun to arrive | its start, its first byte | `head_max` |
//! | has sent no request yet (HTTP/2) | its start | `head_max` |
//! | is without a request | the end of the last request, the last byte of its response that the peer read | `idle_max` |
//! | has a request in progress |  | no limit here |
//! | in any state: does not read data that is ready | the pending write | [`STALL_MAX`] |
//!
//! Over HTTP/2 the head is the client's preface. hyper checks what comes later, and bytes between
//! requests are pings and settings.
//!
//! A request ends with its response if that is complete, and with its body if that is a stream.
//! Over HTTP/1 the rest of the response is then still being written. Over HTTP/2 the peer controls
//! how much it reads, and a peer that reads nothing is idle.
//!
//! The timer runs in the connection's own task. Nearly all state changes happen while that task is
//! polled, so no other task needs to wake it. [`Limits::pace`] multiplies all of them.

use crate::connection::Protocol;
use crate::limits::{Limits, STALL_MAX};
use crate::linger::Linger;
use crate::turn::{Turn, Turns};
use parking_lot::Mutex;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep_until};

/// The length of the bytes with which a client begins HTTP/2 (RFC 9113, section 3.4).
const PREFACE_BYTES: usize = 24;

/// What did not arrive in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overdue {
    /// The head of a request.
    Head,
    /// A request.
    Request,
    /// A sign that the peer has read some of its response.
    Taking,
}

/// The timeouts of one connection. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Timeouts(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    // Inputs.
    protocol: Protocol,
    head_max: Duration,
    idle_max: Option<Duration>,
    stall_max: Duration,

    // State.
    n_requests: usize,
    /// When an HTTP/2 connection that has sent no request yet began.
    new_since: Option<Instant>,
    /// Whether the rest of what the peer sends is discarded at the end.
    lingers: bool,
    idle_since: Instant,
    head_since: Option<Instant>,
    stalled_since: Option<Instant>,
    n_preface_left: usize,
    /// The waker of the task that waits in `overdue`.
    waker: Option<Waker>,
}

impl State {
    /// When the next timeout expires, and which; `None` if there is nothing to wait for.
    fn deadline(&self) -> Option<(Instant, Overdue)> {
        let stall = self.stalled_since.map(|since| (since + self.stall_max, Overdue::Taking));
        let quiet = match self.head_since {
            _ if self.n_requests > 0 => None,
            Some(since) => Some((since + self.head_max, Overdue::Head)),
            None => match (self.new_since, self.idle_max) {
                // Pings and settings do not extend it.
                (Some(since), _) => Some((since + self.head_max, Overdue::Request)),
                (None, idle_max) => idle_max.map(|max| (self.idle_since + max, Overdue::Request)),
            },
        };
        match (stall, quiet) {
            (Some(stall), Some(quiet)) if quiet.0 < stall.0 => Some(quiet),
            (None, quiet) => quiet,
            (stall, _) => stall,
        }
    }

    /// Wakes the timer after a change that another task may have made.
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn has_read(&mut self, n_bytes: usize) {
        match self.protocol {
            Protocol::Http1 if self.n_requests == 0 && self.head_since.is_none() => {
                self.head_since = Some(Instant::now());
            }
            Protocol::Http2 if self.n_preface_left > 0 => {
                self.n_preface_left = self.n_preface_left.saturating_sub(n_bytes);
                if self.n_preface_left == 0 {
                    (self.head_since, self.idle_since) = (None, Instant::now());
                }
            }
            _ => {}
        }
    }

    /// Records whether the peer read something.
    fn has_sent<T>(&mut self, sent: &Poll<T>) {
        if sent.is_ready() {
            self.stalled_since = None;
        } else if self.stalled_since.is_none() {
            self.stalled_since = Some(Instant::now());
            // After an upgrade, the conversation writes in a task of its own.
            self.wake();
        }
    }

    fn has_written(&mut self, written: &Poll<io::Result<usize>>) {
        self.has_sent(written);
        let is_some = matches!(written, Poll::Ready(Ok(1..)));
        if is_some && self.protocol == Protocol::Http1 && self.n_requests == 0 {
            self.idle_since = Instant::now();
        }
    }
}

impl Timeouts {
    /// The timeouts of a connection that begins now.
    pub(crate) fn new(protocol: Protocol, limits: &Limits) -> Self {
        let now = Instant::now();
        Self(Arc::new(Mutex::new(State {
            protocol,
            head_max: limits.of_peer(limits.head_max),
            idle_max: match protocol {
                Protocol::Http1 => Some(limits.of_peer(limits.idle_max)),
                Protocol::Http2 => limits.http2_idle_max.map(|max| limits.of_peer(max)),
            },
            stall_max: limits.of_peer(STALL_MAX),
            n_requests: 0,
            new_since: (protocol == Protocol::Http2).then_some(now),
            lingers: false,
            idle_since: now,
            head_since: Some(now),
            stalled_since: None,
            n_preface_left: PREFACE_BYTES,
            waker: None,
        })))
    }

    /// Wraps `io` to observe its reads and writes. It takes turns with others.
    pub(crate) fn watch<I>(&self, io: I, turns: &Turns) -> Timed<I> {
        Timed { io, timeouts: self.clone(), turn: turns.turn(), is_shut_down: false, linger: None }
    }

    /// Records whether the peer accepted the data that was ready.
    pub(crate) fn sent(&self, sent: Poll<io::Result<()>>) -> Poll<io::Result<()>> {
        self.0.lock().has_sent(&sent);
        sent
    }

    /// Begins a request, which ends when the guard is dropped.
    pub(crate) fn request(&self) -> RequestGuard {
        let mut state = self.0.lock();
        state.n_requests += 1;
        state.head_since = None;
        state.new_since = None;
        drop(state);
        RequestGuard(self.clone())
    }

    /// The peer is sending data that will not be read: the connection lingers at its end.
    pub(crate) fn linger(&self) {
        self.0.lock().lingers = true;
    }

    /// Waits until a timeout expires. Cancel safe: it changes nothing.
    pub(crate) async fn overdue(&self) -> Overdue {
        let mut alarm = pin!(sleep_until(Instant::now() + self.0.lock().head_max));
        poll_fn(|cx| {
            loop {
                let mut state = self.0.lock();
                if !state.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                    state.waker = Some(cx.waker().clone());
                }
                let Some((deadline, overdue)) = state.deadline() else { return Poll::Pending };
                drop(state);
                // An early alarm is reset when it fires, not each time the deadline moves.
                if deadline < alarm.deadline() || alarm.is_elapsed() {
                    alarm.as_mut().reset(deadline);
                }
                ready!(alarm.as_mut().poll(cx));
                if alarm.deadline() >= deadline {
                    return Poll::Ready(overdue);
                }
            }
        })
        .await
    }
}

/// A request in progress.
#[derive(Debug)]
pub(crate) struct RequestGuard(Timeouts);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        state.n_requests -= 1;
        state.idle_since = Instant::now();
        // An HTTP/2 stream is a task of its own.
        if state.protocol == Protocol::Http2 && state.n_requests == 0 {
            state.wake();
        }
    }
}

/// A stream that reports its reads and writes to [`Timeouts`] and its task's [`Turn`].
#[derive(Debug)]
pub(crate) struct Timed<I> {
    io: I,
    timeouts: Timeouts,
    turn: Turn,
    /// The write side is closed.
    is_shut_down: bool,
    linger: Option<Linger>,
}

impl<I> Timed<I> {
    fn wrote(
        &mut self,
        written: Poll<io::Result<usize>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        self.timeouts.0.lock().has_written(&written);
        match &written {
            Poll::Ready(Ok(n_bytes)) => self.turn.moved(*n_bytes, cx),
            Poll::Ready(Err(_)) | Poll::Pending => self.turn.blocked(),
        }
        written
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Timed<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let n_before = buf.filled().len();
        let read = Pin::new(&mut self.io).poll_read(cx, buf);
        let n_bytes = buf.filled().len() - n_before;
        if n_bytes > 0 {
            self.timeouts.0.lock().has_read(n_bytes);
            self.turn.moved(n_bytes, cx);
        } else {
            self.turn.blocked();
        }
        read
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Timed<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, buf);
        self.wrote(written, cx)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.timeouts.sent(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.is_shut_down {
            let closed = Pin::new(&mut this.io).poll_shutdown(cx);
            ready!(this.timeouts.sent(closed))?;
            this.is_shut_down = true;
            this.linger = this.timeouts.0.lock().lingers.then(Linger::new);
        }
        if let Some(linger) = &mut this.linger {
            ready!(linger.poll(&mut this.io, cx));
            this.linger = None;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.wrote(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

#[cfg(test)]
mod tests;
