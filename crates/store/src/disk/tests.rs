//! Tests of the engine over real files and over a simulated disk: the contract, restarts, crashes.

mod damaged;
mod formats;
mod full;
mod journaled;
mod laps;
mod lives;
mod marks;
mod torn;

use super::apply::Rows;
use super::*;
use crate::conformance;
use laps::Delayed;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use std::{collections::BTreeMap, fs, io};
use torn::Disk;

fn options() -> DiskOptions {
    DiskOptions {
        cache_bytes: 1 << 20,
        quick_repair_bytes: 0,
        reserve_bytes: 0,
        ..DiskOptions::default()
    }
}

async fn commit(store: &DiskStore, ops: Vec<Op>) -> Result<Revision, StoreError> {
    match store.commit(Txn { ops, ..Txn::default() }).await? {
        Committed::Done(revision) => Ok(revision),
        Committed::Refused { .. } => panic!("nothing was compared"),
    }
}

fn put(key: &str, value: &str) -> Op {
    Op::Put(key.to_owned().into(), value.to_owned().into())
}

fn delete(key: &str) -> Op {
    Op::Delete(key.to_owned().into())
}

async fn values(store: &DiskStore, at: At) -> BTreeMap<String, String> {
    let request = RangeRequest { at, ..RangeRequest::prefix("") };
    let range = store.range(request).await.unwrap().value;
    assert_eq!(range.count, range.entries.len());
    let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    range.entries.into_iter().map(|entry| (text(entry.key), text(entry.value))).collect()
}

/// Applies every change from `after` to the newest revision to `state`.
async fn fold(store: &DiskStore, after: Revision, state: &mut BTreeMap<String, String>) {
    let newest = store.revision().await.unwrap();
    let mut feed = store.changes(Bytes::new(), after).await.unwrap();
    let mut reached = after;
    while reached < newest {
        let batch = feed.next().await.unwrap();
        for change in batch.changes {
            let key = String::from_utf8(change.key.to_vec()).unwrap();
            let before = change.previous.map(|entry| entry.value);
            assert_eq!(before.as_deref(), state.get(&key).map(String::as_bytes), "{key}");
            match change.value {
                Some(value) => state.insert(key, String::from_utf8(value.to_vec()).unwrap()),
                None => state.remove(&key),
            };
        }
        reached = batch.revision;
    }
}

#[tokio::test]
async fn it_passes_the_conformance_suite() {
    let folder = tempfile::tempdir().unwrap();
    let n = std::cell::Cell::new(0);
    conformance::check(async || {
        n.set(n.get() + 1);
        DiskStore::open(folder.path().join(n.get().to_string()), options()).unwrap()
    })
    .await;
}

#[tokio::test]
async fn history_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let store = DiskStore::open(folder.path(), options()).unwrap();
    let long = "x".repeat(5000);
    let first = commit(&store, vec![put("/a", "1"), put("/b", &long)]).await.unwrap();
    commit(&store, vec![put("/a", "2")]).await.unwrap();
    let third = commit(&store, vec![delete("/b")]).await.unwrap();
    store.close().await;
    assert!(matches!(store.revision().await, Ok(revision) if revision == third));
    assert!(matches!(commit(&store, vec![put("/c", "3")]).await, Err(StoreError::Closed)));

    let store = DiskStore::open(folder.path(), options()).unwrap();
    assert_eq!(store.revision().await.unwrap(), third);
    let at_first = values(&store, At::Exactly(first)).await;
    assert_eq!(at_first, [("/a".into(), "1".into()), ("/b".into(), long)].into());
    let mut state = at_first;
    fold(&store, first, &mut state).await;
    assert_eq!(state, [("/a".into(), "2".into())].into());
    // The next write takes the next revision, and its change has the previous value.
    let fourth = commit(&store, vec![put("/a", "4")]).await.unwrap();
    assert_eq!(fourth.0, third.0 + 1);
    let mut feed = store.changes("/a".into(), third).await.unwrap();
    let change = feed.next().await.unwrap().changes.remove(0);
    assert_eq!(change.previous.unwrap().value, "2");
}

