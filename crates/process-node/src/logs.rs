//! Logs of containers: lines with their time, in files of a bounded size.
//!
//! A line of a file is `<time> stdout|stderr F|P <text>`, as container runtimes write them. `P` is
//! a part of a line that goes on in the next. A file that has grown to [`FILE_BYTES_MAX`] is
//! renamed and replaces the one before.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use setpoint_apiserver::{LogOptions, LogStream};
use setpoint_object::error::chain;
use setpoint_object::time::{Clock, Timestamp};
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::fs::File;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader,
};
use tokio::sync::{broadcast, mpsc, watch};

/// Maximum length of a file. There are two for each run of a container: 10 MiB, as a kubelet's.
pub(crate) const FILE_BYTES_MAX: u64 = 10 << 20;
/// Maximum length of a line in a file; a longer one has parts.
const LINE_BYTES_MAX: usize = 16 << 10;
/// Lines that wait to be written.
const LINES_WAITING: usize = 64;
/// Pieces of output that wait for a client that is attached; it loses older ones. A piece has at
/// most 16 KiB.
const CHUNKS_WAITING: usize = 256;

/// The state of a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct State {
    /// How often the file was replaced.
    n_rotations: u64,
    bytes: u64,
    is_closed: bool,
}

/// A piece of output, as the process has written it.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    pub(crate) is_error: bool,
    pub(crate) bytes: Bytes,
}

/// A line, or a part of it.
#[derive(Debug)]
struct Line {
    is_error: bool,
    is_part: bool,
    text: Bytes,
}

/// The log of one run of a container.
#[derive(Debug, Clone)]
pub(crate) struct Log {
    path: PathBuf,
    state: Arc<watch::Sender<State>>,
    /// Output as it comes, for clients that are attached.
    pub(crate) output: broadcast::Sender<Output>,
}

impl Log {
    pub(crate) fn new(path: PathBuf) -> Self {
        let (state, output) = (watch::Sender::default(), broadcast::Sender::new(CHUNKS_WAITING));
        Self { path, state: Arc::new(state), output }
    }

    /// A log that was written by an earlier run of the node.
    pub(crate) fn closed(path: PathBuf) -> Self {
        let log = Self::new(path);
        log.close();
        log
    }

    /// No line follows.
    pub(crate) fn close(&self) {
        self.state.send_modify(|state| state.is_closed = true);
    }

    /// Waits until no line follows.
    pub(crate) async fn closed_for_good(&self) {
        // An error means that the log is gone.
        _ = self.state.subscribe().wait_for(|state| state.is_closed).await;
    }

    /// Writes both outputs of a process until they end.
    pub(crate) async fn write(
        &self,
        stdout: impl AsyncRead + Unpin,
        stderr: impl AsyncRead + Unpin,
        clock: &Clock,
    ) {
        let (to_file, mut lines) = mpsc::channel::<Line>(LINES_WAITING);
        let to_error = to_file.clone();
        let write = async {
            let mut file = None;
            while let Some(line) = lines.recv().await {
                let written = self.append(&mut file, &line, clock.now()).await;
                if let Err(error) = written {
                    // The process goes on: its output is lost.
                    tracing::warn!(error = chain(&error), path = %self.path.display(), "write a log");
                }
            }
        };
        tokio::join!(
            split(stdout, false, to_file, &self.output),
            split(stderr, true, to_error, &self.output),
            write
        );
    }

    async fn append(&self, file: &mut Option<File>, line: &Line, now: Timestamp) -> io::Result<()> {
        let mut state = *self.state.borrow();
        if state.bytes >= FILE_BYTES_MAX {
            *file = None;
            state = self.rotate(state).await;
        }
        let file = match file {
            Some(file) => file,
            None => {
                if let Some(folder) = self.path.parent() {
                    tokio::fs::create_dir_all(folder).await?;
                }
                let opened = File::options().create(true).append(true).open(&self.path).await?;
                file.insert(opened)
            }
        };
        let mut record = BytesMut::with_capacity(line.text.len() + 64);
        record.put_slice(now.rfc3339_micro().as_bytes());
        record.put_slice(if line.is_error { b" stderr " } else { b" stdout " });
        record.put_slice(if line.is_part { b"P " } else { b"F " });
        record.put_slice(&line.text);
        record.put_u8(b'\n');
        file.write_all(&record).await?;
        file.flush().await?;
        state.bytes += record.len() as u64;
        self.state.send_replace(state);
        Ok(())
    }

