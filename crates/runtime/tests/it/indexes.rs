//! Indexes of watches, and maps that read the cache.

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use serde_json::{Value, json};
use setpoint_informer::Event;
use setpoint_informer::indexer::LABEL_INDEX;
use setpoint_object::error::chain;
use setpoint_object::label::Selector;
use setpoint_runtime::{
    Action, BoxError, Client, Context, Controller, ControllerBuilder, Request, Watch,
    manager::AddError,
};

use crate::{
    server::Server,
    world::{CONFIG_MAPS, EVENTS, PODS, Running, Trace, builder, config_map, settle},
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ITS_PODS: &str = "/api/v1/namespaces/default/pods";

fn server() -> Server {
    Server::new(&[CONFIG_MAPS, PODS, EVENTS])
}

/// A config map that refers to a pod.
fn naming(name: &str, pod: &str) -> Value {
    let mut map = config_map(name);
    map["data"] = json!({"pod": pod});
    map
}

/// The pods that a config map refers to.
fn pods(map: &ConfigMap) -> Vec<String> {
    let pod = map.data.iter().filter_map(|data| data.get("pod"));
    pod.map(|pod| format!("default/{pod}")).collect()
}

fn maps() -> Watch<ConfigMap> {
    Watch::<ConfigMap>::new().index("pods", pods)
}

fn of_maps() -> ControllerBuilder {
    Controller::builder("config").for_(maps())
}

fn build(builder: ControllerBuilder, trace: &Trace) -> Controller {
    let trace = trace.clone();
    let reconcile = move |request: Request, _: Context| {
        trace.record(request.name.to_string());
        std::future::ready(Ok::<_, BoxError>(Action::await_change()))
    };
    builder.build(reconcile).unwrap()
}

/// Reads the cache as `watches_by_index` does.
fn by_hand(event: &Event<Pod>, client: &Client) -> Vec<Request> {
    let maps = client.api::<ConfigMap>();
    let found = maps.select().index("pods", event.key().to_string()).all().unwrap_or_default();
    let key = |map: &std::sync::Arc<ConfigMap>| {
        Request::new("default", map.metadata.name.as_deref().unwrap_or_default())
    };
    found.iter().map(key).collect()
}

#[tokio::test(start_paused = true)]
async fn change_of_a_referenced_object_queues_the_objects_that_refer_to_it() {
    let by_index = of_maps().watches_by_index::<ConfigMap, _>(Watch::<Pod>::new(), "pods");
    let by_hand = of_maps().watches_with(Watch::<Pod>::new(), by_hand);
    for controller in [by_index, by_hand] {
        let (server, trace) = (server(), Trace::default());
        for (name, pod) in [("a", "p"), ("b", "p"), ("c", "other")] {
            server.put(MAPS, naming(name, pod));
        }
        let mut manager = builder(&server).build();
        manager.add(build(controller, &trace)).unwrap();
        let client = manager.client().clone();
        let running = Running::start(manager);
        settle().await;
        assert_eq!(trace.take(), "a · b · c");

        server.put(ITS_PODS, json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}));
        settle().await;
        assert_eq!(trace.take(), "a · b");
        server.put(MAPS, naming("b", "other"));
        settle().await;
        assert_eq!(trace.take(), "b");
        server.delete(&format!("{ITS_PODS}/p"));
        settle().await;
        assert_eq!(trace.take(), "a");

        let others = client.api::<ConfigMap>().select().index("pods", "default/other").all();
        assert_eq!(others.unwrap().len(), 2, "readers have the index, too");
        running.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn index_can_be_declared_again_only_with_the_same_function() {
    let (server, trace) = (server(), Trace::default());
    let mut manager = builder(&server).build();
    manager.add(build(of_maps(), &trace)).unwrap();
    let same = Controller::builder("same").for_(maps());
    manager.add(build(same, &trace)).unwrap();

    let refused = |builder: ControllerBuilder| match manager.handle().add(build(builder, &trace)) {
        Err(AddError::Index { source, .. }) => source.to_string(),
        other => panic!("{other:?}"),
    };
    let other = Watch::<ConfigMap>::new().index("pods", |_| Vec::new());
    assert_eq!(
        refused(Controller::builder("other").for_(other)),
        "index \"pods\" of configmaps: it is already declared with another function"
    );
    let before = Controller::builder("before");
    assert_eq!(
        refused(before.watches_by_index::<Pod, _>(Watch::<ConfigMap>::new(), "pods")),
        "index \"pods\" of pods: the type is not watched: first watch it, with the index"
    );
    assert_eq!(
        refused(of_maps_named("none").watches_by_index::<ConfigMap, _>(Watch::<Pod>::new(), "x")),
        "index \"x\" of configmaps: it does not exist: first declare it with Watch::index"
    );
    // The name of a refused controller is free.
    manager.add(build(of_maps_named("none"), &trace)).unwrap();
}

#[tokio::test(start_paused = true)]
async fn index_by_labels_may_be_declared_by_several_watches_and_views_and_serves_reads() {
    let (server, trace) = (server(), Trace::default());
    for (name, app) in [("a", "web"), ("b", "db"), ("c", "web")] {
        let metadata = json!({"name": name, "labels": {"app": app}});
        server.put(MAPS, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}));
    }
    let mut manager = builder(&server).build();
    for name in ["one", "two"] {
        let controller = Controller::builder(name).for_(Watch::<ConfigMap>::new().index_labels());
        manager.add(build(controller, &trace)).unwrap();
    }
    let metadata = Watch::<ConfigMap>::metadata().index_labels();
    manager.add(build(Controller::builder("metadata").for_(metadata), &trace)).unwrap();
    let own = Watch::<ConfigMap>::new().index(LABEL_INDEX, |_| Vec::new());
    let refused = manager.handle().add(build(Controller::builder("own").for_(own), &trace));
    assert!(matches!(refused, Err(AddError::Index { .. })), "{refused:?}");

    let client = manager.client().clone();
    let running = Running::start(manager);
    settle().await;
    let of_web = || Selector::parse("app=web").unwrap();
    let api = client.api::<ConfigMap>();
    assert_eq!(api.select().labels(of_web()).all().unwrap().len(), 2);
    assert_eq!(api.select().index(LABEL_INDEX, "app=db").all().unwrap().len(), 1);
    assert_eq!(api.list(Some("default"), &of_web()).unwrap().len(), 2);
    assert_eq!(client.metadata::<ConfigMap>().list(None, &of_web()).unwrap().len(), 2);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn object_that_does_not_fit_its_type_is_an_error_of_its_own_reads_only() {
    let (server, trace) = (server(), Trace::default());
    let misfit = |name: &str| {
        let mut map = config_map(name);
        map["data"] = json!(7);
        map
    };
    server.put(MAPS, naming("a", "p"));
    server.put(MAPS, misfit("bad"));
    let mut manager = builder(&server).build();
    let handle = manager.add(build(of_maps(), &trace)).unwrap();
    let client = manager.client().clone();
    let running = Running::start(manager);
    settle().await;
    assert_eq!(trace.take(), "a · bad", "its key is queued");
    let source = &handle.sources()[0];
    assert_eq!((source.unindexed, source.panics), (1, 0));
    let last = source.last_unindexed.as_deref().unwrap();
    let start = "an object of configmaps has no values in the index \"pods\": decode ";
    assert!(last.starts_with(start) && last.contains("default/bad"), "{last}");

    let api = client.api::<ConfigMap>();
    let error = api.get(&Request::new("default", "bad")).unwrap_err();
    let error = chain(&error);
    assert!(error.contains("ConfigMap default/bad"), "{error}: not taken for deleted");
    assert!(api.select().all().is_err());
    assert!(api.list(Some("default"), &Selector::everything()).is_err());
    let read = api.select().namespace("default").readable().unwrap();
    assert_eq!((read.objects.len(), read.unreadable.len()), (1, 1));
    assert_eq!(&*read.unreadable[0].key.name, "bad");
    assert_eq!(api.select().index("pods", "default/p").all().unwrap().len(), 1);
    assert_eq!(
        client.metadata::<ConfigMap>().list(None, &Selector::everything()).unwrap().len(),
        2
    );

    // The other way round: an indexed object turns bad, and an index is added later.
    server.put(MAPS, misfit("a"));
    let late = Watch::<ConfigMap>::new().index("late", |_| vec!["all".to_owned()]);
    handle.watch(late, |_| Vec::<Request>::new()).unwrap();
    server.put(MAPS, naming("bad", "p"));
    settle().await;
    let named = |index: &str, value: &str| -> Vec<String> {
        let found = api.select().index(index, value).all().unwrap();
        found.iter().filter_map(|map| map.metadata.name.clone()).collect()
    };
    assert_eq!(named("pods", "default/p"), ["bad"]);
    assert_eq!(named("late", "all"), ["bad"]);
    assert_eq!(trace.take(), "a · bad");
    running.stop().await.unwrap();
}