/// The read cache never returns a value after its change, however read and change interleave.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cached_value_is_not_read_after_its_change() {
    let folder = tempfile::tempdir().unwrap();
    let store = DiskStore::open(folder.path(), options()).unwrap();
    let key = |n: usize| format!("/{n:03}");
    let olds = (0..300).map(|n| put(&key(n), "old")).collect();
    commit(&store, olds).await.unwrap();
    store.close().await;
    drop(store);
    // After opening again, nothing is in memory.
    let store = DiskStore::open(folder.path(), options()).unwrap();
    let get = async |n: usize| {
        let found = store.get(key(n).as_bytes(), At::Latest).await.unwrap().value;
        found.map(|entry| String::from_utf8(entry.value.to_vec()).unwrap())
    };
    for n in 0..300 {
        if n % 3 == 0 {
            assert_eq!(
                (get(n).await.as_deref(), get(n).await.as_deref()),
                (Some("old"), Some("old"))
            );
        }
        let (op, new) = match n % 2 {
            0 => (put(&key(n), "new"), Some("new")),
            _ => (delete(&key(n)), None),
        };
        let (_, _, committed) = tokio::join!(get(n), get(n), commit(&store, vec![op]));
        committed.unwrap();
        assert_eq!(get(n).await.as_deref(), new, "key {n}");
    }
    // The same after the change has left memory.
    let others = (0..10_001).map(|n| commit(&store, vec![put("/other", &n.to_string())]));
    futures::future::try_join_all(others).await.unwrap();
    for n in 0..300 {
        assert_eq!(get(n).await.as_deref(), (n % 2 == 0).then_some("new"), "key {n}");
    }
}

#[test]
fn only_durable_engines_keep_history() {
    let folder = tempfile::tempdir().unwrap();
    let disk = DiskStore::open(folder.path(), options()).unwrap();
    assert!(disk.keeps_history());
    let faults = crate::fault::Faults::default();
    assert!(crate::fault::FaultStore::new(disk, faults, 0).keeps_history());
    assert!(!crate::MemoryStore::default().keeps_history());
}

#[tokio::test]
async fn a_second_opening_is_refused_and_a_closed_store_frees_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let store = DiskStore::open(folder.path(), options()).unwrap();
    let refused = DiskStore::open(folder.path(), options()).unwrap_err();
    assert!(matches!(refused, DiskError::InUse { .. }), "{refused}");
    let mut feed = store.changes(Bytes::new(), Revision(1)).await.unwrap();
    store.close().await;
    assert!(matches!(feed.next().await, Err(StoreError::Closed)));
    drop((store, feed));
    DiskStore::open(folder.path(), options()).unwrap();
}

#[tokio::test]
async fn values_expire_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(std::sync::atomic::AtomicU64::new(1_000));
    let now_ms = {
        let clock = clock.clone();
        Arc::new(move || clock.load(std::sync::atomic::Ordering::Relaxed))
    };
    let options = DiskOptions { now_ms, ..options() };
    let store = DiskStore::open(folder.path(), options.clone()).unwrap();
    let ttl = Some(Duration::from_secs(3600));
    let txn = Txn { ops: vec![put("/event", "1"), put("/kept", "1")], ttl, ..Txn::default() };
    store.commit(txn).await.unwrap();
    commit(&store, vec![put("/kept", "2")]).await.unwrap();
    store.close().await;
    drop(store);
    // Two hours later.
    clock.store(1_000 + 2 * 3_600_000, std::sync::atomic::Ordering::Relaxed);
    let store = DiskStore::open(folder.path(), options).unwrap();
    assert_eq!(values(&store, At::Latest).await, [("/kept".into(), "2".into())].into());
}

fn open_torn(disk: &Disk, options: DiskOptions) -> Result<DiskStore, DiskError> {
    open_torn_with(disk, options, |_| Delayed::laps(unfiled::RECORDS_MAX, 0, 0))
}

