//! The control socket in a data folder, through which the program that uses the folder can be
//! queried.
//!
//! A request is one line; the response is everything until the end of the stream. Only the owner
//! can use the socket (mode 0600), and one request is served at a time.

use anyhow::Context as _;
use setpoint::object::error::chain;
use setpoint::store::DiskStore;
use std::{
    fs::{self, Permissions},
    io::{self, Read, Write},
    os::fd::AsRawFd as _,
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

/// How long the program that uses the folder may take until the first part of its response: one
/// request is served at a time, and the statistics of a large store are read from all of its file.
const FIRST_PART_TIMEOUT: Duration = Duration::from_secs(300);
/// How long it may take until the next part.
const NEXT_PART_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum length of the statistics in bytes; they have some hundred.
pub(super) const STAT_BYTES_MAX: u64 = 64 << 10;

/// The pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);
/// The longest path that an address of a socket has room for: 108 bytes with a zero at the end.
const PATH_BYTES_MAX: usize = 107;

/// Uses the path of the socket in a folder. One that is too long for an address is replaced by a
/// short one of the same file.
fn within<T>(folder: &Path, use_path: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let path = folder.join(SOCKET);
    if path.as_os_str().len() <= PATH_BYTES_MAX {
        return use_path(&path);
    }
    let open = fs::File::open(folder)?;
    use_path(&Path::new("/proc/self/fd").join(open.as_raw_fd().to_string()).join(SOCKET))
}

/// The response of the program that uses the folder, to its end.
///
/// Reading it fails with an error that says who did not answer, if a part takes too long.
#[derive(Debug)]
pub(super) struct Answer {
    stream: BlockingStream,
    folder: PathBuf,
    /// How long the next part may take.
    patience: Duration,
    /// How long each later part may take.
    next_patience: Duration,
}

impl Read for Answer {
    fn read(&mut self, part: &mut [u8]) -> io::Result<usize> {
        let patience = self.patience;
        let read = self.stream.read(part).map_err(|error| silent(error, &self.folder, patience))?;
        if patience != self.next_patience {
            self.stream.set_read_timeout(Some(self.next_patience))?;
            self.patience = self.next_patience;
        }
        Ok(read)
    }
}

/// The error of a program that takes too long, with its name.
fn silent(error: io::Error, folder: &Path, patience: Duration) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => io::Error::new(
            io::ErrorKind::TimedOut,
            format!(
                "the program that uses {} did not answer for {patience:?}: it hangs, or serves \
                 another request",
                folder.display()
            ),
        ),
        _ => error,
    }
}

/// Sends a request to the program that uses the folder; `None` if none listens.
pub(super) fn send(folder: &Path, request: &str) -> anyhow::Result<Option<Answer>> {
    send_with(folder, request, FIRST_PART_TIMEOUT, NEXT_PART_TIMEOUT)
}

/// The same, with limits of the time until the first and until each later part.
fn send_with(
    folder: &Path,
    request: &str,
    first: Duration,
    next: Duration,
) -> anyhow::Result<Option<Answer>> {
    let connected = within(folder, |path| BlockingStream::connect(path));
    let mut stream = match connected {
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
    stream.set_read_timeout(Some(first)).context("limit the time of the response")?;
    stream.set_write_timeout(Some(IO_TIMEOUT)).context("limit the time of the request")?;
    let sent = stream.write_all(format!("{request}\n").as_bytes());
    sent.map_err(|error| silent(error, folder, IO_TIMEOUT)).context("send the request")?;
    let folder = folder.to_owned();
    Ok(Some(Answer { stream, folder, patience: first, next_patience: next }))
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
        let listener = within(folder, |path| UnixListener::bind(path)).with_context(cannot)?;
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
                Err(error) => {
                    // Such as too many open files, which would fail again at once.
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    Err(error)
                }
            };
            if let Err(error) = served {
                tracing::warn!(error = chain(&error), "a request about the store was not served");
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

#[cfg(test)]
mod tests {
    use super::*;
    use setpoint::store::DiskOptions;
    use std::os::unix::net::UnixListener as BlockingListener;

    /// A server did not start with a data folder of more than 94 bytes.
    #[tokio::test]
    async fn a_folder_with_a_long_path_has_a_socket_too() {
        let own = tempfile::tempdir().unwrap();
        let folder = own.path().join("a".repeat(100)).join("b".repeat(100));
        fs::create_dir_all(&folder).unwrap();
        assert!(send(&folder, STAT).unwrap().is_none(), "nobody listens yet");
        let store = DiskStore::open(&folder, DiskOptions::default()).unwrap();
        let control = Control::bind(&folder, store.clone()).unwrap();
        let stop = CancellationToken::new();
        let query = async {
            let folder = folder.clone();
            let answer = tokio::task::spawn_blocking(move || {
                let mut text = String::new();
                send(&folder, STAT_JSON).unwrap().unwrap().read_to_string(&mut text).unwrap();
                text
            });
            let answer = answer.await.unwrap();
            stop.cancel();
            answer
        };
        let ((), answer) = tokio::join!(control.run(stop.clone()), query);
        assert!(answer.contains("\"revision\""), "{answer}");
        store.close().await;
        assert!(!folder.join(SOCKET).exists());
    }

    /// A program that was stopped (SIGSTOP), or that hung, held `setpoint store backup` and `stat`
    /// until they were killed.
    #[test]
    fn a_program_that_does_not_answer_is_named_after_a_while() {
        let folder = tempfile::tempdir().unwrap();
        let listener = BlockingListener::bind(folder.path().join(SOCKET)).unwrap();
        let (long, short) = (Duration::from_secs(60), Duration::from_millis(50));
        for (sent, first, next) in [("", short, long), ("the first part", long, short)] {
            let mut answer = send_with(folder.path(), BACKUP, first, next).unwrap().unwrap();
            let (mut served, _) = listener.accept().unwrap();
            served.write_all(sent.as_bytes()).unwrap();
            let mut read = Vec::new();
            let error = answer.read_to_end(&mut read).unwrap_err();
            assert_eq!((&*read, error.kind()), (sent.as_bytes(), io::ErrorKind::TimedOut));
            let said = error.to_string();
            let names_it = said.contains(&folder.path().display().to_string());
            assert!(names_it && said.contains("did not answer for 50ms"), "{said}");
        }
    }
}
