//! Where bytes of an HTTP/1 connection wait until the head they belong to has been checked.
//!
//! # Theory
//!
//! A [`Gate`] is between the socket and hyper. It follows the bytes that arrive from head to head:
//!
//! | next | bytes | then |
//! |---|---|---|
//! | a head | wait here until it is complete and checked ([`head`]) | the body that it announces |
//! | a body | pass | the next head, after its length or its last chunk |
//! | opaque | pass: the connection is upgraded, or a body that hyper will refuse | opaque |
//! | refused | are not read any more | hyper is told that the peer has closed |
//!
//! The answer to a refused head follows the answers to the requests before it. hyper ends the
//! connection once it has written those, and then the gate writes its own.
//!
//! Of a head that arrives at once, nothing is copied.

mod chunks;

use crate::connection::Protocol;
use crate::head::{self, Framing, HEAD_READ_MAX, Refusal};
use crate::timeouts::Timeouts;
use bytes::{Buf as _, Bytes, BytesMut};
use chunks::Chunks;
use parking_lot::Mutex;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Empty lines between a POST and the next head, in bytes, that Go's server ignores.
const EMPTY_LINES_MAX: usize = 4;

/// A stream whose heads are checked.
#[derive(Debug)]
pub(crate) struct Gate<I> {
    // Helpers.
    io: I,
    timeouts: Timeouts,
    exchanges: Exchanges,
    // State.
    next: Next,
    /// Bytes that were read and not yet passed on.
    buffered: BytesMut,
    /// How many of them may pass.
    n_passing: usize,
    /// How many of them have been searched for the end of a head.
    n_searched: usize,
    /// How many bytes of empty lines may still be ignored.
    n_empty_max: usize,
}

/// What the next bytes are.
#[derive(Debug)]
enum Next {
    Head,
    /// A body of so many bytes.
    Length(u64),
    Chunks(Chunks),
    Opaque,
    /// Nothing is read: the answer, and whether hyper was told.
    Refused {
        answer: Bytes,
        is_told: bool,
    },
}

impl<I> Gate<I> {
    /// A gate that begins with a head. HTTP/2 passes.
    pub(crate) fn new(io: I, protocol: Protocol, timeouts: Timeouts, exchanges: Exchanges) -> Self {
        let next = match protocol {
            Protocol::Http1 => Next::Head,
            Protocol::Http2 => Next::Opaque,
        };
        let buffered = BytesMut::new();
        Self {
            io,
            timeouts,
            exchanges,
            next,
            buffered,
            n_passing: 0,
            n_searched: 0,
            n_empty_max: 0,
        }
    }

    fn refuse(&mut self, refusal: Refusal) {
        // The peer may still be sending.
        self.timeouts.linger();
        self.buffered.clear();
        let answer = Bytes::from(refusal.answer());
        self.next = Next::Refused { answer, is_told: false };
    }

    /// Takes note of a head that passed.
    fn begin(&mut self, framing: Framing, is_post: bool) {
        self.exchanges.begin();
        self.n_empty_max = if is_post { EMPTY_LINES_MAX } else { 0 };
        self.next = match framing {
            Framing::Length(0) => Next::Head,
            Framing::Length(n_bytes) => Next::Length(n_bytes),
            Framing::Chunked => Next::Chunks(Chunks::default()),
            Framing::Opaque => Next::Opaque,
        };
    }

    /// How many of these bytes of a body may pass. The rest belongs to the next head.
    fn advance(&mut self, bytes: &[u8]) -> usize {
        match &mut self.next {
            Next::Length(left) => {
                let n = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= n as u64;
                if *left == 0 {
                    self.next = Next::Head;
                }
                n
            }
            Next::Chunks(chunks) => match chunks.advance(bytes) {
                Ok((n, is_done)) => {
                    if is_done {
                        self.next = Next::Head;
                    }
                    n
                }
                // hyper refuses it, too.
                Err(chunks::Malformed) => {
                    self.next = Next::Opaque;
                    bytes.len()
                }
            },
            Next::Opaque => bytes.len(),
            Next::Head | Next::Refused { .. } => 0,
        }
    }

