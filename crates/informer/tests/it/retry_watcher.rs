//! FAC-8: the retry watcher, and waits for conditions. FAC-9: the check of streamed lists.
use crate::support::*;
use bytes::Bytes;
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use setpoint_informer::retry_watcher::{
    Change, RETRY_WAIT_MIN, RetryWatcherError, until, until_with_sync,
};
use setpoint_informer::source::scripted::{Answer, Asked, Script, Step};
use setpoint_informer::source::{ConsistencyDetector, Difference, WatchFrame};
use setpoint_informer::{Event, Lister, RetryWatcher, SharedInformer, SourceError};
use setpoint_object::{ApiError, Reason};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

fn watcher(script: &Script) -> RetryWatcher {
    RetryWatcher::new(Arc::new(script.clone()), "5").unwrap().seed(1)
}

fn watch(steps: impl IntoIterator<Item = Step>) -> Answer {
    Answer::Watch(steps.into_iter().collect())
}

/// A change as a short text.
fn short(change: Option<Result<Change, RetryWatcherError>>) -> String {
    let (verb, object) = match change {
        Some(Ok(Change::Added(object))) => ("+", object),
        Some(Ok(Change::Modified(object))) => ("~", object),
        Some(Ok(Change::Deleted(object))) => ("-", object),
        Some(Ok(other)) => panic!("{other:?}"),
        Some(Err(error)) => return error.to_string(),
        None => return "end".to_owned(),
    };
    let object: serde_json::Value = serde_json::from_slice(&object).unwrap();
    let metadata = &object["metadata"];
    format!("{verb}{}@{}", metadata["name"].as_str().unwrap(), metadata["resourceVersion"])
        .replace('"', "")
}

#[test]
fn fac_8_start_without_a_definite_version_is_rejected() {
    for version in ["", "0"] {
        let refused = RetryWatcher::new(Arc::new(Script::new([])), version);
        assert!(matches!(refused, Err(RetryWatcherError::Start(_))));
    }
}

/// Processes whose watches broke together do not open the next ones together for ever.
#[tokio::test(start_paused = true)]
async fn timeouts_of_watchers_without_a_seed_differ() {
    let timeouts = async || {
        let script = Script::new((0..4).map(|_| watch([])));
        let mut watcher = RetryWatcher::new(Arc::new(script.clone()), "5").unwrap();
        let end = tokio::time::timeout(Duration::from_secs(60), watcher.next()).await;
        assert!(end.is_err(), "the fifth watch hangs");
        let timeout = |asked| match asked {
            Asked::Watch(_, request) => request.timeout,
            _ => panic!("it never lists"),
        };
        script.asked().into_iter().map(timeout).collect::<Vec<Duration>>()
    };
    assert_ne!(timeouts().await, timeouts().await);
}

