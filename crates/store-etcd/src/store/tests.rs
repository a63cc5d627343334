//! Servers that fail: errors always reply correctly whether a commit may have happened, and nothing
//! panics.

use super::*;
use crate::{
    fake::{Fake, at, options, raw, refused, stream},
    proto::*,
};
use h2::Reason;
use http::StatusCode;
use proptest::prelude::*;
use setpoint_grpc::{
    Status,
    testing::{Reply, framed},
};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Replies that let a store connect, and a script for the rest.
fn healthy_except(
    script: impl Fn(&str, &[u8]) -> Option<Reply> + Send + Sync + 'static,
) -> impl Fn(&str, &[u8]) -> Reply + Send + Sync + 'static {
    move |path, message| match script(path, message) {
        Some(reply) => reply,
        None if path == path::STATUS => Reply::message(&StatusAnswer {
            header: at(5),
            version: "3.5.30".into(),
            leader: 1,
            ..StatusAnswer::default()
        }),
        None if path == path::RANGE => {
            Reply::message(&RangeAnswer { header: at(5), ..RangeAnswer::default() })
        }
        None if path == path::TXN => {
            Reply::message(&TxnAnswer { header: at(6), succeeded: true, ..TxnAnswer::default() })
        }
        None => refused(12, "not here"),
    }
}

/// Returns whether there were more calls than connecting makes: a read that confirms the member,
/// and one for the revision.
fn once_connected() -> impl Fn() -> bool + Send + Sync {
    let asked = AtomicUsize::new(0);
    move || asked.fetch_add(1, Ordering::Relaxed) >= 2
}

fn txn() -> Txn {
    Txn { ops: vec![Op::Put("/a".into(), "1".into())], ..Txn::default() }
}

/// Two members. The first replies to transactions with `reply`.
async fn commit(reply: fn() -> Reply) -> (Result<Committed, StoreError>, usize, usize) {
    let first = Fake::start(healthy_except(move |path, _| (path == path::TXN).then(reply))).await;
    let second = Fake::start(healthy_except(|_, _| None)).await;
    let store = EtcdStore::connect(options(&[&first, &second])).await.unwrap();
    let outcome = store.commit(txn()).await;
    store.close().await;
    (outcome, first.seen(path::TXN).len(), second.seen(path::TXN).len())
}

#[tokio::test]
async fn size_is_what_the_member_reported_after_the_previous_call() {
    let n_asked = AtomicUsize::new(0);
    let fake = Fake::start(healthy_except(move |path, _| {
        (path == path::STATUS).then(|| {
            let n = n_asked.fetch_add(1, Ordering::Relaxed);
            Reply::message(&StatusAnswer {
                header: at(5),
                version: "3.5.30".into(),
                db_size: if n == 0 { 4096 } else { 8192 },
                leader: 1,
                ..StatusAnswer::default()
            })
        })
    }))
    .await;
    let store = EtcdStore::connect(options(&[&fake])).await.unwrap();
    assert_eq!(store.size_bytes(), Some(4096), "as of the start");
    let grown = async {
        while store.size_bytes() != Some(8192) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(10), grown).await.expect("it has grown");
    store.close().await;
    assert_eq!(store.size_bytes(), Some(8192), "a closed store asks no more");
}

#[tokio::test]
async fn commit_that_may_have_happened_is_unknown_and_sent_once() {
    let unsure: [fn() -> Reply; 9] = [
        || Reply::Reset(Reason::INTERNAL_ERROR),
        || Reply::HangUp,
        || Reply::Silence,
        || refused(14, "etcdserver: request timed out"),
        || refused(14, "etcdserver: leader changed"),
        || refused(2, "what"),
        || Reply::Http(StatusCode::BAD_GATEWAY),
        || Reply::NoStatus(framed(b"")),
        || raw(b"\x01\0\0\0\0"),
    ];
    for (i, reply) in unsure.into_iter().enumerate() {
        let (outcome, n_first, n_second) = commit(reply).await;
        assert!(matches!(outcome, Err(StoreError::Unknown(_))), "case {i}: {outcome:?}");
        assert_eq!((n_first, n_second), (1, 0), "case {i}: it is never repeated");
    }
}

