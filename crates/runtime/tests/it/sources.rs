//! Sources of keys: watches that are added and removed, channels, custom sources; and the errors of
//! those that do not sync.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube_core::PartialObjectMeta;
use serde_json::{Value, json};
use setpoint_informer::{ClientSource, Event, SharedInformer, informer::OBJECTS_PER_POLL_MAX};
use setpoint_runtime::{
    Action, BoxError, Context, Controller, ControllerBuilder, ControllerState, Predicate, Request,
    Watch,
    cluster::Cluster,
    source::{HandlerFns, KeySink, SourceRun, WatchError, source_fn},
};
use tokio::sync::mpsc;

use crate::{
    controller::chain,
    server::Server,
    world::{CONFIG_MAPS, EVENTS, PODS, Running, Trace, builder, config_map, pass, run, settle},
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ITS_PODS: &str = "/api/v1/namespaces/default/pods";

fn server() -> Server {
    Server::new(&[CONFIG_MAPS, EVENTS, PODS])
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}})
}

/// A reconciler that sends its keys.
fn seer(
    trace: &Trace,
) -> impl Fn(Request, Context) -> std::future::Ready<Result<Action, BoxError>> + Send + Sync + 'static
{
    let trace = trace.clone();
    move |request, _| {
        trace.record(request.to_string());
        std::future::ready(Ok(Action::await_change()))
    }
}

fn of_maps() -> ControllerBuilder {
    Controller::builder("config").for_(Watch::<ConfigMap>::new())
}

fn of_pods(event: &Event<Pod>) -> Vec<Request> {
    vec![Request::new("pod", event.key().name.clone())]
}

#[tokio::test(start_paused = true)]
async fn ctl_2_watch_added_at_run_time_starts_at_once_and_ends_with_its_cache() {
    let (server, trace) = (server(), Trace::default());
    server.put(ITS_PODS, pod("a"));
    let controller = of_maps().build(seer(&trace)).unwrap();
    let mut manager = builder(&server).build();
    let handle = manager.add(controller).unwrap();
    let pods = manager.client().api::<Pod>();
    let running = Running::start(manager);
    settle().await;
    assert_eq!((trace.take().as_str(), server.watchers(PODS)), ("", 0));

    let watch = handle.watch(Watch::<Pod>::new(), of_pods).unwrap();
    settle().await;
    assert!(watch.synced().await);
    assert_eq!(trace.take(), "pod/a");
    assert!(pods.get(&Request::new("default", "a")).unwrap().is_some(), "it is cached");
    let resources = || handle.sources().into_iter().map(|source| source.resource);
    assert_eq!(resources().collect::<Vec<_>>(), ["configmaps", "pods"]);

    let second = handle.watches::<Request>().unwrap();
    let second = second.watch(Watch::<Pod>::new(), |_| vec![Request::cluster("second")]).unwrap();
    settle().await;
    assert_eq!((trace.take().as_str(), server.watchers(PODS)), ("second", 1), "one informer");
    assert!(second.remove());
    server.put(ITS_PODS, pod("b"));
    settle().await;
    assert_eq!((trace.take().as_str(), server.watchers(PODS)), ("pod/b", 1));

    assert!(watch.remove());
    assert!(!watch.remove(), "it is gone");
    settle().await;
    server.put(ITS_PODS, pod("c"));
    settle().await;
    assert_eq!((trace.take().as_str(), server.watchers(PODS)), ("", 0), "the type is not needed");
    assert!(pods.get(&Request::new("default", "a")).is_err(), "it is not cached any more");

    running.stop().await.unwrap();
    let late = handle.watch(Watch::<Pod>::new(), of_pods);
    assert_eq!(late.unwrap_err(), WatchError::Stopped);
    let other_keys = handle.watch(Watch::<Pod>::new(), |_| vec!["a string".to_owned()]);
    assert_eq!(other_keys.unwrap_err(), WatchError::Keys);
}

