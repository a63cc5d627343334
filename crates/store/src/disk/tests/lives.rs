//! Random runs of a store over a failing disk, by seed.
//!
//! Each seed has a few lives of the process: single and concurrent commits, compares, times to
//! live, compactions, backups, disk faults, and an end by a clean stop, a kill or a power cut.
//! After each life the whole retained history is compared with the requests and responses. Every
//! acknowledged commit is at its revision with its content. A commit with an unknown outcome is
//! there whole or not at all. A failed one is not there. Feeds have no gap, from any start. No
//! revision that was read before has changed. `SEED=7` runs one seed.

use super::torn::{Disk, Fault};
use super::*;
use futures::future::join_all;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of seeds.
const SEEDS: u64 = 5_000;
/// Number of lives per seed.
const LIVES: u64 = 3;
/// The key to which every transaction writes its number.
const ID: &str = "/id";

type State = BTreeMap<String, String>;

/// The content of one transaction.
struct Transaction {
    ops: Vec<(String, Option<String>)>,
    expires: Option<Instant>,
}

/// What the client knows of a store.
struct Model {
    seed: u64,
    life: u64,
    transactions: Vec<Transaction>,
    /// The transaction of each revision that was acknowledged or read from the history.
    known: BTreeMap<u64, Option<usize>>,
    /// Transactions that certainly did not happen.
    refused: HashSet<usize>,
    /// The state at each revision that was read.
    states: BTreeMap<u64, State>,
    acknowledged: u64,
}

