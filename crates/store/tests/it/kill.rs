//! The disk engine in a process that is killed with SIGKILL while it writes.
//!
//! The child writes as fast as it can from several tasks and prints every acknowledgement. The
//! parent kills it after some of them, opens the folder, and checks that each write is there with
//! its revision, and that the feed has no gap.

use setpoint_store::{At, Committed, DiskOptions, DiskStore, Op, Revision, Store, Txn};
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
};

/// The child's environment: its folder, and the number of its run.
const FOLDER: &str = "SETPOINT_KILLED_FOLDER";
const LIFE: &str = "SETPOINT_KILLED_LIFE";
/// Number of kills.
const LIVES: usize = 500;
const WRITERS: usize = 8;
/// Number of keys per writer.
const KEYS: usize = 5;

fn options() -> DiskOptions {
    DiskOptions { history_revisions_max: 5_000, cache_bytes: 4 << 20, ..DiskOptions::default() }
}

/// The child. Passes without work when run as a test.
#[test]
fn child_that_writes_until_it_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let life = std::env::var(LIFE).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = DiskStore::open(folder, options()).unwrap();
        let writers = (0..WRITERS).map(|writer| {
            let (store, life) = (store.clone(), life.clone());
            async move {
                for n in 0.. {
                    let key = format!("/{writer}/{}", n % KEYS);
                    let value = format!("{life}-{n}-").repeat(n % 50 + 1);
                    let ops = if n % 7 == 6 {
                        vec![Op::Delete(key.clone().into())]
                    } else {
                        vec![Op::Put(key.clone().into(), value.clone().into())]
                    };
                    let committed = store.commit(Txn { ops, ..Txn::default() }).await.unwrap();
                    let Committed::Done(revision) = committed else { panic!("refused") };
                    let value = if n % 7 == 6 { "" } else { &value };
                    // The write fails if the parent has exited.
                    let line = format!("{revision} {key} {value}\n");
                    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
                }
            }
        });
        futures::future::join_all(writers).await;
    });
}

/// Acknowledged writes: the newest revision and value of each key; empty if deleted.
type Acknowledged = BTreeMap<String, (u64, String)>;

/// Starts a child, kills it after `n` acknowledgements, and records all it printed.
fn kill_after(folder: &Path, life: usize, n: usize, acknowledged: &mut Acknowledged) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::child_that_writes_until_it_is_killed", "--nocapture"])
        .env(FOLDER, folder)
        .env(LIFE, life.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let (mut line, mut n_seen) = (String::new(), 0);
    // Reads to the end, because lines printed before the kill also count.
    while lines.read_line(&mut line).unwrap() > 0 {
        let mut words = line.split(' ');
        // A truncated line has no line break. The test harness prints lines of its own.
        if line.ends_with('\n')
            && let (Some(revision), Some(key), Some(value)) =
                (words.next().and_then(|word| word.parse().ok()), words.next(), words.next())
        {
            let value = value.trim_end().to_owned();
            let newest = acknowledged.entry(key.to_owned()).or_default();
            if newest.0 < revision {
                *newest = (revision, value);
            }
            n_seen += 1;
            if n_seen == n {
                child.kill().unwrap();
            }
        }
        line.clear();
    }
    child.wait().unwrap();
    assert!(n_seen >= n, "the child ended by itself after {n_seen} writes");
}

#[test]
fn acknowledged_writes_survive_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut acknowledged = Acknowledged::new();
    for life in 0..LIVES {
        // From a kill in the first batch to one in the fourth lap of the journal, while the lap
        // before is moved to the file.
        let n = if life % 20 == 0 { 500 + life * 7 % 1200 } else { 1 + life * 37 % 211 };
        kill_after(folder.path(), life, n, &mut acknowledged);
        runtime.block_on(async {
            let store = DiskStore::open(folder.path(), options()).unwrap();
            let newest = store.revision().await.unwrap();
            for (key, (revision, value)) in &acknowledged {
                assert!(*revision <= newest.0, "life {life}: {key} at {revision} > {newest}");
                let found = store.get(key.as_bytes(), At::Latest).await.unwrap().value;
                match found {
                    // Written again after the last printed acknowledgement.
                    Some(found) if found.modified.0 > *revision => {}
                    Some(found) => {
                        assert_eq!(found.modified.0, *revision, "life {life}: {key}");
                        assert_eq!(found.value, value, "life {life}: {key}");
                    }
                    None if value.is_empty() => {}
                    // Deleted after it: the history has the value.
                    None => {
                        let at = At::Exactly(Revision(*revision));
                        let then = store.get(key.as_bytes(), at).await;
                        let then =
                            then.unwrap().value.unwrap_or_else(|| panic!("life {life}: {key}"));
                        assert_eq!(then.value, value, "life {life}: {key}");
                    }
                }
            }
            let oldest = match store.changes("/".into(), Revision(1)).await {
                Err(setpoint_store::StoreError::Compacted { oldest, .. }) => oldest,
                Err(error) => panic!("{error}"),
                Ok(_) => Revision(1),
            };
            let mut feed = store.changes("/".into(), oldest).await.unwrap();
            let mut reached = oldest;
            while reached < newest {
                let batch = feed.next().await.unwrap();
                for change in batch.changes {
                    assert_eq!(change.revision.0, reached.0 + 1, "life {life}: a gap");
                    reached = change.revision;
                }
                assert_eq!(reached, batch.revision, "life {life}: a gap");
            }
            store.close().await;
        });
    }
}
