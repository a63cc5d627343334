//! One run of a container: its process, its hooks and probes, its log, its end.

use crate::guard::{CONTAINER_MARK, GroupGuard, kill_marked, signal_group};
use crate::logs::Log;
use crate::probe::{Target, code};
use crate::shared::{CommandEnvironment, Input, VisiblePod};
use crate::terminal::Terminal;
use bytes::Bytes;
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::{Container, Probe};
use rustix::fs::OFlags;
use rustix::process::Signal;
use setpoint_object::panic::message;
use setpoint_object::time::{Clock, Timestamp};
use std::convert::Infallible;
use std::io;
use std::net::Ipv4Addr;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncSeekExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::process::Child;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The time for output that a process left behind.
const OUTPUT_TIME_MAX: Duration = Duration::from_secs(2);
/// The least time between SIGTERM and SIGKILL: 2 s, as a kubelet's. A hook may have used up the
/// grace period.
const SIGNAL_TIME_MIN: Duration = Duration::from_secs(2);
/// The longest grace period: a hundred years. Times do not reach as far as the API's numbers.
const GRACE_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
/// Pieces of input that wait for the process.
const INPUT_WAITING: usize = 8;
/// Maximum bytes of a termination message: 4 KiB, as a kubelet's.
const MESSAGE_BYTES_MAX: usize = 4096;

/// A run of a container.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) container: Container,
    /// Its command and arguments.
    pub(crate) words: Vec<String>,
    /// The mark of its processes.
    pub(crate) mark: String,
    pub(crate) surroundings: Arc<CommandEnvironment>,
    pub(crate) ip: Ipv4Addr,
    pub(crate) log: Log,
    pub(crate) message_file: PathBuf,
    pub(crate) pod: Arc<VisiblePod>,
    pub(crate) clock: Clock,
    pub(crate) reports: mpsc::Sender<Report>,
    /// How the container is to stop, once it is to.
    pub(crate) stop: watch::Receiver<Option<Stop>>,
    /// How long a container that fails its probes may take to stop.
    pub(crate) grace: Duration,
}

/// How a container stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stop {
    /// When its grace period ends. It may become earlier.
    pub(crate) deadline: Instant,
    /// Whether its process gets its signal, or waits for the end of the containers that it serves.
    /// Its hook does not wait.
    pub(crate) is_turn: bool,
}

/// What happens to a container.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) container: String,
    pub(crate) change: Change,
}

/// A change of a container.
#[derive(Debug)]
pub(crate) enum Change {
    /// Its process runs, and its hook after the start has ended.
    Running(Timestamp),
    /// Its startup probe has succeeded.
    Started,
    Ready(bool),
    Event {
        is_warning: bool,
        reason: &'static str,
        message: String,
    },
    Ended(Ended),
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) finished_at: Timestamp,
}

impl Run {
    /// Runs the container, and reports its end.
    pub(crate) async fn run(mut self) {
        let (clock, mark) = (self.clock.clone(), self.mark.clone());
        let ended = match caught(self.process(), &clock).await {
            Ok(ended) => ended,
            Err(ended) => {
                // Its process group was killed when the guard was dropped.
                kill_marked(CONTAINER_MARK, mark).await;
                ended
            }
        };
        self.log.close();
        if let Some(visible) = self.pod.containers.lock().get_mut(&self.container.name) {
            (visible.surroundings, visible.input, visible.terminal) = (None, None, None);
        }
        self.report(Change::Ended(ended)).await;
    }

    async fn report(&self, change: Change) {
        let container = self.container.name.clone();
        // Fails only if the pod's worker has ended.
        _ = self.reports.send(Report { container, change }).await;
    }

