//! Resyncs (spec §2.6, 6.1).
use crate::support::*;
use setpoint_informer::HandlerOptions;
use setpoint_informer::source::scripted::{Answer, Script, Step};
use std::time::Duration;

const A: &str = "a@1>a@1";

fn every(seconds: u64) -> HandlerOptions {
    HandlerOptions::default().resync(Duration::from_secs(seconds))
}

#[tokio::test(start_paused = true)]
async fn ref_40_shi_21_a_resync_is_local_and_goes_to_the_handlers_that_are_due() {
    let script = Script::new([page("5", &[("a", 1)])]);
    let (often, seldom, never) = (Log::default(), Log::default(), Log::default());
    let running =
        Running::start_with(builder(&script).resync(Duration::from_secs(30)), |informer| {
            often.add(informer);
            seldom.add_with(informer, every(90));
            never.add_with(informer, every(0));
        });
    pass(1).await;
    for log in [&often, &seldom, &never] {
        assert_eq!(log.take(), ["+a@1!"]);
    }
    pass(30).await;
    assert_eq!((often.take().len(), seldom.take().len()), (1, 0));
    pass(60).await;
    assert_eq!((often.take(), seldom.take()), (vec![A.to_owned(); 2], vec![A.to_owned()]));
    assert!(never.take().is_empty());
    assert_eq!(asked(&script).len(), 2, "no request was sent");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn ref_41_shi_20a_informer_without_a_period_never_resyncs() {
    let script = Script::new([page("5", &[("a", 1)])]);
    let log = Log::default();
    let running = Running::start(builder(&script));
    let registration = log.add_with(&running.informer, every(5));
    pass(1000).await;
    assert_eq!(registration.resync_period(), None);
    assert_eq!(log.take(), ["+a@1!"]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn shi_20bc_shorter_period_before_the_start_lowers_the_check_period_to_at_least_a_second() {
    let script = Script::new([page("5", &[("a", 1)])]);
    let log = Log::default();
    let mut registrations = Vec::new();
    let running =
        Running::start_with(builder(&script).resync(Duration::from_secs(30)), |informer| {
            registrations.push(Log::default().add(informer));
            let short = HandlerOptions::default().resync(Duration::from_millis(5));
            registrations.push(log.add_with(informer, short));
        });
    let periods: Vec<_> = registrations.iter().map(|one| one.resync_period()).collect();
    assert_eq!(periods, [Some(Duration::from_secs(30)), Some(Duration::from_secs(1))]);
    pass(10).await;
    let n_events = log.take().len();
    assert!((9..=11).contains(&n_events), "{n_events}");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn shi_20d_after_the_start_a_shorter_period_is_raised() {
    let script = Script::new([page("5", &[("a", 1)])]);
    let running = Running::start(builder(&script).resync(Duration::from_secs(30)));
    pass(1).await;
    let registration = Log::default().add_with(&running.informer, every(10));
    assert_eq!(registration.resync_period(), Some(Duration::from_secs(30)));
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn shi_20e_a_period_between_ticks_waits_for_the_next() {
    let script = Script::new([page("5", &[("a", 1)])]);
    let log = Log::default();
    let running =
        Running::start_with(builder(&script).resync(Duration::from_secs(30)), |informer| {
            drop(log.add_with(informer, every(40)));
        });
    pass(31).await;
    assert_eq!(log.take().len(), 1, "not due at 30 s");
    pass(30).await;
    assert_eq!(log.take(), [A], "due at 60 s");
    running.end().await;
}

/// A relist of cached objects, 10 s after the first list.
fn relisting() -> Script {
    Script::new([
        page("5", &[("a", 1)]),
        Answer::Watch(vec![wait(10), fails(expired())]),
        page("6", &[("a", 1)]),
    ])
}

#[tokio::test(start_paused = true)]
async fn shi_22_relist_notifies_of_unchanged_objects_without_a_timer_or_if_due() {
    let log = Log::default();
    let running = Running::start_with(builder(&relisting()), |informer| drop(log.add(informer)));
    pass(20).await;
    assert_eq!(log.take(), ["+a@1!", A]);
    running.end().await;

    let (early, late) = (Log::default(), Log::default());
    let running =
        Running::start_with(builder(&relisting()).resync(Duration::from_secs(4)), |informer| {
            early.add_with(informer, every(4));
            late.add_with(informer, every(3600));
        });
    pass(1).await;
    early.take();
    late.take();
    pass(12).await;
    // Ticks at 4 and 8 s notify the early handler. At the relist at about 11 s, it is due since the
    // tick at 8 s, and the late one is not due.
    assert_eq!(early.take(), [A, A, A]);
    assert!(late.take().is_empty());
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn ref_42_a_reflector_that_cannot_list_does_not_resync() {
    let answers = [page("5", &[("a", 1)]), Answer::Watch(vec![wait(2), fails(expired())])];
    let script = Script::new(answers);
    let log = Log::default();
    let running =
        Running::start_with(builder(&script).resync(Duration::from_secs(5)), |informer| {
            drop(log.add(informer));
        });
    pass(100).await;
    assert_eq!(asked(&script).len(), 3, "it waits for its second list");
    assert_eq!(log.take(), ["+a@1!"]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn resyncs_continue_while_watches_are_refused() {
    let refusals = (0..50).map(|_| Answer::Refuse(refused()));
    let script = Script::new([page("5", &[("a", 1)])].into_iter().chain(refusals));
    let log = Log::default();
    let running =
        Running::start_with(builder(&script).resync(Duration::from_secs(30)), |informer| {
            drop(log.add(informer));
        });
    pass(91).await;
    assert_eq!(log.take(), ["+a@1!", A, A, A]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn handlers_that_are_not_due_still_get_changes() {
    let script = Script::new([
        page("5", &[("a", 1)]),
        Answer::Watch(vec![wait(45), modified("a", 7), Step::Hang]),
    ]);
    let log = Log::default();
    let running =
        Running::start_with(builder(&script).resync(Duration::from_secs(30)), |informer| {
            drop(log.add_with(informer, every(3600)));
        });
    pass(50).await;
    assert_eq!(log.take(), ["+a@1!", "a@1>a@7"]);
    running.end().await;
}
