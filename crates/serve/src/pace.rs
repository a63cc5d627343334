//! How long a connection may do nothing.
//!
//! # Theory
//!
//! | the connection | since | at most |
//! |---|---|---|
//! | is new, or a head has begun to arrive | its begin, its first byte | `head_max` |
//! | has sent no request yet (HTTP/2) | its begin | `head_max` |
//! | is without a request | the last one's end, the last byte taken in of its answer | `idle_max` |
//! | answers | | no bound here |
//! | in all of them: takes in nothing of what is ready for it | the write that waits | [`STALL_MAX`] |
//!
//! Over HTTP/2 a head is the client's preface: what comes later is checked by hyper, and bytes
//! between requests are pings and settings.
//!
//! A request ends with its answer if that is whole, and with its body if that is a stream. What
//! remains is to send it, which is writing over HTTP/1; over HTTP/2 the peer says how much it takes
//! in, and one that takes nothing in idles.
//!
//! The clock runs in the connection's own task: nearly all that changes the state is done by
//! polling that task, and then no other needs to wake it.

use crate::connection::Protocol;
use crate::limits::{Limits, STALL_MAX};
use crate::linger::Linger;
use parking_lot::Mutex;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep_until};

/// The bytes with which a client begins HTTP/2 (RFC 9113, section 3.4).
const PREFACE_BYTES: usize = 24;

/// What did not come in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overdue {
    /// The head of a request.
    Head,
    /// A request.
    Request,
    /// Word that the peer has taken in some of its answer.
    Taking,
}

/// The pace of one connection. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Pace(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    // Inputs.
    protocol: Protocol,
    head_max: Duration,
    idle_max: Option<Duration>,

    // State.
    n_requests: usize,
    /// When an HTTP/2 connection began that has sent no request yet.
    new_since: Option<Instant>,
    /// What the peer still sends is discarded at the end.
    lingers: bool,
    idle_since: Instant,
    head_since: Option<Instant>,
    stalled_since: Option<Instant>,
    n_preface_left: usize,
    /// Of the task that waits for what is overdue.
    waker: Option<Waker>,
}

impl State {
    /// When the peer has been waited for enough, and for what; `None` while there is nothing to
    /// wait for.
    fn deadline(&self) -> Option<(Instant, Overdue)> {
        let stall = self.stalled_since.map(|since| (since + STALL_MAX, Overdue::Taking));
        let quiet = match self.head_since {
            _ if self.n_requests > 0 => None,
            Some(since) => Some((since + self.head_max, Overdue::Head)),
            None => match (self.new_since, self.idle_max) {
                // Pings and settings do not prolong it.
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

    /// For a change that another task may have made.
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

    /// Whether the peer took something in.
    fn has_sent<T>(&mut self, sent: &Poll<T>) {
        if sent.is_ready() {
            self.stalled_since = None;
        } else if self.stalled_since.is_none() {
            self.stalled_since = Some(Instant::now());
            // The conversation after an upgrade writes in a task of its own.
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

impl Pace {
    /// A connection that begins now.
    pub(crate) fn new(protocol: Protocol, limits: &Limits) -> Self {
        let now = Instant::now();
        Self(Arc::new(Mutex::new(State {
            protocol,
            head_max: limits.head_max,
            idle_max: match protocol {
                Protocol::Http1 => Some(limits.idle_max),
                Protocol::Http2 => limits.http2_idle_max,
            },
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

    /// Watches what is read of `io` and written to it.
    pub(crate) fn watch<I>(&self, io: I) -> Paced<I> {
        Paced { io, pace: self.clone(), is_shut_down: false, linger: None }
    }

    /// Notes whether the peer took in what was ready for it.
    pub(crate) fn sent(&self, sent: Poll<io::Result<()>>) -> Poll<io::Result<()>> {
        self.0.lock().has_sent(&sent);
        sent
    }

    /// A request has begun; it ends when the guard is dropped.
    pub(crate) fn request(&self) -> Answering {
        let mut state = self.0.lock();
        state.n_requests += 1;
        state.head_since = None;
        state.new_since = None;
        drop(state);
        Answering(self.clone())
    }

    /// The peer is sending what nobody will read: the connection lingers at its end.
    pub(crate) fn linger(&self) {
        self.0.lock().lingers = true;
    }

    /// Waits until the peer has done nothing for too long. Cancel safe: it only looks.
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
                // An alarm that is early is set anew when it goes off, not each time that the
                // deadline moves.
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

/// A request that is being answered.
#[derive(Debug)]
pub(crate) struct Answering(Pace);

impl Drop for Answering {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        state.n_requests -= 1;
        state.idle_since = Instant::now();
        // A stream of HTTP/2 is a task of its own.
        if state.protocol == Protocol::Http2 && state.n_requests == 0 {
            state.wake();
        }
    }
}

/// A stream that tells its [`Pace`] what comes and goes.
#[derive(Debug)]
pub(crate) struct Paced<I> {
    io: I,
    pace: Pace,
    /// This side is closed.
    is_shut_down: bool,
    linger: Option<Linger>,
}

impl<I> Paced<I> {
    fn wrote(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.pace.0.lock().has_written(&written);
        written
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Paced<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let n_before = buf.filled().len();
        let read = Pin::new(&mut self.io).poll_read(cx, buf);
        let n_bytes = buf.filled().len() - n_before;
        if n_bytes > 0 {
            self.pace.0.lock().has_read(n_bytes);
        }
        read
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Paced<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, buf);
        self.wrote(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.pace.sent(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.is_shut_down {
            let closed = Pin::new(&mut this.io).poll_shutdown(cx);
            ready!(this.pace.sent(closed))?;
            this.is_shut_down = true;
            this.linger = this.pace.0.lock().lingers.then(Linger::new);
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
        self.wrote(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

#[cfg(test)]
mod tests;