macro_rules! ensure {
    ($model:expr, $holds:expr, $($text:tt)*) => {
        assert!($holds, "SEED={} life {}: {}", $model.seed, $model.life, format_args!($($text)*))
    };
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The number of the transaction that wrote a value.
fn writer(value: &str) -> usize {
    value.split(':').next().unwrap().parse().unwrap()
}

impl Model {
    fn new(seed: u64) -> Self {
        Self {
            seed,
            life: 0,
            transactions: Vec::new(),
            known: BTreeMap::new(),
            refused: HashSet::new(),
            states: BTreeMap::from([(1, State::new())]),
            acknowledged: 1,
        }
    }

    /// Creates a random transaction.
    fn new_transaction(&mut self, rng: &mut SmallRng, now: Instant) -> (usize, Txn) {
        let id = self.transactions.len();
        let ttl = rng.random_bool(0.15).then(|| Duration::from_secs(rng.random_range(5..60)));
        let mut ops = vec![(ID.to_owned(), Some(format!("{id}:")))];
        for n in 0..rng.random_range(0..3) {
            let key = format!("/{n}{}", rng.random_range(0..4));
            let value = rng.random_bool(0.7).then(|| {
                // From a word to some pages; the longer ones are compressed.
                let n_words = [1, 8, 200][rng.random_range(0..3)];
                let word = rng.random::<u64>();
                (0..n_words).fold(format!("{id}:"), |value, n| {
                    value + &(word.wrapping_mul(n * n + 1)).to_string()
                })
            });
            ops.push((key, value));
        }
        let txn = Txn {
            compares: vec![],
            ops: ops
                .iter()
                .map(|(key, value)| match value {
                    Some(value) => put(key, value),
                    None => delete(key),
                })
                .collect(),
            ttl,
        };
        self.transactions.push(Transaction { ops, expires: ttl.map(|ttl| now + ttl) });
        (id, txn)
    }

    fn answered(&mut self, id: usize, answer: Result<Committed, StoreError>) -> bool {
        match answer {
            Ok(Committed::Done(Revision(revision))) => {
                let before = self.known.insert(revision, Some(id));
                ensure!(self, before.is_none(), "revision {revision} was returned twice");
                self.acknowledged = self.acknowledged.max(revision);
                true
            }
            Ok(Committed::Refused { .. }) => {
                self.refused.insert(id);
                true
            }
            Err(StoreError::Unknown(_)) => false,
            Err(StoreError::Unavailable(_) | StoreError::Full(_)) => {
                self.refused.insert(id);
                false
            }
            Err(error) => panic!("SEED={} life {}: {error}", self.seed, self.life),
        }
    }

    /// Applies a revision to a state. It must be a known transaction or the expiry of values.
    fn apply(
        &self,
        revision: u64,
        changes: &[Change],
        state: &mut State,
        now: Instant,
    ) -> Option<usize> {
        let id =
            changes.iter().find(|change| change.key == ID).and_then(|change| change.value.as_ref());
        let id = id.map(|value| writer(&text(value)));
        let mut expected = Vec::new();
        if let Some(id) = id {
            for (key, value) in &self.transactions[id].ops {
                if value.is_some() || state.contains_key(key) {
                    expected.push((key.clone(), value.clone()));
                }
            }
        } else {
            for change in changes {
                let key = text(&change.key);
                let Some(value) = state.get(&key) else {
                    panic!("SEED={}: {key} expired twice", self.seed)
                };
                let expires = self.transactions[writer(value)].expires;
                ensure!(
                    self,
                    expires.is_some_and(|at| at <= now),
                    "{key} expired before its time at {revision}"
                );
                expected.push((key, None));
            }
        }
        let found: Vec<_> = changes
            .iter()
            .map(|change| (text(&change.key), change.value.as_deref().map(text)))
            .collect();
        ensure!(self, found == expected, "revision {revision} is {found:?}, expected {expected:?}");
        for change in changes {
            let key = text(&change.key);
            let previous = change.previous.as_ref().map(|entry| text(&entry.value));
            ensure!(
                self,
                previous.as_ref() == state.get(&key),
                "revision {revision}: the previous value of {key}"
            );
            match &change.value {
                Some(value) => state.insert(key, text(value)),
                None => state.remove(&key),
            };
        }
        id
    }

    /// Reads everything and compares it with the model.
    async fn verify(&mut self, store: &DiskStore, rng: &mut SmallRng) {
        let newest = store.revision().await.unwrap().0;
        ensure!(
            self,
            newest >= self.acknowledged,
            "{newest} < {}, acknowledged",
            self.acknowledged
        );
        let oldest = oldest(store).await;
        // Unacknowledged commits may be lost.
        self.states.retain(|revision, _| *revision <= newest);
        self.known.retain(|revision, _| *revision <= newest);
        let mut state = values(store, At::Exactly(Revision(oldest))).await;
        if let Some(known) = self.states.get(&oldest) {
            ensure!(self, state == *known, "the oldest state, at {oldest}, differs");
        }
        let mut ids: HashSet<usize> =
            self.known.range(..=oldest).filter_map(|(_, id)| *id).collect();
        let (changes, now) = (feed(store, oldest, newest).await, Instant::now());
        for (n, commit) in changes.chunk_by(|a, b| a.revision == b.revision).enumerate() {
            let revision = oldest + 1 + n as u64;
            ensure!(self, commit[0].revision.0 == revision, "a gap before {}", commit[0].revision);
            let id = self.apply(revision, commit, &mut state, now);
            if let Some(id) = id {
                ensure!(self, ids.insert(id), "transaction {id} happened twice");
                ensure!(
                    self,
                    !self.refused.contains(&id),
                    "transaction {id} was refused and is there"
                );
            }
            let known = self.known.insert(revision, id);
            ensure!(
                self,
                known.is_none_or(|known| known == id),
                "revision {revision} was {known:?} and is {id:?}"
            );
            if let Some(known) = self.states.insert(revision, state.clone()) {
                ensure!(self, known == state, "the state at {revision} differs");
            }
        }
        let end = changes.last().map_or(oldest, |change| change.revision.0);
        ensure!(self, end == newest, "the feed ends at {end}");
        ensure!(
            self,
            values(store, At::Latest).await == state,
            "the newest state does not match the history"
        );
        self.states.retain(|revision, _| *revision >= oldest);
        // Feeds and reads from the middle must agree.
        for _ in 0..2 {
            let from = rng.random_range(oldest..=newest);
            if let Some(known) = self.states.get(&from) {
                let found = values(store, At::Exactly(Revision(from))).await;
                ensure!(self, found == *known, "the state at {from} differs");
            }
            let tail: Vec<_> =
                changes.iter().filter(|change| change.revision.0 > from).cloned().collect();
            ensure!(self, feed(store, from, newest).await == tail, "the feed from {from} differs");
        }
    }
}

/// Every change after a revision, up to another one.
async fn feed(store: &DiskStore, after: u64, newest: u64) -> Vec<Change> {
    let mut feed = store.changes(Bytes::new(), Revision(after)).await.unwrap();
    let (mut changes, mut reached) = (Vec::new(), after);
    while reached < newest {
        let batch = feed.next().await.unwrap();
        changes.extend(batch.changes);
        reached = batch.revision.0;
    }
    changes.retain(|change| change.revision.0 <= newest);
    changes
}

/// The disk, clock and random numbers of one seed.
struct World {
    seed: u64,
    rng: SmallRng,
    disk: Disk,
    clock: Arc<AtomicU64>,
    options: DiskOptions,
}

impl World {
    fn new(seed: u64) -> Self {
        let clock = Arc::new(AtomicU64::new(1_000));
        let now = clock.clone();
        let options = DiskOptions {
            quick_repair_bytes: if seed.is_multiple_of(2) { 0 } else { u64::MAX },
            history_revisions_max: 40,
            history_bytes_max: 20_000,
            history_age_max: Duration::from_secs(300),
            now_ms: Arc::new(move || now.load(Ordering::Relaxed)),
            ..options()
        };
        let rng = SmallRng::seed_from_u64(seed);
        Self { seed, rng, disk: Disk::new(), clock, options }
    }

    /// Opens the store. In most seeds its laps are short, and filed some batches later.
    fn open(&self) -> Result<DiskStore, DiskError> {
        let records_max = [3, 6, 14, 512][usize::try_from(self.seed / 2 % 4).unwrap()];
        let n_batches_max = [0, 2, 5, 1000][usize::try_from(self.seed / 8 % 4).unwrap()];
        let laps = |_| Delayed::laps(records_max, n_batches_max, self.seed);
        open_torn_with(&self.disk, self.options.clone(), laps)
    }

    /// Advances the time, in the process and outside.
    async fn pass(&self, time: Duration) {
        self.clock.fetch_add(u64::try_from(time.as_millis()).unwrap(), Ordering::Relaxed);
        tokio::time::advance(time).await;
    }

    /// Whether the process sees what is on the disk. Without quick repair, after a failed sync
    /// memory may differ from the disk: the store stops serving, and a new process could not detect
    /// it either.
    fn may_go_on(&self) -> bool {
        self.options.quick_repair_bytes == 0 || !self.disk.sync_failed().load(Ordering::Relaxed)
    }

    fn fault(&mut self) -> Fault {
        let rng = &mut self.rng;
        match rng.random_range(0..4) {
            0 => Fault::Gone { after: rng.random_range(0..60) },
            1 => Fault::Sync {
                after: rng.random_range(0..6),
                seed: rng.random(),
                is_forgotten: rng.random(),
            },
            2 => Fault::Read { after: rng.random_range(0..10) },
            _ => Fault::Full { sectors: rng.random_range(0..40) },
        }
    }

    /// Runs one life, from opening to the end.
    async fn live(&mut self, model: &mut Model) {
        if self.rng.random_bool(0.1) {
            let fault = self.fault();
            self.disk.fail(fault);
            let opened = self.open().map(drop);
            let seed = self.rng.random();
            self.disk.crash(seed);
            if opened.is_err() && model.life == 0 {
                // The file is renamed only once it is complete.
                self.disk = Disk::new();
            }
        }
        let store = self.open();
        let store = store
            .unwrap_or_else(|error| panic!("SEED={} life {}: {error}", model.seed, model.life));
        model.verify(&store, &mut self.rng).await;
        let mut is_faulty = false;
        for _ in 0..self.rng.random_range(1..16) {
            match self.rng.random_range(0..20) {
                0 => {
                    let time = Duration::from_secs(self.rng.random_range(1..90));
                    self.pass(time).await;
                }
                1 => {
                    let newest = store.revision().await.map_or(1, |revision| revision.0);
                    let target = Revision(self.rng.random_range(1..=newest));
                    drop(store.compact(target).await);
                }
                2 => self.backup(model, &store).await,
                3 if !is_faulty => {
                    is_faulty = true;
                    let fault = self.fault();
                    self.disk.fail(fault);
                }
                4 if is_faulty => {
                    is_faulty = false;
                    self.disk.heal();
                    if self.may_go_on() {
                        // Opens again if necessary, and deletes expired values.
                        self.pass(EXPIRY_RETRY_PERIOD).await;
                        values(&store, At::Latest).await;
                        model.verify(&store, &mut self.rng).await;
                    }
                }
                _ => {
                    let now = Instant::now();
                    let n = if self.rng.random_bool(0.7) { 1 } else { 4 };
                    let (ids, mut txns): (Vec<_>, Vec<_>) =
                        (0..n).map(|_| model.new_transaction(&mut self.rng, now)).unzip();
                    if self.rng.random_bool(0.2)
                        && let Ok(found) = store.get(b"/00", At::Latest).await
                    {
                        let compare = match found.value {
                            Some(found) => Compare::Modified(found.key, found.modified),
                            None => Compare::Absent("/00".into()),
                        };
                        txns.iter_mut().for_each(|txn| txn.compares.push(compare.clone()));
                    }
                    let answers = join_all(txns.into_iter().map(|txn| store.commit(txn))).await;
                    for (id, answer) in ids.into_iter().zip(answers) {
                        is_faulty |= !model.answered(id, answer);
                    }
                }
            }
        }
        self.end(store).await;
    }

    /// Checks that a backup has the store's current state.
    async fn backup(&mut self, model: &Model, store: &DiskStore) {
        let copy = Copy::default();
        let Ok(Ok(revision)) = store.backup(copy.clone()).await else { return };
        let to = Disk::new();
        let builder = redb::Database::builder();
        let database = builder.create_with_backend(to.attach()).unwrap();
        let copied = DiskStore::restore_into(database, &copy.0.lock()[..], Path::new("copy"));
        ensure!(model, copied.as_ref().is_ok_and(|copied| *copied == revision), "{copied:?}");
        let restored = open_torn(&to, self.options.clone()).unwrap();
        let request = RangeRequest { at: At::Exactly(revision), ..RangeRequest::prefix("") };
        if let (Ok(here), there) =
            (store.range(request.clone()).await, restored.range(request).await)
        {
            ensure!(model, here.value == there.unwrap().value, "a copy at {revision} differs");
        }
    }

    async fn end(&mut self, store: DiskStore) {
        let mut store = Some(store);
        if self.rng.random_bool(0.3)
            && let Some(store) = store.take()
        {
            store.close().await;
            drop(store);
            // Without quick repair, a new process does not correct memory that a failed sync left
            // wrong.
            if self.may_go_on() && self.rng.random_bool(0.5) {
                self.defrag();
            }
        }
        if self.may_go_on() && self.rng.random_bool(0.3) {
            self.disk.kill();
        } else {
            let seed = self.rng.random();
            self.disk.crash(seed);
        }
        // Its further calls have no effect.
        drop(store);
    }

    /// Copies the store into a new file, which replaces the old one if the copy is complete.
    fn defrag(&mut self) {
        let to = Disk::new();
        if self.rng.random_bool(0.5) {
            to.fail(self.fault());
        }
        let builder = redb::Database::builder();
        let made = || {
            let old = builder.create_with_backend(self.disk.attach())?;
            if file::end_journal(&old, &self.disk, Path::new("torn")).is_err() {
                return Ok(false);
            }
            let (position, snapshot) = file::position(&old)?;
            let view = View::unserved(snapshot, position);
            view.copy(&mut builder.create_with_backend(to.attach())?)?;
            let copied = file::position(&builder.create_with_backend(to.attach())?)?.0;
            Ok(copied == position)
        };
        let made: Result<bool, super::super::error::Fault> = made();
        if made.is_ok_and(|is_same| is_same) {
            to.heal();
            self.disk = to;
        }
    }
}

/// Prints the seed on a panic.
struct PrintSeed(u64);

impl Drop for PrintSeed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("SEED={} reproduces it", self.0);
        }
    }
}

