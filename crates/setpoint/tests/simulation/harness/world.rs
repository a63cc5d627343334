//! The simulation: one server, processes that start and stop, and time, which the test advances.

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
/// The shortest slice: the resolution of tokio's timers.
const SLICE_MIN: Duration = Duration::from_millis(1);
/// How long a user waits for a response.
const PATIENCE: Duration = Duration::from_secs(600);

/// The settings of a simulation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting {
    pub seed: u64,
    /// Whether the server's controllers run: garbage collection and namespace deletion. Default:
    /// no.
    pub controllers: bool,
}

impl Setting {
    pub(crate) fn of(seed: u64) -> Self {
        Self { seed, controllers: false }
    }
}

/// A started process, and the future output of its first task. Cheap to clone.
pub(crate) struct Started<T> {
    id: ProcessId,
    output: Output<T>,
}

impl<T> Started<T> {
    pub(crate) fn id(&self) -> ProcessId {
        self.id
    }

    /// The output of the first task, once it has ended; at most once.
    pub(crate) fn take_output(&self) -> Option<T> {
        self.output.lock().unwrap().take()
    }
}

/// One server, and the processes around it.
pub(crate) struct World {
    setting: Setting,
    /// The order in which processes run in a slice.
    rng: SmallRng,
    /// Generates the processes' seeds.
    seeds: SmallRng,
    now: Duration,
    slice: Duration,
    network: Network,
    store: FaultStore<MemoryStore>,
    processes: BTreeMap<ProcessId, Process>,
    n_started: usize,
}

impl World {
    /// A simulation with a running server and no other process.
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

    /// Starts a process. `main` is its first task, and creates everything within the process.
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

    /// Runs a user's action and returns its result. Time advances for all processes meanwhile.
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

    /// Advances time.
    pub(crate) fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.round(end - self.now);
        }
    }

    /// Advances time until a condition holds; fails if it does not within `limit`.
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
                panic!("waited {limit:?} until {what}\n{}", self.journal().render());
            }
            self.round(end - self.now);
        }
    }

    /// Runs one slice of time for all processes.
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

    /// Advances time until one process has made exactly `n` more polls of its tasks: ready tasks
    /// stay ready, and no other process has run in this millisecond. Returns whether there were
    /// that many within `limit`, before its first task ended.
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

    /// Resumes a stalled process. Its clock has advanced meanwhile, and its timers are due.
    pub(crate) fn resume(&mut self, id: ProcessId) {
        let now = self.now;
        self.network.journal().resume(id, now);
        let process = self.process(id);
        process.is_stalled = false;
        process.wake_up(now);
    }

    /// Kills a process, as SIGKILL does. Its connections close.
    pub(crate) fn kill(&mut self, id: ProcessId) {
        let Some(process) = self.processes.remove(&id) else { return };
        self.network.journal().end_all(id, self.now);
        self.network.bury(id, self.now);
        drop(process);
    }

    /// From now on a process meets no faults, and its packets take 1 ms. For processes that are not
    /// under test.
    pub(crate) fn shelter(&mut self, id: ProcessId) {
        self.network.shelter(id);
    }

    /// Disconnects a process from the server: packets in flight in either direction are lost, and
    /// so is everything it sends.
    pub(crate) fn cut_off(&mut self, id: ProcessId) {
        self.network.note("partition");
        self.network.cut_off(id, true);
    }

    /// Ends [`World::cut_off`]. Connections that lost packets stay broken.
    pub(crate) fn heal(&mut self, id: ProcessId) {
        self.network.cut_off(id, false);
    }

    /// Whether a process's first task has ended. True for a killed process.
    ///
    /// # Panics
    ///
    /// If that task panicked, with its panic.
    pub(crate) fn has_ended(&mut self, id: ProcessId) -> bool {
        self.processes.get_mut(&id).is_none_or(Process::has_ended)
    }

    /// Number of tasks of a process: the first while it runs, one for each of its clients, and
    /// those that these spawned.
    pub(crate) fn n_tasks(&self, id: ProcessId) -> usize {
        self.processes[&id].n_tasks()
    }

    fn process(&mut self, id: ProcessId) -> &mut Process {
        self.processes.get_mut(&id).unwrap()
    }

    /// Sets the network faults. Initially none.
    pub(crate) fn set_faults(&mut self, faults: Faults) {
        self.network.set_faults(faults);
    }

    /// Sets the faults of the server's store. Initially none.
    pub(crate) fn set_store_faults(&mut self, faults: fault::Faults) {
        self.store.set_faults(faults);
    }

    /// Simulation time since the start.
    pub(crate) fn now(&self) -> Duration {
        self.now
    }

    pub(crate) fn seed(&self) -> u64 {
        self.setting.seed
    }

    /// The record of passes and writes.
    pub(crate) fn journal(&self) -> &Journal {
        self.network.journal()
    }

    /// The counts of events.
    pub(crate) fn tally(&self) -> Tally {
        self.network.tally()
    }

    /// Number of requests that have left processes so far.
    pub(crate) fn n_requests(&self) -> u64 {
        self.network.n_requests()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() && std::env::var_os("SEED").is_some() {
            eprintln!("{}", self.journal().render());
        }
        let ids: Vec<ProcessId> = self.processes.keys().copied().collect();
        // The server is killed last.
        ids.into_iter().rev().for_each(|id| self.kill(id));
    }
}
