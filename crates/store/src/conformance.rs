//! The conformance suite that every engine passes.
//!
//! [`check`] runs each case on a new store. A case that fails panics with the state it found. The
//! suite needs a tokio runtime with time, which may be paused, and leaves no task behind. An
//! engine's tests call it in one line:
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! setpoint_store::conformance::check(async || setpoint_store::MemoryStore::default()).await;
//! # });
//! ```
//!
//! A store from `make` must have no keys. Its revision and older history may be anything. No other
//! caller writes to it during a case. An engine with a coarse granularity of times to live passes
//! it to [`check_with`].

mod feeds;
mod races;
mod sizes;
mod snapshots;
mod ttl;

use crate::contract::*;
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::time::Duration;

/// Properties of an engine that the cases need.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// The engine's shortest precise time to live. 40 ms by default; etcd counts whole seconds.
    pub ttl_shortest: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { ttl_shortest: Duration::from_millis(40) }
    }
}

impl Options {
    /// Sets the engine's shortest precise time to live.
    #[must_use]
    pub fn ttl_shortest(self, ttl_shortest: Duration) -> Self {
        Self { ttl_shortest }
    }
}

/// Runs every case of the contract, each on an empty store from `make`.
///
/// # Panics
///
/// If the engine breaks the contract. The message names the case.
pub async fn check<S: Store>(make: impl AsyncFn() -> S) {
    check_with(Options::default(), make).await;
}

/// As [`check`], for an engine with other properties.
///
/// # Panics
///
/// If the engine breaks the contract. The message names the case.
pub async fn check_with<S: Store>(options: Options, make: impl AsyncFn() -> S) {
    for (name, case) in CASES {
        // The case's name goes into the panic message.
        let store = make().await;
        let outcome = std::panic::AssertUnwindSafe(case(&store, &options)).catch_unwind().await;
        if let Err(panic) = outcome {
            let message = panic.downcast_ref::<String>().cloned();
            let message =
                message.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            panic!("the engine breaks the contract: {name}: {}", message.unwrap_or_default());
        }
    }
}

type Case = for<'a> fn(&'a dyn Store, &'a Options) -> BoxFuture<'a, ()>;

const CASES: &[(&str, Case)] = &[
    ("a commit that changes something takes the next revision", |s, _| revisions(s).boxed()),
    ("a commit that changes nothing takes none", |s, _| nothing_changes(s).boxed()),
    ("compares decide the whole transaction and return the current state", |s, _| {
        compares(s).boxed()
    }),
    ("transactions that are committed together are each for itself", |s, _| each(s).boxed()),
    ("created stays through updates and is new after a delete", |s, _| created(s).boxed()),
    ("a range is ordered, bounded, limited and counted", |s, _| ranges(s).boxed()),
    ("a read at a revision sees that revision", |s, _| exact_reads(s).boxed()),
    ("a read at a future revision is refused", |s, _| future_reads(s).boxed()),
    ("compacted history is refused, newer history stays", |s, _| compaction(s).boxed()),
    ("a transaction is one revision in the feed", |s, _| feed_is_atomic(s).boxed()),
    ("a feed delivers its prefix only, and progress for other keys", |s, _| feed_prefix(s).boxed()),
    ("a feed opened in the past replays it, one opened ahead waits", |s, _| feed_start(s).boxed()),
    ("a dropped read of a feed loses nothing", |s, _| feed_cancel_safe(s).boxed()),
    ("a write over the limit is refused whole", |s, _| too_large(s).boxed()),
    ("one key twice in a transaction is refused", |s, _| duplicate_key(s).boxed()),
    ("a long key, an empty value and every byte read back", |s, _| sizes::bytes(s).boxed()),
    ("the largest value reads back, and a transaction can have many keys", |s, _| {
        sizes::large(s).boxed()
    }),
    ("pages of a range at one revision are one state", |s, _| snapshots::pages(s).boxed()),
    ("history is compacted repeatedly, and never more than requested", |s, _| {
        snapshots::compactions(s).boxed()
    }),
    ("a feed continues after a compaction, or returns Compacted", |s, _| {
        feeds::over_compaction(s).boxed()
    }),
    ("every feed reaches a returned revision", |s, _| feeds::progress(s).boxed()),
    ("feeds of many prefixes each see their own", |s, _| feeds::many(s).boxed()),
    ("of concurrent commits that compare one key, exactly one happens", |s, _| {
        races::one_wins(s).boxed()
    }),
    ("concurrent commits take one revision each, and the feed delivers them all", |s, _| {
        races::all_land(s).boxed()
    }),
    ("a dropped commit happens whole or not at all, and the next one succeeds", |s, _| {
        races::dropped(s).boxed()
    }),
    ("a value expires at its time, and the feed delivers the deletion", |s, o| {
        ttl::expires(s, o).boxed()
    }),
    ("a value written again does not expire", |s, o| ttl::written_again(s, o).boxed()),
    ("random histories read back at every revision and fold from every feed", |s, _| {
        random_history(s).boxed()
    }),
];