#[tokio::test(start_paused = true)]
async fn fac_8_watcher_continues_after_the_last_version_and_forwards_no_bookmarks() {
    let script = Script::new([
        watch([added("a", 6), bookmark(9)]),
        watch([modified("a", 10), Step::Break(lost())]),
        watch([fails(internal())]),
        Answer::Refuse(refused()),
        Answer::Refuse(missing()),
        watch([deleted("a", 11)]),
    ]);
    let began = Instant::now();
    let mut watcher = watcher(&script);
    for expected in ["+a@6", "~a@10", "-a@11"] {
        assert_eq!(short(watcher.next().await), expected);
    }
    assert_eq!(watcher.resource_version(), "11");
    let versions = ["5", "9", "10", "10", "10", "10"].map(|rv| format!("watch {rv:?}"));
    assert_eq!(asked(&script), versions);
    // Exactly one second between two starts. The first does not wait.
    assert_eq!(asked_at(&script, began), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    assert_eq!(RETRY_WAIT_MIN, Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn fac_8_retry_after_is_honored_at_the_opening_and_in_the_stream() {
    let later = |seconds| ApiError::too_many_requests("busy", seconds);
    let mut timeout = ApiError::new(504, Reason::Timeout, "slow");
    timeout.0.details =
        Some(setpoint_object::status::Details { retry_after_seconds: 20, ..Default::default() });
    let script = Script::new([
        Answer::Refuse(later(7).into()),
        watch([Step::Frame(WatchFrame::Error(timeout))]),
        Answer::Refuse(later(1_000_000).into()),
        watch([added("a", 6)]),
    ]);
    let began = Instant::now();
    assert_eq!(short(watcher(&script).next().await), "+a@6");
    assert_eq!(asked_at(&script, began), [0.0, 7.0, 27.0, 327.0]);
}

#[tokio::test(start_paused = true)]
async fn fac_8_unrecoverable_errors_end_the_watcher() {
    let denied = |code| SourceError::from(ApiError::new(code, Reason::Forbidden, "no"));
    let nameless = Bytes::from_static(br#"{"metadata":{"name":"a"}}"#);
    let odd = WatchFrame::Unknown { verb: "ODD".to_owned(), object: nameless.clone() };
    for (answer, why) in [
        (Answer::Refuse(expired()), "the watch can no longer be resumed from resourceVersion 5"),
        (watch([fails(expired())]), "the watch can no longer be resumed from resourceVersion 5"),
        (Answer::Refuse(denied(401)), "the watch is not allowed"),
        (Answer::Refuse(denied(403)), "the watch is not allowed"),
        (watch([fails(denied(403))]), "the watch is not allowed"),
        (
            watch([Step::Frame(WatchFrame::Added(nameless.clone()))]),
            "an object without a resourceVersion",
        ),
        (
            watch([Step::Frame(WatchFrame::Bookmark(nameless))]),
            "an object without a resourceVersion",
        ),
        (watch([Step::Frame(odd)]), "a watch event of unknown type \"ODD\""),
    ] {
        let script = Script::new([answer]);
        let mut watcher = watcher(&script);
        assert_eq!(short(watcher.next().await), why);
        assert_eq!(short(watcher.next().await), "end");
        assert_eq!(script.asked().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn fac_8_silent_connection_is_dropped() {
    let script = Script::new([watch([Step::Hang]), watch([added("a", 6)])]);
    let began = Instant::now();
    assert_eq!(short(watcher(&script).next().await), "+a@6");
    let waited = began.elapsed().as_secs();
    assert!((330..631).contains(&waited), "{waited}");
}

#[tokio::test(start_paused = true)]
async fn fac_8_dropped_wait_loses_no_change() {
    let script = Script::new([watch([wait(5), added("a", 6)])]);
    let mut watcher = watcher(&script);
    assert!(tokio::time::timeout(Duration::from_secs(2), watcher.next()).await.is_err());
    assert_eq!(short(watcher.next().await), "+a@6");
    assert_eq!(script.asked().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn fac_8_until_ends_at_its_change_or_with_its_watcher() {
    let script = Script::new([
        watch([added("a", 6), modified("a", 7), modified("a", 8)]),
        Answer::Refuse(expired()),
    ]);
    let mut watcher = watcher(&script);
    let mut n_seen = 0;
    let found = until(&mut watcher, |_| {
        n_seen += 1;
        if n_seen == 2 { ControlFlow::Break("two") } else { ControlFlow::Continue(()) }
    });
    assert_eq!(found.await.unwrap(), "two");
    assert_eq!(watcher.resource_version(), "7");
    let never = until(&mut watcher, |_| ControlFlow::<()>::Continue(())).await;
    assert!(matches!(never, Err(RetryWatcherError::Expired { .. })));
    let over = until(&mut watcher, |_| ControlFlow::<()>::Continue(())).await;
    assert!(matches!(over, Err(RetryWatcherError::Ended)));
}

fn never<T>(_: &Lister<ConfigMap>) -> ControlFlow<T> {
    ControlFlow::Continue(())
}

#[tokio::test(start_paused = true)]
async fn fac_8_until_with_sync_survives_a_410() {
    let script = Script::new([
        page("5", &[("a", 5)]),
        watch([fails(expired())]),
        page("9", &[("a", 5), ("b", 9)]),
    ]);
    let found = until_with_sync(builder(&script), never, |event: &Event<ConfigMap>| match event {
        Event::Added { object, .. } if object.name() == "b" => ControlFlow::Break(object.clone()),
        _ => ControlFlow::Continue(()),
    });
    assert_eq!(format!("{:?}", found.await.unwrap()), "ns/b@9");
}

#[tokio::test(start_paused = true)]
async fn fac_8_precondition_can_detect_a_missing_object() {
    let script = Script::new([page("5", &[("a", 5)])]);
    let found = until_with_sync(
        builder(&script),
        |lister| match lister.len() {
            1 => ControlFlow::Break("alone"),
            _ => ControlFlow::Continue(()),
        },
        |_: &Event<ConfigMap>| ControlFlow::Continue(()),
    );
    assert_eq!(found.await.unwrap(), "alone");
}

/// Runs an informer over a streamed list and the list for the comparison. Returns the requests and
/// the reported differences.
async fn compared(stream: Vec<Step>, list: Answer) -> (Vec<String>, Vec<Difference>) {
    let script = Script::streaming([Answer::Watch(stream), list]);
    let found = Arc::new(Mutex::new(Vec::new()));
    let report = found.clone();
    let source = ConsistencyDetector::new(script.clone(), move |found| {
        assert_eq!(found.n_differences, found.differences.len());
        report.lock().extend(found.differences.clone());
    });
    let running = Running::start(SharedInformer::<ConfigMap>::builder(source).seed(0));
    settle().await;
    assert!(running.informer.has_synced(), "a report does not change the informer");
    running.end().await;
    let found = found.lock().clone();
    (asked(&script), found)
}

#[tokio::test(start_paused = true)]
async fn fac_9_a_streamed_list_is_compared_with_one_at_exactly_its_version() {
    let stream = || vec![added("a", 3), added("b", 4), marker(7), wait(5)];
    let (asked, found) = compared(stream(), page("7", &[("b", 4), ("a", 3)])).await;
    assert_eq!(found, []);
    assert_eq!(asked, ["stream \"\"", "list \"7\""]);

    let (_, found) = compared(stream(), page("7", &[("a", 2), ("c", 4)])).await;
    let uid = |name: &str| format!("u-{name}");
    assert_eq!(
        found,
        [
            Difference::Other(uid("a")),
            Difference::NotListed(uid("b")),
            Difference::NotStreamed(uid("c"))
        ]
    );
    // A failed comparison is not a difference: an expired version, a list at another version, a
    // list without a version.
    assert_eq!(compared(stream(), no_list(expired())).await.1, []);
    assert_eq!(compared(stream(), page("8", &[])).await.1, []);
    let (asked, found) = compared(vec![added("a", 3), marker(0), wait(5)], page("0", &[])).await;
    assert_eq!((asked.len(), found.len()), (1, 0));
}
