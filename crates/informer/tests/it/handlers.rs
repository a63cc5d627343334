//! Handlers: late, slow, panicking, removed.
use crate::support::*;
use futures::FutureExt;
use k8s_openapi::api::core::v1::ConfigMap;
use setpoint_informer::handler::{FilteringHandler, WithinCall};
use setpoint_informer::source::scripted::{Answer, Script, Step};
use setpoint_informer::{Event, Handler, HandlerOptions, HandlerRegistration, Stopped};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

/// A handler whose calls wait until the gate is open.
struct Gated {
    log: Log,
    gate: watch::Receiver<bool>,
    began: mpsc::UnboundedSender<()>,
}

impl Handler<ConfigMap> for Gated {
    async fn handle(&mut self, event: Event<ConfigMap>) {
        self.began.send(()).unwrap();
        let _ = self.gate.wait_for(|open| *open).await;
        self.log.write(&event);
    }
}

fn gated() -> (Gated, Log, watch::Sender<bool>, mpsc::UnboundedReceiver<()>) {
    let (gate, receiver) = watch::channel(false);
    let (began, calls) = mpsc::unbounded_channel();
    let log = Log::default();
    (Gated { log: log.clone(), gate: receiver, began }, log, gate, calls)
}

fn story() -> Vec<Step> {
    vec![
        wait(1),
        added("c", 6),
        modified("a", 7),
        deleted("b", 8),
        wait(10),
        modified("a", 9),
        Step::Hang,
    ]
}

