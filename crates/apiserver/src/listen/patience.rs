//! A peer that neither speaks nor listens does not keep its connection.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// How long a new connection may say nothing. What it does later has limits of its own (the head of each request, pings).
const FIRST_BYTE_MAX: Duration = Duration::from_secs(60);
/// How long a peer may take in no byte of what is ready for it. A watcher that stopped reading ends here; what it missed it finds
/// by its last resourceVersion.
const WRITE_STALL_MAX: Duration = Duration::from_secs(30);

/// A stream that fails with `TimedOut` where its peer does nothing for too long.
#[derive(Debug)]
pub(super) struct Patient<I> {
    io: I,
    /// Until the first byte has come.
    silence: Option<Pin<Box<Sleep>>>,
    /// While a write waits.
    stall: Option<Pin<Box<Sleep>>>,
}

impl<I> Patient<I> {
    /// The time to the first byte starts here.
    pub(super) fn new(io: I) -> Self {
        Self { io, silence: Some(Box::pin(sleep(FIRST_BYTE_MAX))), stall: None }
    }

    fn progress<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stall = None;
            return written;
        }
        let stall = self.stall.get_or_insert_with(|| Box::pin(sleep(WRITE_STALL_MAX)));
        ready!(stall.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(ErrorKind::TimedOut, "the peer takes nothing in")))
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Patient<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.io).poll_read(cx, buf);
        if read.is_ready() {
            self.silence = None;
        } else if let Some(silence) = &mut self.silence {
            ready!(silence.as_mut().poll(cx));
            return Poll::Ready(Err(io::Error::new(ErrorKind::TimedOut, "the peer says nothing")));
        }
        read
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Patient<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, buf);
        self.progress(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.progress(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = Pin::new(&mut self.io).poll_shutdown(cx);
        self.progress(cx, closed)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.progress(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn peer_that_never_speaks_is_given_up_and_one_that_pauses_later_is_not() {
        let (_silent, end) = duplex(8);
        let started = Instant::now();
        let error = Patient::new(end).read_u8().await.unwrap_err();
        assert_eq!((error.kind(), started.elapsed()), (ErrorKind::TimedOut, FIRST_BYTE_MAX));

        let (mut peer, end) = duplex(8);
        let mut end = Patient::new(end);
        peer.write_u8(1).await.unwrap();
        assert_eq!(end.read_u8().await.unwrap(), 1);
        let late = async {
            sleep(2 * FIRST_BYTE_MAX).await;
            peer.write_u8(2).await.unwrap();
        };
        assert_eq!(tokio::join!(end.read_u8(), late).0.unwrap(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn peer_that_takes_nothing_in_is_given_up_and_a_slow_one_is_not() {
        let (mut slow, end) = duplex(8);
        let mut end = Patient::new(end);
        let reading = async {
            for _ in 0..8 {
                sleep(WRITE_STALL_MAX / 2).await;
                slow.read_exact(&mut [0; 8]).await.unwrap();
            }
        };
        tokio::join!(end.write_all(&[0; 64]), reading).0.unwrap();

        let started = Instant::now();
        let error = end.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!((error.kind(), started.elapsed()), (ErrorKind::TimedOut, WRITE_STALL_MAX));
    }
}
