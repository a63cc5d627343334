//! The journal in use: one that is missing, emptied or another store's is refused after a kill, and
//! no crash makes the right one look like that.

use super::super::{
    journal::{self, Mark},
    layout::{META, name},
};
use super::*;
use redb::ReadableDatabase;

/// A folder as a kill leaves it, with `n` commits in the journal behind one in the file.
async fn killed_folder(folder: &Path, n: usize) -> BTreeMap<String, String> {
    let at = folder.with_extension("served");
    let store = DiskStore::open(&at, options()).unwrap();
    commit(&store, vec![put("/filed", "1")]).await.unwrap();
    store.stat().await.unwrap();
    for n in 0..n {
        commit(&store, vec![put(&format!("/{n}"), "1")]).await.unwrap();
    }
    fs::create_dir_all(folder).unwrap();
    for name in [FILE, journal::FILE] {
        fs::copy(at.join(name), folder.join(name)).unwrap();
    }
    let state = values(&store, At::Latest).await;
    store.close().await;
    state
}

/// The files of a folder.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    files
        .map(|path| (path.file_name().unwrap().to_string_lossy().into(), fs::read(&path).unwrap()))
        .collect()
}

#[tokio::test]
async fn a_journal_that_is_gone_after_a_kill_is_refused_or_what_is_before_it_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let (at, other) = (folder.path().join("at"), folder.path().join("other"));
    let state = killed_folder(&at, 3).await;
    killed_folder(&other, 3).await;
    let path = at.join(journal::FILE);
    let (whole, others) = (fs::read(&path).unwrap(), fs::read(other.join(journal::FILE)).unwrap());
    let headless = vec![0; whole.len()];
    let cases: [(Option<&[u8]>, &str); 4] = [
        (None, "store.journal is missing"),
        (Some(&[]), "store.journal is empty"),
        (Some(&headless), "store.journal has no valid header"),
        (Some(&others), "store.journal is another store's"),
    ];
    let filed = fs::read(at.join(FILE)).unwrap();
    for (n, (journal, what)) in cases.into_iter().enumerate() {
        fs::write(at.join(FILE), &filed).unwrap();
        match journal {
            Some(journal) => fs::write(&path, journal).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        let journal_before = fs::read(&path).ok();
        for refused in [
            DiskStore::open(&at, options()).map(drop),
            DiskStore::check(&at).map(drop),
            DiskStore::stat_folder(&at).map(drop),
            DiskStore::backup_folder(&at, Vec::new()).map(drop),
            DiskStore::defrag(&at).map(drop),
        ] {
            let refused = refused.unwrap_err();
            assert!(matches!(refused, DiskError::DamagedJournal { .. }), "{refused}");
            let text = refused.to_string();
            for part in [what, "after revision 2, are lost", "--damaged=serve"] {
                assert!(text.contains(part), "{text}");
            }
        }
        assert_eq!(fs::read(&path).ok(), journal_before, "{what}");

        // What is in the file can be copied, with a word about the rest.
        let to = folder.path().join(format!("salvaged-{n}"));
        let (_, left_out) = DiskStore::salvage(&to, &at).unwrap();
        assert!(left_out.to_string().contains(what), "{left_out}");
        assert!(left_out.to_string().contains("all 1 objects can be read"), "{left_out}");
        DiskStore::check(&to).unwrap();

        // The right file, again.
        let copy = folder.path().join(format!("right-{n}"));
        fs::create_dir(&copy).unwrap();
        fs::copy(at.join(FILE), copy.join(FILE)).unwrap();
        fs::write(copy.join(journal::FILE), &whole).unwrap();
        let store = DiskStore::open(&copy, options()).unwrap();
        assert_eq!(values(&store, At::Latest).await, state);
        store.close().await;

        let serve = DiskOptions { on_damage: OnDamage::Serve, ..options() };
        let store = DiskStore::open(&at, serve).unwrap();
        assert!(store.damage().unwrap().to_string().contains(what));
        assert_eq!(values(&store, At::Latest).await, [("/filed".into(), "1".into())].into());
        // A client that has seen a lost commit must list again.
        let continued = store.changes(Bytes::new(), Revision(5)).await.map(drop);
        assert!(matches!(continued, Err(StoreError::Compacted { .. })), "{continued:?}");
        assert!(commit(&store, vec![put("/new", "1")]).await.unwrap().0 > 5);
        store.close().await;
        drop(store);
        let store = DiskStore::open(&at, options()).unwrap();
        assert_eq!((store.damage(), values(&store, At::Latest).await.len()), (None, 2));
        store.close().await;
    }
}

