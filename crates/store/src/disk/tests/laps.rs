//! Laps of the journal that are filed while later commits are acknowledged: power cuts, failures
//! and full disks at every call of the filing.

use super::super::filing::{Filed, Filing, Job};
use super::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// Files a lap in the writer's thread, once the writer has looked for it often enough, or waits for
/// it. So commits and the calls of the filing have a known order.
pub(super) struct Delayed {
    rng: SmallRng,
    /// Maximum number of looks in vain.
    n_looks_max: u32,
    n_looks: u32,
    job: Option<Job>,
}

impl Delayed {
    /// Laps of at most `records_max` records. The number of batches before each is filed is random,
    /// by a seed.
    pub(super) fn laps(records_max: usize, n_batches_max: u32, seed: u64) -> Laps {
        let rng = SmallRng::seed_from_u64(seed);
        let filing = Self { rng, n_looks_max: n_batches_max, n_looks: 0, job: None };
        Laps { records_max, filing: Box::new(filing) }
    }
}

impl Filing for Delayed {
    fn start(&mut self, job: Job) {
        self.n_looks = self.rng.random_range(0..=self.n_looks_max);
        assert!(self.job.replace(job).is_none(), "one at a time");
    }

    fn poll(&mut self) -> Option<Filed> {
        match self.n_looks.checked_sub(1) {
            Some(left) => {
                self.n_looks = left;
                None
            }
            None => self.job.take().map(Job::run),
        }
    }

    fn wait(&mut self) -> Filed {
        self.job.take().expect("a job was started").run()
    }
}

/// Files a lap once the test says so, or the writer waits for it.
struct Held {
    is_due: Arc<AtomicBool>,
    job: Option<Job>,
}

impl Filing for Held {
    fn start(&mut self, job: Job) {
        self.job = Some(job);
    }

    fn poll(&mut self) -> Option<Filed> {
        if !self.is_due.load(Ordering::Acquire) {
            return None;
        }
        self.job.take().map(Job::run)
    }

    fn wait(&mut self) -> Filed {
        self.job.take().expect("a job was started").run()
    }
}

/// Maximum number of records in a lap of these tests.
const RECORDS: usize = 5;

/// A store with a full lap that waits to be filed, and acknowledged commits behind it.
struct Half {
    disk: Disk,
    store: DiskStore,
    is_due: Arc<AtomicBool>,
    state: BTreeMap<String, String>,
}

impl Half {
    async fn new(options: DiskOptions) -> Self {
        let (disk, is_due) = (Disk::new(), Arc::new(AtomicBool::new(false)));
        let filing = Box::new(Held { is_due: is_due.clone(), job: None });
        let laps = |_| Laps { records_max: RECORDS, filing };
        let store = open_torn_with(&disk, options, laps).unwrap();
        let mut half = Self { disk, store, is_due, state: BTreeMap::new() };
        for n in 0..RECORDS + 3 {
            // Some keys are only in the first lap, some are written again.
            let key = if n % 2 == 0 { format!("/once/{n}") } else { format!("/{}", n % 4) };
            half.put(&key, &n.to_string()).await.unwrap();
        }
        let filed = half.store.inner.shared.with(|published| published.file().revision);
        assert_eq!(filed, 1, "nothing was filed");
        half
    }

    async fn put(&mut self, key: &str, value: &str) -> Result<Revision, StoreError> {
        let done = commit(&self.store, vec![put(key, value)]).await;
        if done.is_ok() {
            self.state.insert(key.into(), value.into());
        }
        done
    }

    /// Has the lap filed by the next batch, which fails or not.
    async fn file(&mut self) {
        self.is_due.store(true, Ordering::Release);
        drop(self.put("/while", "1").await);
    }
}

/// Every acknowledged value is there. Others may be.
fn is_in(state: &BTreeMap<String, String>, found: &BTreeMap<String, String>) -> bool {
    state.iter().all(|(key, value)| found.get(key) == Some(value))
}

