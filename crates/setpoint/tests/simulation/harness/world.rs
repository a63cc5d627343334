//! The world: one server, processes that come and go, and time, which passes when the test says so.

use super::fault::Faults;
use super::journal::Journal;
use super::network::Network;
use super::person::Person;
use super::process::{Crept, Ground, Output, Process, ProcessId};
use super::server;
use super::tally::Tally;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use setpoint::ControlPlane;
use setpoint::store::MemoryStore;
use setpoint::store::fault::{self, FaultStore};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The longest slice of time that processes run in turn.
pub(crate) const SLICE_MAX: Duration = Duration::from_millis(32);
/// The shortest: tokio's timers are no finer.
const SLICE_MIN: Duration = Duration::from_millis(1);
/// How long a person waits for an answer.
const PATIENCE: Duration = Duration::from_secs(600);

/// Which world.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting {
    pub seed: u64,
    /// Whether the server's own controllers run: garbage collection and the deletion of namespaces.
    /// Default: no.
    pub controllers: bool,
}

impl Setting {
    pub(crate) fn of(seed: u64) -> Self {
        Self { seed, controllers: false }
    }
}

/// A process that was started, and what its first task will give. Cheap to clone.
pub(crate) struct Started<T> {
    id: ProcessId,
    output: Output<T>,
}

impl<T> Started<T> {
    pub(crate) fn id(&self) -> ProcessId {
        self.id
    }

    /// What its first task gave, once it has ended; at most once.
    pub(crate) fn take_output(&self) -> Option<T> {
        self.output.lock().unwrap().take()
    }
}

/// One server, and the processes around it.
pub(crate) struct World {
    setting: Setting,
    /// The order in which processes run in a slice.
    rng: SmallRng,
    /// Hands out the processes' seeds.
    seeds: SmallRng,
    now: Duration,
    slice: Duration,
    network: Network,
    store: FaultStore<MemoryStore>,
    processes: BTreeMap<ProcessId, Process>,
    n_started: usize,
}

impl World {
    /// A world whose server serves; nobody else is there.
    pub(crate) fn new(setting: Setting) -> Self {
        let Setting { seed, controllers } = setting;
        let (arrive, arriving) = mpsc::unbounded_channel();
        let network = Network::new(seed.wrapping_mul(31), arrive);
        let store = FaultStore::new(MemoryStore::default(), fault::Faults::default(), seed);
        let mut world = Self {
            setting,
            rng: SmallRng::seed_from_u64(seed.wrapping_add(1 << 40)),
            seeds: SmallRng::seed_from_u64(seed.wrapping_add(1 << 41)),
            now: Duration::ZERO,
            slice: SLICE_MIN,
            network: network.clone(),
            store: store.clone(),
            processes: BTreeMap::new(),
            n_started: 0,
        };
        world.begin("server", move |ground| async move {
            let plane = ControlPlane::builder()
                .simulated(seed)
                .clock(ground.clock())
                .store(Arc::new(store))
                .controllers(controllers)
                .build();
            let serving = server::serve(plane.client(), network, ground.time, arriving);
            let mut running = JoinSet::new();
            running.spawn(async move {
                plane.run(CancellationToken::new()).await.unwrap();
            });
            serving.await;
        });
        world
    }

    /// Starts a process. `main` is its first task, and makes what it needs within the process.
    pub(crate) fn start<T, Fut>(
        &mut self,
        who: &str,
        main: impl FnOnce(Ground) -> Fut + Send + 'static,
    ) -> Started<T>
    where
        T: Send + 'static,
        Fut: Future<Output = T> + Send + 'static,
    {
        let output = Output::<T>::default();
        let gives = output.clone();
        let id = self.begin(who, |ground| async move {
            let given = main(ground).await;
            *gives.lock().unwrap() = Some(given);
        });
        Started { id, output }
    }

    fn begin<Fut>(
        &mut self,
        who: &str,
        main: impl FnOnce(Ground) -> Fut + Send + 'static,
    ) -> ProcessId
    where
        Fut: Future<Output = ()> + Send + 'static,
    {
        let id = ProcessId(self.n_started);
        self.n_started += 1;
        let mut process = Process::new(who, self.now);
        let ground = Ground {
            process: id,
            who: process.who.clone(),
            network: self.network.clone(),
            time: process.time,
            seed: self.seeds.random(),
        };
        process.begin(async move { main(ground).await });
        self.processes.insert(id, process);
        id
    }

