//! A key is held back until the caches show what its pass wrote; its worker goes on.

use std::time::Duration;

use expect_test::expect;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::params::{DeleteParams, ListParams};
use serde_json::json;
use setpoint_informer::{ClientSource, SharedInformer};
use setpoint_runtime::{
    Action, BoxError, Context, Controller, ControllerBuilder, Reconciler, Request, Watch,
};
use tokio::{sync::mpsc, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    server::Server,
    world::{CONFIG_MAPS, EVENTS, Running, Trace, builder, config_map, pass, run, settle},
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn server() -> Server {
    Server::new(&[CONFIG_MAPS, EVENTS])
}

fn controller() -> ControllerBuilder {
    Controller::builder("config").for_(Watch::<ConfigMap>::new())
}

/// Sends the start of each pass, and writes the object once.
fn writer(trace: &Trace) -> impl Reconciler<Request> + use<> {
    let (trace, begun) = (trace.clone(), Instant::now());
    move |request: Request, context: Context| {
        let trace = trace.clone();
        async move {
            trace.record(format!("{} at {:?}", request.name, begun.elapsed()));
            let data = json!({"data": {"written": "yes"}});
            let api = context.client().api::<ConfigMap>();
            api.patch(&request, &kube_core::params::Patch::Merge(data)).await?;
            Ok::<_, BoxError>(Action::await_change())
        }
    }
}

#[tokio::test(start_paused = true)]
async fn worker_takes_other_keys_at_once_after_a_pass_that_wrote() {
    let (server, trace) = (server(), Trace::default());
    for name in ["a", "b", "c"] {
        server.put(MAPS, config_map(name));
    }
    server.delay_watches(Duration::from_millis(20));
    let (running, handle) = run(&server, controller().build(writer(&trace)).unwrap());
    settle().await;
    expect!["a at 0ns · b at 0ns · c at 0ns"].assert_eq(&trace.take());
    let queue = handle.queue();
    assert_eq!((queue.in_flight, queue.resting), (0, 3));

    pass(Duration::from_millis(60)).await;
    // One pass each for the events of their writes, which changes nothing.
    expect!["a at 20ms · b at 40ms · c at 40ms"].assert_eq(&trace.take());
    assert_eq!(handle.queue().resting, 0);
    assert_eq!(handle.stats().catch_up_timeouts, 0);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn key_added_while_held_back_waits_for_the_time_out_which_is_counted() {
    let (server, trace) = (server(), Trace::default());
    server.put(MAPS, config_map("a"));
    server.mute_watches();
    let (keys, channel) = mpsc::channel(8);
    let controller = controller().channel(channel).build(writer(&trace)).unwrap();
    let (running, handle) = run(&server, controller);
    settle().await;
    keys.send(Request::new("default", "a")).await.unwrap();
    keys.send(Request::new("default", "b")).await.unwrap();
    settle().await;
    expect!["a at 0ns · b at 1ms"].assert_eq(&trace.take());
    pass(Duration::from_millis(300)).await;
    // The write of `b` was refused: the key backs off, and is not held back.
    let taken = trace.take();
    assert!(taken.contains("a at 250ms"), "{taken}");
    assert_eq!(taken.matches("a at").count(), 1, "{taken}");
    assert_eq!(handle.stats().catch_up_timeouts, 1);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn bookmark_past_the_write_shows_it() {
    let (server, trace) = (server(), Trace::default());
    server.put(MAPS, config_map("a"));
    server.mute_watches();
    let (running, handle) = run(&server, controller().build(writer(&trace)).unwrap());
    settle().await;
    assert_eq!(handle.queue().resting, 1);
    server.bookmark(CONFIG_MAPS);
    settle().await;
    assert_eq!(handle.queue().resting, 0);
    assert_eq!(handle.stats().catch_up_timeouts, 0);
    running.stop().await.unwrap();
}

/// A controller with keys from a channel, whose passes create an object. Its cache selects other
/// objects, or another namespace, or has stopped.
async fn check_not_waited_for(choose: impl FnOnce(ClientSource) -> ClientSource, stops: bool) {
    let server = server();
    let source = choose(ClientSource::all::<ConfigMap>(server.client()));
    let (informer, worker) = SharedInformer::<ConfigMap>::builder(source).build();
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(worker.run(stop.clone()));
    let (keys, channel) = mpsc::channel(8);
    let reconciler = |request: Request, context: Context| async move {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(request.name.to_string());
        object.metadata.namespace = Some("default".into());
        context.client().api::<ConfigMap>().create(&object).await?;
        Ok::<_, BoxError>(Action::await_change())
    };
    let watch = Watch::<ConfigMap>::new().informer(informer).of_own_cluster();
    let controller = Controller::builder("config").for_(watch).channel(channel);
    let (running, handle) = run(&server, controller.build(reconciler).unwrap());
    settle().await;
    server.mute_watches();
    if stops {
        stop.cancel();
        settle().await;
    }
    keys.send(Request::new("default", "a")).await.unwrap();
    settle().await;
    let queue = handle.queue();
    assert_eq!((handle.stats().success, queue.in_flight, queue.resting), (1, 0, 0));
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn caches_that_will_not_show_a_write_are_not_waited_for() {
    check_not_waited_for(|source| source.labels("app=web"), false).await;
    check_not_waited_for(|source| source.fields("metadata.name=other"), false).await;
    check_not_waited_for(|source| source, true).await;
}

/// How often a pass that wrote was waited for in vain, with an informer of a server.
async fn timeouts(of: &Server, choose: impl FnOnce(Watch<ConfigMap>) -> Watch<ConfigMap>) -> u64 {
    let (server, trace) = (server(), Trace::default());
    server.put(MAPS, config_map("a"));
    let source = ClientSource::all::<ConfigMap>(of.client());
    let (informer, worker) = SharedInformer::<ConfigMap>::builder(source).build();
    let mut tasks = JoinSet::new();
    tasks.spawn(worker.run(CancellationToken::new()));
    let watch = choose(Watch::<ConfigMap>::new().informer(informer));
    let (keys, channel) = mpsc::channel(8);
    let controller = Controller::builder("config").for_(watch).channel(channel);
    let (running, handle) = run(&server, controller.build(writer(&trace)).unwrap());
    keys.send(Request::new("default", "a")).await.unwrap();
    pass(Duration::from_secs(1)).await;
    assert_eq!(handle.stats().success, 1);
    running.stop().await.unwrap();
    handle.stats().catch_up_timeouts
}

#[tokio::test(start_paused = true)]
async fn given_informer_is_not_waited_for_unless_it_is_known_whose_it_is() {
    let other = server();
    assert_eq!(timeouts(&other, |watch| watch).await, 0);
    assert_eq!(timeouts(&other, Watch::of_own_cluster).await, 1, "it will never show the write");
}

#[tokio::test(start_paused = true)]
async fn given_informer_of_the_managers_cache_is_waited_for() {
    let (server, trace) = (server(), Trace::default());
    server.put(MAPS, config_map("a"));
    server.delay_watches(Duration::from_millis(20));
    let mut manager = builder(&server).build();
    let cached = manager.cache().informer::<ConfigMap>();
    let informer = cached.of_namespace("default").unwrap().clone();
    let controller = Controller::builder("config").for_(Watch::new().informer(informer));
    let handle = manager.add(controller.build(writer(&trace)).unwrap()).unwrap();
    let running = Running::start(manager);
    settle().await;
    assert_eq!(handle.queue().resting, 1);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn stopping_does_not_wait_for_held_back_keys() {
    let (server, trace) = (server(), Trace::default());
    server.put(MAPS, config_map("a"));
    server.mute_watches();
    let controller = controller().catch_up(Duration::from_secs(3600)).build(writer(&trace));
    let (running, handle) = run(&server, controller.unwrap());
    settle().await;
    assert_eq!(handle.queue().resting, 1);
    let begun = Instant::now();
    running.stop().await.unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert_eq!(handle.queue().resting, 0);
}

/// Deletes what the pass sees, as often as it sees it unmarked.
fn deleter(trace: &Trace, all: bool) -> impl Reconciler<Request> + use<> {
    let (trace, begun) = (trace.clone(), Instant::now());
    move |request: Request, context: Context| {
        let trace = trace.clone();
        async move {
            let api = context.client().api::<ConfigMap>();
            let seen = match api.get(&request)? {
                None => "absent",
                Some(object) if object.metadata.deletion_timestamp.is_some() => "marked",
                Some(_) if all => {
                    let which = ListParams::default();
                    api.delete_collection(Some("default"), &DeleteParams::default(), &which)
                        .await?;
                    "deletes all"
                }
                Some(_) => {
                    api.delete(&request, &DeleteParams::default()).await?;
                    "deletes"
                }
            };
            trace.record(format!("{seen} at {:?}", begun.elapsed()));
            Ok::<_, BoxError>(Action::await_change())
        }
    }
}

/// The passes over an object whose key is added again before the watch shows its deletion.
async fn deleted(finalizers: &[&str], all: bool) -> String {
    let (server, trace) = (server(), Trace::default());
    let mut object = config_map("a");
    object["metadata"]["finalizers"] = json!(finalizers);
    server.put(MAPS, object);
    server.delay_watches(Duration::from_millis(20));
    let (keys, channel) = mpsc::channel(8);
    let controller = controller().channel(channel).build(deleter(&trace, all)).unwrap();
    let (running, handle) = run(&server, controller);
    settle().await;
    keys.send(Request::new("default", "a")).await.unwrap();
    pass(Duration::from_millis(100)).await;
    assert_eq!(handle.stats().catch_up_timeouts, 0);
    running.stop().await.unwrap();
    trace.take()
}

#[tokio::test(start_paused = true)]
async fn next_pass_does_not_see_the_object_that_the_pass_deleted() {
    expect!["deletes at 0ns · absent at 20ms"].assert_eq(&deleted(&[], false).await);
    expect!["deletes all at 0ns · absent at 20ms"].assert_eq(&deleted(&[], true).await);
}

#[tokio::test(start_paused = true)]
async fn next_pass_sees_that_the_object_with_finalizers_is_marked() {
    let finalizers = ["a.b/c"];
    expect!["deletes at 0ns · marked at 20ms"].assert_eq(&deleted(&finalizers, false).await);
    expect!["deletes all at 0ns · marked at 20ms"].assert_eq(&deleted(&finalizers, true).await);
}
