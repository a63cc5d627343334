//! Files of older programs open with unchanged content.
//!
//! `fixtures/format-1.redb.zst` is a store that a program of format 1 wrote with [`script`].
//! `SETPOINT_WRITE_FIXTURE=FILE` writes one with this program. `format-3` is what a killed program
//! of format 3 left behind, whose journal has one lap: three commits after the script. `format-4`
//! has two laps, with six commits.

use super::*;

/// Names and contents.
type Files = [(&'static str, &'static [u8]); 2];

const FORMAT_1: &[u8] = include_bytes!("../../../tests/fixtures/format-1.redb.zst");
/// Folders of killed programs, and the number of commits that only their journals have.
const KILLED: [(Files, usize); 2] = [
    (
        [
            (FILE, include_bytes!("../../../tests/fixtures/format-3.redb.zst")),
            (journal::FILE, include_bytes!("../../../tests/fixtures/format-3.journal.zst")),
        ],
        3,
    ),
    (
        [
            (FILE, include_bytes!("../../../tests/fixtures/format-4.redb.zst")),
            (journal::FILE, include_bytes!("../../../tests/fixtures/format-4.journal.zst")),
        ],
        6,
    ),
];
/// First and last revision of the script's history.
const OLDEST: u64 = 20;

/// Writes a fixture's content. Returns the state at each retained revision.
async fn script(store: &DiskStore) -> BTreeMap<u64, BTreeMap<String, String>> {
    let mut states = BTreeMap::from([(1, BTreeMap::new())]);
    let mut state = BTreeMap::new();
    for n in 0..40_u64 {
        let key = format!("/registry/configmaps/default/{}", n % 7);
        let op = if n % 5 == 4 {
            state.remove(&key);
            delete(&key)
        } else {
            // Short values are stored as they are, long ones compressed.
            let value = format!("{{\"n\": {n}}}").repeat(usize::try_from(n).unwrap() + 1);
            state.insert(key.clone(), value.clone());
            put(&key, &value)
        };
        state.insert("/each".into(), n.to_string());
        let revision = commit(store, vec![op, put("/each", &n.to_string())]).await.unwrap();
        states.insert(revision.0, state.clone());
    }
    let ttl = Some(Duration::from_secs(3600));
    let event = Txn { ops: vec![put("/event", "dies")], ttl, ..Txn::default() };
    let Committed::Done(revision) = store.commit(event).await.unwrap() else { panic!("refused") };
    state.insert("/event".into(), "dies".into());
    states.insert(revision.0, state);
    store.compact(Revision(OLDEST)).await.unwrap();
    states.split_off(&OLDEST)
}

#[tokio::test]
async fn write_fixture() {
    let folder = tempfile::tempdir().unwrap();
    let store = DiskStore::open(folder.path(), options()).unwrap();
    script(&store).await;
    store.close().await;
    drop(store);
    let file = fs::read(folder.path().join(FILE)).unwrap();
    let packed = zstd::bulk::compress(&file, 19).unwrap();
    assert!(packed.len() < 20_000, "a fixture is small: {}", packed.len());
    if let Some(path) = std::env::var_os("SETPOINT_WRITE_FIXTURE") {
        fs::write(path, packed).unwrap();
    }
}

/// The states of the fixture by revision.
async fn expected() -> BTreeMap<u64, BTreeMap<String, String>> {
    let disk = Disk::new();
    script(&open_torn(&disk, options()).unwrap()).await
}

fn unpack(folder: &Path) -> Vec<u8> {
    let file = zstd::bulk::decompress(FORMAT_1, 16 << 20).unwrap();
    fs::write(folder.join(FILE), &file).unwrap();
    file
}

async fn verify(store: &DiskStore, states: &BTreeMap<u64, BTreeMap<String, String>>) {
    let (newest, _) = states.last_key_value().unwrap();
    assert_eq!(store.revision().await.unwrap().0, *newest);
    assert_eq!(oldest(store).await, OLDEST);
    for (revision, state) in states {
        assert_eq!(values(store, At::Exactly(Revision(*revision))).await, *state, "at {revision}");
    }
    let mut state = states[&OLDEST].clone();
    fold(store, Revision(OLDEST), &mut state).await;
    assert_eq!(Some(&state), states.values().last());
}

#[tokio::test(start_paused = true)]
async fn a_file_of_format_1_opens_with_unchanged_content() {
    let folder = tempfile::tempdir().unwrap();
    unpack(folder.path());
    let states = expected().await;
    // First with the migration, then migrated.
    for _ in 0..2 {
        let store = DiskStore::open(folder.path(), options()).unwrap();
        verify(&store, &states).await;
        store.close().await;
        drop(store);
        assert_eq!(DiskStore::check(folder.path()).unwrap().expiring, 1);
    }
    // The store can be written, and the expiring value expires.
    let store = DiskStore::open(folder.path(), options()).unwrap();
    commit(&store, vec![put("/each", "new"), delete("/registry/configmaps/default/0")])
        .await
        .unwrap();
    tokio::time::advance(Duration::from_secs(3600)).await;
    let now = values(&store, At::Latest).await;
    assert_eq!((now.get("/event"), now["/each"].as_str()), (None, "new"));
    store.close().await;
    drop(store);
    DiskStore::check(folder.path()).unwrap();
}