    /// Has a person do something, and gives what came of it. Meanwhile time passes for everybody.
    #[track_caller]
    pub(crate) fn ask<T, Fut>(&mut self, act: impl FnOnce(Person) -> Fut + Send + 'static) -> T
    where
        T: Send + 'static,
        Fut: Future<Output = T> + Send + 'static,
    {
        let id = ProcessId(self.n_started);
        self.network.shelter(id);
        let asked = self.start("person", |ground| async move {
            let client = ground.client();
            act(Person { client }).await
        });
        self.run_until("a person has what they asked for", PATIENCE, |world| world.has_ended(id));
        self.kill(id);
        asked.take_output().unwrap()
    }

    /// Lets time pass.
    pub(crate) fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.round(end - self.now);
        }
    }

    /// Lets time pass until something is so; fails when it is not within `limit`.
    #[track_caller]
    pub(crate) fn run_until(
        &mut self,
        what: &str,
        limit: Duration,
        mut is_so: impl FnMut(&mut Self) -> bool,
    ) {
        let end = self.now + limit;
        while !is_so(self) {
            if self.now >= end {
                panic!("waited {limit:?} until {what}\n{}", self.journal().told());
            }
            self.round(end - self.now);
        }
    }

    /// One slice of time for everybody.
    fn round(&mut self, max: Duration) {
        self.network.deliver(self.now);
        let n_sent = self.network.n_sent();
        let arrival = self.network.next_arrival().map_or(max, |at| at.saturating_sub(self.now));
        let slice = self.slice.min(max).min(arrival).max(SLICE_MIN);
        let until = self.now + slice;
        let mut order: Vec<ProcessId> = self.processes.keys().copied().collect();
        order.shuffle(&mut self.rng);
        for id in order {
            let process = &self.processes[&id];
            if !process.is_stalled {
                process.run(until);
            }
        }
        self.now = until;
        self.slice = if self.network.n_sent() > n_sent {
            SLICE_MIN
        } else {
            (self.slice * 2).min(SLICE_MAX)
        };
    }

    /// Lets time pass until one process has made `n` more polls of its tasks, and no further: what
    /// is ready stays so, and nobody else has had this millisecond. Gives whether there were as
    /// many within `limit`, before its first task ended.
    pub(crate) fn creep(&mut self, id: ProcessId, n: u64, limit: Duration) -> bool {
        let end = self.now + limit;
        let mut left = n;
        loop {
            self.network.deliver(self.now);
            match self.processes[&id].creep(left) {
                Crept::Cut => return true,
                Crept::Idle(n_polls) => left -= n_polls,
            }
            if self.now >= end || self.has_ended(id) {
                return false;
            }
            self.slice = SLICE_MIN;
            self.round(SLICE_MIN);
        }
    }

    /// Stops running a process, as SIGSTOP does: packets to it wait.
    pub(crate) fn stall(&mut self, id: ProcessId) {
        self.network.note("stall");
        self.network.journal().stall(id, self.now);
        self.process(id).is_stalled = true;
    }

    /// Runs a stalled process again. Its clock went on meanwhile, and its timers are due.
    pub(crate) fn resume(&mut self, id: ProcessId) {
        let now = self.now;
        self.network.journal().resume(id, now);
        let process = self.process(id);
        process.is_stalled = false;
        process.wake_up(now);
    }

    /// Ends a process where it is, as SIGKILL does. Its connections close.
    pub(crate) fn kill(&mut self, id: ProcessId) {
        let Some(process) = self.processes.remove(&id) else { return };
        self.network.journal().end_all(id, self.now);
        self.network.bury(id, self.now);
        drop(process);
    }

    /// From now on no faults meet a process, and its packets travel 1 ms: for those who are not
    /// under test.
    pub(crate) fn shelter(&mut self, id: ProcessId) {
        self.network.shelter(id);
    }

    /// Cuts a process off from the server: what is under way in either direction is lost, and so is
    /// what it sends.
    pub(crate) fn cut_off(&mut self, id: ProcessId) {
        self.network.note("partition");
        self.network.cut_off(id, true);
    }

    /// Ends [`World::cut_off`]. Connections that lost something stay broken.
    pub(crate) fn heal(&mut self, id: ProcessId) {
        self.network.cut_off(id, false);
    }

    /// Whether a process's first task has ended. A process that was killed has.
    ///
    /// # Panics
    ///
    /// When that task panicked, with its panic.
    pub(crate) fn has_ended(&mut self, id: ProcessId) -> bool {
        self.processes.get_mut(&id).is_none_or(Process::has_ended)
    }

    /// How many tasks a process has: the first while it runs, one for each client that it holds,
    /// and what those spawned.
    pub(crate) fn n_tasks(&self, id: ProcessId) -> usize {
        self.processes[&id].n_tasks()
    }

    fn process(&mut self, id: ProcessId) -> &mut Process {
        self.processes.get_mut(&id).unwrap()
    }

    /// What goes wrong from now on. Nothing, to begin with.
    pub(crate) fn set_faults(&mut self, faults: Faults) {
        self.network.set_faults(faults);
    }

    /// What the server's store does from now on. Nothing, to begin with.
    pub(crate) fn set_store_faults(&mut self, faults: fault::Faults) {
        self.store.set_faults(faults);
    }

    /// The time since the world began.
    pub(crate) fn now(&self) -> Duration {
        self.now
    }

    pub(crate) fn seed(&self) -> u64 {
        self.setting.seed
    }

    /// Who did what when.
    pub(crate) fn journal(&self) -> &Journal {
        self.network.journal()
    }

    /// What happened, counted.
    pub(crate) fn tally(&self) -> Tally {
        self.network.tally()
    }

    /// How many requests left processes so far.
    pub(crate) fn n_requests(&self) -> u64 {
        self.network.n_requests()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() && std::env::var_os("SEED").is_some() {
            eprintln!("{}", self.journal().told());
        }
        let ids: Vec<ProcessId> = self.processes.keys().copied().collect();
        // The server goes last.
        ids.into_iter().rev().for_each(|id| self.kill(id));
    }
}
