//! Damage at many places of a real file. Opening fails and names the damaged objects, or serves the
//! others. Reads never return data that was not written, and never report a known damaged object as
//! absent.

use super::*;

const SEEDS: u64 = 60;

fn key(n: usize) -> String {
    format!("/registry/configmaps/default/object-{n:04}")
}

/// Creates a file of some hundred pages with history, an expiring value and compacted deletions.
/// Returns its state.
async fn make(folder: &Path) -> BTreeMap<String, String> {
    let store = DiskStore::open(folder, options()).unwrap();
    for round in 0..3 {
        for from in (0..600).step_by(50) {
            let ops = (from..from + 50).map(|n| {
                if (n + round) % 11 == 0 {
                    delete(&key(n))
                } else {
                    let noise: String =
                        (0..8).map(|i| (n * 7919 + round * 31 + i * 104_729).to_string()).collect();
                    put(&key(n), &format!("{n} {round} {}", noise.repeat(1 + n % 9)))
                }
            });
            commit(&store, ops.collect()).await.unwrap();
        }
        store.compact(Revision(10 * (round as u64 + 1))).await.unwrap();
    }
    let ttl = Some(Duration::from_secs(3600));
    store.commit(Txn { ops: vec![put("/event", "1")], ttl, ..Txn::default() }).await.unwrap();
    let state = values(&store, At::Latest).await;
    store.close().await;
    state
}

/// Flips a bit, fills a sector with noise, zeros a page, or truncates the file.
fn damage(whole: &[u8], rng: &mut SmallRng, seed: u64) -> Vec<u8> {
    let mut file = whole.to_vec();
    let at = rng.random_range(0..file.len());
    match seed % 4 {
        0 => file[at] ^= 1 << rng.random_range(0..8),
        1 => {
            let at = at / 512 * 512;
            rng.fill(&mut file[at..at + 512]);
        }
        2 => file[at / 4096 * 4096..][..4096].fill(0),
        _ => {
            // The range of the tables. Most of the file's end is free.
            let at = rng.random_range(4096..file.len() / 2) / 4096 * 4096;
            rng.fill(&mut file[at..at + 16]);
        }
    }
    file
}

fn names_something(error: &str) -> bool {
    [
        "/registry/configmaps",
        "`keys`",
        "`log`",
        "`meta`",
        "`mortal`",
        "`head`",
        "`tables`",
        "data_",
        "allocator",
        "system",
        "freed",
        "head",
        "not a store",
    ]
    .iter()
    .any(|name| error.contains(name))
}

#[tokio::test]
async fn damage_anywhere_is_named_or_the_rest_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let state = make(folder.path()).await;
    let path = folder.path().join(FILE);
    let whole = fs::read(&path).unwrap();
    let (mut n_refused, mut n_damaged, mut n_lost, mut n_older) = (0, 0, 0, 0);
    for seed in 0..SEEDS {
        let mut rng = SmallRng::seed_from_u64(seed);
        fs::write(&path, damage(&whole, &mut rng, seed)).unwrap();
        // Its store was closed, so it has none of the commits that the round before wrote.
        drop(fs::remove_file(folder.path().join(journal::FILE)));
        let serve = DiskOptions { on_damage: OnDamage::Serve, ..options() };
        match DiskStore::open(folder.path(), options()) {
            // The damage is in a free page.
            Ok(store) => {
                assert_eq!(values(&store, At::Latest).await, state, "seed {seed}");
                store.close().await;
                continue;
            }
            Err(error @ (DiskError::Damaged { .. } | DiskError::DamagedObjects { .. })) => {
                assert!(names_something(&error.to_string()), "seed {seed}: {error}");
                let checked = DiskStore::check(folder.path()).unwrap_err();
                assert!(names_something(&checked.to_string()), "seed {seed}: {checked}");
                n_refused += 1;
                let is_older =
                    matches!(&error, DiskError::DamagedObjects { damage, .. } if damage.is_older);
                if is_older {
                    // The error says so, and the served state is a former one.
                    assert!(error.to_string().contains("former state"), "seed {seed}: {error}");
                    DiskStore::open(folder.path(), serve).unwrap().close().await;
                    n_older += 1;
                    continue;
                }
            }
            Err(error) => panic!("seed {seed}: {error}"),
        }
        let store = match DiskStore::open(folder.path(), serve.clone()) {
            Ok(store) => store,
            Err(error) => {
                assert!(
                    error.to_string().contains("nothing of it can be read")
                        || error.to_string().contains("not a store"),
                    "seed {seed}: {error}"
                );
                n_lost += 1;
                continue;
            }
        };
        let n = verify(&store, &state, seed).await;
        n_damaged += n;
        // The store can still be read and written.
        let first = state.keys().next().unwrap();
        commit(&store, vec![put(first, "new"), put("/other", "new")]).await.unwrap();
        let mut after = state.clone();
        after.insert(first.clone(), "new".into());
        after.insert("/other".into(), "new".into());
        verify(&store, &after, seed).await;
        let marked = store.damage().map_or(0, |damage| damage.n_objects);
        assert_eq!(marked, n, "seed {seed}");
        store.close().await;
        drop(store);
        // Damaged objects are reported until they are written.
        let again = DiskStore::open(folder.path(), options()).map(drop);
        assert!(n <= 1 || again.is_err(), "seed {seed}");
        let store = DiskStore::open(folder.path(), serve).unwrap();
        verify(&store, &after, seed).await;
        store.close().await;
        drop(store);
        for file in fs::read_dir(folder.path()).unwrap() {
            let file = file.unwrap().path();
            if file.to_string_lossy().contains("damaged-") {
                fs::remove_file(file).unwrap();
            }
        }
    }
    assert!(
        n_refused > SEEDS / 4 && n_damaged > 0 && n_lost + n_older < SEEDS / 10,
        "{n_refused} {n_damaged} {n_lost} {n_older}"
    );
}