/// The journal's commits are moved to the file, before and after the file has the new format.
#[tokio::test(start_paused = true)]
async fn the_journal_of_a_killed_older_program_is_read() {
    for (files, n_commits) in KILLED {
        let mut states = expected().await;
        let (mut newest, mut state) =
            states.last_key_value().map(|(at, state)| (*at, state.clone())).unwrap();
        for n in 0..n_commits {
            newest += 1;
            state.insert(format!("/journaled/{n}"), n.to_string());
            state.insert("/each".into(), "journaled".into());
            states.insert(newest, state.clone());
        }
        for is_migrated in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            for (name, packed) in files {
                let file = zstd::bulk::decompress(packed, 16 << 20).unwrap();
                fs::write(folder.path().join(name), file).unwrap();
            }
            if is_migrated {
                // The process died between the two steps.
                let path = folder.path().join(FILE);
                file::prepare(&redb::Database::open(&path).unwrap(), &path).unwrap();
            }
            for _ in 0..2 {
                let store = DiskStore::open(folder.path(), options()).unwrap();
                verify(&store, &states).await;
                store.close().await;
            }
        }
    }
}

#[tokio::test]
async fn a_file_of_a_newer_format_is_refused_and_stays_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    DiskStore::open(folder.path(), options()).unwrap().close().await;
    let path = folder.path().join(FILE);
    let database = redb::Database::open(&path).unwrap();
    let transaction = database.begin_write().unwrap();
    let meta = redb::TableDefinition::<&str, u64>::new("meta");
    transaction.open_table(meta).unwrap().insert("format", 77).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let before = fs::read(&path).unwrap();
    let refusals = [
        DiskStore::open(folder.path(), options()).map(drop),
        DiskStore::check(folder.path()).map(drop),
        DiskStore::stat_folder(folder.path()).map(drop),
        DiskStore::backup_folder(folder.path(), Vec::new()).map(drop),
        DiskStore::defrag(folder.path()).map(drop),
    ];
    for refused in refusals {
        let refused = refused.unwrap_err();
        assert!(matches!(refused, DiskError::TooNew { found: 77, .. }), "{refused}");
        assert!(refused.to_string().contains("use a newer program"), "{refused}");
    }
    assert!(fs::read(&path).unwrap() == before, "the file was changed");
}

/// Steps that exist only in this test, and a disk that fails at each of their calls: the file has
/// all of the steps or none.
#[test]
fn migration_is_atomic() {
    use super::super::{
        layout::FORMAT,
        migrate::{Step, migrate_to},
    };
    use redb::{ReadableDatabase, TableDefinition};
    const NEW: TableDefinition<'_, u64, u64> = TableDefinition::new("new");
    let mut steps: Vec<Step> = vec![|_| Ok(()); usize::try_from(FORMAT - 1).unwrap()];
    steps.push(|transaction| {
        let mut table = transaction.open_table(NEW)?;
        for n in 0..500 {
            table.insert(n, n)?;
        }
        Ok(())
    });
    steps.push(|_| Err(super::super::layout::Damaged("a step that fails").into()));
    let builder = redb::Database::builder();
    let open = |disk: &Disk| builder.create_with_backend(disk.attach());
    let format = |database: &redb::Database| {
        let transaction = database.begin_read().unwrap();
        let meta = transaction.open_table(TableDefinition::<&str, u64>::new("meta")).unwrap();
        (meta.get("format").unwrap().unwrap().value(), transaction.open_table(NEW).is_ok())
    };
    for n_calls in 0.. {
        let disk = Disk::new();
        let database = open(&disk).unwrap();
        file::prepare(&database, Path::new("torn")).unwrap();
        // A failing step reverts the steps before it.
        assert!(migrate_to(&database, FORMAT, FORMAT + 2, &steps).is_err());
        assert_eq!(format(&database), (FORMAT, false));
        disk.fail(torn::Fault::Gone { after: n_calls });
        let migrated = migrate_to(&database, FORMAT, FORMAT + 1, &steps);
        disk.crash(n_calls);
        drop(database);
        let found = format(&open(&disk).unwrap());
        let (before, after) = ((FORMAT, false), (FORMAT + 1, true));
        assert!(found == before || found == after, "after {n_calls} calls: {found:?}");
        if migrated.is_ok() {
            assert_eq!(found, after);
            assert!(n_calls > 5, "nothing failed");
            break;
        }
    }
}
