//! Panics of user functions: no event is lost, and nothing ends.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use expect_test::expect;
use k8s_openapi::api::core::v1::ConfigMap;
use setpoint_informer::Event;
use setpoint_runtime::{
    Action, BoxError, Context, Controller, ControllerBuilder, Predicate, Request, Watch,
};

use crate::{
    server::Server,
    world::{CONFIG_MAPS, EVENTS, Trace, config_map, pass, run, settle},
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn namer(
    trace: &Trace,
) -> impl Fn(Request, Context) -> std::future::Ready<Result<Action, BoxError>> + Send + Sync + 'static
{
    let trace = trace.clone();
    move |request, _| {
        trace.record(&*request.name);
        std::future::ready(Ok(Action::await_change()))
    }
}

/// The passes over the objects `a` and `b`, by name, and the watch's panics.
async fn check_admitted(controller: ControllerBuilder) {
    let (server, trace) = (Server::new(&[CONFIG_MAPS, EVENTS]), Trace::default());
    let (running, handle) = run(&server, controller.build(namer(&trace)).unwrap());
    settle().await;
    server.put(MAPS, config_map("a"));
    server.put(MAPS, config_map("b"));
    settle().await;
    expect!["a · b"].assert_eq(&trace.take());
    let source = &handle.sources()[0];
    assert_eq!((source.panics, source.retrying, source.lost), (1, 0, 0));
    assert_eq!(
        source.last_panic.as_deref(),
        Some("a predicate or filter panicked for default/a: no data")
    );
    assert!(source.has_synced && !source.has_stopped);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn event_passes_if_its_predicate_or_filter_panics() {
    let panics = |name: &str| name != "a" || panic!("no data");
    let watch = Watch::<ConfigMap>::new();
    let predicate = Predicate::object(move |object| panics(&object.key().name));
    check_admitted(Controller::builder("config").for_(watch.filter(predicate))).await;

    let filter = Predicate::any_event(move |event| panics(&event.key().name));
    let watch = Watch::<ConfigMap>::new();
    check_admitted(Controller::builder("config").for_(watch).filter(filter)).await;
}

#[tokio::test(start_paused = true)]
async fn event_whose_handler_panics_is_retried_with_back_off_and_does_not_delay_others() {
    let (server, trace) = (Server::new(&[CONFIG_MAPS, EVENTS]), Trace::default());
    let n_calls = Arc::new(AtomicU32::new(0));
    let map = {
        let (n_calls, trace) = (n_calls.clone(), trace.clone());
        move |event: &Event<ConfigMap>| {
            if &*event.key().name == "a" && n_calls.fetch_add(1, Ordering::SeqCst) < 2 {
                trace.record("panic");
                panic!("not yet");
            }
            vec![event.key().clone()]
        }
    };
    let controller = Controller::builder("config").watches(Watch::<ConfigMap>::new(), map);
    let (running, handle) = run(&server, controller.build(namer(&trace)).unwrap());
    settle().await;
    server.put(MAPS, config_map("a"));
    server.put(MAPS, config_map("b"));
    settle().await;
    expect!["panic · b"].assert_eq(&trace.take());
    assert_eq!((handle.sources()[0].panics, handle.sources()[0].retrying), (1, 1));
    pass(Duration::from_secs(1)).await;
    expect!["panic"].assert_eq(&trace.take());
    pass(Duration::from_secs(2)).await;
    expect!["a"].assert_eq(&trace.take());
    let source = &handle.sources()[0];
    assert_eq!((source.panics, source.retrying), (2, 0));
    assert_eq!(
        source.last_panic.as_deref(),
        Some("an event handler panicked for default/a: not yet")
    );
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn object_deleted_before_its_event_was_mapped_is_still_delivered() {
    let (server, trace) = (Server::new(&[CONFIG_MAPS, EVENTS]), Trace::default());
    let n_calls = Arc::new(AtomicU32::new(0));
    let map = {
        let n_calls = n_calls.clone();
        move |event: &Event<ConfigMap>| {
            assert!(n_calls.fetch_add(1, Ordering::SeqCst) >= 2, "not yet");
            assert!(matches!(event, Event::Deleted { .. }));
            vec![event.key().clone()]
        }
    };
    let controller = Controller::builder("config").watches(Watch::<ConfigMap>::new(), map);
    let (running, handle) = run(&server, controller.build(namer(&trace)).unwrap());
    settle().await;
    server.put(MAPS, config_map("a"));
    settle().await;
    server.delete(&format!("{MAPS}/a"));
    settle().await;
    assert_eq!((handle.sources()[0].panics, handle.sources()[0].retrying), (2, 1));
    pass(Duration::from_secs(2)).await;
    expect!["a"].assert_eq(&trace.take());
    running.stop().await.unwrap();
}