/// Checks that every object is unchanged or reported as damaged. Returns the number of damaged
/// ones.
async fn verify(store: &DiskStore, state: &BTreeMap<String, String>, seed: u64) -> u64 {
    let range = store.range(RangeRequest::prefix("")).await.unwrap().value;
    let mut ranged: BTreeMap<_, _> = range
        .entries
        .into_iter()
        .map(|kv| (String::from_utf8(kv.key.to_vec()).unwrap(), kv.value))
        .collect();
    let mut n_damaged = 0;
    for (key, value) in state {
        let ranged = ranged.remove(key).unwrap_or_else(|| panic!("seed {seed}: {key} is absent"));
        match store.get(key.as_bytes(), At::Latest).await {
            Ok(found) => {
                let found = found.value.unwrap().value;
                assert!(found == value.as_bytes() && ranged == found, "seed {seed}: {key}");
            }
            Err(StoreError::Unreadable { key: named, reason, .. }) => {
                assert!(named == *key && reason.contains("damaged"), "seed {seed}: {reason}");
                assert!(is_sealed(&ranged), "seed {seed}: {key}");
                // No client can create another object of its name.
                let compares = vec![Compare::Absent(key.clone().into())];
                let txn = Txn { compares, ops: vec![put(key, "other")], ttl: None };
                let refused = store.commit(txn).await;
                assert!(
                    matches!(refused, Err(StoreError::Unreadable { .. })),
                    "seed {seed}: {refused:?}"
                );
                n_damaged += 1;
            }
            Err(error) => panic!("seed {seed}: {key}: {error}"),
        }
    }
    assert!(ranged.is_empty(), "seed {seed}: {ranged:?}");
    n_damaged
}

/// Damages a page of each table, in a file that was closed and in one that was not. The objects on
/// it are named, and all others are saved.
#[tokio::test]
async fn readable_objects_of_a_damaged_folder_are_saved() {
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("from");
    let state = make(&from).await;
    let path = from.join(FILE);
    let journal = from.join(super::super::journal::FILE);
    let files = || (fs::read(&path).unwrap(), fs::read(&journal).unwrap());
    let closed = files();
    // As a kill leaves it.
    let store =
        DiskStore::open(&from, DiskOptions { quick_repair_bytes: 1 << 30, ..options() }).unwrap();
    commit(&store, vec![put("/event", "2")]).await.unwrap();
    let mut later = state.clone();
    later.insert("/event".into(), "2".into());
    let killed = files();
    store.close().await;
    drop(store);
    let needle = b"/registry/configmaps/default/object-0123";
    let cases = [(closed, state), (killed, later)];
    for (n, ((file, journaled), state)) in cases.into_iter().enumerate() {
        fs::write(&journal, journaled).unwrap();
        let all = file.windows(needle.len()).enumerate().filter(|(_, at)| at == needle);
        let all: Vec<usize> = all.map(|(place, _)| place).collect();
        // Each page alone, then all together, because free pages may have the same record.
        let each = all.iter().map(|place| vec![*place]);
        for (m, places) in each.chain([all.clone()]).enumerate() {
            let mut damaged = file.clone();
            places.iter().for_each(|place| damaged[place + 3] ^= 1);
            fs::write(&path, damaged).unwrap();
            let to = folder.path().join(format!("to-{n}-{m}"));
            let (revision, left_out) = DiskStore::salvage(&to, &from).unwrap();
            assert_eq!(DiskStore::check(&to).unwrap().revision, revision);
            let saved = DiskStore::open(&to, options()).unwrap();
            let saved = values(&saved, At::Latest).await;
            let missing: Vec<_> = state.keys().filter(|key| !saved.contains_key(*key)).collect();
            assert!(saved.iter().all(|(key, value)| state.get(key) == Some(value)));
            let is_named = |key: &String| left_out.objects.iter().any(|(named, _)| named == key);
            let n_unnamed = missing.iter().filter(|key| !is_named(key)).count() as u64;
            assert!(n_unnamed <= left_out.n_unnamed, "{left_out}: {missing:?}");
            if places.len() == 1 {
                assert!(missing.len() < 20, "{left_out}");
            } else {
                assert!(!missing.is_empty(), "{left_out}");
            }
        }
    }
}

/// A marked object can be removed by who does not ask for its state.
#[tokio::test]
async fn a_damaged_object_is_removed_without_a_compare() {
    let folder = tempfile::tempdir().unwrap();
    let store = DiskStore::open(folder.path(), options()).unwrap();
    let marked = format!("{}lost", std::str::from_utf8(DAMAGED_PREFIX).unwrap());
    commit(&store, vec![put("/a", &marked)]).await.unwrap();
    let found = store.get(b"/a", At::Latest).await;
    assert!(matches!(found, Err(StoreError::Unreadable { .. })), "{found:?}");
    commit(&store, vec![delete("/a")]).await.unwrap();
    assert_eq!(store.get(b"/a", At::Latest).await.unwrap().value, None);
    store.close().await;
}
