//! Caches that start with the objects of an earlier manager, and caches over other sources.

use std::sync::Arc;

use bytes::Bytes;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube_core::metadata::PartialObjectMeta;
use parking_lot::Mutex;
use setpoint_informer::source::{
    ListPage, WatchFrame,
    scripted::{Answer, Asked, Script, Step},
};
use setpoint_runtime::{
    Action, BoxError, CacheOptions, Context, Controller, ManagerBuilder, Request, Watch,
    cache::{SavedLists, SavedListsError},
    client::layer::{Interceptor, Next},
};

use crate::{
    server::Server,
    world::{CONFIG_MAPS, EVENTS, PODS, Running, Trace, builder, config_map, settle},
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A controller that names what it reconciles.
fn controller(trace: &Trace) -> Controller {
    let sink = trace.clone();
    let controller = Controller::builder("config").for_(Watch::<ConfigMap>::new());
    let reconcile = move |request: Request, context: Context| {
        let map = context.client().api::<ConfigMap>().get(&request);
        sink.record(format!(
            "{}{}",
            request.name,
            if map.unwrap().is_some() { "" } else { " gone" }
        ));
        std::future::ready(Ok::<_, BoxError>(Action::await_change()))
    };
    controller.build(reconcile).unwrap()
}

/// The reads of a manager: `list` for each list, paged or streamed, and `watch` for each watch.
#[derive(Clone, Default)]
struct Reads(Arc<Mutex<Vec<&'static str>>>);

impl Reads {
    fn of(&self, builder: ManagerBuilder) -> ManagerBuilder {
        let reads = self.0.clone();
        builder.layer(&Interceptor::new(move |_, request, next: Next| {
            let query = request.uri().query().unwrap_or_default();
            if request.method() == http::Method::GET {
                let is_watch = query.contains("watch=") && !query.contains("sendInitialEvents");
                reads.lock().push(if is_watch { "watch" } else { "list" });
            }
            next.run(request)
        }))
    }

    fn take(&self) -> String {
        std::mem::take(&mut *self.0.lock()).join(" ")
    }
}

/// Runs a manager with these cache options; returns what it cached.
async fn run(
    server: &Server,
    options: CacheOptions,
    reads: &Reads,
    trace: &Trace,
    during: impl AsyncFnOnce(),
) -> SavedLists {
    let mut manager = reads.of(builder(server).cache(options)).build();
    manager.add(controller(trace)).unwrap();
    let cache = manager.cache().clone();
    let running = Running::start(manager);
    settle().await;
    during().await;
    running.stop().await.unwrap();
    cache.save().unwrap()
}

#[tokio::test(start_paused = true)]
async fn manager_with_saved_lists_sends_no_list() {
    let (server, reads, trace) =
        (Server::new(&[CONFIG_MAPS, EVENTS]), Reads::default(), Trace::default());
    server.put(MAPS, config_map("a"));
    server.put(MAPS, config_map("b"));
    let saved = run(&server, CacheOptions::new(), &reads, &trace, async || {}).await;
    assert_eq!((trace.take().as_str(), saved.len()), ("a · b", 1));
    assert!(reads.take().starts_with("list"));

    // What happens meanwhile is delivered as changes.
    server.put(MAPS, config_map("c"));
    server.delete(&format!("{MAPS}/a"));
    let bytes = Bytes::from(saved.to_bytes().unwrap());
    let saved = SavedLists::from_bytes(bytes).unwrap();
    let options = CacheOptions::new().restore(saved);
    let saved = run(&server, options, &reads, &trace, async || {
        server.put(MAPS, config_map("d"));
        settle().await;
    })
    .await;
    assert_eq!(reads.take(), "watch");
    let mut passes: Vec<String> = trace.take().split(" · ").map(str::to_owned).collect();
    passes.sort();
    passes.dedup();
    assert_eq!(passes.last().map(String::as_str), Some("d"));
    assert!(
        passes.contains(&"a gone".to_owned()) && passes.contains(&"c".to_owned()),
        "{passes:?}"
    );
    assert_eq!(format!("{saved:?}").matches(": 3").count(), 1, "{saved:?}");
}

#[tokio::test(start_paused = true)]
async fn saved_lists_that_are_too_old_are_listed_again() {
    let (server, reads, trace) =
        (Server::new(&[CONFIG_MAPS, EVENTS]), Reads::default(), Trace::default());
    server.put(MAPS, config_map("a"));
    let saved = run(&server, CacheOptions::new(), &reads, &trace, async || {}).await;
    server.delete(&format!("{MAPS}/a"));
    server.put(MAPS, config_map("b"));
    server.cut_watches(true);
    server.heal();
    reads.take();
    trace.take();
    let options = CacheOptions::new().restore(saved);
    run(&server, options, &reads, &trace, async || {
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    })
    .await;
    let reads = reads.take();
    assert!(reads.starts_with("watch list"), "{reads}");
    let passes = trace.take();
    assert!(passes.contains("b") && passes.contains("a gone"), "{passes}");
}

#[tokio::test(start_paused = true)]
async fn only_caches_that_have_synced_are_saved_and_each_selection_is_its_own() {
    let server = Server::new(&[CONFIG_MAPS, EVENTS]);
    for namespace in ["a", "b"] {
        server.put(&format!("/api/v1/namespaces/{namespace}/configmaps"), config_map("x"));
    }
    let options = CacheOptions::new().namespaces(["a", "b"]).unwrap();
    let manager = builder(&server).cache(options).build();
    let cache = manager.cache().clone();
    cache.informer::<ConfigMap>();
    cache.informer::<PartialObjectMeta<ConfigMap>>();
    cache.informer_unawaited::<Pod>(&());
    let running = Running::start(manager);
    settle().await;
    let saved = cache.save().unwrap();
    assert_eq!(saved.len(), 2, "pods are not served: {saved:?}");
    running.stop().await.unwrap();

    // A selection that was not saved lists as usual.
    let (reads, trace) = (Reads::default(), Trace::default());
    let options = CacheOptions::new().restore(saved);
    let saved = run(&server, options, &reads, &trace, async || {}).await;
    assert!(reads.take().starts_with("list"));
    assert_eq!(trace.take(), "x · x");
    let later = SavedLists::from_bytes(Bytes::from(saved.to_bytes().unwrap()).slice(..20));
    assert_eq!(later.unwrap_err(), SavedListsError::Checksum);
}

#[tokio::test(start_paused = true)]
async fn caches_of_a_manager_come_from_any_source() {
    let server = Server::new(&[CONFIG_MAPS, EVENTS, PODS]);
    let object = |name: &str, version: u64| {
        let mut object = config_map(name);
        object["metadata"]["namespace"] = "default".into();
        object["metadata"]["resourceVersion"] = version.to_string().into();
        Bytes::from(object.to_string())
    };
    let script = Script::new([
        Answer::List(Ok(ListPage::new("5", vec![object("a", 3)]))),
        Answer::Watch(vec![Step::Frame(WatchFrame::Added(object("b", 6))), Step::Hang]),
    ]);
    let (reads, trace, scripted) = (Reads::default(), Trace::default(), script.clone());
    let options = CacheOptions::new().source(move |request, source| {
        match &*request.resource_type.resource.resource {
            "configmaps" => Arc::new(scripted.clone()),
            _ => source,
        }
    });
    run(&server, options, &reads, &trace, async || {}).await;
    // Changes go before initial objects.
    assert_eq!((reads.take().as_str(), trace.take().as_str()), ("", "b · a"));
    let asked = script.asked();
    assert!(matches!(asked[..], [Asked::List(..), Asked::Watch(..)]), "{asked:?}");
}