fn put(key: &str, value: &str) -> Op {
    Op::Put(Bytes::copy_from_slice(key.as_bytes()), Bytes::copy_from_slice(value.as_bytes()))
}

fn delete(key: &str) -> Op {
    Op::Delete(Bytes::copy_from_slice(key.as_bytes()))
}

#[track_caller]
fn ok<T>(result: Result<T, StoreError>) -> T {
    result.unwrap_or_else(|error| panic!("refused: {error}"))
}

async fn done(store: &dyn Store, ops: Vec<Op>) -> Revision {
    match ok(store.commit(Txn { ops, ..Txn::default() }).await) {
        Committed::Done(revision) => revision,
        Committed::Refused { .. } => panic!("a commit without compares was refused"),
    }
}

async fn value(store: &dyn Store, key: &str, at: At) -> Option<String> {
    let found = ok(store.get(key.as_bytes(), at).await).value;
    found.map(|entry| String::from_utf8_lossy(&entry.value).into_owned())
}

/// The keys and values of a range as `a=1 b=2`.
async fn listing(store: &dyn Store, request: RangeRequest) -> String {
    let range = ok(store.range(request).await).value;
    let entries = range.entries.iter().map(|entry| {
        format!("{}={}", String::from_utf8_lossy(&entry.key), String::from_utf8_lossy(&entry.value))
    });
    format!("{} of {}", entries.collect::<Vec<_>>().join(" "), range.count)
}

async fn revisions(store: &dyn Store) {
    let start = ok(store.revision().await);
    assert_eq!(done(store, vec![put("/a", "1")]).await.0, start.0 + 1, "first commit");
    assert_eq!(
        done(store, vec![put("/b", "1"), put("/c", "1")]).await.0,
        start.0 + 2,
        "two keys, one revision"
    );
    assert_eq!(
        done(store, vec![put("/a", "1")]).await.0,
        start.0 + 3,
        "an equal value is a change too"
    );
    assert_eq!(done(store, vec![delete("/a")]).await.0, start.0 + 4, "a delete");
    assert_eq!(ok(store.revision().await).0, start.0 + 4, "the store's revision");
}

async fn nothing_changes(store: &dyn Store) {
    let start = done(store, vec![put("/a", "1")]).await;
    assert_eq!(done(store, vec![delete("/absent")]).await, start, "delete of an absent key");
    assert_eq!(done(store, vec![]).await, start, "empty transaction");
    assert_eq!(ok(store.revision().await), start);
}

async fn compares(store: &dyn Store) {
    let first = done(store, vec![put("/a", "1")]).await;
    let txn = |compares: Vec<Compare>| Txn {
        compares,
        ops: vec![put("/a", "2"), put("/b", "2")],
        ttl: None,
    };
    let absent = Compare::Absent("/b".into());
    for wrong in [
        Compare::Absent("/a".into()),
        Compare::Modified("/a".into(), Revision(first.0 + 7)),
        Compare::Modified("/x".into(), first),
    ] {
        match ok(store.commit(txn(vec![absent.clone(), wrong.clone()])).await) {
            Committed::Done(_) => panic!("{wrong:?} held"),
            Committed::Refused { revision, found } => {
                assert_eq!(revision, first, "a refused commit takes no revision");
                assert_eq!(found.len(), 2, "one answer for each compare");
                assert_eq!(found[0], None);
                assert_eq!(
                    found[1].as_ref().map(|entry| entry.modified),
                    (wrong.key() == "/a").then_some(first)
                );
            }
        }
        assert_eq!(
            value(store, "/b", At::Latest).await,
            None,
            "a refused transaction wrote nothing"
        );
    }
    let right = txn(vec![absent, Compare::Modified("/a".into(), first)]);
    assert_eq!(ok(store.commit(right).await), Committed::Done(Revision(first.0 + 1)));
}

