//! Panics of user functions: no event is lost, and nothing ends.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use expect_test::expect;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
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
async fn panic_of_an_index_function_is_counted_and_the_event_is_handled() {
    let watch = Watch::<ConfigMap>::new().index("first-datum", |map| {
        assert_ne!(map.metadata.name.as_deref(), Some("b"), "no data");
        Vec::new()
    });
    let (server, trace) = (Server::new(&[CONFIG_MAPS, EVENTS]), Trace::default());
    server.put(MAPS, config_map("a"));
    let controller = Controller::builder("config").for_(watch).build(namer(&trace));
    let (running, handle) = run(&server, controller.unwrap());
    settle().await;
    assert_eq!((handle.sources()[0].panics, handle.sources()[0].last_panic.as_deref()), (0, None));
    server.put(MAPS, config_map("b"));
    settle().await;
    expect!["a · b"].assert_eq(&trace.take());
    let source = &handle.sources()[0];
    assert_eq!((source.panics, source.retrying, source.lost), (1, 0, 0));
    let last = source.last_panic.as_deref().unwrap();
    let start = "the function of the index \"first-datum\" panicked for default/b: ";
    assert!(last.starts_with(start) && last.contains("no data"), "{last}");
    running.stop().await.unwrap();
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

/// The owner that an object's label names, as a key.
fn owner_of(object: &ConfigMap) -> Option<Request> {
    let owner = object.metadata.labels.as_ref()?.get("owner")?;
    Some(Request::new("default", owner.as_str()))
}

#[tokio::test(start_paused = true)]
async fn owner_before_an_update_is_mapped_when_update_and_deletion_wait_for_a_retry() {
    let (server, trace) = (Server::new(&[CONFIG_MAPS, EVENTS]), Trace::default());
    let is_broken = Arc::new(AtomicBool::new(false));
    let map = {
        let is_broken = is_broken.clone();
        move |event: &Event<ConfigMap>| {
            assert!(!is_broken.load(Ordering::SeqCst), "not yet");
            let old = match event {
                Event::Updated { old, .. } => owner_of(&old.get().unwrap()),
                _ => None,
            };
            let new = event.object().and_then(|object| owner_of(&object.get().unwrap()));
            old.into_iter().chain(new).collect()
        }
    };
    let controller = Controller::builder("config").watches(Watch::<ConfigMap>::new(), map);
    let (running, handle) = run(&server, controller.build(namer(&trace)).unwrap());
    settle().await;
    let of = |owner: &str| {
        let mut object = config_map("x");
        object["metadata"]["labels"] = json!({"owner": owner});
        object
    };
    server.put(MAPS, of("a"));
    settle().await;
    expect!["a"].assert_eq(&trace.take());

    is_broken.store(true, Ordering::SeqCst);
    server.put(MAPS, of("b"));
    settle().await;
    server.delete(&format!("{MAPS}/x"));
    settle().await;
    is_broken.store(false, Ordering::SeqCst);
    pass(Duration::from_secs(4)).await;
    expect!["a · b"].assert_eq(&trace.take());
    assert_eq!((handle.sources()[0].retrying, handle.sources()[0].lost), (0, 0));
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn objects_that_take_a_place_in_turn_keep_a_bounded_number_of_events() {
    let (server, trace) = (Server::new(&[CONFIG_MAPS, EVENTS]), Trace::default());
    let map = |_: &Event<ConfigMap>| -> Vec<Request> { panic!("never") };
    let controller = Controller::builder("config").watches(Watch::<ConfigMap>::new(), map);
    let (running, handle) = run(&server, controller.build(namer(&trace)).unwrap());
    settle().await;
    for _ in 0..5 {
        server.put(MAPS, config_map("a"));
        settle().await;
        server.delete(&format!("{MAPS}/a"));
        settle().await;
    }
    let source = &handle.sources()[0];
    assert_eq!((source.panics, source.retrying, source.lost), (10, 1, 1));
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn value_of_a_channel_is_lost_if_its_map_panics_and_the_next_is_mapped() {
    let (server, trace) = (Server::new(&[CONFIG_MAPS, EVENTS]), Trace::default());
    let (values, received) = tokio::sync::mpsc::channel(4);
    let controller = Controller::builder("config")
        .for_(Watch::<ConfigMap>::new())
        .channel_of(received, |value: u32| vec![Request::cluster(format!("{}", 12 / value))])
        .build(namer(&trace))
        .unwrap();
    let (running, handle) = run(&server, controller);
    settle().await;
    for value in [4, 0, 3] {
        values.send(value).await.unwrap();
    }
    settle().await;
    expect!["3 · 4"].assert_eq(&trace.take());
    let channel = &handle.sources()[1];
    assert_eq!(
        (&*channel.resource, channel.has_synced, channel.has_stopped),
        ("a channel", true, false)
    );
    assert_eq!((channel.panics, channel.retrying, channel.lost), (1, 0, 1));
    assert_eq!(
        channel.last_panic.as_deref(),
        Some("the map panicked for a channel: attempt to divide by zero")
    );
    drop(values);
    settle().await;
    assert!(handle.sources()[1].has_stopped);
    running.stop().await.unwrap();
}