    /// Renames the file. Lines are written whatever becomes of it.
    async fn rotate(&self, mut state: State) -> State {
        match tokio::fs::rename(&self.path, rotated(&self.path)).await {
            Ok(()) => state.n_rotations += 1,
            // Somebody has removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => state.n_rotations += 1,
            Err(error) => {
                // It grows as much again before the next try.
                tracing::warn!(error = chain(&error), path = %self.path.display(), "rotate a log");
            }
        }
        state.bytes = 0;
        // At once: if the next line is not written, the one after it must not rename again.
        self.state.send_replace(state);
        state
    }

    /// The lines that options select.
    ///
    /// # Errors
    ///
    /// The files cannot be read. A log without files is empty.
    pub(crate) async fn read(&self, options: &LogOptions) -> io::Result<BoxStream<'static, Bytes>> {
        let mut reader = Reader::open(self.path.clone(), self.state.subscribe()).await?;
        let (since, stream) = (options.since, options.stream);
        let wanted = move |record: &Record| {
            let is_of_it = match stream {
                LogStream::All => true,
                LogStream::Stdout => !record.is_error,
                LogStream::Stderr => record.is_error,
            };
            is_of_it && since.is_none_or(|since| record.time >= since)
        };
        let mut last = VecDeque::new();
        if let Some(tail) = options.tail {
            while let Some(record) = reader.next_written().await? {
                if wanted(&record) {
                    last.push_back(record);
                }
                if last.len() as u64 > tail {
                    last.pop_front();
                }
            }
        }
        let follows = options.follow;
        let timestamps = options.timestamps;
        let rest =
            futures::stream::unfold((last, reader), move |(mut last, mut reader)| async move {
                loop {
                    let record = match last.pop_front() {
                        Some(record) => record,
                        None if follows => reader.next().await.ok()??,
                        None => reader.next_written().await.ok()??,
                    };
                    if wanted(&record) {
                        return Some((record.show(timestamps), (last, reader)));
                    }
                }
            });
        Ok(match options.limit_bytes {
            None => rest.boxed(),
            Some(limit) => limited(rest.boxed(), limit).boxed(),
        })
    }

    /// The end of the log, at most `n` bytes of text.
    pub(crate) async fn tail(&self, n: usize) -> String {
        let mut options = LogOptions::default();
        options.tail = Some(80);
        let Ok(lines) = self.read(&options).await else { return String::new() };
        let text = lines.map(|line| line.to_vec()).concat().await;
        String::from_utf8_lossy(&text[text.len().saturating_sub(n)..]).into_owned()
    }
}

fn limited(
    lines: BoxStream<'static, Bytes>,
    limit: u64,
) -> impl futures::Stream<Item = Bytes> + Send {
    lines.scan(limit, |left, mut line| {
        let n = usize::try_from(*left).unwrap_or(usize::MAX).min(line.len());
        line.truncate(n);
        *left -= n as u64;
        futures::future::ready((n > 0).then_some(line))
    })
}

fn rotated(path: &Path) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(".1");
    path.into()
}

/// Passes on output, and cuts it into lines.
async fn split(
    mut read: impl AsyncRead + Unpin,
    is_error: bool,
    to: mpsc::Sender<Line>,
    output: &broadcast::Sender<Output>,
) {
    let mut buffer = vec![0; LINE_BYTES_MAX];
    // Less than the longest line.
    let mut rest = BytesMut::new();
    loop {
        let n = read.read(&mut buffer).await.unwrap_or(0);
        let mut piece = Bytes::copy_from_slice(&buffer[..n]);
        let is_end = piece.is_empty();
        if !is_end {
            // Nobody may be attached.
            _ = output.send(Output { is_error, bytes: piece.clone() });
        }
        while !piece.is_empty() {
            let newline = piece.iter().position(|byte| *byte == b'\n');
            let room = LINE_BYTES_MAX - rest.len();
            let n = newline.unwrap_or(piece.len()).min(room);
            rest.put_slice(&piece.split_to(n));
            let is_whole = newline == Some(n);
            if is_whole {
                piece.advance(1);
            }
            if is_whole || rest.len() == LINE_BYTES_MAX {
                let line = Line { is_error, is_part: !is_whole, text: rest.split().freeze() };
                if to.send(line).await.is_err() {
                    return;
                }
            }
        }
        if is_end {
            if !rest.is_empty() {
                // Fails only if nobody writes the log any more.
                _ = to.send(Line { is_error, is_part: true, text: rest.freeze() }).await;
            }
            return;
        }
    }
}

