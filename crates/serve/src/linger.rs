//! Closing a connection whose peer is still sending.
//!
//! Closing a socket with unread bytes resets the connection, and a reset can overtake the response
//! that was sent before. So the sending side is closed first, and whatever the peer still sends is
//! discarded until it closes too, within limits.

use crate::limits::{LINGER_BYTES_MAX, LINGER_MAX, LINGER_PAUSE_MAX};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// Bytes discarded per read.
const CHUNK_BYTES: usize = 16 * 1024;

/// The state of a lingering close.
#[derive(Debug)]
pub(crate) struct Linger {
    n_bytes_left: u64,
    end: Instant,
    alarm: Pin<Box<Sleep>>,
}

impl Linger {
    /// Starts now.
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self {
            n_bytes_left: LINGER_BYTES_MAX,
            end: now + LINGER_MAX,
            alarm: Box::pin(sleep_until(now + LINGER_PAUSE_MAX)),
        }
    }

    /// Discards incoming bytes. Ready when the peer has closed or exceeds a limit.
    pub(crate) fn poll<I: AsyncRead + Unpin>(
        &mut self,
        io: &mut I,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let mut chunk = [0; CHUNK_BYTES];
        loop {
            let mut buf = ReadBuf::new(&mut chunk);
            let Poll::Ready(read) = Pin::new(&mut *io).poll_read(cx, &mut buf) else { break };
            let n_bytes = buf.filled().len() as u64;
            self.n_bytes_left = self.n_bytes_left.saturating_sub(n_bytes);
            if read.is_err() || n_bytes == 0 || self.n_bytes_left == 0 {
                return Poll::Ready(());
            }
            let pause_end = Instant::now() + LINGER_PAUSE_MAX;
            self.alarm.as_mut().reset(pause_end.min(self.end));
        }
        ready!(self.alarm.as_mut().poll(cx));
        Poll::Ready(())
    }
}
