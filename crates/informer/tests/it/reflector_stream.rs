//! Streamed lists (spec §2.3).
use crate::support::*;
use setpoint_informer::source::scripted::{Answer, Script, Step};
use tokio::time::Instant;

#[tokio::test(start_paused = true)]
async fn ref_11a_11d_a_streamed_list_becomes_the_watch() {
    let script = Script::streaming([Answer::Watch(vec![
        added("b", 9),
        added("a", 3),
        marker(12),
        wait(5),
        modified("a", 13),
    ])]);
    let log = Log::default();
    let running = Running::start_with(builder(&script), |informer| drop(log.add(informer)));
    running.informer.synced().await.unwrap();
    assert_eq!(&*running.informer.last_sync_resource_version(), "12");
    pass(6).await;
    assert_eq!(asked(&script), [r#"stream """#, r#"watch "13""#], "never from \"0\", no list");
    assert_eq!(log.take(), ["+a@3!", "+b@9!", "a@3>a@13"]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn ref_12_invariant_14_stream_that_ends_before_its_marker_is_discarded() {
    let script = Script::streaming([
        Answer::Watch(vec![added("a", 3), added("b", 9), wait(2)]),
        Answer::Watch(vec![added("c", 4), wait(2), marker(12), Step::Hang]),
    ]);
    let start = Instant::now();
    let running = Running::start(builder(&script));
    pass(3).await;
    assert_eq!(asked(&script), [r#"stream """#, r#"stream """#], "no version was recorded");
    assert_eq!(asked_at(&script, start)[1], 2.0, "opened at once");
    assert!(running.cache().is_empty() && !running.informer.has_synced());
    pass(2).await;
    assert_eq!(running.cache(), ["ns/c@4"]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_cut_twice_before_its_marker_falls_back_to_pages() {
    let script = Script::streaming([
        Answer::Watch(vec![added("a", 3), wait(2)]),
        Answer::Watch(vec![added("a", 3), wait(2), fails(lost())]),
        page("5", &[("a", 3)]),
    ]);
    let running = Running::start(builder(&script));
    running.informer.synced().await.unwrap();
    settle().await;
    assert_eq!(
        asked(&script),
        [r#"stream """#, r#"stream """#, r#"list "0" limit=500"#, r#"watch "5""#]
    );
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn ref_11f_refused_or_busy_waits_and_streams_again() {
    let script = Script::streaming([
        Answer::Refuse(refused()),
        Answer::Refuse(busy()),
        Answer::Watch(vec![added("a", 3), fails(busy())]),
        Answer::Watch(vec![marker(5), Step::Hang]),
    ]);
    let start = Instant::now();
    let running = Running::start(builder(&script));
    running.informer.synced().await.unwrap();
    assert_eq!(asked(&script), [r#"stream """#; 4]);
    assert!(running.cache().is_empty());
    for (pair, base) in asked_at(&script, start).windows(2).zip([0.8, 1.6, 3.2]) {
        let waited = pair[1] - pair[0];
        assert!((base - 0.002..2.0 * base + 0.002).contains(&waited), "{waited} for {base}");
    }
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn ref_11g_expired_version_streams_again_from_the_most_recent_state() {
    for error in [expired as fn() -> _, too_large] {
        let script = Script::streaming([
            Answer::Watch(vec![added("a", 3), marker(5), wait(2), fails(expired())]),
            Answer::Refuse(error()),
            Answer::Watch(vec![marker(9), Step::Hang]),
        ]);
        let running = Running::start(builder(&script));
        pass(10).await;
        assert_eq!(asked(&script), [r#"stream """#, r#"stream "5""#, r#"stream """#]);
        assert!(running.cache().is_empty());
        running.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn ref_11h_any_other_failure_lists_in_pages_for_this_round_only() {
    let script = Script::streaming([
        Answer::Refuse(missing()),
        no_list(missing()),
        Answer::Watch(vec![]),
        page("5", &[("a", 3)]),
        Answer::Watch(vec![wait(2), fails(internal())]),
        Answer::Watch(vec![marker(9), Step::Hang]),
    ]);
    let running = Running::start(builder(&script));
    pass(20).await;
    assert_eq!(
        asked(&script),
        [
            r#"stream """#,
            r#"list "0" limit=500"#,
            r#"stream """#,
            r#"list "0" limit=500"#,
            r#"watch "5""#,
            r#"stream "5""#
        ]
    );
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn ref_13_server_without_the_marker_gets_paged_lists_from_then_on() {
    let script = Script::streaming([
        Answer::Watch(vec![added("a", 3), Step::Hang]),
        page("5", &[("a", 3)]),
        Answer::Watch(vec![wait(2), fails(internal())]),
        page("6", &[]),
    ]);
    let running = Running::start(builder(&script));
    pass(119).await;
    assert!(!running.informer.has_synced());
    pass(20).await;
    assert!(running.informer.has_synced());
    assert_eq!(
        asked(&script),
        [r#"stream """#, r#"list "0" limit=500"#, r#"watch "5""#, r#"list "5""#, r#"watch "6""#]
    );
    running.end().await;
}
