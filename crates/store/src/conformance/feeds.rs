//! Feeds during compactions, feeds beside writes outside their prefix, and many feeds at once.

use super::*;

pub(super) async fn over_compaction(store: &dyn Store) {
    let start = ok(store.revision().await);
    let mut at_the_end = ok(store.changes("/".into(), start).await);
    let mut behind = ok(store.changes("/".into(), start).await);
    let one = done(store, vec![put("/a", "1"), put("/b", "1")]).await;
    let two = done(store, vec![put("/a", "2")]).await;
    assert_eq!(take_until(&mut *at_the_end, two).await.len(), 3);
    ok(store.compact(two).await);
    // Opened at the oldest retained revision: changes have their previous values.
    let mut fresh = ok(store.changes("/".into(), two).await);
    let three = done(store, vec![put("/a", "3"), delete("/b")]).await;
    for feed in [&mut at_the_end, &mut fresh] {
        let changes: Vec<_> = take_until(&mut **feed, three)
            .await
            .into_iter()
            .map(|change| (change.key, change.previous.map(|entry| (entry.value, entry.modified))))
            .collect();
        let expected = [
            (Bytes::from("/a"), Some((Bytes::from("2"), two))),
            (Bytes::from("/b"), Some((Bytes::from("1"), one))),
        ];
        assert_eq!(changes, expected);
    }
    // A slow feed may have its changes in memory already, but must not skip any.
    let (mut n_changes, mut reached) = (0, start);
    while reached < three {
        match behind.next().await {
            Ok(batch) => {
                n_changes += batch.changes.len();
                reached = batch.revision;
            }
            Err(StoreError::Compacted { asked, oldest }) => {
                assert!(asked < oldest, "{asked} is reported as compacted, the oldest is {oldest}");
                return;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(n_changes, 5, "a feed skipped changes");
}

pub(super) async fn progress(store: &dyn Store) {
    done(store, vec![put("/mine/a", "1")]).await;
    let start = ok(store.revision().await);
    let mut quiet = ok(store.changes("/mine/".into(), start).await);
    let mut unrelated = ok(store.changes("/nobody's/".into(), start).await);
    for n in 0..20 {
        done(store, vec![put("/yours/a", &n.to_string())]).await;
        if n % 10 == 9 {
            let revision = ok(store.revision().await);
            assert!(revision.0 > start.0 + n);
            assert_eq!(take_until(&mut *quiet, revision).await, []);
            assert_eq!(take_until(&mut *unrelated, revision).await, []);
        }
    }
    // A feed opened now is at that revision or reaches it.
    let revision = ok(store.revision().await);
    let mut late = ok(store.changes("/mine/".into(), start).await);
    assert_eq!(take_until(&mut *late, revision).await, []);
    let last = done(store, vec![put("/mine/a", "2")]).await;
    for feed in [&mut quiet, &mut late] {
        assert_eq!(take_until(&mut **feed, last).await.len(), 1);
    }
}

pub(super) async fn many(store: &dyn Store) {
    // Nested prefixes, disjoint prefixes, one key, everything and nothing.
    let prefixes = ["", "/", "/a", "/a/", "/a/b", "/a/b/", "/b/", "/b/1", "/c/"];
    let start = ok(store.revision().await);
    let mut feeds = Vec::new();
    for prefix in prefixes {
        feeds.push(ok(store.changes(prefix.into(), start).await));
    }
    let mut rng = SmallRng::seed_from_u64(7);
    let keys = ["/a", "/a/", "/a/b", "/a/b/1", "/a/c", "/b/1", "/b/10", "/b/2", "x"];
    let mut written: Vec<(Revision, &str)> = Vec::new();
    let mut last = start;
    for n in 0..60 {
        let chosen: Vec<&str> = keys.into_iter().filter(|_| rng.random_bool(0.3)).collect();
        let ops = chosen.iter().map(|key| put(key, &n.to_string())).collect();
        last = done(store, ops).await;
        written.extend(chosen.into_iter().map(|key| (last, key)));
    }
    for (prefix, mut feed) in prefixes.into_iter().zip(feeds) {
        let changes: Vec<_> = take_until(&mut *feed, last)
            .await
            .into_iter()
            .map(|change| (change.revision, String::from_utf8_lossy(&change.key).into_owned()))
            .collect();
        let expected: Vec<_> = written
            .iter()
            .filter(|(_, key)| key.starts_with(prefix))
            .map(|(revision, key)| (*revision, (*key).to_owned()))
            .collect();
        assert_eq!(changes, expected, "the feed of {prefix:?}");
    }
}