async fn lives(seed: u64) -> u64 {
    let _print_seed = PrintSeed(seed);
    let mut world = World::new(seed);
    let mut model = Model::new(seed);
    for life in 0..LIVES {
        model.life = life;
        world.live(&mut model).await;
    }
    // On a healthy disk, everything expires at its time.
    model.life = LIVES;
    let store = world.open().unwrap();
    model.verify(&store, &mut world.rng).await;
    world.pass(Duration::from_secs(60)).await;
    for (key, value) in values(&store, At::Latest).await {
        ensure!(
            model,
            model.transactions[writer(&value)].expires.is_none(),
            "{key} did not expire"
        );
    }
    model.verify(&store, &mut world.rng).await;
    world.disk.n_syncs()
}

#[test]
fn nothing_acknowledged_is_lost_on_a_disk_that_fails() {
    let seeds = match std::env::var("SEED") {
        Ok(seed) => {
            let seed = seed.parse().unwrap();
            seed..seed + 1
        }
        Err(_) => 0..SEEDS,
    };
    // Two at a time. They share nothing.
    let next = AtomicU64::new(seeds.start);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut builder = tokio::runtime::Builder::new_current_thread();
                let runtime = builder.enable_time().start_paused(true).build().unwrap();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    let n_syncs = runtime.block_on(lives(seed));
                    assert!(n_syncs > 0, "SEED={seed}: nothing was synced");
                }
            });
        }
    });
}