/// A line of a file.
#[derive(Debug, PartialEq, Eq)]
struct Record {
    time: Timestamp,
    is_error: bool,
    is_part: bool,
    text: Bytes,
}

impl Record {
    /// `None` for a line that nobody has written so.
    fn parse(line: &[u8]) -> Option<Self> {
        let mut parts = line.strip_suffix(b"\n")?.splitn(4, |byte| *byte == b' ');
        let time = Timestamp::parse(std::str::from_utf8(parts.next()?).ok()?)?;
        let (output, kind, text) = (parts.next()?, parts.next()?, parts.next()?);
        let (is_error, is_part) = (output == b"stderr", kind == b"P");
        Some(Self { time, is_error, is_part, text: Bytes::copy_from_slice(text) })
    }

    fn show(self, has_time: bool) -> Bytes {
        let mut line = BytesMut::new();
        if has_time {
            line.put_slice(self.time.rfc3339_micro().as_bytes());
            line.put_u8(b' ');
        }
        line.put_slice(&self.text);
        if !self.is_part {
            line.put_u8(b'\n');
        }
        line.freeze()
    }
}

/// Reads a log from its oldest line on.
struct Reader {
    path: PathBuf,
    state: watch::Receiver<State>,
    /// Files to read before the current one.
    older: Option<BufReader<File>>,
    current: Option<BufReader<File>>,
    n_rotations: u64,
    /// A line whose end is not written yet.
    partial: Vec<u8>,
}

impl Reader {
    async fn open(path: PathBuf, state: watch::Receiver<State>) -> io::Result<Self> {
        let n_rotations = state.borrow().n_rotations;
        let older = open(&rotated(&path)).await?;
        let current = open(&path).await?;
        Ok(Self { path, state, older, current, n_rotations, partial: Vec::new() })
    }

    /// The next line that is written already.
    async fn next_written(&mut self) -> io::Result<Option<Record>> {
        loop {
            let Some(file) = self.older.as_mut().or(self.current.as_mut()) else { return Ok(None) };
            let n = file.read_until(b'\n', &mut self.partial).await?;
            if self.partial.ends_with(b"\n") {
                let line = std::mem::take(&mut self.partial);
                match Record::parse(&line) {
                    Some(record) => return Ok(Some(record)),
                    None => continue,
                }
            }
            if n == 0 {
                if self.older.take().is_none() {
                    return Ok(None);
                }
                self.partial.clear();
            }
        }
    }

    /// The next line; `None` when the log is closed.
    async fn next(&mut self) -> io::Result<Option<Record>> {
        loop {
            let state = *self.state.borrow_and_update();
            if let Some(record) = self.next_written().await? {
                return Ok(Some(record));
            }
            if self.current.is_none() || state.n_rotations != self.n_rotations {
                // The file has been read to its end after it was renamed.
                self.n_rotations = state.n_rotations;
                self.current = open(&self.path).await?;
                if self.current.is_some() {
                    continue;
                }
            }
            if state.is_closed {
                return Ok(None);
            }
            // Cancel safe, and an error means that the log is gone.
            if self.state.changed().await.is_err() {
                return Ok(None);
            }
        }
    }
}

