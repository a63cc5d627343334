//! The maximum duration and quiet time of a watch (spec §2.4).
use crate::support::*;
use setpoint_informer::HandlerOptions;
use setpoint_informer::reflector::ReflectorOptions;
use setpoint_informer::source::scripted::{Answer, Asked, Script, Step};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

#[tokio::test(start_paused = true)]
async fn invariant_9_watch_timeouts_are_five_to_ten_minutes_and_differ() {
    let answers = (0..30).map(|n| long_watch(n + 6));
    let script = Script::new([page("5", &[])].into_iter().chain(answers));
    let running = Running::start(builder(&script));
    pass(100).await;
    let timeouts: BTreeSet<u64> = script
        .asked()
        .iter()
        .filter_map(|asked| match asked {
            Asked::Watch(_, watch) => Some(watch.timeout.as_secs()),
            _ => None,
        })
        .collect();
    assert!(timeouts.iter().all(|timeout| (300..600).contains(timeout)), "{timeouts:?}");
    assert!(timeouts.len() > 20, "{timeouts:?}");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn watch_that_the_server_never_closes_is_dropped_after_its_timeout() {
    let script = Script::new([page("5", &[]), Answer::Watch(vec![Step::Hang])]);
    let start = Instant::now();
    let running = Running::start(builder(&script));
    pass(700).await;
    assert_eq!(asked(&script).len(), 3, "{:?}", asked(&script));
    let at = asked_at(&script, start)[2];
    assert!((330.0..630.1).contains(&at), "{at}");
    running.end().await;
}

/// A missing bookmark detects a dead connection.
#[tokio::test(start_paused = true)]
async fn quiet_watch_is_reopened_at_its_last_version() {
    for (quiet, expected) in [(None, 90.0..115.0), (Some(8), 8.0..11.0)] {
        let script = Script::new([
            page("5", &[]),
            Answer::Watch(vec![wait(50), bookmark(7), wait(80), bookmark(8), Step::Hang]),
            Answer::Watch(vec![Step::Hang]),
        ]);
        let start = Instant::now();
        let mut options = ReflectorOptions::default();
        if let Some(quiet) = quiet {
            options.watch_quiet_timeout = Some(Duration::from_secs(quiet));
        }
        let running = Running::start(builder(&script).reflector(options));
        pass(300).await;
        let (asked, at) = (asked(&script), asked_at(&script, start));
        // Each bookmark restarts the quiet time. Before the first bookmark, there is no limit.
        let last = if quiet.is_some() { 50.0 } else { 130.0 };
        assert!(expected.contains(&(at[2] - last)), "{asked:?} at {at:?}");
        assert!(asked[2].contains(if quiet.is_some() { "7" } else { "8" }), "{asked:?}");
        assert!(running.informer.status().degraded.is_none());
        running.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_without_bookmarks_may_be_quiet() {
    let script = Script::new([page("5", &[]), Answer::Watch(vec![Step::Hang])]);
    let running = Running::start(builder(&script));
    pass(300).await;
    assert_eq!(asked(&script).len(), 2, "{:?}", asked(&script));
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn longest_periods_are_never() {
    let script = Script::new([
        no_list(missing()),
        page("5", &[("a", 1)]),
        Answer::Watch(vec![wait(100_000), added("b", 6), Step::Hang]),
    ]);
    let never = Duration::MAX;
    let mut options = ReflectorOptions::default();
    options.watch_timeout_min = never;
    options.watch_quiet_timeout = Some(never);
    options.initial_events_timeout = never;
    options.initial_events_total = never;
    options.list_quiet_timeout = never;
    options.list_timeout = never;
    options.internal_error_budget = never;
    let log = Log::default();
    let builder = builder(&script).reflector(options).give_up_after(never).resync(never);
    let running = Running::start_with(builder.resync_spread(0.1), |informer| {
        log.add_with(informer, HandlerOptions::default().resync(never));
    });
    pass(200_000).await;
    assert_eq!(log.take(), ["+a@1!", "+b@6"]);
    running.end().await;
}
