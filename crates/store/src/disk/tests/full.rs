//! A full disk: deletions continue with the reserve, other commits fail until there is room.

use super::*;

fn small() -> DiskOptions {
    DiskOptions { reserve_bytes: 4 << 20, quick_repair_bytes: 1 << 30, ..options() }
}

/// A random value, which does not compress, of about two pages.
fn value(rng: &mut SmallRng) -> String {
    (0..400).map(|_| rng.random::<u64>().to_string()).collect()
}

/// Fills a store until a commit fails. Returns the number of objects.
async fn fill(store: &DiskStore, rng: &mut SmallRng) -> usize {
    for n in 0..20_000 {
        match commit(store, vec![put(&format!("/{n:05}"), &value(rng))]).await {
            Ok(_) => {}
            Err(StoreError::Full(_)) => return n,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("it never became full");
}

async fn empty(store: &DiskStore, n: usize) {
    for at in 0..n {
        let deleted = commit(store, vec![delete(&format!("/{at:05}"))]).await;
        assert!(deleted.is_ok(), "object {at} of {n}: {deleted:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_object_of_a_full_disk_can_be_deleted() {
    for seed in 0..6 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let disk = Disk::new();
        // In half of the seeds, both laps of the journal have much when there is no room for one.
        // The default reserve suffices for that.
        let (n_batches_max, reserve_bytes) = [(0, 4 << 20), (1000, 8 << 20)][seed as usize % 2];
        let laps = |_| Delayed::laps(unfiled::RECORDS_MAX, n_batches_max, seed);
        let options = DiskOptions { reserve_bytes, ..small() };
        let store = open_torn_with(&disk, options, laps).unwrap();
        // Existing objects, with history.
        for n in 0..300 {
            commit(&store, vec![put("/first", &n.to_string())]).await.unwrap();
        }
        disk.fail(torn::Fault::Full { sectors: 2000 + 137 * seed });
        let n = fill(&store, &mut rng).await;
        assert!(n > 20, "seed {seed}: {n}");
        // A commit that frees no space fails at once, with the reason.
        let refused = commit(&store, vec![put("/other", &value(&mut rng))]).await;
        assert!(matches!(&refused, Err(StoreError::Full(why)) if !why.is_empty()), "{refused:?}");
        assert_eq!(store.get(b"/first", At::Latest).await.unwrap().value.unwrap().value, "299");
        empty(&store, n).await;
        store.compact(store.revision().await.unwrap()).await.unwrap();
        // There is room in the file again.
        tokio::time::advance(Duration::from_secs(10)).await;
        for n in 0..5 {
            let put = commit(&store, vec![put(&format!("/{n:05}"), &value(&mut rng))]).await;
            assert!(put.is_ok(), "seed {seed}: {put:?}");
        }
        // After there is room on the disk, all of it.
        disk.heal();
        tokio::time::advance(Duration::from_secs(10)).await;
        commit(&store, vec![put("/other", "1")]).await.unwrap();
        let state = values(&store, At::Latest).await;
        store.close().await;
        drop(store);
        let store = open_torn(&disk, small()).unwrap();
        assert_eq!(values(&store, At::Latest).await, state, "seed {seed}");
    }
}

#[tokio::test]
async fn objects_of_a_real_full_disk_can_be_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=24m", "tmpfs"])
        .arg(folder.path())
        .output();
    if !mounted.as_ref().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: a small file system cannot be mounted here: {mounted:?}");
        return;
    }
    // A task, so that a panic does not skip the unmount.
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn({
        let data = folder.path().join("data");
        async move {
            let mut rng = SmallRng::seed_from_u64(1);
            let options = DiskOptions { reserve_bytes: 8 << 20, ..small() };
            let store = DiskStore::open(&data, options.clone()).unwrap();
            let n = fill(&store, &mut rng).await;
            assert!(n > 100, "{n}");
            empty(&store, n / 2).await;
            store.close().await;
            drop(store);
            // After a restart there is no more room than before.
            let store = DiskStore::open(&data, options).unwrap();
            for at in n / 2..n {
                commit(&store, vec![delete(&format!("/{at:05}"))]).await.unwrap();
            }
            store.compact(store.revision().await.unwrap()).await.unwrap();
            commit(&store, vec![put("/again", "1")]).await.unwrap();
            assert_eq!(values(&store, At::Latest).await.len(), 1);
            store.close().await;
        }
    });
    let result = tasks.join_next().await.expect("one task");
    let unmounted = std::process::Command::new("umount").arg(folder.path()).status();
    result.unwrap();
    assert!(unmounted.unwrap().success());
}