fn open_torn_with(
    disk: &Disk,
    options: DiskOptions,
    laps: impl FnOnce(mpsc::WeakSender<Queued>) -> Laps,
) -> Result<DiskStore, DiskError> {
    let disk = disk.clone();
    let disk_reserve = disk.reserve(options.reserve_bytes);
    let journal = disk.clone();
    let sync_failed = disk.sync_failed();
    let open = move |_: &Path| {
        let mut builder = redb::Database::builder();
        Ok(builder.set_cache_size(64 << 10).create_with_backend(disk.attach())?)
    };
    let reserve = || Box::new(disk_reserve) as Box<dyn Reserve>;
    let open = (Box::new(open) as Box<OpenFile>, sync_failed);
    DiskStore::open_with(("torn".into(), options), None, open, &journal, reserve, laps)
}

/// A commit with an unknown outcome was in the file, but opening it again did not load its expiry
/// time, so the value lived until the next restart.
#[tokio::test(start_paused = true)]
async fn a_value_whose_commit_was_unknown_expires_at_its_time() {
    let ttl = Duration::from_secs(3600);
    // In the journal, and too large for it.
    for (length, n_calls_min) in [(1, 2), (1_200_000, 5)] {
        let value = "1".repeat(length);
        for n_calls in 0.. {
            let disk = Disk::new();
            let store = open_torn(&disk, options()).unwrap();
            commit(&store, vec![put("/a", "1")]).await.unwrap();
            disk.fail(torn::Fault::Gone { after: n_calls });
            let ops = vec![put("/event", &value)];
            let committed = store.commit(Txn { ops, ttl: Some(ttl), ..Txn::default() }).await;
            disk.heal();
            if committed.is_ok() {
                assert!(n_calls >= n_calls_min, "no call failed");
                break;
            }
            let there = values(&store, At::Latest).await.contains_key("/event");
            tokio::time::advance(ttl).await;
            let expected = [("/a".to_owned(), "1".to_owned())].into();
            assert_eq!(values(&store, At::Latest).await, expected, "{n_calls} calls, {there}");
        }
    }
}

#[tokio::test]
async fn history_is_compacted_to_its_bounds() {
    let folder = tempfile::tempdir().unwrap();
    let options = DiskOptions { history_revisions_max: 50, ..options() };
    let store = DiskStore::open(folder.path(), options).unwrap();
    for n in 0..200 {
        let op = if n % 3 == 2 { delete("/a") } else { put("/a", &n.to_string()) };
        commit(&store, vec![op]).await.unwrap();
    }
    // What the journal has does not count until it is in the file.
    let newest = store.stat().await.unwrap().revision;
    let oldest = match store.changes(Bytes::new(), Revision(1)).await {
        Err(StoreError::Compacted { oldest, .. }) => oldest,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("history was not compacted"),
    };
    assert_eq!(oldest.0, newest.0 - 50);
    // All retained history is there, read from memory and, after a restart, from the file.
    store.close().await;
    drop(store);
    let store = DiskStore::open(folder.path(), DiskOptions::default()).unwrap();
    let mut state = values(&store, At::Exactly(oldest)).await;
    fold(&store, oldest, &mut state).await;
    assert_eq!(state, values(&store, At::Latest).await);
}

/// History of new objects replaces nothing. One step looked at all of it, and held up every commit.
#[test]
fn a_step_of_compaction_looks_at_a_bounded_number_of_records() {
    let backend = redb::backends::InMemoryBackend::new();
    let database = redb::Database::builder().create_with_backend(backend).unwrap();
    file::prepare(&database, Path::new("memory")).unwrap();
    let (start, _) = file::position(&database).unwrap();
    let transaction = database.begin_write().unwrap();
    let mut scratch = batch::Scratch::default();
    let mut tables = batch::BatchTables::open(&transaction, start, &mut scratch).unwrap();
    for n in 0..100 {
        let ops = vec![put(&format!("/{n}"), "1"), put(&format!("/{n}/other"), "1")];
        tables.apply(&Txn { ops, ..Txn::default() }, 0, |_, _| None).map(drop).unwrap();
    }
    let newest = tables.now.revision;
    let mut steps = Vec::new();
    while tables.now.oldest < newest {
        let before = tables.now.oldest;
        tables.compact(newest, 5).unwrap();
        steps.push(tables.now.oldest - before);
    }
    // Each revision has two records.
    assert!(steps.iter().all(|n| (1..=10).contains(n)), "{steps:?}");
}