#[tokio::test(start_paused = true)]
async fn shi_3_late_handler_gets_the_cached_objects_and_then_each_change_once() {
    let script = Script::new([page("5", &[("a", 1), ("b", 2)]), Answer::Watch(story())]);
    let running = Running::start(builder(&script));
    pass(5).await;
    let log = Log::default();
    let registration = log.add(&running.informer);
    registration.synced().await.unwrap();
    assert_eq!(log.take(), ["+a@7!", "+c@6!"]);
    pass(10).await;
    assert_eq!(log.take(), ["a@7>a@9"]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn shi_9_a_handler_is_synced_when_its_initial_calls_have_returned() {
    let script = Script::new([page("5", &[("a", 1), ("b", 2)])]);
    let (handler, log, gate, _calls) = gated();
    let running = Running::start(builder(&script));
    let registration = running.informer.add_handler(handler, HandlerOptions::default()).unwrap();
    running.informer.synced().await.unwrap();
    settle().await;
    assert!(
        !registration.has_synced(),
        "the informer has synced, but the first call is still running"
    );
    assert_eq!(registration.pending(), 1);
    gate.send_replace(true);
    registration.synced().await.unwrap();
    assert_eq!(log.take(), ["+a@1!", "+b@2!"]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_of_an_empty_list_is_synced_with_its_informer() {
    let script = Script::new([page("5", &[])]);
    let running = Running::start(builder(&script));
    let early = Log::default().add(&running.informer);
    early.synced().await.unwrap();
    assert!(Log::default().add(&running.informer).has_synced(), "a late one at once");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn shi_4_5_invariant_12_blocked_handler_delays_nothing_and_uses_bounded_memory() {
    let mut steps = vec![wait(1)];
    for version in 10..5000 {
        steps.push(modified(if version % 2 == 0 { "a" } else { "b" }, version));
    }
    steps.push(Step::Hang);
    let script = Script::new([page("5", &[("a", 1), ("b", 2)]), Answer::Watch(steps)]);
    let (stuck, stuck_log, gate, _calls) = gated();
    let log = Log::default();
    let running = Running::start(builder(&script));
    let options = HandlerOptions::default().queue_max(16);
    let registration = running.informer.add_handler(stuck, options).unwrap();
    let _quick = log.add(&running.informer);
    pass(2).await;
    assert_eq!(running.cache(), ["ns/a@4998", "ns/b@4999"], "the cache is not delayed");
    assert_eq!(log.take().len(), 2 + 4990, "the other handler gets every event");
    assert!(registration.pending() <= 16 + 2 * 2, "{}", registration.pending());

    gate.send_replace(true);
    settle().await;
    let events = stuck_log.take();
    assert_eq!(events[..2], ["+a@1!", "+b@2!"]);
    assert!(events.len() <= 21);
    for (name, end) in [("a", "a@4998"), ("b", "b@4999")] {
        // Each update starts where the last one ended: only intermediate states were merged.
        let mut at = String::new();
        for line in events.iter().filter(|line| line.trim_start_matches('+').starts_with(name)) {
            match line.split_once('>') {
                Some((old, new)) => {
                    assert_eq!(old, at);
                    at = new.to_owned();
                }
                None => at = line.trim_matches(['+', '!']).to_owned(),
            }
        }
        assert_eq!(at, end);
    }
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn shi_8_a_panicking_handler_skips_that_event_rests_and_still_syncs() {
    let steps = vec![wait(5), added("c", 6), modified("a", 7), deleted("b", 8), Step::Hang];
    let script = Script::new([page("5", &[("a", 1), ("b", 2)]), Answer::Watch(steps)]);
    let (log, other) = (Log::default(), Log::default());
    let running = Running::start(builder(&script));
    let write = log.clone();
    let registration = running
        .informer
        .add_handler(
            move |event: Event<ConfigMap>| {
                assert_ne!(&*event.key().name, "a", "this handler panics on it");
                write.write(&event);
            },
            HandlerOptions::default(),
        )
        .unwrap();
    let _other = other.add(&running.informer);
    settle().await;
    assert_eq!(log.take(), Vec::<String>::new(), "it pauses for a second");
    assert_eq!(other.take(), ["+a@1!", "+b@2!"]);
    registration.synced().await.unwrap();
    assert_eq!((registration.panics(), log.take()), (1, vec!["+b@2!".to_owned()]));
    pass(10).await;
    assert_eq!(
        (registration.panics(), log.take()),
        (2, vec!["+c@6".to_owned(), "-b@8".to_owned()])
    );
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn shi_7_invariant_13_no_call_starts_after_a_removal_that_was_waited_for() {
    let script = Script::new([page("5", &[("a", 1), ("b", 2)]), Answer::Watch(story())]);
    let (handler, log, gate, mut calls) = gated();
    let other = Log::default();
    let running = Running::start(builder(&script));
    let registration = running.informer.add_handler(handler, HandlerOptions::default()).unwrap();
    let _other = other.add(&running.informer);
    calls.recv().await.unwrap();
    registration.remove();
    registration.remove();
    let mut removal = Box::pin(registration.remove_and_wait());
    settle().await;
    assert!(removal.as_mut().now_or_never().is_none(), "the first call is still running");
    gate.send_replace(true);
    removal.await.unwrap();
    pass(5).await;
    assert_eq!(log.take(), ["+a@1!"], "the running call ended, and no other was made");
    assert_eq!(registration.pending(), 0);
    assert_eq!(registration.synced().await, Err(Stopped));
    assert_eq!(other.take().len(), 5, "the other handler continues");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn shi_6_stop_drops_pending_events_and_waits_for_the_running_call() {
    struct Slow(Log);
    impl Handler<ConfigMap> for Slow {
        async fn handle(&mut self, event: Event<ConfigMap>) {
            sleep(Duration::from_secs(3)).await;
            self.0.write(&event);
        }
    }
    let script = Script::new([page("5", &[("a", 1), ("b", 2)])]);
    let log = Log::default();
    let running = Running::start(builder(&script));
    running.informer.add_handler(Slow(log.clone()), HandlerOptions::default()).unwrap();
    pass(1).await;
    running.end().await;
    assert_eq!(log.take(), ["+a@1!"]);
}

#[tokio::test(start_paused = true)]
async fn shi_10_handler_added_before_the_start_gets_all_events() {
    let script = Script::new([page("5", &[("a", 1), ("b", 2)]), Answer::Watch(story())]);
    let log = Log::default();
    let running = Running::start_with(builder(&script), |informer| drop(log.add(informer)));
    pass(20).await;
    assert_eq!(log.take(), ["+a@1!", "+b@2!", "+c@6", "a@1>a@7", "-b@8", "a@7>a@9"]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn shi_7_removal_awaited_in_its_own_call_is_an_error_but_takes_effect() {
    struct Removes(Log, std::sync::Arc<parking_lot::Mutex<Option<HandlerRegistration>>>);
    impl Handler<ConfigMap> for Removes {
        async fn handle(&mut self, event: Event<ConfigMap>) {
            let own = self.1.lock().clone().unwrap();
            assert_eq!(own.remove_and_wait().await, Err(WithinCall));
            self.0.write(&event);
        }
    }
    let script = Script::new([page("5", &[("a", 1), ("b", 2)])]);
    let (log, own) = (Log::default(), std::sync::Arc::default());
    let running = Running::start_with(builder(&script), |informer| {
        let handler = Removes(log.clone(), std::sync::Arc::clone(&own));
        *own.lock() = Some(informer.add_handler(handler, HandlerOptions::default()).unwrap());
    });
    let registration = own.lock().clone().unwrap();
    registration.synced().await.unwrap_err();
    registration.remove_and_wait().await.unwrap();
    assert_eq!(log.take(), ["+a@1!"], "its last call");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn evt_10_filtering_handler_gets_events_as_if_only_matching_objects_existed() {
    // Even versions match.
    let steps = vec![
        wait(1),
        added("c", 6),
        added("d", 7),
        modified("a", 8),
        modified("b", 9),
        modified("c", 10),
        modified("d", 11),
        deleted("a", 12),
        deleted("b", 13),
        Step::Hang,
    ];
    let script = Script::new([page("5", &[("a", 1), ("b", 2)]), Answer::Watch(steps)]);
    let log = Log::default();
    let running = Running::start_with(builder(&script), |informer| {
        let inner = log.clone();
        let handler = FilteringHandler::new(
            |object: &setpoint_informer::Object<ConfigMap>| {
                object.resource_version().parse::<u64>().unwrap() % 2 == 0
            },
            move |event: Event<ConfigMap>| inner.write(&event),
        );
        informer.add_handler(handler, HandlerOptions::default()).unwrap();
    });
    pass(5).await;
    assert_eq!(log.take(), ["+b@2!", "+c@6", "+a@8", "-b@2", "c@6>c@10", "-a@12"]);
    running.end().await;
}
