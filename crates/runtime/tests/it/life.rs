//! Stopping a controller at any point of a pass, and the number of passes per change.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use setpoint_runtime::{
    Action, BoxError, Context, Controller, ControllerState, Request, Watch,
    manager::Grace,
    source::{KeySink, SourceRun, source_fn},
};

use crate::{
    server::Server,
    world::{CONFIG_MAPS, EVENTS, Running, Trace, builder, config_map, pass, run, settle},
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A pass with a delay, a write and a read at each step.
async fn long(
    request: Request,
    context: Context,
    trace: Trace,
    held: Arc<()>,
) -> Result<Action, BoxError> {
    trace.record("begins");
    let api = context.client().api::<ConfigMap>();
    for n in 0..3 {
        pass(Duration::from_millis(2)).await;
        let data = json!({"data": {"n": n.to_string()}});
        api.patch(&request, &kube_core::params::Patch::Merge(data)).await?;
        pass(Duration::from_millis(2)).await;
        api.get_live(&request).await?;
    }
    drop(held);
    trace.record("ends");
    Ok(Action::requeue_after(Duration::from_millis(3)))
}

/// Runs a controller over a server with random delays, and stops it after this time: while it
/// syncs, between passes, in each step of a pass, or while a key is held back.
async fn stopped_after(time: Duration, grace: Grace) {
    let (server, trace) = (Server::new(&[CONFIG_MAPS, EVENTS]), Trace::default());
    server.delay_watches(Duration::from_millis(5));
    server.put(MAPS, config_map("a"));
    let held = Arc::new(());
    let (captured, sink) = (held.clone(), trace.clone());
    let source = source_fn("slow", |keys: KeySink<Request>| async move {
        pass(Duration::from_millis(3)).await;
        Ok(SourceRun::new(async move {
            loop {
                pass(Duration::from_millis(7)).await;
                keys.add(Request::new("default", "a"));
            }
        }))
    });
    let controller = Controller::builder("config")
        .for_(Watch::<ConfigMap>::new())
        .source(source)
        .concurrency(2)
        .build(move |request, context| long(request, context, sink.clone(), captured.clone()))
        .unwrap();
    let mut manager = builder(&server).grace(grace).build();
    let handle = manager.add(controller).unwrap();
    let running = Running::start(manager);
    pass(time).await;
    let was = handle.state();
    let begun = tokio::time::Instant::now();
    running.stop().await.unwrap();
    assert!(
        begun.elapsed() < Duration::from_millis(30),
        "a pass takes twelve: {:?}",
        begun.elapsed()
    );
    let text = trace.take();
    let (begins, ends) = (text.matches("begins").count(), text.matches("ends").count());
    match grace {
        Grace::None => assert!(begins - ends <= 1),
        _ => assert_eq!(begins, ends, "stopped {was:?} after {time:?}: what has begun ends"),
    }
    settle().await;
    assert_eq!((handle.state(), handle.stats().active), (ControllerState::Stopped, 0));
    assert_eq!(
        Arc::strong_count(&held),
        1,
        "{was:?} after {time:?}: no task is left that holds it"
    );
    assert_eq!(server.watchers(CONFIG_MAPS), 0);
    server.put(MAPS, config_map("b"));
    pass(Duration::from_secs(10)).await;
    assert_eq!(trace.take(), "", "nothing begins after the end");
}

#[test]
fn ctl_4_stop_at_every_await_point_ends_everything() {
    for grace in [Grace::Period(Duration::from_secs(30)), Grace::Unlimited, Grace::None] {
        for ms in 0..40 {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().start_paused(true).build().unwrap();
            runtime.block_on(stopped_after(Duration::from_millis(ms), grace));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn each_change_costs_at_most_one_pass_and_a_burst_during_a_pass_costs_one() {
    let (server, trace) = (Server::new(&[CONFIG_MAPS, EVENTS]), Trace::default());
    let reconciler = {
        let trace = trace.clone();
        move |request: Request, context: Context| {
            let trace = trace.clone();
            async move {
                pass(Duration::from_secs(1)).await;
                let api = context.client().api::<ConfigMap>();
                let Some(object) = api.get(&request)? else { return Ok(Action::await_change()) };
                let generation = object.metadata.generation.unwrap();
                trace.record(generation.to_string());
                // Level-based: writes what it read, and only if that differs.
                let status = json!({"status": {"seen": generation}});
                api.patch_status(&request, &kube_core::params::Patch::Merge(status)).await?;
                Ok::<_, BoxError>(Action::await_change())
            }
        }
    };
    let controller = Controller::builder("config").for_(Watch::<ConfigMap>::new());
    let (running, handle) = run(&server, controller.build(reconciler).unwrap());
    settle().await;
    for n in 0..100 {
        let mut changed = config_map("a");
        changed["spec"] = json!(n);
        server.put(MAPS, changed);
        if n == 0 {
            pass(Duration::from_millis(500)).await;
        }
    }
    pass(Duration::from_secs(600)).await;
    // A pass reads the newest state. The burst causes one more pass, and its own write another one,
    // which writes nothing.
    let passes = trace.take();
    assert!(passes.ends_with("100"), "{passes}");
    let n_passes = handle.stats().total();
    assert!(n_passes <= 3, "{n_passes} passes: {passes}");
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn no_result_of_a_reconciler_causes_a_hot_loop() {
    // (result, maximum passes per hour): 18 doublings from 5 ms reach 1000 s.
    type Answer = fn() -> Result<Action, BoxError>;
    let answers: [(Answer, u64); 5] = [
        (|| Err("no".into()), 22),
        (|| Ok(Action::requeue()), 22),
        (|| std::panic::resume_unwind(Box::new("ouch")), 22),
        (|| Ok(Action::requeue_after(Duration::ZERO)), 1),
        (|| Ok(Action::requeue_after(Duration::from_secs(60))), 61),
    ];
    for (n, (answer, passes_max)) in answers.into_iter().enumerate() {
        let server = Server::new(&[CONFIG_MAPS, EVENTS]);
        server.put(MAPS, config_map("a"));
        let controller = Controller::builder("config").for_(Watch::<ConfigMap>::new());
        let reconciler = move |_: Request, _: Context| async move { answer() };
        let (running, handle) = run(&server, controller.build(reconciler).unwrap());
        pass(Duration::from_secs(3600)).await;
        let n_passes = handle.stats().total();
        assert!((1..=passes_max).contains(&n_passes), "answer {n}: {n_passes} passes");
        running.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn panic_of_a_pass_is_retried_and_does_not_affect_other_keys() {
    // Property 10 of section 15.
    let (server, trace) = (Server::new(&[CONFIG_MAPS, EVENTS]), Trace::default());
    for name in ["bad", "good"] {
        server.put(MAPS, config_map(name));
    }
    let sink = trace.clone();
    let reconciler = move |request: Request, context: Context| {
        let trace = sink.clone();
        async move {
            trace.record(format!("{} {}", request.name, context.attempt()));
            pass(Duration::from_secs(1)).await;
            if &*request.name == "bad" && context.attempt() < 2 {
                std::panic::resume_unwind(Box::new("ouch"));
            }
            Ok::<_, BoxError>(Action::await_change())
        }
    };
    let controller = Controller::builder("config").for_(Watch::<ConfigMap>::new());
    let (running, handle) = run(&server, controller.build(reconciler).unwrap());
    pass(Duration::from_secs(10)).await;
    assert_eq!(trace.take(), "bad 0 · good 0 · bad 1 · bad 2");
    let (stats, queue) = (handle.stats(), handle.queue());
    assert_eq!((stats.panics, stats.error, stats.success), (2, 2, 2));
    assert_eq!((queue.in_flight, queue.queued, queue.waiting, queue.limited), (0, 0, 0, 0));
    running.stop().await.unwrap();
}
