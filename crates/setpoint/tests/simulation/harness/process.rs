//! A simulated process: its own runtime, run a slice at a time.

use super::network::Network;
use kube_client::Client;
use setpoint::object::time::{Clock, Timestamp};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// The initial wall-clock time: 2026-01-01T00:00:00Z.
const EPOCH: Timestamp = Timestamp::from_secs(1_767_225_600);

/// A process. Each start is a new one, also under a previous name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ProcessId(pub(super) usize);

/// Simulation time as read by a process.
#[derive(Debug, Clone, Copy)]
pub(super) struct LocalTime {
    born: Duration,
    base: Instant,
}

impl LocalTime {
    /// The current time. Only within the process.
    pub(super) fn now(self) -> Duration {
        self.born + (Instant::now() - self.base)
    }
}

/// The environment of a process: its network, its clock, and the journal. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Ground {
    pub(super) process: ProcessId,
    pub(super) who: Arc<str>,
    pub(super) network: Network,
    pub(super) time: LocalTime,
    /// The seed of the process's randomness, different for each process.
    pub seed: u64,
}

impl Ground {
    /// A client of the server, through the network. Each is a separate connection pool.
    pub(crate) fn client(&self) -> Client {
        self.network.client(self)
    }

    /// The process's id.
    pub(crate) fn id(&self) -> ProcessId {
        self.process
    }

    /// The process's name.
    pub(crate) fn name(&self) -> &str {
        &self.who
    }

    /// The wall clock, which is the same for all processes.
    pub(crate) fn clock(&self) -> Clock {
        Clock::starting_at(EPOCH + self.time.now())
    }

    /// Simulation time by this process's clock.
    pub(crate) fn now(&self) -> Duration {
        self.time.now()
    }

    /// Records the start of a pass; dropping the returned value records its end.
    pub(crate) fn pass(&self, controller: &str, key: &impl std::fmt::Display) -> Pass {
        let key = key.to_string();
        let began = self.time.now();
        let pass = self.network.journal().begin(self.process, &self.who, (controller, &key), began);
        Pass { ground: self.clone(), pass }
    }
}

/// A running pass, until it is dropped.
#[must_use = "a pass ends when this is dropped"]
pub(crate) struct Pass {
    ground: Ground,
    pass: usize,
}

impl Drop for Pass {
    fn drop(&mut self) {
        let Self { ground, pass } = self;
        // When a process is killed, all its passes have already been ended.
        if !ground.network.is_dead(ground.process) {
            ground.network.journal().end(*pass, ground.time.now());
        }
    }
}

/// The result of running a process for a number of polls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Crept {
    /// All polls were made, and there may be more to do at this instant.
    Cut,
    /// Nothing more is to be done at this instant, after this many polls.
    Idle(u64),
}

/// A process and its runtime.
pub(super) struct Process {
    pub(super) who: Arc<str>,
    pub(super) time: LocalTime,
    runtime: Runtime,
    main: Option<JoinHandle<()>>,
    probe: Probe,
    pub(super) is_stalled: bool,
}

impl Process {
    pub(super) fn new(who: &str, born: Duration) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            // So that the root of `creep` is polled after every poll of a task.
            .event_interval(1)
            .build()
            .unwrap();
        let probe = Probe::default();
        runtime.spawn(probe.clone().run());
        let base = runtime.block_on(async {
            tokio::task::yield_now().await;
            Instant::now()
        });
        let time = LocalTime { born, base };
        Self { who: who.into(), time, runtime, main: None, probe, is_stalled: false }
    }

    /// Spawns its first task.
    pub(super) fn begin(&mut self, main: impl Future<Output = ()> + Send + 'static) {
        self.main = Some(self.runtime.spawn(main));
    }

    /// Number of its tasks, including the first while it runs.
    pub(super) fn n_tasks(&self) -> usize {
        // All tasks but the probe.
        self.runtime.metrics().num_alive_tasks() - 1
    }

    /// Whether its first task has ended; panics if that task panicked.
    pub(super) fn has_ended(&mut self) -> bool {
        let Some(main) = &mut self.main else { return true };
        if !main.is_finished() {
            return false;
        }
        if let Some(main) = self.main.take()
            && let Err(error) = self.runtime.block_on(main)
            && error.is_panic()
        {
            std::panic::resume_unwind(error.into_panic());
        }
        true
    }

    /// Runs everything that is due before simulation time `until`.
    pub(super) fn run(&self, until: Duration) {
        let until = self.time.base + (until - self.time.born);
        self.runtime.block_on(async { tokio::time::sleep_until(until).await });
    }

    /// Advances its clock to simulation time; expired timers fire.
    pub(super) fn wake_up(&self, now: Duration) {
        let missed = self.runtime.block_on(async { now.saturating_sub(self.time.now()) });
        self.runtime.block_on(async { tokio::time::advance(missed).await });
    }

    /// Polls tasks at this instant, at most `n` times, without advancing the clock.
    ///
    /// A probe is queued with the ready tasks, and requeued whenever it is polled: if no other task
    /// was polled between two of its polls, no other task is ready. The root, which the runtime
    /// polls after every task, counts.
    pub(super) fn creep(&self, n: u64) -> Crept {
        if n == 0 {
            return Crept::Cut;
        }
        let probe = &self.probe;
        probe.begin();
        let (mut n_polls, mut n_since, mut n_rounds) = (0, 0, 0);
        let mut n_turns = probe.n_turns();
        let mut is_first = true;
        let root = poll_fn(|context| {
            context.waker().wake_by_ref();
            if std::mem::take(&mut is_first) {
                return Poll::Pending;
            }
            if probe.n_turns() > n_turns {
                // The first round may have started anywhere in the queue.
                let is_idle = n_since == 0 && n_rounds > 0;
                (n_turns, n_since, n_rounds) = (probe.n_turns(), 0, n_rounds + 1);
                return if is_idle { Poll::Ready(Crept::Idle(n_polls)) } else { Poll::Pending };
            }
            (n_polls, n_since) = (n_polls + 1, n_since + 1);
            if n_polls == n { Poll::Ready(Crept::Cut) } else { Poll::Pending }
        });
        let crept = self.runtime.block_on(async { pin!(root).await });
        probe.end();
        crept
    }
}

/// A task that marks the rounds of the task queue. Clones share it.
#[derive(Clone, Default)]
struct Probe(Arc<Mutex<ProbeState>>);

#[derive(Default)]
struct ProbeState {
    is_on: bool,
    n_turns: u64,
    waker: Option<Waker>,
}

impl Probe {
    fn begin(&self) {
        let mut state = self.0.lock().unwrap();
        state.is_on = true;
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    fn end(&self) {
        self.0.lock().unwrap().is_on = false;
    }

    fn n_turns(&self) -> u64 {
        self.0.lock().unwrap().n_turns
    }

    /// Its task, which lives as long as the process.
    async fn run(self) {
        poll_fn(|context| {
            let mut state = self.0.lock().unwrap();
            state.n_turns += 1;
            if state.is_on {
                context.waker().wake_by_ref();
            } else {
                state.waker = Some(context.waker().clone());
            }
            Poll::<()>::Pending
        })
        .await;
    }
}

/// The output of a process's first task, once it has ended.
pub(super) type Output<T> = Arc<Mutex<Option<T>>>;
