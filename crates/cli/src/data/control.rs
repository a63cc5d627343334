//! The socket in a data folder, through which the program that has it open can be asked.
//!
//! A question is one line, the answer whatever follows until the end. The socket is the owner's
//! alone (mode 0600), and one question is answered at a time.

use anyhow::Context as _;
use setpoint::store::DiskStore;
use std::{
    fs::{self, Permissions},
    io::{self, Write},
    os::unix::{fs::PermissionsExt, net::UnixStream as Asker},
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
/// What the store holds and weighs, as lines.
pub(super) const STAT: &str = "stat";
/// The same as one JSON object.
pub(super) const STAT_JSON: &str = "stat-json";
/// A copy of the store.
pub(super) const BACKUP: &str = "backup";
/// The longest question, in bytes.
const QUESTION_BYTES_MAX: u64 = 64;
/// How long an asker may take for its question, and for taking a part of the answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Asks whoever has the folder open; `None` if nobody listens.
pub(super) fn ask(folder: &Path, question: &str) -> anyhow::Result<Option<Asker>> {
    let mut asker = match Asker::connect(folder.join(SOCKET)) {
        Ok(asker) => asker,
        // Nobody was there, or has left its socket behind.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) =>
        {
            return Ok(None);
        }
        Err(error) => {
            return Err(error).with_context(|| format!("cannot ask {}", folder.display()));
        }
    };
    asker.write_all(format!("{question}\n").as_bytes()).context("ask")?;
    Ok(Some(asker))
}

/// Answers questions about a store.
pub(crate) struct Control {
    store: DiskStore,
    listener: UnixListener,
    path: PathBuf,
}

impl Control {
    /// Listens in the store's folder. Who has the store open owns the socket: one that was left
    /// behind goes.
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

    /// Answers until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        loop {
            let asked = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                // Cancel safe: a dropped `accept` has taken nobody.
                asked = self.listener.accept() => asked,
            };
            let answered = match asked {
                Ok((asker, _)) => tokio::select! {
                    biased;
                    () = stop.cancelled() => break,
                    // Dropped, the asker sees an end in the middle.
                    answered = self.answer(asker) => answered,
                },
                Err(error) => Err(error),
            };
            if let Err(error) = answered {
                tracing::warn!(%error, "a question about the store was not answered");
            }
        }
        // The next one would remove it, too.
        drop(fs::remove_file(&self.path));
    }

    async fn answer(&self, asker: UnixStream) -> io::Result<()> {
        let mut question = String::new();
        let mut asker = BufReader::new(asker);
        let mut short = (&mut asker).take(QUESTION_BYTES_MAX);
        let read = short.read_line(&mut question);
        tokio::time::timeout(PATIENCE, read).await??;
        let mut asker = asker.into_inner();
        match question.trim_end() {
            question @ (STAT | STAT_JSON) => {
                let stat = self.store.stat().await.map_err(io::Error::other)?;
                let text = if question == STAT { stat.to_string() } else { super::json(&stat) };
                tokio::time::timeout(PATIENCE, asker.write_all(text.as_bytes())).await??;
            }
            BACKUP => {
                // Written by the thread that reads the file.
                let asker = asker.into_std()?;
                asker.set_nonblocking(false)?;
                asker.set_write_timeout(Some(PATIENCE))?;
                let out = io::BufWriter::with_capacity(1 << 16, asker);
                self.store.backup(out).await.map_err(io::Error::other)??;
            }
            _ => return Err(io::Error::other("there is no such question")),
        }
        Ok(())
    }
}