#[tokio::test(start_paused = true)]
async fn ctl_2_watch_added_before_the_start_is_stored_and_waited_for() {
    let (server, trace) = (Server::new(&[CONFIG_MAPS, EVENTS]), Trace::default());
    server.put(MAPS, config_map("a"));
    let controller = of_maps().build(seer(&trace)).unwrap();
    let stored = controller.watches().watch(Watch::<Pod>::new(), of_pods).unwrap();
    let removed = controller.watches().objects(Watch::<Pod>::new()).unwrap();
    assert!(removed.remove());
    let (running, handle) = run(&server, controller);
    pass(Duration::from_secs(20)).await;
    assert_eq!(handle.state(), ControllerState::Syncing);
    assert_eq!(trace.take(), "");
    let degraded = stored.status().unwrap().degraded.unwrap();
    assert!(degraded.ends_with("could not find the requested resource"), "{degraded}");

    server.serve(PODS);
    pass(Duration::from_secs(60)).await;
    assert_eq!((handle.state(), trace.take().as_str()), (ControllerState::Running, "default/a"));
    assert!(stored.status().unwrap().has_synced);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn reconciler_adds_watches_that_its_objects_need() {
    let (server, trace) = (server(), Trace::default());
    let sink = trace.clone();
    let reconciler = move |request: Request, context: Context| {
        let trace = sink.clone();
        async move {
            trace.record(request.to_string());
            if &*request.name == "pods" {
                let watches = context.watches::<Request>().unwrap();
                watches.objects(Watch::<Pod>::new())?;
                assert!(context.watches::<String>().is_none());
            }
            Ok::<_, BoxError>(Action::await_change())
        }
    };
    let (running, _) = run(&server, of_maps().build(reconciler).unwrap());
    server.put(ITS_PODS, pod("p"));
    server.put(MAPS, config_map("pods"));
    settle().await;
    assert_eq!(trace.take(), "default/pods · default/p");
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn ctl_6_stopped_controller_has_left_the_informers_that_it_shared() {
    let server = server();
    let n_asked = Arc::new(AtomicU32::new(0));
    let asked = n_asked.clone();
    let counting = Predicate::new(move |_: &Event<ConfigMap>| {
        asked.fetch_add(1, Ordering::SeqCst);
        true
    });
    let mut manager = builder(&server).build();
    let watch = Watch::<ConfigMap>::new().filter(counting);
    let gone = Controller::builder("gone").for_(watch).build(seer(&Trace::default())).unwrap();
    manager.add(gone).unwrap();
    let trace = Trace::default();
    manager.add(of_maps().build(seer(&trace)).unwrap()).unwrap();
    let members = manager.handle();
    let running = Running::start(manager);
    server.put(MAPS, config_map("a"));
    settle().await;
    assert!(members.remove("gone"));
    settle().await;
    server.put(MAPS, config_map("b"));
    settle().await;
    assert_eq!(n_asked.load(Ordering::SeqCst), 1, "not asked about what came after its end");
    assert_eq!(trace.take(), "default/a · default/b", "the other one goes on");
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn uninstalled_and_refused_types_fail_in_time_with_advice() {
    // Spec 13: kind not installed; no permission.
    let failure = async |server: Server| {
        let controller = of_maps().sync_timeout(Some(Duration::from_secs(30)));
        let (mut running, handle) =
            run(&server, controller.build(seer(&Trace::default())).unwrap());
        pass(Duration::from_secs(15)).await;
        let degraded = handle.sources()[0].degraded.clone();
        let error = running.ended().await.unwrap_err();
        (chain(&error), degraded.unwrap())
    };
    let (text, degraded) = failure(Server::new(&[EVENTS])).await;
    assert!(
        text.contains(
            "configmaps has not synced within 30s: the server does not serve it; install it"
        ),
        "{text}"
    );
    assert!(degraded.contains("could not find the requested resource"), "before, too: {degraded}");

    let forbidding = server();
    forbidding.forbid(CONFIG_MAPS);
    let (text, degraded) = failure(forbidding).await;
    assert!(text.contains("within 30s: this program may not read it; permit it"), "{text}");
    assert!(text.ends_with("configmaps is forbidden"), "{text}");
    assert!(degraded.ends_with("configmaps is forbidden"), "{degraded}");

    let refusing = server();
    refusing.refuse(CONFIG_MAPS, 401);
    let (text, degraded) = failure(refusing).await;
    assert!(text.contains("within 30s: the server does not accept this program's cred"), "{text}");
    assert!(text.ends_with("Unauthorized") && degraded.ends_with("Unauthorized"), "{text}");
}

/// Sends a message when dropped.
struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn custom_source_adds_keys_at_its_start_and_until_the_stop() {
    let (server, trace) = (server(), Trace::default());
    let dropped = Arc::new(AtomicBool::new(false));
    let flag = Flag(dropped.clone());
    let source = source_fn("a clock", move |keys: KeySink<Request>| async move {
        pass(Duration::from_secs(1)).await;
        keys.add(Request::cluster("start"));
        Ok(SourceRun::new(async move {
            let _flag = flag;
            for n in 0.. {
                pass(Duration::from_secs(10)).await;
                keys.add(Request::cluster(n.to_string()));
            }
            Ok(())
        }))
    });
    let controller = Controller::builder("clock").source(source).build(seer(&trace)).unwrap();
    let (running, handle) = run(&server, controller);
    settle().await;
    assert_eq!(handle.state(), ControllerState::Syncing, "its start has not returned");
    pass(Duration::from_secs(25)).await;
    assert_eq!(trace.take(), "start · 0 · 1");

    let late = source_fn("late", |keys: KeySink<Request>| async move {
        keys.add(Request::cluster("late"));
        Ok(SourceRun::none())
    });
    handle.watches::<Request>().unwrap().source(late).unwrap();
    settle().await;
    assert_eq!(trace.take(), "late");
    running.stop().await.unwrap();
    assert!(dropped.load(Ordering::SeqCst));
    let after = source_fn("after", |_: KeySink<Request>| async { Ok(SourceRun::none()) });
    let refused = handle.watches::<Request>().unwrap().source(after);
    assert_eq!(refused.unwrap_err(), WatchError::Stopped);
}

/// A sink may be kept elsewhere. Its keys would stay in the queue for ever.
#[tokio::test(start_paused = true)]
async fn controller_that_ends_before_it_runs_takes_no_more_keys() {
    let server = server();
    server.forbid(CONFIG_MAPS);
    let (sender, mut sinks) = tokio::sync::mpsc::unbounded_channel();
    let source = source_fn("elsewhere", move |keys: KeySink<Request>| async move {
        sender.send(keys).map_err(|_| "nobody wants it")?;
        Ok(SourceRun::none())
    });
    let controller = of_maps().source(source).build(seer(&Trace::default())).unwrap();
    let (running, handle) = run(&server, controller);
    settle().await;
    let keys = sinks.recv().await.unwrap();
    assert_eq!((handle.state(), keys.is_closed()), (ControllerState::Syncing, false));
    running.stop().await.unwrap();
    keys.add(Request::cluster("late"));
    assert_eq!((keys.is_closed(), handle.queue().queued), (true, 0));
}

#[tokio::test(start_paused = true)]
async fn source_that_blocks_or_fails_or_panics_fails_its_controller() {
    // "Func" of the sources table: a start that does not return fails with a time-out.
    type Start =
        fn(KeySink<Request>) -> futures::future::BoxFuture<'static, Result<SourceRun, BoxError>>;
    let cases: [(Start, &str); 5] = [
        (
            |_| Box::pin(std::future::pending()),
            "the start of bad has not returned within 120s: return long work as a `SourceRun`",
        ),
        (|_| Box::pin(async { Err("no link".into()) }), "bad failed: no link"),
        (
            |_| Box::pin(async { std::panic::resume_unwind(Box::new("ouch")) }),
            "bad failed: panic: ouch",
        ),
        (
            |_| Box::pin(async { Ok(SourceRun::new(async { Err("link lost".into()) })) }),
            "bad failed: link lost",
        ),
        (
            |_| {
                Box::pin(async {
                    Ok(SourceRun::new(async {
                        pass(Duration::from_secs(1)).await;
                        std::panic::resume_unwind(Box::new("late"))
                    }))
                })
            },
            "bad failed: panic: late",
        ),
    ];
    for (start, expected) in cases {
        let controller = of_maps().source(source_fn("bad", start));
        let (mut running, handle) =
            run(&server(), controller.build(seer(&Trace::default())).unwrap());
        let error = chain(&running.ended().await.unwrap_err());
        assert_eq!(error, format!("config failed: controller \"config\": {expected}"));
        assert_eq!(handle.state(), ControllerState::Stopped);
    }
}

#[tokio::test(start_paused = true)]
async fn channel_may_carry_any_value_that_maps_to_keys() {
    let (server, trace) = (server(), Trace::default());
    let (sender, receiver) = mpsc::channel(1);
    let both = |(a, b): (&'static str, &'static str)| [a, b].map(Request::cluster).to_vec();
    let controller =
        Controller::builder("outside").channel_of(receiver, both).build(seer(&trace)).unwrap();
    let (running, handle) = run(&server, controller);
    // The channel's bound is one; the queue takes each key at once.
    for pair in [("a", "b"), ("b", "c"), ("d", "a")] {
        sender.send(pair).await.unwrap();
    }
    settle().await;
    assert_eq!(trace.take(), "a · b · b · c · d · a");
    drop(sender);
    settle().await;
    assert_eq!(
        handle.state(),
        ControllerState::Running,
        "the end of a channel is the end of no controller"
    );
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn bld_4_a_metadata_watch_caches_only_metadata_next_to_whole_objects() {
    let (server, trace) = (server(), Trace::default());
    let mut object = config_map("a");
    object["data"] = json!({"k": "v"});
    server.put(MAPS, object);
    let controller = Controller::builder("meta").for_(Watch::<ConfigMap>::metadata());
    let mut manager = builder(&server).build();
    manager.add(controller.build(seer(&trace)).unwrap()).unwrap();
    let cache = manager.cache().clone();
    let running = Running::start(manager);
    settle().await;
    assert_eq!(trace.take(), "default/a");
    let known = cache.known::<PartialObjectMeta<ConfigMap>>(&()).unwrap();
    let held = known.lister().get("default", "a").unwrap().unwrap();
    assert_eq!(held.metadata.name.as_deref(), Some("a"));
    assert!(cache.known::<ConfigMap>(&()).is_none(), "whole objects are not cached for it");
    assert!(server.asked_as_metadata(CONFIG_MAPS));
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn given_informer_is_watched_and_is_run_by_its_owner() {
    let (server, trace) = (server(), Trace::default());
    server.put(ITS_PODS, pod("p"));
    let (informer, worker) =
        SharedInformer::<Pod>::builder(ClientSource::all::<Pod>(server.client())).seed(1).build();
    let controller = Controller::builder("given")
        .for_(Watch::<Pod>::new().informer(informer.clone()))
        .build(seer(&trace))
        .unwrap();
    let mut manager = builder(&server).build();
    let handle = manager.add(controller).unwrap();
    let stop = tokio_util::sync::CancellationToken::new();
    let stopped = stop.clone();
    manager
        .add_runnable(
            "its informer",
            setpoint_runtime::Runnable::webhooks(move |_| async move {
                worker.run(stopped).await;
                Ok(())
            }),
        )
        .unwrap();
    let running = Running::start(manager);
    settle().await;
    assert_eq!(trace.take(), "default/p");
    stop.cancel();
    settle().await;
    assert!(informer.has_stopped());
    let late = handle.watch(Watch::<Pod>::new().informer(informer), of_pods);
    assert_eq!(late.unwrap_err(), WatchError::InformerStopped);
    assert_eq!(
        handle.sources().iter().map(|source| source.has_stopped).collect::<Vec<_>>(),
        [true]
    );
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn bld_5_and_6_a_filter_applies_to_all_watches_and_to_no_other_source() {
    let (server, trace) = (server(), Trace::default());
    let source = source_fn("b", |keys: KeySink<Request>| async move {
        keys.add(Request::new("source", "b"));
        Ok(SourceRun::none())
    });
    let only_a = Predicate::<Pod>::object(|pod| &*pod.key().name != "c");
    let controller = of_maps()
        .filter(Predicate::any_object(|object| &*object.key().name != "b"))
        .watches(Watch::<Pod>::new().filter(only_a), of_pods)
        .source(source)
        .build(seer(&trace))
        .unwrap();
    for name in ["a", "b", "c"] {
        server.put(MAPS, config_map(name));
        server.put(ITS_PODS, pod(name));
    }
    let (running, handle) = run(&server, controller);
    settle().await;
    let mut keys: Vec<String> = trace.take().split(" · ").map(str::to_owned).collect();
    keys.sort();
    assert_eq!(keys, ["default/a", "default/c", "pod/a", "source/b"]);
    // Including sources that are added at run time.
    let late = handle.watch(Watch::<Pod>::new(), |event: &Event<Pod>| {
        vec![Request::new("late", event.key().name.clone())]
    });
    late.unwrap();
    settle().await;
    assert_eq!(trace.take(), "late/a · late/c");
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn hnd_4_handler_functions_set_delay_and_priority() {
    let (server, trace) = (server(), Trace::default());
    let started = tokio::time::Instant::now();
    let sink = trace.clone();
    let reconciler = move |request: Request, context: Context| {
        let at = started.elapsed().as_secs();
        sink.record(format!(
            "{request} at {at} with {} as {}",
            context.priority(),
            context.cause()
        ));
        std::future::ready(Ok::<_, BoxError>(Action::await_change()))
    };
    let handler = HandlerFns::<Pod, Request>::new()
        .added(|pod, keys| keys.add(pod.key().clone()))
        .deleted(|tombstone, keys| {
            keys.add_after(tombstone.key().clone(), Duration::from_secs(5));
        });
    server.put(ITS_PODS, pod("a"));
    let controller =
        Controller::builder("pods").handles(Watch::<Pod>::new(), handler).build(reconciler);
    let (running, _) = run(&server, controller.unwrap());
    settle().await;
    let mut changed = pod("a");
    changed["metadata"]["labels"] = json!({"a": "b"});
    server.put(ITS_PODS, changed);
    server.put(ITS_PODS, pod("b"));
    settle().await;
    server.delete(&format!("{ITS_PODS}/a"));
    pass(Duration::from_secs(10)).await;
    assert_eq!(
        trace.take(),
        "default/a at 0 with -100 as initial-list · default/b at 0 with 0 as created · default/a at 5 with 0 as deleted"
    );
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn map_of_objects_gets_both_sides_of_an_update_and_adds_each_key_once() {
    let (server, trace) = (server(), Trace::default());
    let labelled = |labels: Value| {
        let mut pod = pod("p");
        pod["metadata"]["labels"] = labels;
        pod
    };
    let controller = Controller::builder("labels")
        .maps(Watch::<Pod>::new(), |pod: &setpoint_informer::Object<Pod>| {
            let skim = pod.skim();
            skim.labels.iter().map(|(_, value)| Request::cluster(&**value)).collect()
        })
        .build(seer(&trace))
        .unwrap();
    let (running, handle) = run(&server, controller);
    server.put(ITS_PODS, labelled(json!({"x": "one", "y": "two"})));
    settle().await;
    assert_eq!(trace.take(), "one · two");
    server.put(ITS_PODS, labelled(json!({"x": "two", "y": "three"})));
    settle().await;
    assert_eq!(trace.take(), "two · three · one");
    assert_eq!(handle.queue_recorder().adds(), 5);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn requeue_adds_every_matching_key_of_the_caches() {
    let (server, trace) = (server(), Trace::default());
    for name in ["a", "b", "c"] {
        server.put(MAPS, config_map(name));
    }
    server.put(ITS_PODS, pod("p"));
    let controller = of_maps().watches(Watch::<Pod>::new(), of_pods).build(seer(&trace)).unwrap();
    let watches = controller.watches();
    let (running, _) = run(&server, controller);
    settle().await;
    trace.take();
    watches.requeue(|key| &*key.name != "b").await;
    settle().await;
    assert_eq!(trace.take(), "default/a · default/c · pod/p");
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn requeue_takes_a_bounded_number_of_objects_per_poll() {
    let (server, trace) = (server(), Trace::default());
    for n in 0..3 * OBJECTS_PER_POLL_MAX {
        server.put(MAPS, config_map(&n.to_string()));
    }
    let controller = of_maps().build(seer(&trace)).unwrap();
    let watches = controller.watches();
    let (running, _) = run(&server, controller);
    settle().await;
    let n_asked = AtomicUsize::new(0);
    let mut requeue = std::pin::pin!(watches.requeue(|_| {
        n_asked.fetch_add(1, Ordering::Relaxed);
        false
    }));
    for n_slices in 1..=3 {
        assert!(futures::poll!(&mut requeue).is_pending());
        assert_eq!(n_asked.load(Ordering::Relaxed), n_slices * OBJECTS_PER_POLL_MAX);
    }
    assert!(futures::poll!(&mut requeue).is_ready());
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn write_is_not_waited_for_in_the_caches_of_other_clusters() {
    // The other cluster's versions are lower, and never reach those of this one.
    let (near, far) = (server(), server());
    for n in 0..9 {
        near.put(ITS_PODS, pod(&n.to_string()));
    }
    let mut manager = builder(&near).build();
    let cluster = Cluster::builder(far.client());
    let cluster = manager.add_cluster("far", cluster).unwrap();
    let started = tokio::time::Instant::now();
    let trace = Trace::default();
    let sink = trace.clone();
    let reconciler = move |request: Request, context: Context| {
        let trace = sink.clone();
        async move {
            trace.record(format!("{request} at {:?}", started.elapsed()));
            let api = context.client().api::<ConfigMap>();
            let data = json!({"data": {"k": "v"}});
            api.patch(&request, &kube_core::params::Patch::Merge(data)).await?;
            Ok::<_, BoxError>(Action::await_change())
        }
    };
    let controller = of_maps()
        .watches(Watch::<ConfigMap>::new().cluster(&cluster), |_| Vec::new())
        .build(reconciler)
        .unwrap();
    manager.add(controller).unwrap();
    let running = Running::start(manager);
    settle().await;
    near.put(MAPS, config_map("a"));
    near.put(MAPS, config_map("b"));
    pass(Duration::from_millis(20)).await;
    let output = trace.take();
    assert!(output.contains("default/b at 1ms"), "{output}");
    running.stop().await.unwrap();
}