/// A feed checks its position, and then reads a view that may be newer. If history was compacted
/// in between, it skipped the changes that were gone.
#[tokio::test]
async fn a_view_that_was_compacted_past_a_feed_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let store = DiskStore::open(folder.path(), options()).unwrap();
    for n in 0..5 {
        commit(&store, vec![put("/a", &n.to_string())]).await.unwrap();
    }
    let newest = store.revision().await.unwrap();
    store.compact(newest).await.unwrap();
    let view = store.inner.shared.with(|published| View::of(published)).unwrap();
    let behind = view.changes(b"/", newest.0 - 2, 10);
    let oldest = match behind {
        Err(Fault::Refused(StoreError::Compacted { oldest, .. })) => oldest,
        other => panic!("{other:?}"),
    };
    assert_eq!(oldest, newest);
    assert!(view.changes(b"/", newest.0, 10).unwrap().changes.is_empty());
}

/// The oldest retained revision.
async fn oldest(store: &DiskStore) -> u64 {
    match store.changes(Bytes::new(), Revision(1)).await {
        Err(StoreError::Compacted { oldest, .. }) => oldest.0,
        Err(error) => panic!("{error}"),
        Ok(_) => 1,
    }
}

#[tokio::test(start_paused = true)]
async fn history_stays_within_its_age_and_size() {
    const STEP: Duration = Duration::from_secs(5);
    for seed in 0..8 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let bounds = DiskOptions {
            history_age_max: 64 * STEP,
            history_bytes_max: 20_000,
            history_revisions_max: 60,
            ..options()
        };
        let disk = Disk::new();
        let store = open_torn(&disk, bounds.clone()).unwrap();
        let mut born = vec![Instant::now(); 2];
        for _ in 0..120 {
            let quiet = Duration::from_millis(rng.random_range(0..20_000));
            tokio::time::advance(if rng.random_bool(0.02) { 64 * STEP } else { quiet }).await;
            let before = oldest(&store).await;
            // Random, so that it does not compress.
            let value: String =
                (0..rng.random_range(1..40)).map(|_| rng.random::<u64>().to_string()).collect();
            commit(&store, vec![put(&format!("/{}", rng.random_range(0..5)), &value)])
                .await
                .unwrap();
            born.push(Instant::now());
            // What the journal has does not count until it is in the file.
            let stat = store.stat().await.unwrap();
            let (oldest, newest) = (usize::try_from(oldest(&store).await).unwrap(), born.len() - 1);
            assert!(newest - oldest <= 60, "seed {seed}: {oldest} to {newest}");
            let age = born[oldest + 1].elapsed();
            assert!(age <= 65 * STEP, "seed {seed}: {oldest} of {newest} is {age:?} old");
            assert!(stat.superseded_bytes <= 20_000, "seed {seed}: {stat}");
            // Dropped history exceeded one of the bounds.
            let age = born[oldest].elapsed();
            let is_over =
                newest - oldest == 60 || age > 64 * STEP || stat.superseded_bytes > 20_000 - 4_000;
            assert!(
                oldest as u64 == before || is_over || oldest == newest,
                "seed {seed}: {oldest} of {newest}: {age:?}, {stat}"
            );
        }
        // History in a file counts as new when the file is opened.
        store.close().await;
        drop(store);
        tokio::time::advance(640 * STEP).await;
        let store = open_torn(&disk, bounds).unwrap();
        let before = oldest(&store).await;
        commit(&store, vec![put("/a", "1")]).await.unwrap();
        assert!(oldest(&store).await <= before + 1, "seed {seed}: a restart made history old");
    }
}

