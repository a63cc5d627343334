//! Stores whose newest commits are in the journal.

use super::super::journal;
use super::*;

/// Copies a folder's files, as a kill at this moment leaves them.
fn killed(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for name in [FILE, journal::FILE] {
        fs::copy(from.join(name), to.join(name)).unwrap();
    }
}

#[tokio::test]
async fn acknowledged_commits_are_in_the_two_files() {
    let folder = tempfile::tempdir().unwrap();
    let (at, copy) = (folder.path().join("at"), folder.path().join("copy"));
    // Nothing is written while the files are copied.
    file::make_missing(&at).unwrap();
    let laps = Delayed::laps(unfiled::RECORDS_MAX, 40, 1);
    let store = DiskStore::open_file(&at, &at.join(FILE), options(), None, |_| laps).unwrap();
    let mut state = BTreeMap::new();
    // Several times what the journal takes, by its records and by their bytes.
    for n in 0..400 {
        let value = format!("{n} ").repeat(if n % 40 == 0 { 30_000 } else { n % 30 });
        let (key, other) = (format!("/{}", n % 90), format!("/other/{n}"));
        let keys = [&key, &other, &"/each".to_owned()].map(|key| put(key, &value));
        commit(&store, keys.to_vec()).await.unwrap();
        for key in [key, other, "/each".into()] {
            state.insert(key, value.clone());
        }
        if n % 37 == 0 {
            killed(&at, &copy);
            let opened = DiskStore::open(&copy, options()).unwrap();
            assert_eq!(values(&opened, At::Latest).await, state, "after {n}");
            assert_eq!(opened.revision().await.unwrap(), store.revision().await.unwrap());
            opened.close().await;
            drop(opened);
            DiskStore::check(&copy).unwrap();
            fs::remove_dir_all(&copy).unwrap();
        }
    }
    // Maintenance of a folder takes what the journal has.
    commit(&store, vec![put("/last", "1")]).await.unwrap();
    let newest = store.revision().await.unwrap();
    killed(&at, &copy);
    let mut backup = Vec::new();
    assert_eq!(DiskStore::backup_folder(&copy, &mut backup).unwrap(), newest);
    assert_eq!(DiskStore::stat_folder(&copy).unwrap().revision, newest);
    // A store that is made where another one's journal was left behind does not have its commits.
    fs::remove_file(copy.join(FILE)).unwrap();
    DiskStore::restore(&copy, &backup[..], Path::new("copy"), 0).unwrap();
    assert!(!copy.join(journal::FILE).exists());
    killed(&at, &copy);
    fs::remove_file(copy.join(FILE)).unwrap();
    let opened = DiskStore::open(&copy, options()).unwrap();
    assert!(values(&opened, At::Latest).await.is_empty());
}

/// Reads of keys that are in the file, in the journal, in both, and in the journal as deleted.
#[tokio::test]
async fn reads_agree_with_the_memory_engine_wherever_the_commits_are() {
    for seed in 0..40 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let store = open_torn(&Disk::new(), options()).unwrap();
        let memory = crate::MemoryStore::default();
        for n in 0..60 {
            let ops: BTreeMap<String, Op> = (0..rng.random_range(1..4))
                .map(|_| {
                    let key = format!("/{}", rng.random_range(0..12));
                    let is_put = rng.random_bool(0.7);
                    (key.clone(), if is_put { put(&key, &n.to_string()) } else { delete(&key) })
                })
                .collect();
            let ops: Vec<Op> = ops.into_values().collect();
            let txn = Txn { ops, ..Txn::default() };
            let done = store.commit(txn.clone()).await.unwrap();
            assert_eq!(done, memory.commit(txn).await.unwrap(), "seed {seed}");
            if rng.random_bool(0.1) {
                store.stat().await.unwrap();
            }
            let newest = store.revision().await.unwrap();
            let at = match rng.random_range(0..2) {
                0 => At::Latest,
                _ => At::Exactly(Revision(rng.random_range(1..=newest.0))),
            };
            let bound = |rng: &mut SmallRng| Bytes::from(format!("/{}", rng.random_range(0..12)));
            let (start, end) = (bound(&mut rng), bound(&mut rng));
            let end = if rng.random_bool(0.3) { Bytes::new() } else { end };
            let limit = rng.random_range(0..4);
            let request = RangeRequest { start, end, at, limit };
            let found = store.range(request.clone()).await.unwrap();
            assert_eq!(found, memory.range(request).await.unwrap(), "seed {seed}");
            let key = bound(&mut rng);
            let found = store.get(&key, at).await.unwrap();
            assert_eq!(found, memory.get(&key, at).await.unwrap(), "seed {seed}");
        }
    }
}

