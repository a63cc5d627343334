//! Concurrent commits, and commits whose future is dropped.

use super::*;
use futures::future::join_all;
use std::collections::BTreeSet;

/// Number of concurrent callers.
const CALLERS: usize = 16;

pub(super) async fn one_wins(store: &dyn Store) {
    let mut before = None;
    for round in 0..20 {
        let compare = match before {
            None => Compare::Absent("/a".into()),
            Some(revision) => Compare::Modified("/a".into(), revision),
        };
        let answers = join_all((0..CALLERS).map(|caller| {
            let ops = vec![put("/a", &format!("{round} {caller}"))];
            store.commit(Txn { compares: vec![compare.clone()], ops, ttl: None })
        }));
        let (mut winners, mut found_by_losers) = (Vec::new(), Vec::new());
        for (caller, answer) in answers.await.into_iter().enumerate() {
            match ok(answer) {
                Committed::Done(revision) => winners.push((caller, revision)),
                Committed::Refused { found, .. } => found_by_losers.extend(found),
            }
        }
        let [(winner, revision)] = winners[..] else { panic!("round {round}: {winners:?} won") };
        let expected = Bytes::from(format!("{round} {winner}"));
        let found = ok(store.get(b"/a", At::Latest).await).value;
        let found = found.unwrap_or_else(|| panic!("round {round}: nothing is there"));
        assert_eq!((&found.value, found.modified), (&expected, revision), "round {round}");
        assert_eq!(found_by_losers.len(), CALLERS - 1);
        for entry in found_by_losers {
            assert_eq!(
                entry.as_ref(),
                Some(&found),
                "round {round}: the state returned to a loser"
            );
        }
        before = Some(revision);
    }
}

pub(super) async fn all_land(store: &dyn Store) {
    let start = ok(store.revision().await);
    let mut feed = ok(store.changes("/".into(), start).await);
    let answers = join_all((0..CALLERS).map(async |caller| {
        let mut mine = Vec::new();
        for n in 0..10 {
            let key = format!("/{caller}/{}", n % 3);
            mine.push((done(store, vec![put(&key, &n.to_string())]).await, key, n.to_string()));
            // Every read that starts after the response sees the commit.
            let found = value(store, &format!("/{caller}/{}", n % 3), At::Latest).await;
            assert_eq!(found, Some(n.to_string()), "a caller does not see its own write");
        }
        assert!(mine.is_sorted_by_key(|(revision, ..)| *revision));
        mine
    }));
    let mut all: Vec<_> = answers.await.into_iter().flatten().collect();
    all.sort();
    let revisions: BTreeSet<Revision> = all.iter().map(|(revision, ..)| *revision).collect();
    assert_eq!(revisions.len(), CALLERS * 10, "two commits were given one revision");
    let last = *revisions.last().unwrap_or(&start);
    assert_eq!(last.0, start.0 + (CALLERS * 10) as u64, "a revision was left out");
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    let changes: Vec<_> = take_until(&mut *feed, last)
        .await
        .into_iter()
        .map(|change| {
            let value = change.value.as_ref().map(text).unwrap_or_default();
            (change.revision, text(&change.key), value)
        })
        .collect();
    assert_eq!(changes, all);
}

pub(super) async fn dropped(store: &dyn Store) {
    let start = ok(store.revision().await);
    let mut feed = ok(store.changes("/".into(), start).await);
    for n in 0..20 {
        let ops = vec![put("/a", &n.to_string()), put(&format!("/b{n}"), &n.to_string())];
        let mut commit = store.commit(Txn { ops, ..Txn::default() });
        // Dropped before the first poll, or after it.
        if n % 4 != 0 {
            drop((&mut commit).now_or_never());
        }
        drop(commit);
        done(store, vec![put("/kept", &n.to_string())]).await;
    }
    // Dropped commits may still be applied later, so the checks read one revision.
    let last = done(store, vec![put("/kept", "end")]).await;
    let mut delivered = BTreeMap::new();
    let mut n_kept = 0;
    let changes = take_until(&mut *feed, last).await;
    for change in &changes {
        n_kept += usize::from(change.key == "/kept");
        delivered.insert(change.key.clone(), change.value.clone().unwrap_or_default());
    }
    assert_eq!(n_kept, 21, "an answered commit is missing");
    for change in changes.iter().filter(|change| change.key.starts_with(b"/b")) {
        let at = At::Exactly(change.revision);
        let a = ok(store.get(b"/a", at).await).value.map(|entry| entry.value);
        assert_eq!(
            a, change.value,
            "only half of a dropped commit is applied at {}",
            change.revision
        );
    }
    let request = RangeRequest { at: At::Exactly(last), ..RangeRequest::prefix("/") };
    let range = ok(store.range(request).await).value;
    let found: BTreeMap<_, _> =
        range.entries.into_iter().map(|entry| (entry.key, entry.value)).collect();
    assert_eq!(found, delivered, "reads and the feed differ");
}
