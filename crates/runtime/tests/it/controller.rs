//! From events to passes, and what happens to a key after each pass.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use expect_test::expect;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use serde_json::json;
use setpoint_informer::Event;
use setpoint_runtime::{
    Action, BoxError, BuildError, CacheOptions, Context, Controller, ControllerBuilder,
    ControllerState, Predicate, Request, Terminal, Watch,
};
use tokio::sync::mpsc;

use crate::{
    server::Server,
    world::{CONFIG_MAPS, EVENTS, PODS, Running, Trace, builder, config_map, pass, run, settle},
};

fn server() -> Server {
    Server::new(&[CONFIG_MAPS, EVENTS, PODS])
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn controller() -> ControllerBuilder {
    Controller::builder("config").for_(Watch::<ConfigMap>::new())
}

/// A reconciler that sends each key it gets, with the cached object.
fn seer(
    trace: &Trace,
) -> impl Fn(Request, Context) -> std::future::Ready<Result<Action, BoxError>> + Send + Sync + 'static
{
    let trace = trace.clone();
    move |request, context| {
        let found = context.client().api::<ConfigMap>().get(&request).unwrap();
        let generation = found.map_or("gone".to_owned(), |found| {
            format!("generation {}", found.metadata.generation.unwrap())
        });
        trace.record(format!("{request} {generation}"));
        std::future::ready(Ok(Action::await_change()))
    }
}

#[tokio::test(start_paused = true)]
async fn existing_created_changed_and_deleted_objects_are_reconciled() {
    let (server, trace) = (server(), Trace::default());
    server.put(MAPS, config_map("old"));
    let (running, handle) = run(&server, controller().build(seer(&trace)).unwrap());
    settle().await;
    assert_eq!(handle.state(), ControllerState::Running);
    expect!["default/old generation 1"].assert_eq(&trace.take());

    server.put(MAPS, config_map("new"));
    settle().await;
    let mut changed = config_map("old");
    changed["spec"] = json!(2);
    server.put(MAPS, changed);
    settle().await;
    server.delete(&format!("{MAPS}/new"));
    settle().await;
    expect!["default/new generation 1 · default/old generation 2 · default/new gone"]
        .assert_eq(&trace.take());

    running.stop().await.unwrap();
    assert_eq!(
        (handle.state(), handle.stats().success, handle.stats().total()),
        (ControllerState::Stopped, 4, 4)
    );
}

/// One row of the table at `Action`: the result of a pass, when the next pass starts, and the
/// counts then.
async fn check_outcome(
    outcome: impl Fn(u32) -> Result<Action, BoxError> + Send + Sync + 'static,
    expect: expect_test::Expect,
) {
    let (server, trace) = (server(), Trace::default());
    let started = tokio::time::Instant::now();
    let n_passes = Arc::new(AtomicU32::new(0));
    let reconciler = {
        let trace = trace.clone();
        move |_: Request, context: Context| {
            let n = n_passes.fetch_add(1, Ordering::SeqCst);
            trace.record(format!("at {:?} attempt {}", started.elapsed(), context.attempt()));
            std::future::ready(outcome(n))
        }
    };
    let (running, handle) = run(&server, controller().build(reconciler).unwrap());
    settle().await;
    server.put(MAPS, config_map("a"));
    pass(Duration::from_millis(30)).await;
    running.stop().await.unwrap();
    let stats = handle.stats();
    trace.record(format!(
        "success {} requeue_after {} requeue {} error {} terminal {} panics {} timeouts {} limited {}",
        stats.success,
        stats.requeue_after,
        stats.requeue,
        stats.error,
        stats.terminal,
        stats.panics,
        stats.timeouts,
        handle.queue().limited
    ));
    expect.assert_eq(&trace.take());
}

#[tokio::test(start_paused = true)]
async fn res_1_success_resets_failures_and_waits_for_a_change() {
    check_outcome(|_| Ok(Action::await_change()), expect![
        "at 1ms attempt 0 · success 1 requeue_after 0 requeue 0 error 0 terminal 0 panics 0 timeouts 0 limited 0"
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn res_2_requeue_after_resets_failures_and_requeues() {
    check_outcome(|n| if n == 0 { Err("once".into()) } else { Ok(Action::requeue_after(Duration::from_millis(20))) }, expect![
        "at 1ms attempt 0 · at 6ms attempt 1 · at 26ms attempt 0 · success 0 requeue_after 2 requeue 0 error 1 terminal 0 panics 0 timeouts 0 limited 0"
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn res_9_requeue_after_zero_waits_for_a_change() {
    check_outcome(|_| Ok(Action::requeue_after(Duration::ZERO)), expect![
        "at 1ms attempt 0 · success 1 requeue_after 0 requeue 0 error 0 terminal 0 panics 0 timeouts 0 limited 0"
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn res_3_requeue_is_with_backoff() {
    check_outcome(|n| Ok(if n < 2 { Action::requeue() } else { Action::await_change() }), expect![
        "at 1ms attempt 0 · at 6ms attempt 1 · at 16ms attempt 2 · success 1 requeue_after 0 requeue 2 error 0 terminal 0 panics 0 timeouts 0 limited 0"
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn res_5_error_is_retried_with_backoff() {
    check_outcome(|_| Err("always".into()), expect![
        "at 1ms attempt 0 · at 6ms attempt 1 · at 16ms attempt 2 · success 0 requeue_after 0 requeue 0 error 3 terminal 0 panics 0 timeouts 0 limited 1"
    ])
    .await;
}

#[derive(Debug, thiserror::Error)]
#[error("outer")]
struct Outer(#[source] Terminal);

#[tokio::test(start_paused = true)]
async fn res_7_terminal_error_at_any_depth_leaves_the_failure_count() {
    check_outcome(|n| if n == 0 { Err("once".into()) } else { Err(Outer(Terminal::new("final")).into()) }, expect![
        "at 1ms attempt 0 · at 6ms attempt 1 · success 0 requeue_after 0 requeue 0 error 2 terminal 1 panics 0 timeouts 0 limited 1"
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn res_8_panic_is_an_error_with_its_own_count() {
    check_outcome(|n| if n == 0 { std::panic::resume_unwind(Box::new("ouch")) } else { Ok(Action::await_change()) }, expect![
        "at 1ms attempt 0 · at 6ms attempt 1 · success 1 requeue_after 0 requeue 0 error 1 terminal 0 panics 1 timeouts 0 limited 0"
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn panic_that_is_not_recovered_ends_the_manager() {
    let server = server();
    let reconciler = |_: Request, _: Context| async { std::panic::resume_unwind(Box::new("ouch")) };
    let controller = controller().recover_panics(false).build(erase(reconciler)).unwrap();
    let (mut running, handle) = run(&server, controller);
    server.put(MAPS, config_map("a"));
    let error = running.ended().await.unwrap_err();
    expect!["config failed: controller \"config\": a reconcile panicked: ouch"]
        .assert_eq(&chain(&error));
    assert_eq!(handle.state(), ControllerState::Stopped);
}

/// Gives an error type to a closure whose future never ends by itself.
fn erase<Fut: Future<Output = Result<Action, BoxError>> + Send>(
    reconciler: impl Fn(Request, Context) -> Fut + Send + Sync + 'static,
) -> impl Fn(Request, Context) -> Fut + Send + Sync + 'static {
    reconciler
}

pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}

#[tokio::test(start_paused = true)]
async fn pass_that_times_out_is_dropped_and_retried() {
    let (server, trace) = (server(), Trace::default());
    let reconciler = {
        let trace = trace.clone();
        move |_: Request, context: Context| {
            trace.record(format!("attempt {}", context.attempt()));
            async move {
                if context.attempt() == 0 {
                    std::future::pending::<()>().await;
                }
                Ok::<_, BoxError>(Action::await_change())
            }
        }
    };
    let (running, handle) = run(
        &server,
        controller().reconcile_timeout(Duration::from_secs(5)).build(reconciler).unwrap(),
    );
    server.put(MAPS, config_map("a"));
    pass(Duration::from_secs(6)).await;
    expect!["attempt 0 · attempt 1"].assert_eq(&trace.take());
    assert_eq!((handle.stats().timeouts, handle.stats().error, handle.stats().success), (1, 1, 1));
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn change_during_a_pass_causes_one_more_pass_and_does_not_delay_other_keys() {
    let (server, trace) = (server(), Trace::default());
    let reconciler = {
        let trace = trace.clone();
        move |request: Request, _: Context| {
            let trace = trace.clone();
            async move {
                trace.record(format!("{} begins", request.name));
                if &*request.name == "slow" {
                    pass(Duration::from_secs(1)).await;
                }
                trace.record(format!("{} ends", request.name));
                Ok::<_, BoxError>(Action::await_change())
            }
        }
    };
    let (running, _) = run(&server, controller().concurrency(2).build(reconciler).unwrap());
    server.put(MAPS, config_map("slow"));
    settle().await;
    for n in 0..3 {
        let mut changed = config_map("slow");
        changed["spec"] = json!(n);
        server.put(MAPS, changed);
    }
    server.put(MAPS, config_map("quick"));
    pass(Duration::from_secs(3)).await;
    expect!["slow begins · quick begins · quick ends · slow ends · slow begins · slow ends"]
        .assert_eq(&trace.take());
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn owned_objects_queue_their_old_and_new_controlling_owner() {
    let (server, trace) = (server(), Trace::default());
    let owned = |owner: &str, api_version: &str, controller: bool| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "ownerReferences": [
            {"apiVersion": api_version, "kind": "ConfigMap", "name": owner, "uid": "u", "controller": controller}
        ]}})
    };
    let (running, _) =
        run(&server, controller().owns(Watch::<Pod>::new()).build(seer(&trace)).unwrap());
    settle().await;
    let pods = "/api/v1/namespaces/other/pods";
    server.put(pods, owned("a", "v1", true));
    settle().await;
    server.put(pods, owned("b", "v1", true));
    settle().await;
    server.put(pods, owned("c", "v1", false));
    settle().await;
    server.put(pods, owned("c", "example.com/v1", true));
    settle().await;
    server.put(pods, owned("d", "v2", true));
    settle().await;
    server.delete(&format!("{pods}/p"));
    settle().await;
    expect![
        "other/a gone · other/b gone · other/a gone · other/b gone · other/d gone · other/d gone"
    ]
    .assert_eq(&trace.take());
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn mapped_events_and_a_channel_add_keys_too() {
    let (server, trace) = (server(), Trace::default());
    let (keys, outside) = mpsc::channel(1);
    let map = |event: &Event<Pod>| vec![Request::new("mapped", event.key().name.clone())];
    let (running, _) = run(
        &server,
        controller()
            .watches(Watch::<Pod>::new(), map)
            .channel(outside)
            .build(seer(&trace))
            .unwrap(),
    );
    settle().await;
    server.put(
        "/api/v1/namespaces/other/pods",
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}),
    );
    settle().await;
    keys.send(Request::cluster("outside")).await.unwrap();
    settle().await;
    drop(keys);
    server.put(MAPS, config_map("still"));
    settle().await;
    expect!["mapped/p gone · outside gone · default/still generation 1"].assert_eq(&trace.take());
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn generation_predicate_drops_status_and_metadata_writes() {
    let (server, trace) = (server(), Trace::default());
    let watch = Watch::<ConfigMap>::new().filter(Predicate::generation_changed());
    let controller = Controller::builder("config").for_(watch).build(seer(&trace)).unwrap();
    let (running, _) = run(&server, controller);
    settle().await;
    let mut object = server.put(MAPS, config_map("a"));
    settle().await;
    object["status"] = json!("written");
    object["metadata"]["labels"] = json!({"a": "b"});
    let mut object = server.put(MAPS, object);
    settle().await;
    object["spec"] = json!("changed");
    server.put(MAPS, object);
    settle().await;
    server.delete(&format!("{MAPS}/a"));
    settle().await;
    expect!["default/a generation 1 · default/a generation 2 · default/a gone"]
        .assert_eq(&trace.take());
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn resync_is_delivered_unless_a_predicate_requires_a_new_version() {
    for (predicate, expected) in [
        (false, "default/a generation 1 · default/a generation 1"),
        (true, "default/a generation 1"),
    ] {
        let (server, trace) = (server(), Trace::default());
        server.put(MAPS, config_map("a"));
        let mut watch = Watch::<ConfigMap>::new();
        if predicate {
            watch = watch.filter(Predicate::resource_version_changed());
        }
        let mut manager =
            builder(&server).cache(CacheOptions::new().resync(Duration::from_secs(30))).build();
        manager
            .add(Controller::builder("config").for_(watch).build(seer(&trace)).unwrap())
            .unwrap();
        let running = Running::start(manager);
        pass(Duration::from_secs(45)).await;
        assert_eq!(trace.take(), expected);
        running.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn resync_is_every_ten_hours_unless_disabled() {
    const HOUR: Duration = Duration::from_secs(3600);
    for (resync, expected) in [(None, "default/a generation 1"), (Some(Duration::ZERO), "")] {
        let (server, trace) = (server(), Trace::default());
        server.put(MAPS, config_map("a"));
        let mut builder = builder(&server);
        if let Some(period) = resync {
            builder = builder.cache(CacheOptions::new().resync(period));
        }
        let mut manager = builder.build();
        let watch = Watch::<ConfigMap>::new();
        let controller = Controller::builder("config").for_(watch).build(seer(&trace)).unwrap();
        manager.add(controller).unwrap();
        let running = Running::start(manager);
        pass(HOUR * 9).await;
        assert_eq!(trace.take(), "default/a generation 1");
        pass(HOUR * 2).await;
        assert_eq!(trace.take(), expected);
        running.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn requests_of_a_pass_carry_its_origin() {
    let server = server();
    let reconciler = |request: Request, context: Context| async move {
        context.client().api::<ConfigMap>().get_live(&request).await?;
        Ok::<_, BoxError>(Action::await_change())
    };
    let (running, _) = run(&server, controller().build(reconciler).unwrap());
    server.put(MAPS, config_map("a"));
    settle().await;
    let origins = server.origins();
    assert_eq!(origins.len(), 1, "the informers' own requests have none");
    assert_eq!((&*origins[0].controller, &*origins[0].request), ("config", "default/a"));
    expect!["a uuid"].assert_eq(if origins[0].reconcile_id.to_string().len() == 36 {
        "a uuid"
    } else {
        "none"
    });
    running.stop().await.unwrap();
}

#[test]
fn invalid_controllers_are_refused() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let _entered = runtime.enter();
    let reconciler = |_: Request, _: Context| async { Ok::<_, BoxError>(Action::await_change()) };
    let refused = |builder: ControllerBuilder| builder.build(reconciler).unwrap_err();
    let name = || "config".into();
    assert_eq!(refused(Controller::builder("")), BuildError::NoName);
    assert_eq!(refused(Controller::builder("config")), BuildError::NoSource { name: name() });
    assert_eq!(
        refused(controller().for_(Watch::<Pod>::new())),
        BuildError::TwoTypes { name: name() }
    );
    assert_eq!(
        refused(Controller::builder("config").owns(Watch::<Pod>::new())),
        BuildError::OwnsWithoutType { name: name() }
    );
}

#[tokio::test(start_paused = true)]
async fn next_pass_reads_the_previous_writes_and_there_is_only_one() {
    for (catch_up, expected) in [
        (Duration::from_millis(250), "sees None · sees Some(\"3\")"),
        // Without it, the last write is not in the cache yet when the next pass reads.
        (Duration::ZERO, "sees None · sees Some(\"2\") · sees Some(\"3\")"),
    ] {
        let (server, trace) = (server(), Trace::default());
        server.delay_watches(Duration::from_millis(20));
        let reconciler = {
            let trace = trace.clone();
            move |request: Request, context: Context| {
                let trace = trace.clone();
                async move {
                    let api = context.client().api::<ConfigMap>();
                    let object = api.get(&request)?.unwrap();
                    let seen = object.data.as_ref().map(|data| data["n"].clone());
                    trace.record(format!("sees {seen:?}"));
                    if seen.is_none() {
                        for n in 1..=3 {
                            pass(Duration::from_millis(30)).await;
                            let data = json!({"data": {"n": n.to_string()}});
                            api.patch(&request, &kube_core::params::Patch::Merge(data)).await?;
                        }
                    }
                    Ok::<_, BoxError>(Action::await_change())
                }
            }
        };
        let (running, handle) =
            run(&server, controller().catch_up(catch_up).build(reconciler).unwrap());
        server.put(MAPS, config_map("a"));
        pass(Duration::from_secs(1)).await;
        assert_eq!(trace.take(), expected);
        assert_eq!(handle.queue().in_flight, 0);
        running.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn writes_of_types_that_are_not_watched_are_not_waited_for() {
    let (server, trace) = (server(), Trace::default());
    let reconciler = {
        let trace = trace.clone();
        move |request: Request, context: Context| {
            let trace = trace.clone();
            async move {
                let mut pod = Pod::default();
                pod.metadata.name = Some(request.name.to_string());
                pod.metadata.namespace = Some("default".into());
                context.client().api::<Pod>().create(&pod).await?;
                trace.record(format!("{}", request.name));
                Ok::<_, BoxError>(Action::await_change())
            }
        }
    };
    let (running, _) = run(&server, controller().build(reconciler).unwrap());
    settle().await;
    server.put(MAPS, config_map("a"));
    server.put(MAPS, config_map("b"));
    settle().await;
    expect!["a · b"].assert_eq(&trace.take());
    running.stop().await.unwrap();
}