/// The damage of both files is reported and served together.
#[tokio::test]
async fn a_lost_journal_beside_a_damaged_file_is_reported_with_its_damage() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("at");
    killed_folder(&at, 3).await;
    let mut file = fs::read(at.join(FILE)).unwrap();
    let needle = b"/filed";
    let all = file.windows(needle.len()).enumerate().filter(|(_, at)| at == needle);
    let all: Vec<usize> = all.map(|(place, _)| place).collect();
    all.iter().for_each(|place| file[place + 3] ^= 1);
    fs::write(at.join(FILE), file).unwrap();
    fs::remove_file(at.join(journal::FILE)).unwrap();
    for refused in [DiskStore::open(&at, options()).map(drop), DiskStore::check(&at).map(drop)] {
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("store.journal is missing"), "{text}");
    }
    let serve = DiskOptions { on_damage: OnDamage::Serve, ..options() };
    let damaged = files(&at);
    let is_aside = |name: &&String| name.starts_with("store.redb.damaged-");
    for n in 1..4 {
        let store = DiskStore::open(&at, serve.clone()).unwrap();
        let text = store.damage().unwrap().to_string();
        assert!(text.contains("store.journal is missing"), "{text}");
        store.close().await;
        drop(store);
        assert_eq!(files(&at).keys().filter(is_aside).count(), n);
        // As if the process had died before the new file took the old one's place.
        fs::write(at.join(FILE), &damaged[FILE]).unwrap();
        fs::remove_file(at.join(journal::FILE)).unwrap();
    }
}

#[tokio::test]
async fn a_store_that_was_closed_does_not_need_its_journal() {
    let folder = tempfile::tempdir().unwrap();
    let (at, other) = (folder.path().join("at"), folder.path().join("other"));
    let other_state = killed_folder(&other, 3).await;
    let others = fs::read(other.join(journal::FILE)).unwrap();
    let mut state = killed_folder(&at, 3).await;
    let maintain: [fn(&Path); 4] = [
        |at| DiskStore::open(at, options()).map(drop).unwrap(),
        |at| DiskStore::check(at).map(drop).unwrap(),
        |at| DiskStore::backup_folder(at, Vec::new()).map(drop).unwrap(),
        |at| DiskStore::defrag(at).map(drop).unwrap(),
    ];
    for (n, maintain) in maintain.into_iter().enumerate() {
        maintain(&at);
        let before = files(&at);
        for journal in [None, Some(&[][..]), Some(&others)] {
            for (name, content) in &before {
                fs::write(at.join(name), content).unwrap();
            }
            let path = at.join(journal::FILE);
            match journal {
                Some(journal) => fs::write(&path, journal).unwrap(),
                None => drop(fs::remove_file(&path)),
            }
            let store = DiskStore::open(&at, options()).unwrap();
            assert_eq!(values(&store, At::Latest).await, state, "{n}");
            store.close().await;
        }
        // As a kill leaves it, for the next one.
        let store = DiskStore::open(&at, options()).unwrap();
        commit(&store, vec![put("/again", &n.to_string())]).await.unwrap();
        state.insert("/again".into(), n.to_string());
        let killed = files(&at);
        store.close().await;
        drop(store);
        killed.iter().for_each(|(name, content)| fs::write(at.join(name), content).unwrap());
    }
    // The other folder has not changed.
    let store = DiskStore::open(&other, options()).unwrap();
    assert_eq!(values(&store, At::Latest).await, other_state);
}

/// The states of a folder before an opening.
#[derive(Debug, Clone, Copy)]
enum Before {
    New,
    Closed,
    Killed,
    /// By a program of format 4, and migrated.
    Headless,
}

fn mark(disk: &Disk) -> Mark {
    let database = redb::Database::builder().create_with_backend(disk.attach()).unwrap();
    file::mark(&database.begin_read().unwrap()).unwrap()
}