#[tokio::test]
async fn a_damaged_journal_is_refused_or_what_is_before_the_damage_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let (at, copy) = (folder.path().join("at"), folder.path().join("copy"));
    let store = DiskStore::open(&at, options()).unwrap();
    for n in 0..3 {
        commit(&store, vec![put(&format!("/{n}"), "1")]).await.unwrap();
    }
    killed(&at, &copy);
    let lost = store.revision().await.unwrap();
    let path = copy.join(journal::FILE);
    let mut bytes = fs::read(&path).unwrap();
    // In the second frame.
    bytes[4096 + 512 + 60] ^= 1;
    fs::write(&path, bytes).unwrap();
    for refused in [DiskStore::open(&copy, options()).map(drop), DiskStore::check(&copy).map(drop)]
    {
        let refused = refused.unwrap_err();
        let is_named = refused.to_string().contains("store.journal is damaged: the frame at byte");
        assert!(matches!(refused, DiskError::DamagedJournal { .. }) && is_named, "{refused}");
    }
    let serve = DiskOptions { on_damage: OnDamage::Serve, ..options() };
    let opened = DiskStore::open(&copy, serve).unwrap();
    assert_eq!(values(&opened, At::Latest).await, [("/0".into(), "1".into())].into());
    // A client that has seen a lost commit must list again: its revision is not used again.
    let continued = opened.changes(Bytes::new(), lost).await.map(drop);
    assert!(matches!(continued, Err(StoreError::Compacted { .. })), "{continued:?}");
    let next = commit(&opened, vec![put("/1", "2")]).await.unwrap();
    assert!(next > lost, "{next}");
    opened.close().await;
    drop(opened);
    assert_eq!(DiskStore::check(&copy).unwrap().revision, next);
}

#[tokio::test]
async fn a_journal_that_continues_a_newer_file_is_refused_or_cleared() {
    let folder = tempfile::tempdir().unwrap();
    let (at, copy) = (folder.path().join("at"), folder.path().join("copy"));
    let store = DiskStore::open(&at, options()).unwrap();
    commit(&store, vec![put("/old", "1")]).await.unwrap();
    store.stat().await.unwrap();
    killed(&at, &copy);
    for n in 0..3 {
        commit(&store, vec![put("/new", &n.to_string())]).await.unwrap();
        store.stat().await.unwrap();
        commit(&store, vec![put("/new", "journaled")]).await.unwrap();
    }
    fs::copy(at.join(journal::FILE), copy.join(journal::FILE)).unwrap();
    let refused = DiskStore::open(&copy, options()).map(drop).unwrap_err();
    let is_named = refused.to_string().contains("the commits after revision 2, up to 7, are");
    assert!(matches!(refused, DiskError::DamagedJournal { .. }) && is_named, "{refused}");
    let serve = DiskOptions { on_damage: OnDamage::Serve, ..options() };
    let old = BTreeMap::from([("/old".into(), "1".into())]);
    for options in [serve, options()] {
        let opened = DiskStore::open(&copy, options).unwrap();
        assert_eq!(values(&opened, At::Latest).await, old);
        opened.close().await;
    }
}