#[tokio::test]
async fn commit_that_certainly_did_not_happen_goes_to_the_next_member() {
    let sure: [fn() -> Reply; 3] = [
        || Reply::Reset(Reason::REFUSED_STREAM),
        || refused(14, "etcdserver: no leader"),
        || refused(14, "etcdserver: rpc not supported for learner"),
    ];
    for reply in sure {
        let (outcome, n_first, n_second) = commit(reply).await;
        assert_eq!(outcome.unwrap(), Committed::Done(Revision(6)));
        assert_eq!((n_first, n_second), (1, 1));
    }
}

#[tokio::test]
async fn refused_commit_fails_and_is_not_repeated() {
    let refusals: [fn() -> Reply; 3] = [
        || refused(3, "etcdserver: request is too large"),
        || refused(3, "etcdserver: too many operations in txn request"),
        || refused(8, "etcdserver: mvcc: database space exceeded"),
    ];
    for (i, reply) in refusals.into_iter().enumerate() {
        let (outcome, n_first, n_second) = commit(reply).await;
        match outcome {
            Err(StoreError::TooLarge { max: VALUE_BYTES_MAX, .. }) if i == 0 => {}
            Err(StoreError::Unavailable(_)) if i == 1 => {}
            Err(StoreError::Full(why)) if i == 2 && why.ends_with("space exceeded") => {}
            other => panic!("case {i}: {other:?}"),
        }
        assert_eq!((n_first, n_second), (1, 0));
    }
}

#[tokio::test]
async fn commit_answer_without_a_header_is_unknown() {
    let (outcome, ..) =
        commit(|| Reply::message(&TxnAnswer { succeeded: true, ..TxnAnswer::default() })).await;
    assert!(matches!(outcome, Err(StoreError::Unknown(_))), "{outcome:?}");
}

#[tokio::test]
async fn reads_go_to_the_next_member_after_any_failure() {
    let broken: [fn() -> Reply; 6] = [
        || Reply::HangUp,
        || Reply::Silence,
        || refused(14, "etcdserver: server stopped"),
        || Reply::Http(StatusCode::INTERNAL_SERVER_ERROR),
        || raw(b"\0\xff\xff\xff\xff"),
        || Reply::Body(framed(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), Status::ok()),
    ];
    for reply in broken {
        let is_connected = once_connected();
        let first = Fake::start(healthy_except(move |path, _| {
            (path == path::RANGE && is_connected()).then(reply)
        }))
        .await;
        let second = Fake::start(healthy_except(|_, _| None)).await;
        let store = EtcdStore::connect(options(&[&first, &second])).await.unwrap();
        assert_eq!(store.revision().await.unwrap(), Revision(5));
        assert_eq!(first.seen(path::RANGE).len(), 3, "the broken one is left at once");
    }
}

#[tokio::test]
async fn invalid_responses_are_errors() {
    let wrong = |key: &str, modified| RangeAnswer {
        header: at(5),
        kvs: vec![WireKeyValue { key: key.into(), mod_revision: modified, ..Default::default() }],
        count: 1,
        more: false,
    };
    let answers = [
        wrong("/a", 0),
        wrong("/a", -1),
        RangeAnswer { header: None, ..RangeAnswer::default() },
        RangeAnswer { header: at(-5), ..RangeAnswer::default() },
        RangeAnswer { header: at(5), count: -1, ..RangeAnswer::default() },
        RangeAnswer { header: at(5), count: 7, ..RangeAnswer::default() },
    ];
    for answer in answers {
        let description = format!("{answer:?}");
        let is_connected = once_connected();
        let fake = Fake::start(healthy_except(move |path, _| {
            (path == path::RANGE && is_connected()).then(|| Reply::message(&answer))
        }))
        .await;
        let store = EtcdStore::connect(options(&[&fake])).await.unwrap();
        let read = store.range(RangeRequest::prefix("/")).await;
        assert!(matches!(read, Err(StoreError::Unavailable(_))), "{description}: {read:?}");
    }
}

