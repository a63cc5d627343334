//! One history on an engine of this process: a function of its seed.

use crate::broken::{Break, Broken};
use crate::client::{NAMESPACES, Person, Place};
use crate::distant::Distant;
use crate::engines::{self, Engine};
use crate::record::{Played, Record};
use crate::servers::Server;
use crate::watcher::{Ends, Watcher};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use setpoint::store::fault::{FaultStore, Faults};
use setpoint::store::{Revision, Store};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Clients of one history.
pub(crate) const CLIENTS: usize = 16;
/// Requests of each client.
const REQUESTS: usize = 8;
/// Watchers of one history: one of all namespaces, and one of each.
const WATCHERS: usize = 3;
/// Servers of one history.
const SERVERS: u64 = 2;
/// The latency between the store and the servers, in one direction.
const WAY_MAX: Duration = Duration::from_millis(1);
/// The additional latency of changes.
const FEED_LAG_MAX: Duration = Duration::from_millis(4);
/// The longest pause of a client.
const PAUSE_MAX: Duration = Duration::from_millis(12);
/// Prefix of the keys of the clients' objects.
const CONFIG_MAPS: &str = "/registry/configmaps/";
/// Longer than any operation takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// The parameters of a history.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Play {
    pub seed: u64,
    /// The promise to break, if any.
    pub broken: Option<Break>,
}

/// A server, and what is needed to restart it.
struct Started {
    server: Arc<Server>,
    /// Makes calls of only this server fail.
    faulty: Option<FaultStore<Distant>>,
}

struct World {
    play: Play,
    engine: Engine,
    rng: SmallRng,
    faults: Faults,
    servers: Vec<Started>,
    n_starts: u64,
}

/// Plays one history on its own runtime.
///
/// # Errors
///
/// If the history is impossible.
pub(crate) fn play(play: Play, engine: impl FnOnce() -> Engine) -> Result<Played, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async { World::new(play, engine()).live().await })
}

impl World {
    fn new(play: Play, engine: Engine) -> Self {
        let mut rng = SmallRng::seed_from_u64(play.seed);
        // In one of three histories the store never fails.
        let chance = if rng.random_range(0..3) == 0 { 0.0 } else { 0.02 };
        let faults = Faults { unavailable: chance, answer_lost: chance, feed_broken: chance / 4.0 };
        Self { play, engine, rng, faults, servers: Vec::new(), n_starts: 0 }
    }

    fn store(&self) -> Arc<dyn Store> {
        let store = self.engine.store();
        match self.play.broken {
            Some(how) => Arc::new(Broken::new(store, how, self.play.seed)),
            None => store,
        }
    }

    async fn start(&mut self, n: usize) {
        self.n_starts += 1;
        let seed = self.play.seed.wrapping_mul(1000).wrapping_add(self.n_starts);
        let distant = Distant::new(self.store(), seed, WAY_MAX, FEED_LAG_MAX);
        let faulty = FaultStore::new(distant, Faults::default(), seed);
        self.servers[n].server.try_start(Arc::new(faulty.clone()), seed).await.unwrap();
        // Failing starts are the subject of another test.
        faulty.set_faults(self.faults);
        self.servers[n].faulty = Some(faulty);
    }

    /// Stops, kills or starts servers.
    async fn interfere(&mut self, record: &Record) {
        let n = self.rng.random_range(0..self.servers.len());
        match self.rng.random_range(0..3) {
            2 if self.engine.is_durable() => {
                let is_killed = self.rng.random();
                record.note(if is_killed { "engines killed" } else { "engines closed" });
                for n in 0..self.servers.len() {
                    match is_killed {
                        true => self.servers[n].server.crash().await,
                        false => self.servers[n].server.stop().await,
                    }
                }
                self.engine.reopen(is_killed).await;
                for n in 0..self.servers.len() {
                    self.start(n).await;
                }
                return;
            }
            0 => {
                record.note("servers stopped");
                self.servers[n].server.stop().await;
            }
            _ => {
                record.note("servers crashed");
                self.servers[n].server.crash().await;
            }
        }
        let pause = Duration::from_millis(self.rng.random_range(0..10));
        tokio::time::sleep(pause).await;
        self.start(n).await;
    }

    async fn live(mut self) -> Result<Played, String> {
        let first = self.engine.store().revision().await.unwrap();
        for n in 0..SERVERS {
            self.servers.push(Started { server: Arc::default(), faulty: None });
            self.start(usize::try_from(n).unwrap()).await;
        }
        let place = Arc::new(Place {
            namespaces: ["default".into(), "kube-public".into()],
            prefix: "n".into(),
            is_alone: true,
            servers: self.servers.iter().map(|started| started.server.clone()).collect(),
        });
        let record = Arc::new(Record::default());
        let (end, ends) = watch::channel(Ends::None);

        let mut watching = JoinSet::new();
        for n in 0..WATCHERS {
            let watcher = Watcher {
                rng: SmallRng::from_rng(&mut self.rng),
                place: place.clone(),
                record: record.clone(),
                namespace: n.checked_sub(1).map(|n| u8::try_from(n).unwrap()),
                ends: ends.clone(),
            };
            watching.spawn(watcher.live());
        }
        let mut asking = JoinSet::new();
        for _ in 0..CLIENTS {
            let person = self.person(&place, &record);
            asking.spawn(person.live(REQUESTS));
        }
        let is_calm = self.rng.random_range(0..5) == 0;
        while !asking.is_empty() {
            let pause = Duration::from_millis(self.rng.random_range(1..60));
            tokio::select! {
                biased;
                Some(ended) = asking.join_next() => ended.unwrap(),
                () = tokio::time::sleep(pause), if !is_calm => self.interfere(&record).await,
            }
        }

        self.faults = Faults::default();
        for started in &self.servers {
            if let Some(faulty) = &started.faulty {
                faulty.set_faults(self.faults);
            }
        }
        let closing = self.person(&place, &record);
        tokio::time::timeout(PATIENCE, closing.close()).await.map_err(|_| "the close hangs")?;
        let log = engines::log(&*self.engine.store(), &place, CONFIG_MAPS, Revision(first.0)).await;
        let log = log.unwrap();
        let last = |namespace| {
            let keys: Vec<_> = Place::keys().into_iter().filter(|key| key.0 == namespace).collect();
            log.end(&keys)
        };
        end.send_replace(Some((0..NAMESPACES).map(last).collect()));
        let watched = tokio::time::timeout(PATIENCE, async {
            while let Some(ended) = watching.join_next().await {
                ended.unwrap();
            }
        });
        watched.await.map_err(|_| format!("a watcher did not receive an event: {log:?}"))?;
        for started in &self.servers {
            started.server.stop().await;
        }
        record.judge(&log)
    }

    fn person(&mut self, place: &Arc<Place>, record: &Arc<Record>) -> Person {
        Person {
            rng: SmallRng::from_rng(&mut self.rng),
            place: place.clone(),
            record: record.clone(),
            known: BTreeMap::new(),
            newest: 0,
            pause_max: PAUSE_MAX,
        }
    }
}
