//! The control socket in a data folder, through which the program that uses the folder can be
//! queried.
//!
//! A request is one line; the response is everything until the end of the stream. Only the owner
//! can use the socket (mode 0600), and one request is served at a time.

use anyhow::Context as _;
use setpoint::store::DiskStore;
use std::{
    fs::{self, Permissions},
    io::{self, Write},
    os::unix::{fs::PermissionsExt, net::UnixStream as BlockingStream},
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
};
use tokio_util::sync::CancellationToken;

/// The socket's name in the folder.
const SOCKET: &str = "control.sock";
/// Requests the store's statistics as text.
pub(super) const STAT: &str = "stat";
/// Requests the same as one JSON object.
pub(super) const STAT_JSON: &str = "stat-json";
/// Requests a copy of the store.
pub(super) const BACKUP: &str = "backup";
/// Maximum length of a request in bytes.
const REQUEST_BYTES_MAX: u64 = 64;
/// How long a client may take to send its request, and to read a part of the response.
const IO_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends a request to the program that uses the folder; `None` if none listens.
pub(super) fn send(folder: &Path, request: &str) -> anyhow::Result<Option<BlockingStream>> {
    let mut stream = match BlockingStream::connect(folder.join(SOCKET)) {
        Ok(stream) => stream,
        // No program uses the folder, or one has left its socket behind.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) =>
        {
            return Ok(None);
        }
        Err(error) => {
            return Err(error).with_context(|| format!("cannot query {}", folder.display()));
        }
    };
    stream.write_all(format!("{request}\n").as_bytes()).context("send the request")?;
    Ok(Some(stream))
}

/// Serves requests about a store.
pub(crate) struct Control {
    store: DiskStore,
    listener: UnixListener,
    path: PathBuf,
}

impl Control {
    /// Listens in the store's folder. The program that has the store open owns the socket, so a
    /// leftover socket is removed.
    pub(crate) fn bind(folder: &Path, store: DiskStore) -> anyhow::Result<Self> {
        let path = folder.join(SOCKET);
        let cannot = || format!("cannot listen on {}", path.display());
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(cannot);
            }
            _ => {}
        }
        let listener = UnixListener::bind(&path).with_context(cannot)?;
        fs::set_permissions(&path, Permissions::from_mode(0o600)).with_context(cannot)?;
        Ok(Self { store, listener, path })
    }

    /// Serves requests until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                // Cancel safe: a dropped `accept` has taken no connection.
                accepted = self.listener.accept() => accepted,
            };
            let served = match accepted {
                Ok((stream, _)) => tokio::select! {
                    biased;
                    () = stop.cancelled() => break,
                    // If this is dropped, the client sees an incomplete response.
                    served = self.serve(stream) => served,
                },
                Err(error) => Err(error),
            };
            if let Err(error) = served {
                tracing::warn!(%error, "a request about the store was not served");
            }
        }
        // The next program would remove it as well.
        drop(fs::remove_file(&self.path));
    }

    async fn serve(&self, stream: UnixStream) -> io::Result<()> {
        let mut request = String::new();
        let mut stream = BufReader::new(stream);
        let mut short = (&mut stream).take(REQUEST_BYTES_MAX);
        let read = short.read_line(&mut request);
        tokio::time::timeout(IO_TIMEOUT, read).await??;
        let mut stream = stream.into_inner();
        match request.trim_end() {
            request @ (STAT | STAT_JSON) => {
                let stat = self.store.stat().await.map_err(io::Error::other)?;
                let text = if request == STAT { stat.to_string() } else { super::json(&stat) };
                tokio::time::timeout(IO_TIMEOUT, stream.write_all(text.as_bytes())).await??;
            }
            BACKUP => {
                // The thread that reads the file writes the response.
                let stream = stream.into_std()?;
                stream.set_nonblocking(false)?;
                stream.set_write_timeout(Some(IO_TIMEOUT))?;
                let out = io::BufWriter::with_capacity(1 << 16, stream);
                self.store.backup(out).await.map_err(io::Error::other)??;
            }
            _ => return Err(io::Error::other("unknown request")),
        }
        Ok(())
    }
}
