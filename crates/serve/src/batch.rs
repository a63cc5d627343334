//! Batching: all that a connection writes in one poll goes to the socket at once.
//!
//! # Theory
//!
//! HTTP/2 writes and flushes frame by frame, and a frame has 16 KiB at most. That is one system
//! call per frame, and one wake-up of the peer. A [`Batched`] connection encrypts what is written
//! and buffers it, regardless of flushes, until it has [`BATCH_BYTES`] or the connection's task has
//! nothing more to do and calls [`Batched::poll_send`]. So data is delayed by one poll at most.

use parking_lot::Mutex;
use std::io::{self, IoSlice, Write as _};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;

/// Maximum bytes in the buffer before encryption: four frames. TLS accepts a little more.
const BATCH_BYTES: usize = 60 * 1024;

/// A TLS connection with batched writes. Clones share the connection.
#[derive(Debug)]
pub(crate) struct Batched<I>(Arc<Mutex<State<I>>>);

#[derive(Debug)]
struct State<I> {
    tls: TlsStream<I>,
    /// Bytes that TLS has accepted since the buffer was last empty.
    n_held: usize,
    /// The peer accepts nothing for now. Writes then pend instead of being buffered, so that the
    /// writer notices.
    is_blocked: bool,
}

impl<I> Clone for Batched<I> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> Batched<I> {
    pub(crate) fn new(tls: TlsStream<I>) -> Self {
        Self(Arc::new(Mutex::new(State { tls, n_held: 0, is_blocked: false })))
    }