async fn each(store: &dyn Store) {
    let start = ok(store.revision().await);
    let create = |key: &str, value: &str| Txn {
        compares: vec![Compare::Absent(key.to_owned().into())],
        ops: vec![put(key, value)],
        ttl: None,
    };
    done(store, vec![put("/b", "old")]).await;
    let twice = Txn { ops: vec![put("/d", "1"), delete("/d")], ..Txn::default() };
    let txns = vec![create("/a", "1"), create("/b", "2"), twice, create("/c", "3")];
    let outcomes = store.commit_each(txns).await;
    assert!(
        matches!(
            outcomes[..],
            [
                Ok(Committed::Done(_)),
                Ok(Committed::Refused { .. }),
                Err(StoreError::DuplicateKey { .. }),
                Ok(Committed::Done(_)),
            ]
        ),
        "{outcomes:?}"
    );
    assert_eq!(listing(store, RangeRequest::prefix("/")).await, "/a=1 /b=old /c=3 of 3");
    assert_eq!(ok(store.revision().await), Revision(start.0 + 3));
    assert!(store.commit_each(Vec::new()).await.is_empty());
}

async fn created(store: &dyn Store) {
    let first = done(store, vec![put("/a", "1")]).await;
    let second = done(store, vec![put("/a", "2")]).await;
    let entry = ok(store.get(b"/a", At::Latest).await).value;
    assert_eq!(entry.map(|entry| (entry.created, entry.modified)), Some((first, second)));
    done(store, vec![delete("/a")]).await;
    let again = done(store, vec![put("/a", "3")]).await;
    let entry = ok(store.get(b"/a", At::Latest).await).value;
    assert_eq!(entry.map(|entry| (entry.created, entry.modified)), Some((again, again)));
}

async fn ranges(store: &dyn Store) {
    // Not in key order. `/a0` sorts after `/a/`, because '/' is less than '0'.
    done(
        store,
        vec![
            put("/a0", "5"),
            put("/a/c", "3"),
            put("/a/a", "1"),
            put("/a/b", "2"),
            put("/b", "6"),
            put("/a", "0"),
        ],
    )
    .await;
    assert_eq!(listing(store, RangeRequest::prefix("/a/")).await, "/a/a=1 /a/b=2 /a/c=3 of 3");
    assert_eq!(
        listing(store, RangeRequest { limit: 2, ..RangeRequest::prefix("/a/") }).await,
        "/a/a=1 /a/b=2 of 3"
    );
    let middle = RangeRequest { start: "/a/a\0".into(), ..RangeRequest::prefix("/a/") };
    assert_eq!(listing(store, middle).await, "/a/b=2 /a/c=3 of 2");
    let open = RangeRequest { start: "/a/c".into(), end: Bytes::new(), at: At::Latest, limit: 0 };
    assert_eq!(listing(store, open).await, "/a/c=3 /a0=5 /b=6 of 3");
    let inverted = RangeRequest { start: "/b".into(), end: "/a".into(), at: At::Latest, limit: 0 };
    assert_eq!(listing(store, inverted).await, " of 0");
    // `divide` is a hint, but its keys must be valid.
    for (start, end) in [("/a", "/b"), ("/a/", "/a0"), ("/a/c", ""), ("/b", "/a")] {
        let keys = ok(store.divide(start.as_bytes(), end.as_bytes(), 1).await);
        let is_inside = |key: &Bytes| *key > *start && (end.is_empty() || *key < *end);
        assert!(keys.is_sorted_by(|a, b| a < b) && keys.iter().all(is_inside), "{keys:?}");
    }
}

async fn exact_reads(store: &dyn Store) {
    let one = done(store, vec![put("/a", "1"), put("/b", "1")]).await;
    let two = done(store, vec![put("/a", "2")]).await;
    let three = done(store, vec![delete("/a")]).await;
    let now = ok(store.revision().await);
    for (at, a, all) in [
        (one, Some("1"), "/a=1 /b=1 of 2"),
        (two, Some("2"), "/a=2 /b=1 of 2"),
        (three, None, "/b=1 of 1"),
    ] {
        assert_eq!(value(store, "/a", At::Exactly(at)).await.as_deref(), a, "get at {at}");
        let request = RangeRequest { at: At::Exactly(at), ..RangeRequest::prefix("/") };
        assert_eq!(
            ok(store.range(request.clone()).await).revision,
            now,
            "a response has the newest revision"
        );
        assert_eq!(listing(store, request).await, all, "range at {at}");
    }
    let entry = ok(store.get(b"/b", At::Exactly(three)).await).value;
    assert_eq!(
        entry.map(|entry| entry.modified),
        Some(one),
        "an entry keeps the revision that wrote it"
    );
}