impl Before {
    /// A disk in this state, with the store's content.
    async fn disk(self, options: &DiskOptions) -> (Disk, BTreeMap<String, String>) {
        let disk = Disk::new();
        if matches!(self, Self::New) {
            let database = redb::Database::builder().create_with_backend(disk.attach()).unwrap();
            file::prepare(&database, Path::new("torn")).unwrap();
            return (disk, BTreeMap::new());
        }
        let laps = |_| Delayed::laps(5, 1000, 3);
        let store = open_torn_with(&disk, options.clone(), laps).unwrap();
        for n in 0..8 {
            commit(&store, vec![put(&format!("/{n}"), &n.to_string())]).await.unwrap();
        }
        let state = values(&store, At::Latest).await;
        if matches!(self, Self::Closed) {
            store.close().await;
            return (disk, state);
        }
        disk.kill();
        drop(store);
        if matches!(self, Self::Headless) {
            let database = redb::Database::builder().create_with_backend(disk.attach()).unwrap();
            let transaction = database.begin_write().unwrap();
            transaction.open_table(META).unwrap().insert(name::JOURNAL, 0).unwrap();
            transaction.commit().unwrap();
            drop(database);
            disk.change_journal(|bytes| drop(bytes.drain(..4096)));
        }
        (disk, state)
    }
}

#[tokio::test]
async fn a_power_cut_or_failure_at_any_call_of_an_opening_loses_nothing() {
    for quick_repair_bytes in [0, u64::MAX] {
        let options = DiskOptions { quick_repair_bytes, ..options() };
        for before in [Before::New, Before::Closed, Before::Killed, Before::Headless] {
            let (start, state) = before.disk(&options).await;
            for n_calls in 0.. {
                let disk = start.after_crash(0);
                disk.fail(torn::Fault::Gone { after: n_calls });
                let opened = open_torn(&disk, options.clone());
                // Both a power cut, and another start of the process.
                let crashes = (0..6).map(|seed| disk.after_crash(seed)).collect::<Vec<_>>();
                let is_open = opened.is_ok();
                disk.kill();
                drop(opened);
                for (n, disk) in crashes.into_iter().chain([disk]).enumerate() {
                    let at = format!("{before:?}, {n_calls} calls, crash {n}");
                    let store = open_torn(&disk, options.clone()).expect(&at);
                    assert_eq!(values(&store, At::Latest).await, state, "{at}");
                    let done = commit(&store, vec![put("/next", "1")]).await.unwrap();
                    assert_eq!(done.0, state.len() as u64 + 2, "{at}");
                    let disk = disk.after_crash(n_calls);
                    drop(store);
                    assert!(matches!(mark(&disk), Mark::Id(_)), "{at}");
                    let store = open_torn(&disk, options.clone()).expect(&at);
                    assert_eq!(store.revision().await.unwrap(), done, "{at}");
                }
                if is_open {
                    assert!(n_calls > 3, "no call failed: {before:?}");
                    break;
                }
            }
        }
    }
}

#[tokio::test]
async fn a_power_cut_or_failure_at_any_call_of_a_close_loses_nothing() {
    for quick_repair_bytes in [0, u64::MAX] {
        let options = DiskOptions { quick_repair_bytes, ..options() };
        for n_calls in 0.. {
            let disk = Disk::new();
            let laps = |_| Delayed::laps(5, 1000, 3);
            let store = open_torn_with(&disk, options.clone(), laps).unwrap();
            for n in 0..8 {
                commit(&store, vec![put(&format!("/{n}"), &n.to_string())]).await.unwrap();
            }
            let state = values(&store, At::Latest).await;
            disk.fail(torn::Fault::Gone { after: n_calls });
            store.close().await;
            let crashes = (0..6).map(|seed| disk.after_crash(seed)).collect::<Vec<_>>();
            disk.kill();
            drop(store);
            let is_closed = mark(&disk) == Mark::Unused;
            for (n, disk) in crashes.into_iter().chain([disk]).enumerate() {
                let at = format!("{n_calls} calls, crash {n}");
                if mark(&disk) == Mark::Unused {
                    disk.change_journal(Vec::clear);
                }
                let store = open_torn(&disk, options.clone()).expect(&at);
                assert_eq!(values(&store, At::Latest).await, state, "{at}");
            }
            if is_closed && n_calls > 60 {
                break;
            }
            assert!(n_calls < 1000, "it was never closed");
        }
    }
}
