//! Limits and unusual bytes of keys, values and transactions.

use super::*;

/// Operations that one transaction of every engine can hold (etcd: 128).
const OPS: usize = 100;
/// Part of [`VALUE_BYTES_MAX`] that an engine may need for the encoding of a request.
const OVERHEAD_BYTES: usize = 64 << 10;

pub(super) async fn bytes(store: &dyn Store) {
    let every: Vec<u8> = (0..=255).collect();
    let keys = [
        Bytes::from_static(b"/"),
        Bytes::from_static(b"/\0"),
        Bytes::from_static(b"/\0\0"),
        Bytes::from_static(b"/\x01"),
        every.iter().copied().rev().chain(every.iter().copied()).collect(),
        vec![0xff; 2000].into(),
    ];
    let values = [Bytes::new(), Bytes::from_static(b"\0"), every.clone().into()];
    let mut last = Revision(0);
    for (i, key) in keys.iter().enumerate() {
        let value = values[i % values.len()].clone();
        last = done(store, vec![Op::Put(key.clone(), value)]).await;
    }
    for (i, key) in keys.iter().enumerate() {
        let found = ok(store.get(key, At::Latest).await).value;
        let found = found.unwrap_or_else(|| panic!("{key:?} is not there"));
        assert_eq!((&found.key, &found.value), (key, &values[i % values.len()]));
    }
    let mut ordered = keys.to_vec();
    ordered.sort();
    let range = ok(store.range(RangeRequest::prefix("")).await).value;
    assert_eq!(range.entries.into_iter().map(|entry| entry.key).collect::<Vec<_>>(), ordered);
    // A prefix of 0xff bytes has no upper bound.
    let request = RangeRequest::prefix(vec![0xff; 2]);
    assert_eq!(ok(store.range(request).await).value.count, 1, "{last}");
}

pub(super) async fn large(store: &dyn Store) {
    let start = ok(store.revision().await);
    // Random, so that it does not compress.
    let mut rng = SmallRng::seed_from_u64(1);
    let mut value = vec![0; VALUE_BYTES_MAX - OVERHEAD_BYTES];
    rng.fill(&mut value[..]);
    let value = Bytes::from(value);
    let one = done(store, vec![Op::Put("/big".into(), value.clone())]).await;
    let found = ok(store.get(b"/big", At::Exactly(one)).await).value;
    assert!(found.is_some_and(|found| found.value == value), "a large value was changed");
    let keys: Vec<String> = (0..OPS).map(|n| format!("/many/{n:03}")).collect();
    let many = done(store, keys.iter().map(|key| put(key, key)).collect()).await;
    assert_eq!(many.0, one.0 + 1, "many keys, one revision");
    let mut feed = ok(store.changes("/".into(), start).await);
    let changes = take_until(&mut *feed, many).await;
    assert!(changes[0].value.as_ref() == Some(&value), "a feed changed a large value");
    assert_eq!(changes.len(), 1 + OPS);
    assert!(changes[1..].iter().all(|change| change.revision == many));
    let gone = done(store, keys.iter().map(|key| delete(key)).collect()).await;
    assert_eq!(ok(store.range(RangeRequest::prefix("/many/")).await).value.count, 0);
    let request = RangeRequest { at: At::Exactly(many), ..RangeRequest::prefix("/many/") };
    assert_eq!(ok(store.range(request).await).value.count, OPS, "before {gone}");
}