fn of_maps_named(name: &str) -> ControllerBuilder {
    Controller::builder(name).for_(maps())
}

#[tokio::test(start_paused = true)]
async fn declaration_ends_with_the_cache_and_with_a_refusal() {
    let (server, trace) = (server(), Trace::default());
    server.put(MAPS, naming("a", "p"));
    let mut manager = builder(&server).build();
    let handle = manager.add(build(of_pods(), &trace)).unwrap();
    let cache = manager.client().cache().clone();
    let running = Running::start(manager);
    settle().await;
    let declare = |watch: Watch<ConfigMap>| handle.watch(watch, |_| Vec::<Request>::new());
    let by_name = |map: &ConfigMap| map.metadata.name.iter().cloned().collect::<Vec<_>>();

    let first = declare(maps()).unwrap();
    settle().await;
    assert!(declare(Watch::new().index("pods", by_name)).is_err(), "another function");
    assert!(first.remove());
    let second = declare(Watch::new().index("pods", by_name)).unwrap();
    settle().await;
    assert!(cache.remove::<ConfigMap>());
    let third = declare(maps()).unwrap();
    settle().await;

    // Refused, because the name is taken, and refused again.
    cache.known::<ConfigMap>(&()).unwrap().add_index("names", by_name).unwrap();
    for _ in 0..2 {
        assert!(declare(Watch::new().index("names", by_name)).is_err());
    }
    assert!(second.remove() && third.remove());
    running.stop().await.unwrap();
}

fn of_pods() -> ControllerBuilder {
    Controller::builder("pods").for_(Watch::<Pod>::new())
}