async fn future_reads(store: &dyn Store) {
    let now = done(store, vec![put("/a", "1")]).await;
    let asked = Revision(now.0 + 1);
    match store.get(b"/a", At::Exactly(asked)).await {
        Err(StoreError::Future { asked: a, current }) => assert_eq!((a, current), (asked, now)),
        other => panic!("get at {asked} of {now}: {other:?}"),
    }
    let request = RangeRequest { at: At::Exactly(asked), ..RangeRequest::prefix("/") };
    assert!(matches!(store.range(request).await, Err(StoreError::Future { .. })));
    assert!(matches!(store.compact(asked).await, Err(StoreError::Future { .. })));
}

async fn compaction(store: &dyn Store) {
    let one = done(store, vec![put("/a", "1")]).await;
    let two = done(store, vec![put("/a", "2"), put("/b", "2")]).await;
    let three = done(store, vec![put("/a", "3")]).await;
    ok(store.compact(two).await);
    match store.get(b"/a", At::Exactly(one)).await {
        Err(StoreError::Compacted { asked, oldest }) => assert_eq!((asked, oldest), (one, two)),
        other => panic!("get at {one} after compaction to {two}: {other:?}"),
    }
    let request = RangeRequest { at: At::Exactly(one), ..RangeRequest::prefix("/") };
    assert!(matches!(store.range(request).await, Err(StoreError::Compacted { .. })));
    assert!(matches!(
        store.changes("/".into(), one).await.map(drop),
        Err(StoreError::Compacted { .. })
    ));
    assert_eq!(
        value(store, "/a", At::Exactly(two)).await.as_deref(),
        Some("2"),
        "the compacted revision stays readable"
    );
    assert_eq!(
        value(store, "/b", At::Latest).await.as_deref(),
        Some("2"),
        "the present is untouched"
    );
    let mut feed = ok(store.changes("/".into(), two).await);
    assert_eq!(
        take_until(&mut *feed, three)
            .await
            .iter()
            .map(|change| change.revision)
            .collect::<Vec<_>>(),
        [three]
    );
    assert!(
        matches!(store.compact(one).await, Err(StoreError::Compacted { .. })),
        "compaction does not go back"
    );
}

/// Reads a feed until it has reached a revision.
async fn take_until(feed: &mut dyn ChangeFeed, revision: Revision) -> Vec<Change> {
    let mut changes: Vec<Change> = Vec::new();
    let mut reached = Revision(0);
    while reached < revision {
        let batch = ok(feed.next().await);
        assert!(
            batch.revision >= reached,
            "a feed returned to an earlier revision, from {reached} to {}",
            batch.revision
        );
        for change in batch.changes {
            assert!(
                change.revision > reached || reached == Revision(0),
                "{change:?} came after {reached} was reported as complete"
            );
            assert!(change.revision <= batch.revision, "{change:?} lies beyond its batch");
            assert!(
                changes.last().is_none_or(|last| last.revision <= change.revision),
                "{change:?} is out of order"
            );
            changes.push(change);
        }
        reached = batch.revision;
    }
    changes
}

async fn feed_is_atomic(store: &dyn Store) {
    let start = ok(store.revision().await);
    let mut feed = ok(store.changes("/".into(), start).await);
    let one = done(store, vec![put("/a", "1"), put("/b", "1")]).await;
    let two = done(store, vec![put("/a", "2"), delete("/b"), delete("/absent")]).await;
    let changes = take_until(&mut *feed, two).await;
    let delivered: Vec<_> = changes
        .iter()
        .map(|change| {
            let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
            let previous =
                change.previous.as_ref().map(|entry| (text(&entry.value), entry.modified));
            (change.revision, text(&change.key), change.value.as_ref().map(text), previous)
        })
        .collect();
    let expected = [
        (one, "/a".to_owned(), Some("1".to_owned()), None),
        (one, "/b".to_owned(), Some("1".to_owned()), None),
        (two, "/a".to_owned(), Some("2".to_owned()), Some(("1".to_owned(), one))),
        (two, "/b".to_owned(), None, Some(("1".to_owned(), one))),
    ];
    assert_eq!(delivered, expected);
}