async fn open(path: &Path) -> io::Result<Option<BufReader<File>>> {
    match File::open(path).await {
        Ok(file) => Ok(Some(BufReader::new(file))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    async fn all(log: &Log, options: LogOptions) -> String {
        let bytes = log.read(&options).await.unwrap().map(|line| line.to_vec()).concat().await;
        String::from_utf8(bytes).unwrap()
    }

    fn options(change: impl FnOnce(&mut LogOptions)) -> LogOptions {
        let mut options = LogOptions::default();
        change(&mut options);
        options
    }

    #[tokio::test]
    async fn lines_are_selected_by_number_time_and_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let log = Log::new(folder.path().join("0.log"));
        assert_eq!(all(&log, LogOptions::default()).await, "");
        let clock = Clock::starting_at(Timestamp::from_secs(1000));
        log.write(&b"one\ntwo\nthree"[..], &b""[..], &clock).await;
        assert_eq!(all(&log, LogOptions::default()).await, "one\ntwo\nthree");
        assert_eq!(all(&log, options(|o| o.tail = Some(2))).await, "two\nthree");
        assert_eq!(all(&log, options(|o| o.tail = Some(0))).await, "");
        assert_eq!(all(&log, options(|o| o.limit_bytes = Some(5))).await, "one\nt");
        let since = |secs| options(|o| o.since = Some(Timestamp::from_secs(secs)));
        assert_eq!(all(&log, since(2000)).await, "");
        assert_eq!(all(&log, since(900)).await, "one\ntwo\nthree");
        let timed = all(&log, options(|o| (o.timestamps, o.tail) = (true, Some(1)))).await;
        assert!(timed.starts_with("1970-01-01T00:16:40.") && timed.ends_with("Z three"), "{timed}");
        assert_eq!(log.tail(4).await, "hree");
    }

    #[tokio::test]
    async fn lines_of_one_output_are_told_from_those_of_the_other() {
        let folder = tempfile::tempdir().unwrap();
        let log = Log::new(folder.path().join("0.log"));
        log.write(&b"out\n"[..], &b"err\nor\n"[..], &Clock::wall()).await;
        let of = |stream| options(|o| o.stream = stream);
        assert_eq!(all(&log, of(LogStream::Stdout)).await, "out\n");
        assert_eq!(all(&log, of(LogStream::Stderr)).await, "err\nor\n");
        assert_eq!(all(&log, of(LogStream::All)).await.len(), 11);
    }

    #[tokio::test]
    async fn a_reader_follows_until_the_log_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let log = Log::new(folder.path().join("0.log"));
        let clock = Clock::wall();
        let mut followed = log.read(&options(|o| o.follow = true)).await.unwrap();
        log.write(&b"a\n"[..], &b"b\n"[..], &clock).await;
        let mut lines = [followed.next().await.unwrap(), followed.next().await.unwrap()];
        lines.sort();
        assert_eq!(lines, ["a\n", "b\n"]);
        log.close();
        assert_eq!(followed.next().await, None);
    }

    #[tokio::test]
    async fn files_are_rotated_and_long_lines_are_whole_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.log");
        let log = Log::new(path.clone());
        let long = vec![b'x'; 40_000];
        let clock = Clock::wall();
        let mut followed = log.read(&options(|o| o.follow = true)).await.unwrap();
        log.write(&long[..], &b""[..], &clock).await;
        let mut n = 0;
        while n < long.len() {
            n += followed.next().await.unwrap().len();
        }
        log.state.send_modify(|state| state.bytes = FILE_BYTES_MAX);
        log.write(&b"after\n"[..], &b""[..], &clock).await;
        assert_eq!(followed.next().await.unwrap(), "after\n");
        assert!(rotated(&path).exists());
        let text = all(&log, LogOptions::default()).await;
        assert_eq!(text.len(), 40_000 + 6);
        assert!(text.ends_with("xafter\n"));
    }

    /// All lines after it were lost.
    #[tokio::test]
    async fn lines_are_written_though_the_file_was_removed_or_cannot_be_renamed() {
        let folder = tempfile::tempdir().unwrap();
        let logs = folder.path().join("logs");
        std::fs::create_dir(&logs).unwrap();
        let path = logs.join("0.log");
        let log = Log::new(path.clone());
        let clock = Clock::wall();
        let mut followed = log.read(&options(|o| o.follow = true)).await.unwrap();
        let mut write = async |text: &'static str| {
            log.write(text.as_bytes(), &b""[..], &clock).await;
            let next = tokio::time::timeout(Duration::from_secs(10), followed.next());
            assert_eq!(next.await.unwrap().unwrap(), text);
            log.state.send_modify(|state| state.bytes = FILE_BYTES_MAX);
        };
        write("one\n").await;
        std::fs::remove_file(&path).unwrap();
        write("two\n").await;
        std::fs::remove_dir_all(&logs).unwrap();
        write("three\n").await;
        // A folder that is not empty is in the way of the older file.
        std::fs::create_dir_all(rotated(&path).join("x")).unwrap();
        write("four\n").await;
        write("five\n").await;
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 3, "{text}");
    }
}
