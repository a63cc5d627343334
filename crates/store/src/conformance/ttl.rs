//! Times to live. An engine may expire a value late, but never early.

use super::*;
use tokio::time::Instant;

fn put_for(ttl: Duration, key: &str, value: &str) -> Txn {
    Txn { ops: vec![put(key, value)], ttl: Some(ttl), ..Txn::default() }
}

/// Reads a feed until it delivers the deletion of a key. Returns all changes up to it.
async fn take_until_deletion(feed: &mut dyn ChangeFeed, key: &str) -> Vec<Change> {
    let mut changes = Vec::new();
    loop {
        changes.extend(ok(feed.next().await).changes);
        if changes.iter().any(|change| change.key == key && change.value.is_none()) {
            return changes;
        }
    }
}

pub(super) async fn expires(store: &dyn Store, options: &Options) {
    let ttl = options.ttl_shortest;
    let start = ok(store.revision().await);
    let mut feed = ok(store.changes("/".into(), start).await);
    done(store, vec![put("/kept", "1")]).await;
    let began = Instant::now();
    let Committed::Done(created) = ok(store.commit(put_for(ttl, "/event", "1")).await) else {
        panic!("a commit without compares was refused");
    };
    // Neither a longer time to live nor an overwrite without one expires here.
    ok(store.commit(put_for(ttl * 1000, "/long", "1")).await);
    ok(store.commit(put_for(ttl, "/over", "1")).await);
    done(store, vec![put("/over", "2")]).await;
    let changes = take_until_deletion(&mut *feed, "/event").await;
    assert!(began.elapsed() >= ttl, "it expired after {:?} of {ttl:?}", began.elapsed());
    let mut deletions =
        changes.iter().filter(|change| change.key == "/event" && change.value.is_none());
    let (Some(deletion), None) = (deletions.next(), deletions.next()) else {
        panic!("it was not deleted exactly once: {changes:?}");
    };
    let previous = deletion.previous.as_ref().map(|entry| (entry.value.clone(), entry.modified));
    assert_eq!(previous, Some(("1".into(), created)), "the deletion has the expired value");
    assert!(deletion.revision > created, "the deletion has its own revision");
    assert_eq!(listing(store, RangeRequest::prefix("/")).await, "/kept=1 /long=1 /over=2 of 3");
    let before = At::Exactly(Revision(deletion.revision.0 - 1));
    assert_eq!(
        value(store, "/event", before).await.as_deref(),
        Some("1"),
        "an earlier revision has the value"
    );
    let absent = Txn {
        compares: vec![Compare::Absent("/event".into())],
        ops: vec![put("/event", "2")],
        ttl: None,
    };
    assert!(matches!(ok(store.commit(absent).await), Committed::Done(_)));
}

pub(super) async fn written_again(store: &dyn Store, options: &Options) {
    let ttl = options.ttl_shortest;
    let start = ok(store.revision().await);
    let mut feed = ok(store.changes("/".into(), start).await);
    ok(store.commit(put_for(ttl, "/again", "1")).await);
    ok(store.commit(put_for(ttl, "/deleted", "1")).await);
    done(store, vec![delete("/deleted")]).await;
    done(store, vec![put("/deleted", "2")]).await;
    ok(store.commit(put_for(ttl * 1000, "/again", "2")).await);
    let made = ok(store.revision().await);
    ok(store.commit(put_for(ttl * 2, "/last", "1")).await);
    let changes = take_until_deletion(&mut *feed, "/last").await;
    let deletions: Vec<_> = changes
        .iter()
        .filter(|change| change.value.is_none() && change.revision > made)
        .map(|change| &change.key[..])
        .collect();
    assert_eq!(deletions, [b"/last"], "no value expires at the time of an earlier one");
    assert_eq!(listing(store, RangeRequest::prefix("/")).await, "/again=2 /deleted=2 of 2");
}
