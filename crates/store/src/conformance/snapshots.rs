//! Reads of past revisions: one state over many reads, and compaction.

use super::*;

/// Everything under `/`, read two keys at a time at one revision.
async fn paged(
    store: &dyn Store,
    at: Option<Revision>,
    is_disturbed: bool,
) -> (Revision, Vec<(Bytes, Bytes)>) {
    let mut entries = Vec::new();
    let mut request = RangeRequest { limit: 2, ..RangeRequest::prefix("/") };
    request.at = at.map_or(At::Latest, At::Exactly);
    let first = ok(store.range(request.clone()).await);
    // The next pages use the first page's revision.
    let at = at.unwrap_or(first.revision);
    let (mut page, n_all) = (first.value.clone(), first.value.count);
    for n in 0.. {
        assert_eq!(page.count + entries.len(), n_all, "a page counts the remaining keys");
        let Some(last) = page.entries.last() else { break };
        let next = [&last.key[..], b"\0"].concat();
        entries.extend(page.entries.into_iter().map(|entry| (entry.key, entry.value)));
        if entries.len() == n_all {
            break;
        }
        if is_disturbed {
            disturb(store, n).await;
        }
        request = RangeRequest { start: next.into(), at: At::Exactly(at), ..request };
        page = ok(store.range(request.clone()).await).value;
    }
    (at, entries)
}

/// Changes, creates and deletes keys before, at and after the next page.
async fn disturb(store: &dyn Store, n: usize) {
    let ops =
        ["/0".to_owned(), format!("/{}", n + 2), format!("/{n}x")].map(|key| put(&key, "after"));
    done(store, ops.into()).await;
    done(store, vec![delete(&format!("/{}", 8 - n))]).await;
}

pub(super) async fn pages(store: &dyn Store) {
    for n in 0..9 {
        done(store, vec![put(&format!("/{n}"), "before")]).await;
    }
    let (at, entries) = paged(store, None, true).await;
    let expected: Vec<(Bytes, Bytes)> =
        (0..9).map(|n| (format!("/{n}").into(), "before".into())).collect();
    assert_eq!(entries, expected, "the pages at {at}");
    // The same read again, much later.
    let (_, again) = paged(store, Some(at), false).await;
    assert_eq!(again, expected, "read again at {at}");
}

pub(super) async fn compactions(store: &dyn Store) {
    let mut revisions = Vec::new();
    for n in 0..12 {
        let a = if n % 4 == 3 { delete("/a") } else { put("/a", &n.to_string()) };
        revisions.push(done(store, vec![a, put("/b", &n.to_string())]).await);
    }
    done(store, vec![delete("/b")]).await;
    for oldest in [2, 3, 3, 7, 11] {
        ok(store.compact(revisions[oldest]).await);
        for (n, revision) in revisions.iter().enumerate() {
            let found = store.get(b"/b", At::Exactly(*revision)).await;
            if n < oldest {
                match found {
                    Err(StoreError::Compacted { oldest: found, .. }) => {
                        assert_eq!(found, revisions[oldest], "the oldest revision in the error");
                    }
                    other => panic!("get at {revision}, compacted: {other:?}"),
                }
            } else {
                let found = ok(found).value.map(|entry| entry.value);
                assert_eq!(found, Some(n.to_string().into()), "get at {revision}");
                let a = value(store, "/a", At::Exactly(*revision)).await;
                assert_eq!(a, (n % 4 != 3).then(|| n.to_string()), "get at {revision}");
            }
        }
    }
    assert_eq!(value(store, "/b", At::Latest).await, None, "a deleted key stays deleted");
    // Compacts everything, then continues.
    let newest = ok(store.revision().await);
    ok(store.compact(newest).await);
    assert_eq!(listing(store, RangeRequest::prefix("/")).await, " of 0");
    let mut feed = ok(store.changes("/".into(), newest).await);
    let next = done(store, vec![put("/b", "again")]).await;
    let changes = take_until(&mut *feed, next).await;
    assert_eq!(changes.len(), 1);
    assert_eq!(changes[0].previous, None, "it was deleted before");
    let entry = ok(store.get(b"/b", At::Latest).await).value;
    assert_eq!(entry.map(|entry| entry.created), Some(next), "a new incarnation");
}