/// A member that does not know its leader is dead would accept a commit and lose it, so it gets
/// none.
#[tokio::test]
async fn member_that_cannot_confirm_its_leader_gets_no_commit() {
    let first =
        Fake::start(healthy_except(|path, _| (path == path::RANGE).then_some(Reply::Silence)))
            .await;
    let leaderless = Fake::start(healthy_except(|path, _| {
        let answer = StatusAnswer { leader: 0, version: "3.5.30".into(), ..Default::default() };
        (path == path::STATUS).then(|| Reply::message(&answer))
    }))
    .await;
    let other = Fake::start(healthy_except(|path, _| {
        let header = Some(ResponseHeader { cluster_id: 7, ..at(5).unwrap_or_default() });
        let answer = StatusAnswer { header, leader: 1, ..StatusAnswer::default() };
        (path == path::STATUS).then(|| Reply::message(&answer))
    }))
    .await;
    let good = Fake::start(healthy_except(|_, _| None)).await;
    let mut options = options(&[&first, &leaderless, &good, &other]);
    options.request_timeout = std::time::Duration::from_millis(1500);
    let store = EtcdStore::connect(options).await.unwrap();
    assert!(store.commit(txn()).await.is_ok());
    assert_eq!([&first, &leaderless, &other].map(|fake| fake.seen(path::TXN).len()), [0, 0, 0]);
    // It ends, and the only one left belongs to another cluster.
    drop(good);
    assert!(matches!(store.revision().await, Err(StoreError::Unavailable(_))));
    let outcome = store.commit(txn()).await;
    assert!(matches!(outcome, Err(StoreError::Unavailable(_))), "{outcome:?}");
    assert_eq!(other.seen(path::TXN).len(), 0);
}

/// The first page is small; the later ones depend on the size of the values.
#[tokio::test]
async fn page_sizes_depend_on_bytes() {
    const KEYS: usize = 1200;
    const EACH: usize = 48 * 1024;
    let fake = Fake::start(healthy_except(|path, asked| {
        let asked = RangeCall::decode(asked).ok().filter(|_| path == path::RANGE)?;
        let first = match asked.key.strip_prefix(b"/k") {
            Some(rest) if !rest.is_empty() => {
                let digits = std::str::from_utf8(&rest[..4]).unwrap();
                digits.parse::<usize>().unwrap() + 1
            }
            Some(_) => 0,
            None => return None,
        };
        let limit = usize::try_from(asked.limit).unwrap();
        let kvs = (first..KEYS.min(first + limit)).map(|i| WireKeyValue {
            key: format!("/k{i:04}").into(),
            create_revision: 2,
            mod_revision: 2,
            version: 1,
            value: vec![b'x'; EACH],
        });
        let count = i64::try_from(KEYS - first).unwrap();
        let answer = RangeAnswer { header: at(5), kvs: kvs.collect(), count, more: false };
        Some(Reply::message(&answer))
    }))
    .await;
    // Long responses take time to create.
    let mut patient = options(&[&fake]);
    patient.request_timeout = std::time::Duration::from_secs(60);
    patient.attempt_timeout = std::time::Duration::from_secs(60);
    let store = EtcdStore::connect(patient).await.unwrap();
    let all = store.range(RangeRequest::prefix("/k")).await.unwrap().value;
    assert_eq!((all.entries.len(), all.count), (KEYS, KEYS));
    let some = RangeRequest { limit: 700, ..RangeRequest::prefix("/k") };
    let some = store.range(some).await.unwrap().value;
    assert_eq!((some.entries.len(), some.count), (700, KEYS));
    let asked = fake.seen(path::RANGE).into_iter().map(|asked| RangeCall::decode(asked).unwrap());
    let asked: Vec<_> = asked.filter(|asked| asked.key.starts_with(b"/k")).collect();
    let fits = i64::try_from(PAGE_BYTES / (EACH + 6)).unwrap();
    let limits: Vec<_> = asked.iter().map(|asked| asked.limit).collect();
    assert_eq!(limits, [500, fits, fits, 700 - 2 * fits, 500, 200]);
    let revisions = asked[..4].iter().map(|asked| asked.revision);
    assert_eq!(revisions.collect::<Vec<_>>(), [0, 5, 5, 5], "one state");
}

#[tokio::test]
async fn unreachable_cluster_is_an_error_in_time() {
    let mut options = EtcdOptions::new(["127.0.0.1:1", "127.0.0.1:2"]);
    options.request_timeout = std::time::Duration::from_millis(300);
    let connected = EtcdStore::connect(options).await;
    let Err(EtcdError::Unreachable { endpoints, .. }) = connected else { panic!("{connected:?}") };
    assert_eq!(endpoints.len(), 2);
}