#[tokio::test]
async fn a_power_cut_at_any_call_of_a_filing_loses_nothing() {
    for quick_repair_bytes in [0, u64::MAX] {
        let options = DiskOptions { quick_repair_bytes, ..options() };
        for n_calls in 0.. {
            let mut half = Half::new(options.clone()).await;
            half.disk.fail(torn::Fault::Gone { after: n_calls });
            half.file().await;
            let is_over = half.state.contains_key("/while");
            for seed in 0..4 {
                let disk = half.disk.after_crash(seed);
                let store = open_torn(&disk, options.clone()).unwrap();
                let found = values(&store, At::Latest).await;
                assert!(is_in(&half.state, &found), "{n_calls}, {seed}: {found:?}");
                let mut folded = BTreeMap::new();
                fold(&store, Revision(1), &mut folded).await;
                assert_eq!(folded, found);
            }
            if is_over {
                assert!(n_calls > 5, "no call failed");
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_filing_that_fails_at_any_call_loses_nothing() {
    let faults: [fn(u64) -> torn::Fault; 4] = [
        |after| torn::Fault::Gone { after },
        |after| torn::Fault::Sync { after, seed: after, is_forgotten: true },
        |after| torn::Fault::Sync { after, seed: after, is_forgotten: false },
        |sectors| torn::Fault::Full { sectors },
    ];
    for (n, fault) in faults.into_iter().enumerate() {
        for n_calls in 0..40 {
            let at = format!("fault {n} after {n_calls}");
            let mut half = Half::new(options()).await;
            half.disk.fail(fault(n_calls));
            half.file().await;
            half.disk.heal();
            tokio::time::advance(Duration::from_secs(10)).await;
            // Several laps more.
            for n in 0..4 * RECORDS {
                half.put(&format!("/{}", n % 3), &format!("later {n}")).await.expect(&at);
            }
            let found = values(&half.store, At::Latest).await;
            assert!(is_in(&half.state, &found), "{at}: {found:?}");
            let after_crash = half.disk.after_crash(n_calls);
            half.store.close().await;
            for disk in [after_crash, half.disk] {
                let store = open_torn(&disk, options()).unwrap();
                assert_eq!(values(&store, At::Latest).await, found, "{at}");
                let mut folded = BTreeMap::new();
                fold(&store, Revision(1), &mut folded).await;
                assert_eq!(folded, found, "{at}");
                assert_eq!(store.stat().await.unwrap().keys, found.len() as u64);
            }
        }
    }
}

/// Without quick repair the store must not use the file after a failed sync. What was acknowledged
/// is in the journal.
#[tokio::test]
async fn a_filing_whose_sync_fails_without_quick_repair_ends_the_service() {
    let options = DiskOptions { quick_repair_bytes: u64::MAX, ..options() };
    for seed in 0..20 {
        let mut half = Half::new(options.clone()).await;
        half.disk.fail(torn::Fault::Sync { after: 0, seed, is_forgotten: seed % 2 == 0 });
        half.file().await;
        let refused = half.put("/later", "1").await;
        assert!(matches!(refused, Err(StoreError::Unavailable(_))), "seed {seed}: {refused:?}");
        let disk = half.disk.after_crash(seed);
        let store = open_torn(&disk, options.clone()).unwrap();
        let found = values(&store, At::Latest).await;
        assert!(is_in(&half.state, &found), "seed {seed}: {found:?}");
    }
}

/// A power cut after any commit, wherever its lap and the lap before are.
#[tokio::test]
async fn a_power_cut_after_any_commit_loses_nothing() {
    for seed in 0..12 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let quick_repair_bytes = if seed % 2 == 0 { 0 } else { u64::MAX };
        let options = DiskOptions { quick_repair_bytes, history_revisions_max: 20, ..options() };
        let laps = |_| Delayed::laps(RECORDS, [0, 2, 1000][seed as usize % 3], seed);
        let disk = Disk::new();
        let store = open_torn_with(&disk, options.clone(), laps).unwrap();
        let mut state = BTreeMap::new();
        for n in 0..60 {
            let key = format!("/{}", rng.random_range(0..7));
            if rng.random_bool(0.3) {
                commit(&store, vec![delete(&key)]).await.unwrap();
                state.remove(&key);
            } else {
                commit(&store, vec![put(&key, &n.to_string())]).await.unwrap();
                state.insert(key, n.to_string());
            }
            if rng.random_bool(0.05) {
                store.stat().await.unwrap();
            }
            assert_eq!(values(&store, At::Latest).await, state);
            let disk = disk.after_crash(seed + n);
            let opened = open_torn(&disk, options.clone()).unwrap();
            assert_eq!(values(&opened, At::Latest).await, state, "seed {seed}, commit {n}");
            assert_eq!(opened.revision().await.unwrap(), store.revision().await.unwrap());
        }
    }
}

/// A power cut at any moment of the thread that files laps.
#[tokio::test]
async fn a_power_cut_beside_the_thread_loses_nothing() {
    for seed in 0..4 {
        let quick_repair_bytes = if seed % 2 == 0 { 0 } else { u64::MAX };
        let options = DiskOptions { quick_repair_bytes, history_revisions_max: 50, ..options() };
        let disk = Disk::new();
        let laps = |wake| Laps { records_max: 20, ..Laps::of_thread(wake) };
        let store = open_torn_with(&disk, options.clone(), laps).unwrap();
        let mut state = BTreeMap::new();
        for n in 0..100 {
            let txns = (0..4).map(|at| {
                let (key, value) = (format!("/{}", (n * 3 + at) % 50), format!("{n} {at}"));
                state.insert(key.clone(), value.clone());
                commit(&store, vec![put(&key, &value)])
            });
            for done in futures::future::join_all(txns).await {
                done.unwrap();
            }
            let disk = disk.after_crash(seed * 1000 + n);
            let opened = open_torn(&disk, options.clone()).unwrap();
            assert_eq!(values(&opened, At::Latest).await, state, "seed {seed}, batch {n}");
        }
        store.close().await;
        drop(store);
        let opened = open_torn(&disk, options.clone()).unwrap();
        assert_eq!(values(&opened, At::Latest).await, state, "seed {seed}");
    }
}

/// Many laps, filed by the thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn laps_are_filed_while_commits_go_on() {
    const HISTORY: u64 = 3_000;
    let folder = tempfile::tempdir().unwrap();
    let options = DiskOptions { history_revisions_max: HISTORY as usize, ..options() };
    let store = DiskStore::open(folder.path(), options.clone()).unwrap();
    // Writers wait for the feed. If it fell behind the history, it would end.
    let ahead = Arc::new(tokio::sync::Semaphore::new(1_000));
    let writers = (0..16).map(|writer| {
        let (store, ahead) = (store.clone(), ahead.clone());
        async move {
            for n in 0..400 {
                ahead.acquire().await.unwrap().forget();
                let key = format!("/{writer}/{}", n % 50);
                let found = store.get(key.as_bytes(), At::Latest).await.unwrap().value;
                let compare = match &found {
                    Some(found) => Compare::Modified(found.key.clone(), found.modified),
                    None => Compare::Absent(key.clone().into()),
                };
                assert_eq!(found.is_some(), n >= 50, "{key} after {n}");
                let txn = Txn {
                    compares: vec![compare],
                    ops: vec![put(&key, &n.to_string())],
                    ..Txn::default()
                };
                let done = store.commit(txn).await.unwrap();
                assert!(matches!(done, Committed::Done(_)), "{key} after {n}: {done:?}");
            }
        }
    });
    let start = store.revision().await.unwrap();
    let mut feed = store.changes(Bytes::new(), start).await.unwrap();
    let follow = async {
        let mut reached = start;
        while reached.0 < start.0 + 16 * 400 {
            for change in feed.next().await.unwrap().changes {
                assert_eq!(change.revision.0, reached.0 + 1, "a gap");
                reached = change.revision;
                ahead.add_permits(1);
            }
        }
    };
    futures::future::join(futures::future::join_all(writers), follow).await;
    let state = values(&store, At::Latest).await;
    assert_eq!(state.len(), 16 * 50);
    // A lap begins only when the one before the last is filed.
    let filed = store.inner.shared.with(|published| published.file().revision);
    assert!(filed > 5_000, "nothing was filed meanwhile: {filed}");
    // The thread may still file a lap, which compacts history. Now everything is filed.
    let newest = store.stat().await.unwrap().revision;
    let oldest = oldest(&store).await;
    assert_eq!(oldest, newest.0 - HISTORY);
    let mut folded = values(&store, At::Exactly(Revision(oldest))).await;
    fold(&store, Revision(oldest), &mut folded).await;
    assert_eq!(folded, state);
    store.close().await;
    drop((store, feed));
    DiskStore::check(folder.path()).unwrap();
    let store = DiskStore::open(folder.path(), options).unwrap();
    assert_eq!(values(&store, At::Latest).await, state);
}
