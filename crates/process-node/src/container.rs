//! One run of a container: its process, its hooks and probes, its log, its end.

use crate::guard::{CONTAINER_MARK, GroupGuard, kill_marked, signal_group};
use crate::logs::Log;
use crate::probe::{Target, code};
use crate::shared::{Surroundings, VisiblePod};
use k8s_openapi::api::core::v1::{Container, Probe};
use rustix::process::Signal;
use setpoint_object::time::{Clock, Timestamp};
use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::process::Child;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The time for output that a process left behind.
const OUTPUT_TIME_MAX: Duration = Duration::from_secs(2);
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
    pub(crate) surroundings: Arc<Surroundings>,
    pub(crate) ip: Ipv4Addr,
    pub(crate) log: Log,
    pub(crate) message_file: PathBuf,
    pub(crate) pod: Arc<VisiblePod>,
    pub(crate) clock: Clock,
    pub(crate) reports: mpsc::Sender<Report>,
    /// The grace period, once the container is to stop. It may become shorter.
    pub(crate) stop: watch::Receiver<Option<Duration>>,
    /// How long a container that fails its probes may take to stop.
    pub(crate) grace: Duration,
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
    /// Its process runs.
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
        let ended = self.process().await;
        self.log.close();
        if let Some(visible) = self.pod.containers.lock().get_mut(&self.container.name) {
            (visible.surroundings, visible.stdin) = (None, None);
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
        let mut command = self.surroundings.command(&self.words);
        let has_stdin = self.container.stdin == Some(true);
        command.stdin(if has_stdin { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = match command.spawn() {
            Ok(child) => child,
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
        drop(command);
        let leader = child.id().unwrap_or_default();
        let mut group = GroupGuard(child.id());
        let started_at = self.clock.now();
        if let Some(visible) = self.pod.containers.lock().get_mut(&self.container.name) {
            visible.surroundings = Some(self.surroundings.clone());
            visible.stdin = child.stdin.take();
        }
        self.report(Change::Running(started_at)).await;
        let name = self.container.name.clone();
        let message = format!("Started container {name}");
        self.report(Change::Event { is_warning: false, reason: "Started", message }).await;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (log, clock) = (self.log.clone(), self.clock.clone());
        let has_ended = CancellationToken::new();
        let live = async {
            let code = self.live(&mut child, leader).await;
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
            let (Some(stdout), Some(stderr)) = (stdout, stderr) else { return };
            tokio::select! {
                // Cancel safe: what is not read is lost.
                () = log.write(stdout, stderr, &clock) => {}
                () = late => {}
            }
        };
        let (code, ()) = tokio::join!(live, write);
        let reason = if code == 0 { "Completed" } else { "Error" };
        let message = self.message(code).await;
        let finished_at = self.clock.now();
        Ended { code, reason, message, started_at: Some(started_at), finished_at }
    }

    /// The message that the process left.
    async fn message(&self, code: i32) -> String {
        let mut text = tokio::fs::read(&self.message_file).await.unwrap_or_default();
        text.truncate(MESSAGE_BYTES_MAX);
        let policy = self.container.termination_message_policy.as_deref();
        if text.is_empty() && code != 0 && policy == Some("FallbackToLogsOnError") {
            return self.log.tail(MESSAGE_BYTES_MAX / 2).await;
        }
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Waits for the end of the process, or ends it. Returns its exit code.
    async fn live(&self, child: &mut Child, leader: u32) -> i32 {
        let mut stop = self.stop.clone();
        let stopped = async {
            let asked = stop.wait_for(Option::is_some).await;
            asked.ok().and_then(|grace| *grace).unwrap_or_default()
        };
        let grace = tokio::select! {
            // Cancel safe: an end that was not seen is seen by the next call.
            ended = child.wait() => return ended.map_or(255, code),
            grace = stopped => grace,
            why = self.watch() => {
                let message = format!("Container {} {why}", self.container.name);
                let reason = "Killing";
                self.report(Change::Event { is_warning: false, reason, message }).await;
                self.grace
            }
        };
        self.end(child, leader, grace).await
    }

    /// Ends the process: the hook, SIGTERM, and SIGKILL after the grace period.
    async fn end(&self, child: &mut Child, leader: u32, grace: Duration) -> i32 {
        let mut stop = self.stop.clone();
        let began = Instant::now();
        let mut deadline = began + grace;
        let hook = self.container.lifecycle.as_ref().and_then(|hooks| hooks.pre_stop.as_ref());
        if let Some(hook) = hook
            && !grace.is_zero()
        {
            let target = self.target();
            let ended = tokio::select! {
                // Cancel safe: a hook without time is dropped, and its process killed.
                ended = target.hook(hook) => ended,
                () = tokio::time::sleep_until(deadline) => Err("took too long".to_owned()),
                ended = child.wait() => return ended.map_or(255, code),
            };
            if let Err(error) = ended {
                let message = format!("PreStopHook failed: {error}");
                let reason = "FailedPreStopHook";
                self.report(Change::Event { is_warning: true, reason, message }).await;
            }
        }
        signal_group(leader, Signal::TERM);
        loop {
            tokio::select! {
                ended = child.wait() => return ended.map_or(255, code),
                () = tokio::time::sleep_until(deadline) => {
                    signal_group(leader, Signal::KILL);
                    return child.wait().await.map_or(255, code);
                }
                // Cancel safe: it only waits for a state.
                Ok(()) = stop.changed() => {
                    let sooner = stop.borrow_and_update().map(|grace| began + grace);
                    deadline = sooner.map_or(deadline, |sooner| sooner.min(deadline));
                }
            }
        }
    }

    fn target(&self) -> Target<'_> {
        let Self { container, surroundings, ip, .. } = self;
        Target { container, surroundings, ip: *ip }
    }

    /// Runs the hook after the start and the probes. Returns why the container must stop.
    async fn watch(&self) -> String {
        let hooks = self.container.lifecycle.as_ref();
        if let Some(hook) = hooks.and_then(|hooks| hooks.post_start.as_ref())
            && let Err(error) = self.target().hook(hook).await
        {
            let message = format!("PostStartHook failed: {error}");
            let reason = "FailedPostStartHook";
            self.report(Change::Event { is_warning: true, reason, message }).await;
            return "failed postStart hook, will be restarted".to_owned();
        }
        if let Some(probe) = &self.container.startup_probe
            && !self.starts(probe).await
        {
            return "failed startup probe, will be restarted".to_owned();
        }
        self.report(Change::Started).await;
        let ready = async {
            match &self.container.readiness_probe {
                Some(probe) => match self.follow(probe, "Readiness").await {},
                None => {
                    self.report(Change::Ready(true)).await;
                    std::future::pending::<()>().await;
                }
            }
        };
        let alive = async {
            match &self.container.liveness_probe {
                Some(probe) => self.fails(probe).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = ready => String::new(),
            () = alive => "failed liveness probe, will be restarted".to_owned(),
        }
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