#[tokio::test]
async fn old_member_is_refused() {
    let fake = Fake::start(healthy_except(|path, _| {
        let answer = StatusAnswer { version: "3.3.27".into(), ..StatusAnswer::default() };
        (path == path::STATUS).then(|| Reply::message(&answer))
    }))
    .await;
    let connected = EtcdStore::connect(options(&[&fake])).await;
    assert!(matches!(connected, Err(EtcdError::TooOld { .. })), "{connected:?}");
}

#[tokio::test]
async fn calls_of_a_closed_store_return_closed() {
    let fake = Fake::start(healthy_except(|_, _| None)).await;
    let store = EtcdStore::connect(options(&[&fake])).await.unwrap();
    let mut feed = store.changes("/".into(), Revision(5)).await.unwrap();
    store.close().await;
    assert!(matches!(feed.next().await, Err(StoreError::Closed)));
    assert!(matches!(store.revision().await, Err(StoreError::Closed)));
    assert!(matches!(store.commit(txn()).await, Err(StoreError::Closed)));
    assert!(matches!(
        store.changes("/".into(), Revision(5)).await.map(drop),
        Err(StoreError::Closed)
    ));
}

/// A member that hangs costs its timeout once, also if callers give up meanwhile.
#[tokio::test]
async fn hanging_member_does_not_block_impatient_callers() {
    let healthy = AtomicUsize::new(0);
    let hangs = Fake::start(healthy_except(move |_, _| {
        // Healthy for twice as many calls as connecting makes.
        (healthy.fetch_add(1, Ordering::Relaxed) >= 6).then_some(Reply::Silence)
    }))
    .await;
    let good = Fake::start(healthy_except(|_, _| None)).await;
    let mut options = options(&[&hangs, &good]);
    options.request_timeout = std::time::Duration::from_millis(150);
    let store = EtcdStore::connect(options).await.unwrap();
    // On a busy machine, calls to the good member may be late, too.
    let (mut in_a_row, mut n_calls) = (0, 0);
    while in_a_row < 3 {
        in_a_row = if store.revision().await.is_ok() { in_a_row + 1 } else { 0 };
        n_calls += 1;
        assert!(n_calls < 100, "the hanging member is asked again and again");
    }
}

#[tokio::test]
async fn connections_close_with_their_users() {
    let fake = Fake::start(healthy_except(|path, _| {
        (path == path::WATCH).then(|| stream(&[created(), watch(vec![event("/a", 6)], false)]))
    }))
    .await;
    let store = EtcdStore::connect(options(&[&fake])).await.unwrap();
    let mut feed = store.changes("/".into(), Revision(5)).await.unwrap();
    feed.next().await.unwrap();
    fake.has_connections(2).await;
    drop(feed);
    fake.has_connections(1).await;
    let feed = store.changes("/".into(), Revision(5)).await.unwrap();
    drop(store);
    fake.has_connections(2).await;
    drop(feed);
    fake.has_connections(0).await;
}

#[test]
fn debug_output_omits_secrets() {
    let mut options = EtcdOptions::new(["https://a:1"]);
    options.user = Some(("me".into(), "hunter2".into()));
    let pem = crate::Pem::Text("-----BEGIN SECRET".into());
    options.tls = Some(crate::EtcdTls { ca: pem.clone(), client: Some((pem.clone(), pem)) });
    let shown = format!("{options:?}");
    assert!(!shown.contains("hunter2") && !shown.contains("SECRET"), "{shown}");
    let call = AuthenticateCall { name: "me".into(), password: "hunter2".into() };
    assert!(!format!("{call:?}").contains("hunter2"));
}

fn event(key: &str, revision: i64) -> Event {
    let kv = WireKeyValue {
        key: key.into(),
        create_revision: revision,
        mod_revision: revision,
        ..WireKeyValue::default()
    };
    Event { kind: Event::PUT, kv: Some(kv), prev_kv: None }
}

fn watch(events: Vec<Event>, fragment: bool) -> Vec<u8> {
    let answer = WatchAnswer { header: at(50), events, fragment, ..WatchAnswer::default() };
    answer.encode_to_vec()
}

fn created() -> Vec<u8> {
    WatchAnswer { header: at(50), created: true, ..WatchAnswer::default() }.encode_to_vec()
}

