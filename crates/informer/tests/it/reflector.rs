//! Paged lists, watches, and the reaction to each failure (spec §2.2, 2.4, 2.5).
use crate::support::*;
use setpoint_informer::reflector::ReflectorOptions;
use setpoint_informer::source::WatchFrame;
use setpoint_informer::source::scripted::{Answer, Script, Step};
use setpoint_informer::{ReflectorError, SourceError};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;

#[tokio::test(start_paused = true)]
async fn ref_1a_9_20_34_the_first_list_takes_any_state_and_the_watch_follows_it() {
    let script = Script::new([page("5", &[("a", 3), ("b", 5)])]);
    let running = Running::start(builder(&script));
    running.informer.synced().await.unwrap();
    settle().await;
    assert_eq!(asked(&script), [r#"list "0" limit=500"#, r#"watch "5""#]);
    assert_eq!(running.cache(), ["ns/a@3", "ns/b@5"]);
    assert_eq!(&*running.informer.last_sync_resource_version(), "5");
    assert_eq!(&*running.informer.lister().resource_version(), "5");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn ref_1b_27_a_normal_close_watches_on_and_a_broken_watch_lists_not_older_without_limit() {
    let script = Script::new([
        page("5", &[]),
        Answer::Watch(vec![wait(2), added("a", 6)]),
        Answer::Watch(vec![wait(2), added("b", 7), fails(internal())]),
        page("8", &[("b", 7)]),
    ]);
    let running = Running::start(builder(&script));
    pass(10).await;
    assert_eq!(
        asked(&script),
        [r#"list "0" limit=500"#, r#"watch "5""#, r#"watch "6""#, r#"list "7""#, r#"watch "8""#]
    );
    assert_eq!(running.cache(), ["ns/b@7"]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn ref_27_a_lost_connection_watches_on_from_the_same_version() {
    let script = Script::new([
        page("5", &[]),
        Answer::Watch(vec![wait(2), added("a", 6), fails(lost())]),
        Answer::Refuse(refused()),
        Answer::Watch(vec![wait(2), fails(lost())]),
    ]);
    let running = Running::start(builder(&script));
    pass(10).await;
    assert_eq!(
        asked(&script),
        [r#"list "0" limit=500"#, r#"watch "5""#, r#"watch "6""#, r#"watch "6""#, r#"watch "6""#],
        "a restart of the server causes no list"
    );
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn ref_1d_an_explicit_page_size_is_always_sent() {
    let script = Script::new([
        page("5", &[]),
        Answer::Watch(vec![wait(2), fails(internal())]),
        page("5", &[]),
    ]);
    let running = Running::start(builder(&script).page_size(7));
    pass(10).await;
    assert_eq!(
        asked(&script),
        [r#"list "0" limit=7"#, r#"watch "5""#, r#"list "5" limit=7"#, r#"watch "5""#]
    );
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn ref_1e_2_3_pages_follow_by_token_alone_and_make_the_reflector_page_for_ever() {
    let script = Script::new([
        page_continued("5", &[("a", 1)], "t1"),
        page_continued("", &[("b", 2)], "t2"),
        page("6", &[("c", 3)]),
        Answer::Watch(vec![wait(2), fails(internal())]),
        page("7", &[]),
    ]);
    let running = Running::start(builder(&script));
    running.informer.synced().await.unwrap();
    assert_eq!(running.cache(), ["ns/a@1", "ns/b@2", "ns/c@3"]);
    pass(10).await;
    assert_eq!(
        asked(&script),
        [
            r#"list "0" limit=500"#,
            r#"list "" limit=500 after=t1"#,
            r#"list "" limit=500 after=t2"#,
            r#"watch "5""#,
            r#"list "5" limit=500"#,
            r#"watch "7""#,
        ]
    );
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn ref_1e_only_a_list_of_any_state_that_came_in_pages_makes_the_reflector_page() {
    let script = Script::new([
        no_list(expired()),
        page_continued("5", &[("a", 1)], "t1"),
        page("6", &[("b", 2)]),
        Answer::Watch(vec![wait(2), fails(internal())]),
        page("7", &[]),
    ]);
    let running = Running::start(builder(&script));
    pass(10).await;
    assert_eq!(
        asked(&script),
        [
            r#"list "0" limit=500"#,
            r#"list "" limit=500"#,
            r#"list "" limit=500 after=t1"#,
            r#"watch "5""#,
            r#"list "5""#,
            r#"watch "7""#
        ]
    );
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn ref_4_a_list_in_one_piece_is_tried_once() {
    let script = Script::new([
        page_continued("5", &[("a", 1)], "t1"),
        no_list(expired()),
        page_continued("6", &[("a", 1)], "t2"),
        no_list(expired()),
        page("7", &[("b", 2)]),
    ]);
    let running = Running::start(builder(&script));
    running.informer.synced().await.unwrap();
    assert_eq!(
        asked(&script)[..5],
        [
            r#"list "0" limit=500"#,
            r#"list "" limit=500 after=t1"#,
            r#"list "0""#,
            r#"list "" limit=500 after=t2"#,
            r#"list "" limit=500"#
        ],
        "then the version counts as unavailable (REF-5)"
    );
    assert_eq!(running.cache(), ["ns/b@2"]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn ref_9_rejected_list_does_not_change_the_version() {
    let script = Script::new([
        page("5", &[("bad", 2)]),
        page("6", &[]),
        Answer::Watch(vec![wait(2), added("a", 7), fails(internal())]),
        page("9", &[("bad", 2)]),
        page("9", &[]),
    ]);
    let running = Running::start(builder(&script).transform(|object| {
        match memchr::memmem::find(&object, b"\"bad\"") {
            Some(_) => Err(setpoint_informer::transform::TransformError("no".to_owned())),
            None => Ok(object),
        }
    }));
    pass(20).await;
    assert_eq!(
        asked(&script),
        [
            r#"list "0" limit=500"#,
            r#"list "0" limit=500"#,
            r#"watch "6""#,
            r#"list "7""#,
            r#"list "7""#,
            r#"watch "9""#
        ]
    );
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn ref_25_event_that_an_index_cannot_decode_is_reported_and_the_watch_continues() {
    let bad = Step::Frame(WatchFrame::Added(bytes::Bytes::from_static(
        br#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"namespace":"ns","name":"bad","resourceVersion":"6"},"data":7}"#,
    )));
    let script =
        Script::new([page("5", &[]), Answer::Watch(vec![wait(2), bad, added("b", 7), wait(2)])]);
    let errors = Arc::new(AtomicUsize::new(0));
    let seen = errors.clone();
    let running = Running::start(
        builder(&script)
            .index("v", |_| vec![])
            .on_error(move |_| _ = seen.fetch_add(1, Ordering::Relaxed)),
    );
    pass(10).await;
    assert_eq!(running.cache(), ["ns/b@7", "ns/bad@6"]);
    assert_eq!(errors.load(Ordering::Relaxed), 1);
    assert_eq!(asked(&script)[1..], [r#"watch "5""#, r#"watch "7""#]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn ref_30g_a_watch_that_breaks_ends_the_round_and_the_error_handler_is_not_called() {
    let script = Script::new([
        page("5", &[]),
        Answer::Watch(vec![wait(2), fails(internal())]),
        page("6", &[]),
        Answer::Watch(vec![]),
        page("7", &[]),
    ]);
    let errors = Arc::new(AtomicUsize::new(0));
    let seen = errors.clone();
    let start = Instant::now();
    let running = Running::start(
        builder(&script).on_error(move |_| _ = seen.fetch_add(1, Ordering::Relaxed)),
    );
    pass(20).await;
    assert_eq!(asked(&script).len(), 6);
    assert_eq!(errors.load(Ordering::Relaxed), 0);
    let at = asked_at(&script, start);
    assert!((0.8..1.6).contains(&(at[2] - at[1] - 2.0)), "one step: {at:?}");
    assert!((1.6..3.2).contains(&(at[4] - at[3])), "and the next: {at:?}");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn ref_30f_internal_errors_are_forgotten_after_a_quiet_minute() {
    let mut options = ReflectorOptions::default();
    options.internal_error_budget = Duration::from_secs(10);
    // Each counts as the first: there are 70 s between two, and in total far more than the budget.
    let watches = (0..5).map(|_| Answer::Watch(vec![wait(70), fails(internal())]));
    let script = Script::new([page("5", &[])].into_iter().chain(watches));
    let running = Running::start(builder(&script).reflector(options));
    pass(400).await;
    assert_eq!(asked(&script).len(), 7);
    assert!(asked(&script)[1..].iter().all(|asked| asked == r#"watch "5""#));
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn ref_4_a_continue_token_that_expired_leads_to_one_list_in_one_piece() {
    let script = Script::new([
        page_continued("5", &[("a", 1)], "t1"),
        no_list(expired()),
        page("6", &[("b", 2)]),
    ]);
    let running = Running::start(builder(&script));
    running.informer.synced().await.unwrap();
    settle().await;
    assert_eq!(
        asked(&script),
        [r#"list "0" limit=500"#, r#"list "" limit=500 after=t1"#, r#"list "0""#, r#"watch "6""#]
    );
    assert_eq!(running.cache(), ["ns/b@2"], "the first page was dropped");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn ref_1c_5_6_a_version_the_server_cannot_give_is_listed_at_latest_at_once() {
    for error in [expired as fn() -> SourceError, too_large] {
        let script = Script::new([
            page("5", &[]),
            Answer::Watch(vec![wait(2), fails(internal())]),
            no_list(error()),
            page("8", &[]),
            Answer::Watch(vec![wait(2), fails(internal())]),
            page("9", &[]),
        ]);
        let start = Instant::now();
        let running = Running::start(builder(&script));
        pass(20).await;
        assert_eq!(
            asked(&script)[2..],
            [r#"list "5""#, r#"list "" limit=500"#, r#"watch "8""#, r#"list "8""#, r#"watch "9""#],
            "a list that succeeds clears the flag"
        );
        let at = asked_at(&script, start);
        assert_eq!(at[2], at[3], "no wait between the two");
        running.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn ref_30d_invariant_7_expired_watch_lists_once_at_the_last_version_without_a_report() {
    let script = Script::new([
        page("5", &[("a", 1), ("b", 2)]),
        Answer::Watch(vec![wait(2), modified("a", 6), fails(expired())]),
        page("9", &[("a", 6)]),
    ]);
    let errors = Arc::new(AtomicUsize::new(0));
    let seen = errors.clone();
    let log = Log::default();
    let running = Running::start_with(
        builder(&script).on_error(move |_| _ = seen.fetch_add(1, Ordering::Relaxed)),
        |informer| drop(log.add(informer)),
    );
    pass(10).await;
    assert_eq!(
        asked(&script),
        [r#"list "0" limit=500"#, r#"watch "5""#, r#"list "6""#, r#"watch "9""#]
    );
    assert_eq!(errors.load(Ordering::Relaxed), 0);
    assert_eq!(
        log.take(),
        ["+a@1!", "+b@2!", "a@1>a@6", "-b@2?", "a@6>a@6"],
        "EVT-4: deletions first, as tombstones; SHI-22: without resyncs a relist notifies again"
    );
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn ref_30a_31_a_failing_list_is_repeated_with_back_off_and_reported() {
    let answers = (0..6).map(|_| no_list(missing()));
    let script = Script::new(answers.chain([page("1", &[])]));
    let errors = Arc::new(AtomicUsize::new(0));
    let seen = errors.clone();
    let start = Instant::now();
    let running = Running::start(builder(&script).on_error(move |error| {
        assert!(matches!(error, ReflectorError::List { .. }));
        seen.fetch_add(1, Ordering::Relaxed);
    }));
    settle().await;
    let degraded = running.informer.status().degraded.expect("degraded");
    assert_eq!(
        degraded.to_string(),
        "failed to list configmaps: the server could not find the requested resource"
    );
    assert!(!running.informer.has_synced());
    running.informer.synced().await.unwrap();
    settle().await;
    assert!(running.informer.status().degraded.is_none(), "it recovered by itself");
    assert_eq!(errors.load(Ordering::Relaxed), 6);
    let at = asked_at(&script, start);
    for (pair, base) in at.windows(2).zip([0.8, 1.6, 3.2, 6.4, 12.8, 25.6]) {
        let waited = pair[1] - pair[0];
        assert!((base - 0.002..2.0 * base + 0.002).contains(&waited), "{waited} for {base}");
    }
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn builder_sets_the_back_off() {
    let script = Script::new((0..4).map(|_| no_list(missing())));
    let start = Instant::now();
    let min = Duration::from_millis(10);
    let running = Running::start(builder(&script).backoff(min, 2 * min));
    pass(1).await;
    let at = asked_at(&script, start);
    assert_eq!(at.len(), 5);
    for (pair, base) in at.windows(2).zip([0.01, 0.02, 0.02, 0.02]) {
        let waited = pair[1] - pair[0];
        assert!((base - 0.002..2.0 * base + 0.002).contains(&waited), "{waited} for {base}");
    }
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn ref_30b_invariant_8_refused_and_busy_never_cause_a_relist() {
    let mut answers = vec![page("5", &[])];
    for _ in 0..4 {
        answers.push(Answer::Refuse(refused()));
        answers.push(Answer::Refuse(busy()));
    }
    answers.push(Answer::Watch(vec![wait(2), fails(busy())]));
    let script = Script::new(answers);
    let errors = Arc::new(AtomicUsize::new(0));
    let seen = errors.clone();
    let running = Running::start(
        builder(&script).on_error(move |_| _ = seen.fetch_add(1, Ordering::Relaxed)),
    );
    pass(1).await;
    let degraded = running.informer.status().degraded.expect("degraded while refused");
    assert_eq!(degraded.to_string(), "failed to watch configmaps: connection refused");
    pass(300).await;
    let asked = asked(&script);
    assert_eq!(asked[0], r#"list "0" limit=500"#);
    assert_eq!(asked.len(), 11);
    assert!(asked[1..].iter().all(|asked| asked == r#"watch "5""#), "{asked:?}");
    assert_eq!(errors.load(Ordering::Relaxed), 0);
    assert!(running.informer.status().degraded.is_none());
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn ref_30c_a_watch_that_cannot_be_opened_ends_the_round() {
    let script = Script::new([page("5", &[]), Answer::Refuse(expired()), page("7", &[])]);
    let errors = Arc::new(AtomicUsize::new(0));
    let seen = errors.clone();
    let running = Running::start(
        builder(&script).on_error(move |_| _ = seen.fetch_add(1, Ordering::Relaxed)),
    );
    pass(5).await;
    assert_eq!(
        asked(&script),
        [r#"list "0" limit=500"#, r#"watch "5""#, r#"list "5""#, r#"watch "7""#]
    );
    assert_eq!(errors.load(Ordering::Relaxed), 1);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn ref_30f_internal_errors_within_the_budget_watch_again_at_once() {
    let mut options = ReflectorOptions::default();
    options.internal_error_budget = Duration::from_secs(10);
    let script = Script::new([
        page("5", &[]),
        Answer::Watch(vec![wait(2), fails(internal())]),
        Answer::Watch(vec![wait(2), fails(internal())]),
        Answer::Watch(vec![wait(12), fails(internal())]),
        page("6", &[]),
    ]);
    let running = Running::start(builder(&script).reflector(options));
    pass(30).await;
    assert_eq!(
        asked(&script),
        [
            r#"list "0" limit=500"#,
            r#"watch "5""#,
            r#"watch "5""#,
            r#"watch "5""#,
            r#"list "5""#,
            r#"watch "6""#
        ]
    );
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn ref_27_30g_very_short_watch_is_an_error_and_is_repeated_after_a_wait() {
    let script = Script::new([page("5", &[]), Answer::Watch(vec![]), page("6", &[])]);
    let start = Instant::now();
    let running = Running::start(builder(&script));
    pass(10).await;
    assert_eq!(
        asked(&script),
        [r#"list "0" limit=500"#, r#"watch "5""#, r#"list "5""#, r#"watch "6""#]
    );
    assert!(asked_at(&script, start)[2] >= 0.8, "it waited first");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn ref_21_22_versions_of_replayed_additions_are_not_recorded_until_order_begins() {
    // A list without a version: the watch starts without a version and replays the existing objects
    // in any order.
    let script = Script::new([
        page("", &[("a", 9)]),
        Answer::Watch(vec![added("a", 9), added("b", 4), wait(2)]),
        Answer::Watch(vec![added("a", 9), modified("b", 10), added("c", 11), wait(2)]),
    ]);
    let running = Running::start(builder(&script));
    pass(1).await;
    assert_eq!(&*running.informer.last_sync_resource_version(), "");
    assert_eq!(running.cache(), ["ns/a@9", "ns/b@4"]);
    pass(10).await;
    assert_eq!(
        asked(&script),
        [r#"list "0" limit=500"#, r#"watch """#, r#"watch """#, r#"watch "11""#]
    );
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn ref_23_bookmarks_set_the_version_and_change_no_object() {
    let script = Script::new([page("5", &[("a", 1)]), long_watch(40)]);
    let log = Log::default();
    let running = Running::start_with(builder(&script), |informer| drop(log.add(informer)));
    pass(3).await;
    assert_eq!(asked(&script)[2], r#"watch "40""#);
    assert_eq!(&*running.informer.lister().resource_version(), "40");
    assert_eq!(log.take(), ["+a@1!"]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn ref_7_24_invariant_16_bad_objects_are_skipped_and_do_not_move_the_version() {
    let frame = |json: &'static str| {
        Step::Frame(WatchFrame::Added(bytes::Bytes::from_static(json.as_bytes())))
    };
    let bad = vec![
        wait(2),
        frame(r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"50"}}"#),
        frame(
            r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"","resourceVersion":"51"}}"#,
        ),
        frame(r#"{"kind":"ConfigMap","apiVersion":"v1"}"#),
        frame("[1]"),
        frame(
            r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"52"}}"#,
        ),
    ];
    let unknown = Step::Frame(WatchFrame::Unknown {
        verb: "RENAMED".to_owned(),
        object: bytes::Bytes::from_static(br#"{"metadata":{"resourceVersion":"60"}}"#),
    });
    let script = Script::new([
        page("5", &[]),
        Answer::Watch(bad),
        Answer::Watch(vec![wait(2), added("ok", 7), unknown]),
    ]);
    let skipped = Arc::new(AtomicUsize::new(0));
    let seen = skipped.clone();
    let running = Running::start(
        builder(&script).on_error(move |_| _ = seen.fetch_add(1, Ordering::Relaxed)),
    );
    pass(10).await;
    assert_eq!(
        asked(&script),
        [r#"list "0" limit=500"#, r#"watch "5""#, r#"watch "5""#, r#"watch "60""#],
        "an unknown verb still moves the version"
    );
    assert_eq!(skipped.load(Ordering::Relaxed), 5);
    assert_eq!(running.cache(), ["ns/ok@7"]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn invariant_16_list_with_invalid_and_repeated_items_is_accepted_without_the_invalid_ones() {
    let items = vec![item("a", 1), bytes::Bytes::from_static(b"{}"), item("a", 2), item("b", 1)];
    let script =
        Script::new([Answer::List(Ok(setpoint_informer::source::ListPage::new("5", items)))]);
    let log = Log::default();
    let running = Running::start_with(builder(&script), |informer| drop(log.add(informer)));
    settle().await;
    assert_eq!(running.cache(), ["ns/a@2", "ns/b@1"]);
    assert_eq!(log.take(), ["+a@2!", "+b@1!"]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn ref_8_30h_stop_ends_every_phase_at_once() {
    let scripts = [
        Script::new([]),
        Script::new([no_list(missing())]),
        Script::new([page("5", &[])]),
        Script::new([page("5", &[]), Answer::Refuse(refused())]),
        Script::streaming([Answer::Watch(vec![Step::Hang])]),
    ];
    for script in scripts {
        let running = Running::start(builder(&script));
        settle().await;
        let informer = running.informer.clone();
        let asked = Instant::now();
        running.end().await;
        assert_eq!(asked.elapsed(), Duration::ZERO);
        assert!(informer.has_stopped());
    }
}