/// A store with updates, deletions, a value that expires and some of its history compacted.
async fn sample_store(folder: &Path) -> DiskStore {
    let store = DiskStore::open(folder, options()).unwrap();
    for n in 0..300 {
        let key = format!("/{}", n % 17);
        let op = if n % 5 == 4 { delete(&key) } else { put(&key, &format!("{n} ").repeat(n)) };
        commit(&store, vec![op, put("/each", &n.to_string())]).await.unwrap();
    }
    let ttl = Some(Duration::from_secs(3600));
    store.commit(Txn { ops: vec![put("/event", "1")], ttl, ..Txn::default() }).await.unwrap();
    store.compact(Revision(150)).await.unwrap();
    store
}

/// A writer that records its bytes.
#[derive(Clone, Default)]
struct Copy(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Copy {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_backup_taken_while_serving_restores_to_the_same_history() {
    let folder = tempfile::tempdir().unwrap();
    let store = sample_store(&folder.path().join("a")).await;
    let copy = Copy::default();
    let revision = store.backup(copy.clone()).await.unwrap().unwrap();
    let here = store.stat().await.unwrap();
    assert_eq!((here.revision, here.oldest, here.expiring), (revision, Revision(150), 1));
    // Later commits are not in the copy.
    commit(&store, vec![put("/later", "1")]).await.unwrap();

    let copy = copy.0.lock().clone();
    let to = folder.path().join("b");
    assert_eq!(DiskStore::restore(&to, &copy[..], Path::new("copy"), 0).unwrap(), revision);
    let there = DiskStore::check(&to).unwrap();
    assert_eq!(DiskStat { file_bytes: 0, ..there }, DiskStat { file_bytes: 0, ..here });
    let restored = DiskStore::open(&to, options()).unwrap();
    for at in [150, 200, revision.0] {
        let at = At::Exactly(Revision(at));
        assert_eq!(values(&restored, at).await, values(&store, at).await);
    }
    let mut state = values(&restored, At::Exactly(Revision(150))).await;
    fold(&restored, Revision(150), &mut state).await;
    assert_eq!(state, values(&restored, At::Latest).await);
    // A folder with a store stays unchanged.
    restored.close().await;
    drop(restored);
    let refused = DiskStore::restore(&to, &copy[..], Path::new("copy"), 0).unwrap_err();
    assert!(refused.to_string().contains("restore over"), "{refused}");
    assert_eq!(DiskStore::check(&to).unwrap().revision, revision);
}

/// A client that has seen later commits than the copy has missed those that got their revisions.
#[tokio::test]
async fn a_restored_store_continues_behind_all_revisions_that_clients_have_seen() {
    let folder = tempfile::tempdir().unwrap();
    let store = sample_store(&folder.path().join("a")).await;
    let copy = Copy::default();
    let copied = store.backup(copy.clone()).await.unwrap().unwrap();
    let present = values(&store, At::Latest).await;
    let seen = commit(&store, vec![put("/later", "1")]).await.unwrap();
    let copy = copy.0.lock().clone();
    let to = folder.path().join("b");
    let revision = DiskStore::restore(&to, &copy[..], Path::new("copy"), BUMP_REVISION).unwrap();
    assert_eq!(revision.0, copied.0 + BUMP_REVISION);
    let stat = DiskStore::check(&to).unwrap();
    assert_eq!((stat.revision, stat.oldest, stat.superseded_bytes), (revision, revision, 0));
    assert_eq!((stat.keys, stat.records), (present.len() as u64, present.len() as u64));
    let restored = DiskStore::open(&to, options()).unwrap();
    assert_eq!(values(&restored, At::Latest).await, present);
    for after in [Revision(150), copied, seen, Revision(revision.0 - 1)] {
        let continued = restored.changes(Bytes::new(), after).await.map(drop);
        let is_over =
            matches!(&continued, Err(StoreError::Compacted { oldest, .. }) if *oldest == revision);
        assert!(is_over, "{after}: {continued:?}");
    }
    // Objects are as they were, so that a write that compares them succeeds.
    let each = store.get(b"/each", At::Latest).await.unwrap().value;
    assert_eq!(restored.get(b"/each", At::Latest).await.unwrap().value, each);
    assert_eq!(commit(&restored, vec![put("/each", "new")]).await.unwrap().0, revision.0 + 1);
}

/// A copy is the store at one revision, even during writes.
#[tokio::test]
async fn a_backup_taken_under_load_is_one_state() {
    let folder = tempfile::tempdir().unwrap();
    let store = sample_store(&folder.path().join("a")).await;
    let load = async {
        for n in 0..200 {
            let value = n.to_string().repeat(n % 60);
            let ops = vec![put(&format!("/load/{}", n % 9), &value), put("/each", &value)];
            commit(&store, ops).await.unwrap();
        }
    };
    let backups = async {
        let mut copies = Vec::new();
        for _ in 0..5 {
            let copy = Copy::default();
            let revision = store.backup(copy.clone()).await.unwrap().unwrap();
            copies.push((revision, copy));
        }
        copies
    };
    let ((), copies) = futures::future::join(load, backups).await;
    for (n, (revision, copy)) in copies.into_iter().enumerate() {
        let to = folder.path().join(format!("to-{n}"));
        let copied = DiskStore::restore(&to, &copy.0.lock()[..], Path::new("copy"), 0).unwrap();
        assert_eq!(copied, revision);
        let restored = DiskStore::open(&to, options()).unwrap();
        assert_eq!(restored.revision().await.unwrap(), revision);
        let at = At::Exactly(revision);
        assert_eq!(values(&restored, At::Latest).await, values(&store, at).await, "at {revision}");
    }
}

#[tokio::test]
async fn a_damaged_copy_is_refused_wherever_the_damage_is() {
    let folder = tempfile::tempdir().unwrap();
    let store = sample_store(&folder.path().join("a")).await;
    let copy = Copy::default();
    store.backup(copy.clone()).await.unwrap().unwrap();
    let whole = copy.0.lock().clone();
    let mut rng = SmallRng::seed_from_u64(1);
    for n in 0..40 {
        let mut copy = whole.clone();
        let at = rng.random_range(0..copy.len());
        match n % 3 {
            0 => copy[at] ^= 1 << rng.random_range(0..8),
            1 => copy.truncate(at),
            _ => copy.insert(at, 0),
        }
        let to = folder.path().join(n.to_string());
        let refused = DiskStore::restore(&to, &copy[..], Path::new("copy.backup"), 0).unwrap_err();
        assert!(refused.to_string().starts_with("copy.backup is damaged: "), "{refused}");
        assert_eq!(fs::read_dir(&to).unwrap().count(), 0, "nothing is left behind");
    }
}

#[tokio::test]
async fn defrag_returns_free_space_and_check_finds_damage() {
    let folder = tempfile::tempdir().unwrap();
    let store = sample_store(folder.path()).await;
    let newest = store.revision().await.unwrap();
    store.compact(newest).await.unwrap();
    let present = values(&store, At::Latest).await;
    store.close().await;
    drop(store);
    let (before, after) = DiskStore::defrag(folder.path()).unwrap();
    assert!(after < before, "{after} < {before}");
    let stat = DiskStore::check(folder.path()).unwrap();
    assert_eq!((stat.keys, stat.records), (present.len() as u64, present.len() as u64));
    assert_eq!(stat.superseded_bytes, 0);
    let store = DiskStore::open(folder.path(), options()).unwrap();
    assert_eq!(values(&store, At::Latest).await, present);
    store.close().await;
    drop(store);
    // Anywhere after the file's header.
    let path = folder.path().join(FILE);
    let whole = fs::read(&path).unwrap();
    let mut n_found = 0;
    for at in (8192..whole.len()).step_by(1021) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x55;
        fs::write(&path, &damaged).unwrap();
        n_found += usize::from(DiskStore::check(folder.path()).is_err());
    }
    assert!(n_found > 0, "no damage was found");
    assert!(DiskStore::check(folder.path().join("nothing")).is_err());
}

#[tokio::test]
async fn the_size_is_that_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let store = DiskStore::open(folder.path(), options()).unwrap();
    let size = fs::metadata(folder.path().join(FILE)).unwrap().len();
    assert_eq!(store.size_bytes(), Some(size));
    store.close().await;
}