    async fn process(&mut self) -> Ended {
        _ = tokio::fs::remove_file(&self.message_file).await;
        let Process { mut child, stdin, stdout, stderr, terminal } = match self.spawn() {
            Ok(process) => process,
            Err(error) => {
                let program = self.words.first().cloned().unwrap_or_default();
                let message = format!("failed to start container process: {program:?}: {error}");
                let text = format!("Error: {message}");
                let event = Change::Event { is_warning: true, reason: "Failed", message: text };
                self.report(event).await;
                let finished_at = self.clock.now();
                let reason = "StartError";
                return Ended { code: 128, reason, message, started_at: None, finished_at };
            }
        };
        let leader = child.id().unwrap_or_default();
        let mut group = GroupGuard(child.id());
        let started_at = self.clock.now();
        let (bytes, incoming) = mpsc::channel(INPUT_WAITING);
        let is_once = self.container.stdin_once == Some(true);
        let input = Input { bytes, end: CancellationToken::new(), is_once };
        let is_closed = input.end.clone();
        if let Some(visible) = self.pod.containers.lock().get_mut(&self.container.name) {
            visible.surroundings = Some(self.surroundings.clone());
            visible.input = stdin.is_some().then_some(input);
            visible.terminal = terminal;
        }
        let name = self.container.name.clone();
        let message = format!("Started container {name}");
        self.report(Change::Event { is_warning: false, reason: "Started", message }).await;
        let (log, clock) = (self.log.clone(), self.clock.clone());
        let has_ended = CancellationToken::new();
        let live = async {
            let code = self.live(&mut child, leader, started_at).await;
            group.finish();
            kill_marked(CONTAINER_MARK, self.mark.clone()).await;
            has_ended.cancel();
            code
        };
        let write = async {
            let late = async {
                has_ended.cancelled().await;
                tokio::time::sleep(OUTPUT_TIME_MAX).await;
            };
            tokio::select! {
                // Cancel safe: what is not read is lost.
                () = log.write(stdout, stderr, &clock) => {}
                () = late => {}
            }
        };
        let read = async {
            tokio::select! {
                // Cancel safe: the process has ended.
                () = pass_input(incoming, is_closed, stdin) => {}
                () = has_ended.cancelled() => {}
            }
        };
        let (code, (), ()) = tokio::join!(live, write, read);
        let reason = if code == 0 { "Completed" } else { "Error" };
        let message = self.message(code).await;
        let finished_at = self.clock.now();
        Ended { code, reason, message, started_at: Some(started_at), finished_at }
    }