#[tokio::test]
async fn feed_continues_from_its_position_after_any_failure() {
    // Each watch sends a part and fails in its own way. The last one repeats everything and
    // continues.
    let turns = AtomicUsize::new(0);
    let fake = Fake::start(healthy_except(move |path, _| {
        let turn = || turns.fetch_add(1, Ordering::Relaxed);
        (path == path::WATCH).then(|| match turn() {
            0 => refused(14, "etcdserver: no leader"),
            // Complete, then half of the next revision, then invalid data.
            1 => stream(&[
                created(),
                watch(vec![event("/a", 6)], false),
                watch(vec![event("/b", 7)], true),
                watch(vec![event("/x", 3), event("/x", 0)], false),
            ]),
            2 => raw(b"\0\0\0"),
            3 => Reply::HangUp,
            _ => stream(&[
                created(),
                watch(vec![event("/a", 6), event("/b", 7)], true),
                watch(vec![event("/c", 7), event("/d", 8)], false),
            ]),
        })
    }))
    .await;
    let store = EtcdStore::connect(options(&[&fake])).await.unwrap();
    let mut feed = store.changes("/".into(), Revision(5)).await.unwrap();
    let (mut changes, mut batches) = (Vec::new(), Vec::new());
    while changes.len() < 4 {
        let batch = feed.next().await.unwrap();
        changes.extend(batch.changes.iter().map(|change| (change.key.clone(), change.revision.0)));
        batches.push(batch.revision.0);
    }
    assert_eq!(changes, [("/a".into(), 6), ("/b".into(), 7), ("/c".into(), 7), ("/d".into(), 8)]);
    assert_eq!(batches, [6, 8], "no revision in halves");
    let starts = fake.seen(path::WATCH).into_iter().map(|asked| {
        match WatchCall::decode(asked).unwrap().request {
            Some(WatchRequestUnion::Create(create)) => create.start_revision,
            other => panic!("{other:?}"),
        }
    });
    assert_eq!(starts.collect::<Vec<_>>(), [5, 5, 6, 6, 6]);
}

/// Its member keeps the watch open but sends nothing more. The store's revision shows that it
/// should.
#[tokio::test]
async fn feed_leaves_a_member_that_hangs() {
    let hangs =
        Fake::start(healthy_except(|path, _| (path == path::WATCH).then(|| stream(&[created()]))));
    let hangs = hangs.await;
    let good = Fake::start(healthy_except(|path, _| {
        (path == path::WATCH).then(|| stream(&[created(), watch(vec![event("/a", 5)], false)]))
    }))
    .await;
    let store = EtcdStore::connect(options(&[&hangs, &good])).await.unwrap();
    let mut feed = store.changes("/".into(), Revision(4)).await.unwrap();
    let batch = feed.next().await.unwrap();
    assert_eq!((batch.changes.len(), batch.revision), (1, Revision(5)));
    assert_eq!([&hangs, &good].map(|fake| fake.seen(path::WATCH).len()), [1, 1]);
}

#[tokio::test]
async fn compacted_feed_returns_the_error_each_time() {
    let fake = Fake::start(healthy_except(|path, _| {
        let answer = WatchAnswer {
            header: at(50),
            created: true,
            canceled: true,
            compact_revision: 40,
            ..WatchAnswer::default()
        };
        (path == path::WATCH).then(|| stream(&[answer.encode_to_vec()]))
    }))
    .await;
    let store = EtcdStore::connect(options(&[&fake])).await.unwrap();
    let mut feed = store.changes("/".into(), Revision(5)).await.unwrap();
    for _ in 0..2 {
        let ended = feed.next().await;
        let Err(StoreError::Compacted { asked, oldest }) = ended else { panic!("{ended:?}") };
        assert_eq!((asked, oldest), (Revision(5), Revision(40)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn no_response_makes_a_call_panic(bytes in proptest::collection::vec(any::<u8>(), 0..48)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let is_connected = once_connected();
            let fake = Fake::start(healthy_except(move |path, _| {
                let connects = path == path::STATUS || path == path::RANGE && !is_connected();
                (!connects).then(|| Reply::Body(framed(&bytes), Status::ok()))
            }))
            .await;
            let mut options = options(&[&fake]);
            options.request_timeout = std::time::Duration::from_millis(60);
            // On a busy machine, connecting may take longer.
            let Ok(store) = EtcdStore::connect(options).await else { return };
            let _ = store.get(b"/a", At::Latest).await;
            let _ = store.commit(txn()).await;
        });
    }
}