    /// Sends the buffered data; `None` if there is none. Pending while the peer accepts nothing,
    /// and wakes the task when it does.
    pub(crate) fn poll_send(&self, cx: &mut Context<'_>) -> Option<Poll<io::Result<()>>> {
        let mut state = self.0.lock();
        (state.n_held > 0).then(|| state.poll_send(cx))
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> State<I> {
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let sent = Pin::new(&mut self.tls).poll_flush(cx);
        self.is_blocked = sent.is_pending();
        ready!(sent)?;
        self.n_held = 0;
        Poll::Ready(Ok(()))
    }

    /// Whether the buffer must be sent before more is accepted.
    fn is_due(&self) -> bool {
        self.is_blocked || self.n_held >= BATCH_BYTES
    }

    fn poll_hold(&mut self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        if bufs.iter().all(|buf| buf.is_empty()) {
            return Poll::Ready(Ok(0));
        }
        if self.is_due() {
            ready!(self.poll_send(cx))?;
        }
        loop {
            let n_taken = self.tls.get_mut().1.writer().write_vectored(bufs)?;
            self.n_held += n_taken;
            if n_taken > 0 {
                return Poll::Ready(Ok(n_taken));
            }
            // The buffer is full.
            ready!(self.poll_send(cx))?;
        }
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncRead for Batched<I> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.lock().tls).poll_read(cx, buf)
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Batched<I> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.lock().poll_hold(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.lock().poll_hold(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Ready while less than a batch is buffered: the task sends it before it goes idle.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.lock();
        if state.is_due() { state.poll_send(cx) } else { Poll::Ready(Ok(())) }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.lock();
        ready!(state.poll_send(cx))?;
        Pin::new(&mut state.tls).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::{PrivatePkcs8KeyDer, ServerName};
    use rustls::{ClientConfig, RootCertStore, ServerConfig};
    use std::future::poll_fn;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
    use tokio_rustls::{TlsAcceptor, TlsConnector, client};

    /// Counts writes that would be system calls.
    #[derive(Debug)]
    struct Counted(DuplexStream, Arc<AtomicUsize>);

    impl AsyncRead for Counted {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_read(cx, buf)
        }
    }

    impl AsyncWrite for Counted {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &[u8],
        ) -> Poll<io::Result<usize>> {
            let written = Pin::new(&mut self.0).poll_write(cx, buf);
            self.1.fetch_add(usize::from(written.is_ready()), Ordering::Relaxed);
            written
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bufs: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let whole: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
            self.poll_write(cx, &whole)
        }

        fn is_write_vectored(&self) -> bool {
            true
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_shutdown(cx)
        }
    }

    /// Both ends of a connection whose socket buffers a number of unread bytes.
    async fn connected(
        socket_bytes: usize,
    ) -> (Batched<Counted>, client::TlsStream<DuplexStream>, Arc<AtomicUsize>) {
        let own = rcgen::generate_simple_self_signed(["here".to_owned()]).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(own.cert.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = ClientConfig::builder_with_provider(provider.clone());
        let client = client.with_safe_default_protocol_versions().unwrap();
        let client = client.with_root_certificates(roots).with_no_client_auth();
        let server = ServerConfig::builder_with_provider(provider);
        let server = server.with_safe_default_protocol_versions().unwrap();
        let key = PrivatePkcs8KeyDer::from(own.signing_key.serialize_der()).into();
        let server = server.with_no_client_auth();
        let server = server.with_single_cert(vec![own.cert.der().clone()], key).unwrap();
        let (near, far) = tokio::io::duplex(socket_bytes);
        let n_writes = Arc::<AtomicUsize>::default();
        let name = ServerName::try_from("here").unwrap();
        let (server, client) = tokio::join!(
            TlsAcceptor::from(Arc::new(server)).accept(Counted(near, n_writes.clone())),
            TlsConnector::from(Arc::new(client)).connect(name, far),
        );
        n_writes.store(0, Ordering::Relaxed);
        (Batched::new(server.unwrap()), client.unwrap(), n_writes)
    }

    async fn send(io: &Batched<Counted>) {
        poll_fn(|cx| io.poll_send(cx).unwrap_or(Poll::Ready(Ok(())))).await.unwrap();
    }

    #[tokio::test]
    async fn writes_of_one_poll_are_sent_at_once() {
        let (mut io, mut client, n_writes) = connected(1 << 20).await;
        for n in 0..10 {
            io.write_all(&[n; 100]).await.unwrap();
            io.flush().await.unwrap();
        }
        assert_eq!(n_writes.load(Ordering::Relaxed), 0);
        send(&io).await;
        assert_eq!(n_writes.load(Ordering::Relaxed), 1);
        send(&io).await;
        assert_eq!(n_writes.load(Ordering::Relaxed), 1, "nothing was held");
        let mut read = [0; 1000];
        client.read_exact(&mut read).await.unwrap();
        assert_eq!((read[99], read[100], read[999]), (0, 1, 9));
    }

    #[tokio::test]
    async fn a_batch_is_sent_before_more_is_held() {
        let (mut io, mut client, n_writes) = connected(1 << 20).await;
        let written: Vec<u8> = (0..200_000_u32).map(|n| n as u8).collect();
        for frame in written.chunks(16_393) {
            io.write_all(frame).await.unwrap();
            io.flush().await.unwrap();
        }
        io.shutdown().await.unwrap();
        // Four frames each, and the end.
        assert_eq!(n_writes.load(Ordering::Relaxed), 200_000_usize.div_ceil(4 * 16_393) + 1);
        let mut read = Vec::new();
        client.read_to_end(&mut read).await.unwrap();
        assert!(read == written);
    }

    #[tokio::test]
    async fn peer_that_takes_nothing_is_seen_at_the_next_write() {
        let (mut io, mut client, _) = connected(1 << 10).await;
        let mut written = vec![7; 5_000];
        io.write_all(&written).await.unwrap();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(io.poll_send(&mut cx).is_some_and(|sent| sent.is_pending()));
        let frame = [8; 10];
        assert!(Pin::new(&mut io).poll_write(&mut cx, &frame).is_pending());
        assert!(Pin::new(&mut io).poll_flush(&mut cx).is_pending());
        let reads = async {
            let mut read = vec![0; 5_010];
            client.read_exact(&mut read).await.unwrap();
            read
        };
        let writes = async {
            io.write_all(&frame).await.unwrap();
            send(&io).await;
        };
        let (read, ()) = tokio::join!(reads, writes);
        written.extend(frame);
        assert_eq!(read, written);
    }
}