async fn feed_prefix(store: &dyn Store) {
    let start = ok(store.revision().await);
    let mut feed = ok(store.changes("/a/".into(), start).await);
    done(store, vec![put("/a/x", "1"), put("/b/x", "1")]).await;
    done(store, vec![put("/a", "1")]).await;
    let last = done(store, vec![put("/b/y", "1")]).await;
    let changes = take_until(&mut *feed, last).await;
    assert_eq!(changes.iter().map(|change| &change.key[..]).collect::<Vec<_>>(), [b"/a/x"]);
}

async fn feed_start(store: &dyn Store) {
    let one = done(store, vec![put("/a", "1")]).await;
    let two = done(store, vec![put("/a", "2")]).await;
    let mut past = ok(store.changes("/".into(), one).await);
    assert_eq!(take_until(&mut *past, two).await.len(), 1);
    let mut ahead = ok(store.changes("/".into(), Revision(two.0 + 1)).await);
    assert!(ahead.next().now_or_never().is_none(), "a feed ahead of the store waits");
    done(store, vec![put("/a", "3")]).await;
    let four = done(store, vec![put("/a", "4")]).await;
    assert_eq!(
        take_until(&mut *ahead, four)
            .await
            .iter()
            .map(|change| change.revision)
            .collect::<Vec<_>>(),
        [four]
    );
}

async fn feed_cancel_safe(store: &dyn Store) {
    let start = ok(store.revision().await);
    let mut feed = ok(store.changes("/".into(), start).await);
    assert!(feed.next().now_or_never().is_none(), "an idle feed waits");
    let mut last = start;
    for i in 0..20 {
        last = done(store, vec![put("/a", &i.to_string())]).await;
        drop(feed.next());
    }
    assert_eq!(take_until(&mut *feed, last).await.len(), 20);
}

async fn too_large(store: &dyn Store) {
    let start = ok(store.revision().await);
    let ops = vec![put("/small", "x"), Op::Put("/big".into(), vec![b'x'; VALUE_BYTES_MAX].into())];
    assert!(matches!(
        store.commit(Txn { ops, ..Txn::default() }).await,
        Err(StoreError::TooLarge { .. })
    ));
    assert_eq!(
        (ok(store.revision().await), value(store, "/small", At::Latest).await),
        (start, None)
    );
}

async fn duplicate_key(store: &dyn Store) {
    let ops = vec![put("/a", "1"), delete("/a")];
    assert!(matches!(
        store.commit(Txn { ops, ..Txn::default() }).await,
        Err(StoreError::DuplicateKey { .. })
    ));
}

async fn random_history(store: &dyn Store) {
    let mut rng = SmallRng::seed_from_u64(2026);
    let start = ok(store.revision().await);
    let mut states: Vec<BTreeMap<String, String>> = vec![BTreeMap::new()];
    for step in 0..300 {
        let mut now = states[states.len() - 1].clone();
        let mut ops = Vec::new();
        for key in 0..8 {
            let name = format!("/k/{key}");
            match rng.random_range(0..10) {
                0 => {
                    now.insert(name.clone(), step.to_string());
                    ops.push(put(&name, &step.to_string()));
                }
                1 if now.remove(&name).is_some() => ops.push(delete(&name)),
                _ => {}
            }
        }
        if !ops.is_empty() {
            assert_eq!(done(store, ops).await.0, start.0 + states.len() as u64);
            states.push(now);
        }
    }
    let end = Revision(start.0 + states.len() as u64 - 1);
    for (i, expected) in states.iter().enumerate() {
        let at = Revision(start.0 + i as u64);
        let request = RangeRequest { at: At::Exactly(at), ..RangeRequest::prefix("/k/") };
        let entries = ok(store.range(request).await).value.entries;
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        let mut folded: BTreeMap<_, _> =
            entries.iter().map(|entry| (text(&entry.key), text(&entry.value))).collect();
        assert_eq!(&folded, expected, "at {at}");
        if i % 25 == 0 {
            let mut feed = ok(store.changes("/k/".into(), at).await);
            for change in take_until(&mut *feed, end).await {
                let before = match &change.value {
                    Some(value) => folded.insert(text(&change.key), text(value)),
                    None => folded.remove(&text(&change.key)),
                };
                assert_eq!(
                    before,
                    change.previous.as_ref().map(|entry| text(&entry.value)),
                    "{change:?} from {at}"
                );
            }
            assert_eq!(Some(&folded), states.last(), "the feed from {at}, folded");
        }
    }
}