    fn spawn(&self) -> io::Result<Process> {
        let has_stdin = self.container.stdin == Some(true);
        if self.container.tty == Some(true) {
            let (terminal, side) = Terminal::open()?;
            let child = self.surroundings.terminal_command(&self.words, side)?.spawn()?;
            return Ok(Process {
                child,
                stdin: has_stdin.then(|| Box::new(terminal.clone()) as _),
                stdout: Box::new(terminal.clone()),
                stderr: Box::new(tokio::io::empty()),
                terminal: Some(terminal),
            });
        }
        let mut command = self.surroundings.command(&self.words);
        command.stdin(if has_stdin { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        fn reader(from: Option<impl AsyncRead + Send + Unpin + 'static>) -> Reader {
            from.map_or_else(|| Box::new(tokio::io::empty()) as _, |from| Box::new(from) as _)
        }
        Ok(Process {
            stdin: child.stdin.take().map(|stdin| Box::new(stdin) as _),
            stdout: reader(child.stdout.take()),
            stderr: reader(child.stderr.take()),
            terminal: None,
            child,
        })
    }

    /// The message that the process left.
    async fn message(&self, code: i32) -> String {
        let text = end_of(&self.message_file, MESSAGE_BYTES_MAX).await.unwrap_or_default();
        let policy = self.container.termination_message_policy.as_deref();
        if text.is_empty() && code != 0 && policy == Some("FallbackToLogsOnError") {
            return self.log.tail(MESSAGE_BYTES_MAX / 2).await;
        }
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Waits for the end of the process, or ends it. Returns its exit code.
    async fn live(&self, child: &mut Child, leader: u32, started_at: Timestamp) -> i32 {
        let mut stop = self.stop.clone();
        let stopped = async {
            // An error means that the pod's worker is gone.
            _ = stop.wait_for(Option::is_some).await;
        };
        let own = tokio::select! {
            // Cancel safe: an end that was not seen is seen by the next call.
            ended = child.wait() => return ended.map_or(255, code),
            () = stopped => None,
            failure = self.watch(started_at) => {
                let message = format!("Container {} {}", self.container.name, failure.why);
                let reason = "Killing";
                self.report(Change::Event { is_warning: false, reason, message }).await;
                Some(Stop { deadline: Instant::now() + failure.grace, is_turn: true })
            }
        };
        self.end(child, leader, own).await
    }

    /// Ends the process: the hook, SIGTERM, and SIGKILL after the grace period. `own`: its probes
    /// have failed.
    async fn end(&self, child: &mut Child, leader: u32, own: Option<Stop>) -> i32 {
        let mut asked = self.stop.clone();
        let at_once = Stop { deadline: Instant::now(), is_turn: true };
        let present = |asked: &watch::Receiver<Option<Stop>>| match (own, *asked.borrow()) {
            (Some(own), Some(stop)) => {
                Stop { deadline: own.deadline.min(stop.deadline), is_turn: true }
            }
            (own, stop) => own.or(stop).unwrap_or(at_once),
        };
        let hook = self.container.lifecycle.as_ref().and_then(|hooks| hooks.pre_stop.as_ref());
        if let Some(hook) = hook
            && present(&asked).deadline > Instant::now()
        {
            let target = self.target();
            // A hook without time is dropped, and its process killed.
            let mut running = std::pin::pin!(target.hook(hook));
            let ended = loop {
                let deadline = present(&asked).deadline;
                tokio::select! {
                    // Cancel safe: the hook lives across iterations, the others wait for a state.
                    ended = &mut running => break ended,
                    ended = child.wait() => return ended.map_or(255, code),
                    () = tokio::time::sleep_until(deadline) => break Err("took too long".to_owned()),
                    Ok(()) = asked.changed() => {}
                }
            };
            if let Err(error) = ended {
                let message = format!("PreStopHook failed: {error}");
                let reason = "FailedPreStopHook";
                self.report(Change::Event { is_warning: true, reason, message }).await;
            }
        }
        loop {
            let Stop { deadline, is_turn } = present(&asked);
            if is_turn || deadline <= Instant::now() {
                break;
            }
            tokio::select! {
                // Cancel safe: all of these wait for a state.
                ended = child.wait() => return ended.map_or(255, code),
                () = tokio::time::sleep_until(deadline) => {}
                Ok(()) = asked.changed() => {}
            }
        }
        signal_group(leader, Signal::TERM);
        let soonest = Instant::now() + SIGNAL_TIME_MIN;
        loop {
            let deadline = present(&asked).deadline.max(soonest);
            tokio::select! {
                // Cancel safe: all of these wait for a state.
                ended = child.wait() => return ended.map_or(255, code),
                () = tokio::time::sleep_until(deadline) => {
                    signal_group(leader, Signal::KILL);
                    return child.wait().await.map_or(255, code);
                }
                Ok(()) = asked.changed() => {}
            }
        }
    }

    fn target(&self) -> Target<'_> {
        let Self { container, surroundings, ip, .. } = self;
        Target { container, surroundings, ip: *ip }
    }

    /// Runs the hook after the start and the probes. Returns why the container must stop.
    async fn watch(&self, started_at: Timestamp) -> Failure {
        let hooks = self.container.lifecycle.as_ref();
        if let Some(hook) = hooks.and_then(|hooks| hooks.post_start.as_ref())
            && let Err(error) = self.target().hook(hook).await
        {
            let message = format!("PostStartHook failed: {error}");
            let reason = "FailedPostStartHook";
            self.report(Change::Event { is_warning: true, reason, message }).await;
            let why = "failed postStart hook, will be restarted";
            return Failure { why, grace: self.grace };
        }
        self.report(Change::Running(started_at)).await;
        if let Some(probe) = &self.container.startup_probe
            && !self.starts(probe).await
        {
            let why = "failed startup probe, will be restarted";
            return Failure { why, grace: self.grace_after(probe) };
        }
        self.report(Change::Started).await;
        let ready = async {
            match &self.container.readiness_probe {
                Some(probe) => match self.follow(probe, "Readiness").await {},
                None => {
                    self.report(Change::Ready(true)).await;
                    std::future::pending::<Infallible>().await
                }
            }
        };
        let alive = async {
            match &self.container.liveness_probe {
                Some(probe) => {
                    self.fails(probe).await;
                    self.grace_after(probe)
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // Cancel safe: the container stops.
            never = ready => match never {},
            grace = alive => Failure { why: "failed liveness probe, will be restarted", grace },
        }
    }

    /// The grace period after a probe has failed: its own, or that of the pod.
    fn grace_after(&self, probe: &Probe) -> Duration {
        let own = probe.termination_grace_period_seconds;
        let own = own.and_then(|seconds| u64::try_from(seconds).ok());
        own.map_or(self.grace, |seconds| Duration::from_secs(seconds).min(GRACE_MAX))
    }

    /// Whether a startup probe succeeds before it has failed too often.
    async fn starts(&self, probe: &Probe) -> bool {
        let mut n_failed = 0;
        tokio::time::sleep(initial_delay(probe)).await;
        loop {
            match self.check(probe, "Startup").await {
                true => return true,
                false => n_failed += 1,
            }
            if n_failed >= threshold(probe.failure_threshold, 3) {
                return false;
            }
            tokio::time::sleep(period(probe)).await;
        }
    }

    /// Returns when a liveness probe has failed too often.
    async fn fails(&self, probe: &Probe) {
        let mut n_failed = 0;
        tokio::time::sleep(initial_delay(probe)).await;
        loop {
            n_failed = if self.check(probe, "Liveness").await { 0 } else { n_failed + 1 };
            if n_failed >= threshold(probe.failure_threshold, 3) {
                return;
            }
            tokio::time::sleep(period(probe)).await;
        }
    }

    /// Reports the changes of a readiness probe.
    async fn follow(&self, probe: &Probe, kind: &str) -> Infallible {
        let (mut is_ready, mut n_same) = (false, 0);
        tokio::time::sleep(initial_delay(probe)).await;
        loop {
            let succeeds = self.check(probe, kind).await;
            n_same = if succeeds == is_ready { 0 } else { n_same + 1 };
            let needed = match succeeds {
                true => threshold(probe.success_threshold, 1),
                false => threshold(probe.failure_threshold, 3),
            };
            if n_same >= needed {
                (is_ready, n_same) = (succeeds, 0);
                self.report(Change::Ready(is_ready)).await;
            }
            tokio::time::sleep(period(probe)).await;
        }
    }

    async fn check(&self, probe: &Probe, kind: &str) -> bool {
        let outcome = self.target().probe(probe).await;
        if let Err(error) = &outcome {
            let message = format!("{kind} probe failed: {error}");
            let reason = "Unhealthy";
            self.report(Change::Event { is_warning: true, reason, message }).await;
        }
        outcome.is_ok()
    }
}

/// The end of a process. If what looks after it panics: an end of which nothing is known.
async fn caught(process: impl Future<Output = Ended>, clock: &Clock) -> Result<Ended, Ended> {
    AssertUnwindSafe(process).catch_unwind().await.map_err(|panic| {
        let panic = message(&*panic);
        tracing::error!(panic, "the run of a container");
        Ended {
            code: 137,
            reason: "ContainerStatusUnknown",
            message: format!("The container was lost: {panic}"),
            started_at: None,
            finished_at: clock.now(),
        }
    })
}

/// The end of a file, as a kubelet reads it. The process may have put anything there: what is not a
/// regular file counts as empty.
async fn end_of(path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut options = tokio::fs::OpenOptions::new();
    // Opens a pipe without a wait for its writer.
    options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let mut file = options.open(path).await?;
    let metadata = file.metadata().await?;
    if !metadata.is_file() {
        return Ok(Vec::new());
    }
    let bytes_max = bytes_max as u64;
    file.seek(io::SeekFrom::Start(metadata.len().saturating_sub(bytes_max))).await?;
    let mut text = Vec::new();
    file.take(bytes_max).read_to_end(&mut text).await?;
    Ok(text)
}

/// Why a container stops by itself.
struct Failure {
    why: &'static str,
    grace: Duration,
}

type Reader = Box<dyn AsyncRead + Send + Unpin>;

/// A process and its streams.
struct Process {
    child: Child,
    stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    stdout: Reader,
    stderr: Reader,
    terminal: Option<Terminal>,
}

/// Writes what clients send to a process, until one of them closes it.
async fn pass_input(
    mut incoming: mpsc::Receiver<Bytes>,
    is_closed: CancellationToken,
    stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
) {
    let Some(mut stdin) = stdin else { return };
    loop {
        let bytes = tokio::select! {
            biased;
            // Cancel safe: takes a whole piece.
            bytes = incoming.recv() => bytes,
            () = is_closed.cancelled() => None,
        };
        let Some(bytes) = bytes else { return };
        if stdin.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

fn threshold(given: Option<i32>, default: i32) -> i32 {
    given.filter(|n| *n > 0).unwrap_or(default)
}

fn seconds(given: Option<i32>, default: u64) -> Duration {
    Duration::from_secs(given.and_then(|n| u64::try_from(n).ok()).unwrap_or(default))
}

fn initial_delay(probe: &Probe) -> Duration {
    seconds(probe.initial_delay_seconds, 0)
}

fn period(probe: &Probe) -> Duration {
    seconds(probe.period_seconds.filter(|n| *n > 0), 10)
}

/// A grace period of so many seconds; without a number, the default.
pub(crate) fn grace_period(seconds: Option<i64>) -> Duration {
    let seconds = seconds.and_then(|n| u64::try_from(n).ok()).unwrap_or(30);
    Duration::from_secs(seconds).min(GRACE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_grace_period_can_be_added_to_a_time() {
        assert_eq!(grace_period(None), Duration::from_secs(30));
        assert_eq!(grace_period(Some(0)), Duration::ZERO);
        assert!(Instant::now().checked_add(grace_period(Some(i64::MAX))).is_some());
    }

    /// There was no report, and the container counted as running for ever.
    #[tokio::test]
    async fn a_panic_is_an_end_of_a_container() {
        let ended = caught(async { panic!("no {}", 1) }, &Clock::wall()).await.unwrap_err();
        assert_eq!((ended.code, ended.reason), (137, "ContainerStatusUnknown"));
        assert_eq!(ended.message, "The container was lost: no 1");
    }

    #[tokio::test]
    async fn the_end_of_a_message_is_read_and_only_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("message");
        assert!(end_of(&file, 3).await.is_err());
        tokio::fs::write(&file, "0123456789").await.unwrap();
        assert_eq!(end_of(&file, 3).await.unwrap(), b"789");
        assert_eq!(end_of(&file, 20).await.unwrap(), b"0123456789");
        let endless = folder.path().join("endless");
        tokio::fs::symlink("/dev/zero", &endless).await.unwrap();
        assert_eq!(end_of(&endless, 3).await.unwrap(), b"");
        let pipe = folder.path().join("pipe");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
        assert_eq!(end_of(&pipe, 3).await.unwrap(), b"");
    }
}