    /// Looks for a complete head in the buffer.
    fn search(&mut self) {
        while self.n_empty_max > 0 && matches!(self.buffered.first(), Some(b'\r' | b'\n')) {
            self.buffered.advance(1);
            self.n_empty_max -= 1;
        }
        let Some(end) = head::end(&self.buffered, self.n_searched) else {
            let is_new = !self.buffered[..self.n_searched].contains(&b'\n');
            self.n_searched = self.buffered.len();
            if self.buffered.len() >= HEAD_READ_MAX {
                self.refuse(Refusal::TooLarge);
            } else if is_new && let Err(refusal) = head::check_start(&self.buffered) {
                self.refuse(refusal);
            }
            return;
        };
        self.n_searched = 0;
        match head::check(&self.buffered[..end]) {
            Err(refusal) => self.refuse(refusal),
            Ok(checked) => {
                self.n_passing = end;
                if let Some(head) = checked.rewritten {
                    self.n_passing = head.len();
                    let rest = self.buffered.split_off(end);
                    self.buffered = BytesMut::from(&*head);
                    self.buffered.unsplit(rest);
                }
                self.begin(checked.framing, checked.is_post);
            }
        }
    }

    /// How many of the bytes that were just read may pass at once; the others are to be buffered.
    fn pass(&mut self, bytes: &[u8]) -> usize {
        let Next::Head = self.next else { return self.advance(bytes) };
        if self.n_empty_max > 0 || !self.buffered.is_empty() {
            return 0;
        }
        let Some(end) = head::end(bytes, 0) else { return 0 };
        match head::check(&bytes[..end]) {
            Ok(checked) if checked.rewritten.is_none() => {
                self.begin(checked.framing, checked.is_post);
                end + self.advance(&bytes[end..])
            }
            // It is checked again, from the buffer.
            _ => 0,
        }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Gate<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            if this.n_passing > 0 {
                let n = this.n_passing.min(out.remaining());
                out.put_slice(&this.buffered.split_to(n));
                this.n_passing -= n;
                return Poll::Ready(Ok(()));
            }
            match &mut this.next {
                Next::Opaque if this.buffered.is_empty() => {
                    return Pin::new(&mut this.io).poll_read(cx, out);
                }
                Next::Refused { is_told, .. } => {
                    ready!(this.exchanges.poll_idle(cx));
                    *is_told = true;
                    return Poll::Ready(Ok(()));
                }
                Next::Head if this.n_searched < this.buffered.len() => {
                    this.search();
                    continue;
                }
                Next::Head => {}
                _ if !this.buffered.is_empty() => {
                    let buffered = std::mem::take(&mut this.buffered);
                    this.n_passing = this.advance(&buffered);
                    this.buffered = buffered;
                    continue;
                }
                _ => {}
            }
            let n_before = out.filled().len();
            ready!(Pin::new(&mut this.io).poll_read(cx, out))?;
            let read = &out.filled()[n_before..];
            if read.is_empty() {
                if this.buffered.is_empty() {
                    return Poll::Ready(Ok(()));
                }
                // A head that was cut off.
                this.refuse(Refusal::BadRequest);
                continue;
            }
            let n = this.pass(read);
            this.buffered.extend_from_slice(&read[n..]);
            out.set_filled(n_before + n);
            if n > 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Gate<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Next::Refused { answer, is_told: true } = &mut this.next {
            while !answer.is_empty() {
                let n = ready!(Pin::new(&mut this.io).poll_write(cx, answer))?;
                if n == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                answer.advance(n);
            }
        }
        Pin::new(&mut this.io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

/// The requests of a connection that passed its gate and are not answered yet. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Exchanges(Arc<Mutex<Unanswered>>);

#[derive(Debug, Default)]
struct Unanswered {
    n_requests: usize,
    waker: Option<Waker>,
}

impl Exchanges {
    fn begin(&self) {
        self.0.lock().n_requests += 1;
    }

    /// Ends a request when it is dropped.
    pub(crate) fn guard(&self) -> ExchangeGuard {
        ExchangeGuard(self.clone())
    }

    /// Ready if all requests are answered.
    fn poll_idle(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock();
        if state.n_requests == 0 {
            return Poll::Ready(());
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// A request until its answer is written.
#[derive(Debug)]
pub(crate) struct ExchangeGuard(Exchanges);

impl Drop for ExchangeGuard {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        // Of an opaque connection, no requests are counted.
        state.n_requests = state.n_requests.saturating_sub(1);
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests;
