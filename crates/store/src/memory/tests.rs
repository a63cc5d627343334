use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

fn put(key: &str, value: &str) -> Txn {
    Txn {
        compares: vec![],
        ops: vec![Op::Put(key.to_owned().into(), value.to_owned().into())],
        ttl: None,
    }
}

fn delete(key: &str) -> Txn {
    Txn { compares: vec![], ops: vec![Op::Delete(key.to_owned().into())], ttl: None }
}

fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(test)
}

#[test]
fn fork_is_independent_of_the_store_it_came_from() {
    run(async {
        let store = MemoryStore::default();
        store.commit(put("/a", "1")).await.unwrap();
        let fork = store.fork();
        store.commit(put("/a", "2")).await.unwrap();
        fork.commit(put("/b", "3")).await.unwrap();
        assert_eq!(fork.get(b"/a", At::Latest).await.unwrap().value.unwrap().value, "1");
        assert_eq!(store.get(b"/b", At::Latest).await.unwrap().value, None);
        assert_eq!(store.revision().await.unwrap(), fork.revision().await.unwrap());
    });
}

#[test]
fn history_over_its_count_is_compacted() {
    run(async {
        let store =
            MemoryStore::new(MemoryOptions { history_revisions_max: 3, ..Default::default() });
        for i in 0..10 {
            store.commit(put("/a", &i.to_string())).await.unwrap();
        }
        assert_eq!(store.revision().await.unwrap(), Revision(11));
        let gone = store.get(b"/a", At::Exactly(Revision(7))).await;
        assert!(matches!(gone, Err(StoreError::Compacted { oldest: Revision(8), .. })), "{gone:?}");
        assert_eq!(
            store.get(b"/a", At::Exactly(Revision(8))).await.unwrap().value.unwrap().value,
            "6"
        );
    });
}

#[test]
fn history_over_its_bytes_is_compacted() {
    run(async {
        let store =
            MemoryStore::new(MemoryOptions { history_bytes_max: 250, ..Default::default() });
        for _ in 0..10 {
            store.commit(put("/a", &"x".repeat(100))).await.unwrap();
        }
        assert!(store.get(b"/a", At::Exactly(Revision(9))).await.is_ok());
        assert!(store.get(b"/a", At::Exactly(Revision(8))).await.is_err());
    });
}

#[test]
fn feed_behind_a_compaction_returns_compacted() {
    run(async {
        let store = MemoryStore::default();
        let mut feed = store.changes("/".into(), Revision(1)).await.unwrap();
        for _ in 0..5 {
            store.commit(put("/a", "x")).await.unwrap();
        }
        store.compact(Revision(4)).await.unwrap();
        assert!(matches!(
            feed.next().await,
            Err(StoreError::Compacted { asked: Revision(1), oldest: Revision(4) })
        ));
    });
}

#[test]
fn expired_value_is_deleted_and_the_feed_delivers_it() {
    run(async {
        let store = MemoryStore::default();
        let mut feed = store.changes("/".into(), Revision(1)).await.unwrap();
        store
            .commit(Txn { ttl: Some(Duration::from_secs(60)), ..put("/event", "x") })
            .await
            .unwrap();
        assert_eq!(feed.next().await.unwrap().changes.len(), 1);
        let started = tokio::time::Instant::now();
        let batch = feed.next().await.unwrap();
        assert_eq!(started.elapsed(), Duration::from_secs(60));
        assert_eq!((batch.changes[0].value.clone(), batch.revision), (None, Revision(3)));
        assert_eq!(store.get(b"/event", At::Latest).await.unwrap().value, None);
    });
}

#[test]
fn value_written_again_outlives_its_first_expiry() {
    run(async {
        let store = MemoryStore::default();
        store
            .commit(Txn { ttl: Some(Duration::from_secs(60)), ..put("/event", "x") })
            .await
            .unwrap();
        tokio::time::advance(Duration::from_secs(40)).await;
        store
            .commit(Txn { ttl: Some(Duration::from_secs(60)), ..put("/event", "y") })
            .await
            .unwrap();
        tokio::time::advance(Duration::from_secs(40)).await;
        assert_eq!(store.get(b"/event", At::Latest).await.unwrap().value.unwrap().value, "y");
        tokio::time::advance(Duration::from_secs(40)).await;
        assert_eq!(store.get(b"/event", At::Latest).await.unwrap().value, None);
    });
}

#[test]
fn exact_reads_cross_keyframes() {
    run(async {
        let store = MemoryStore::default();
        for i in 2..=3 * KEYFRAME_REVISIONS {
            store.commit(put(&format!("/k{}", i % 7), &i.to_string())).await.unwrap();
        }
        for asked in [
            2,
            KEYFRAME_REVISIONS - 1,
            KEYFRAME_REVISIONS,
            KEYFRAME_REVISIONS + 1,
            3 * KEYFRAME_REVISIONS,
        ] {
            let key = format!("/k{}", asked % 7);
            let found = store
                .get(key.as_bytes(), At::Exactly(Revision(asked)))
                .await
                .unwrap()
                .value
                .unwrap();
            assert_eq!((found.value, found.modified), (asked.to_string().into(), Revision(asked)));
        }
    });
}

proptest! {
    /// After every commit history is within its bounds, and not shorter than necessary.
    #[test]
    fn history_is_within_its_bounds(steps in proptest::collection::vec((0..90_000u64, 0..200usize), 1..120)) {
        run(async {
            let options = MemoryOptions {
                history_revisions_max: 40,
                history_bytes_max: 2000,
                history_age_max: Duration::from_secs(300),
                ..MemoryOptions::default()
            };
            let store = MemoryStore::new(options.clone());
            // When each revision was written, and its bytes of history.
            let (mut born, mut held) = (vec![tokio::time::Instant::now(); 2], vec![0; 2]);
            let mut previous = 0;
            for (ms, n_bytes) in steps {
                tokio::time::advance(Duration::from_millis(ms)).await;
                store.commit(put("/a", &"x".repeat(n_bytes))).await.unwrap();
                born.push(tokio::time::Instant::now());
                held.push(2 + previous);
                previous = n_bytes;
                let oldest = match store.changes("/".into(), Revision(1)).await {
                    Ok(_) => 1,
                    Err(StoreError::Compacted { oldest, .. }) => oldest.0 as usize,
                    Err(error) => panic!("{error}"),
                };
                let is_kept = |oldest: usize| {
                    let retained = oldest + 1..born.len();
                    retained.len() <= options.history_revisions_max
                        && held[retained.clone()].iter().sum::<usize>() <= options.history_bytes_max
                        && retained.clone().all(|at| born[at].elapsed() <= options.history_age_max)
                };
                assert!(is_kept(oldest), "{oldest} of {} is too old", born.len() - 1);
                assert!(oldest == 1 || !is_kept(oldest - 1), "{oldest} of {} is too young", born.len() - 1);
            }
        });
    }

    /// Every retained revision reads like a model that stores a whole map per revision.
    #[test]
    fn every_revision_reads_like_the_model(ops in proptest::collection::vec((0..6u8, proptest::option::of(0..100u8)), 1..80)) {
        run(async {
            let store = MemoryStore::default();
            let mut model: Vec<BTreeMap<String, String>> = vec![BTreeMap::new(), BTreeMap::new()];
            for (key, value) in ops {
                let key = format!("/{key}");
                let mut now = model[model.len() - 1].clone();
                let txn = match value {
                    Some(value) => { now.insert(key.clone(), value.to_string()); put(&key, &value.to_string()) }
                    None => { now.remove(&key); delete(&key) }
                };
                let before = store.revision().await.unwrap();
                store.commit(txn).await.unwrap();
                if store.revision().await.unwrap() > before {
                    model.push(now);
                }
            }
            for (revision, expected) in model.iter().enumerate().skip(1) {
                let request = RangeRequest { at: At::Exactly(Revision(revision as u64)), ..RangeRequest::prefix("/") };
                let found = store.range(request).await.unwrap().value;
                let found: BTreeMap<_, _> = found.entries.into_iter()
                    .map(|e| (String::from_utf8(e.key.to_vec()).unwrap(), String::from_utf8(e.value.to_vec()).unwrap())).collect();
                assert_eq!(&found, expected, "at {revision}");
            }
        });
    }
}

/// A range of everything and a compaction held their thread, and a compaction also the lock, for
/// as long as they took.
#[test]
fn long_ranges_and_compactions_let_other_tasks_run() {
    run(async {
        let store = MemoryStore::default();
        let n = 3 * SLICE + 1;
        let done = store.commit_each((0..n).map(|n| put(&format!("/{n:06}"), "x")).collect()).await;
        assert!(done.iter().all(Result::is_ok));
        let mut range = std::pin::pin!(store.range(RangeRequest::prefix("/")));
        let mut n_polls = 0;
        let found = loop {
            n_polls += 1;
            if let std::task::Poll::Ready(found) = futures::poll!(&mut range) {
                break found.unwrap().value;
            }
        };
        assert_eq!((found.entries.len(), found.count, n_polls), (n, n, 4));
        assert!(found.entries.is_sorted_by(|a, b| a.key < b.key));
        let newest = store.revision().await.unwrap();
        let mut compaction = std::pin::pin!(store.compact(newest));
        let mut n_polls = 0;
        while futures::poll!(&mut compaction).is_pending() {
            n_polls += 1;
            // Other calls go on, and see a part of the compaction.
            store.commit(put("/other", "x")).await.unwrap();
        }
        assert_eq!(n_polls, 3);
        let gone = store.changes("/".into(), Revision(newest.0 - 1)).await.err();
        assert!(matches!(gone, Some(StoreError::Compacted { oldest, .. }) if oldest == newest));
        assert!(store.changes("/".into(), newest).await.is_ok());
        let refused = store.compact(Revision(1)).await;
        assert!(matches!(refused, Err(StoreError::Compacted { .. })), "{refused:?}");
    });
}

#[test]
fn a_store_may_begin_above_the_revisions_of_an_earlier_one() {
    run(async {
        let first_revision = Revision(1_800_000_000_000);
        let options = MemoryOptions { first_revision, ..Default::default() };
        let store = MemoryStore::new(options.clone());
        store.commit(put("/a", "1")).await.unwrap();
        assert_eq!(store.revision().await.unwrap(), Revision(first_revision.0 + 1));
        assert!(store.changes("/".into(), first_revision).await.is_ok());
        for earlier in [1, first_revision.0 - 1] {
            let feed = store.changes("/".into(), Revision(earlier)).await;
            assert!(matches!(feed, Err(StoreError::Compacted { .. })), "{earlier}");
        }
        crate::conformance::check(async || MemoryStore::new(options.clone())).await;
    });
}
