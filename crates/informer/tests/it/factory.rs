//! The factory, over a client whose server has two resources.
use crate::views::Version;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Secret};
use kube_client::Client;
use kube_client::client::Body;
use kube_core::{ApiResource, DynamicObject};
use setpoint_informer::factory::{FactoryOptions, Selection};
use setpoint_informer::{CachePolicy, InformerFactory};
use std::convert::Infallible;
use std::task::{Context, Poll};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Answers with empty lists and keeps watches open. Does not serve secrets.
#[derive(Clone)]
struct Server;

impl tower_service::Service<Request<Body>> for Server {
    type Response = Response<BoxBody<Bytes, Infallible>>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let query = request.uri().query().unwrap_or_default();
        let accept = request.headers()["accept"].to_str().unwrap();
        if request.uri().path().ends_with("nodes") && accept.contains("as=PartialObjectMetadata") {
            let meta = r#""kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"n1","resourceVersion":"#;
            let body = if query.contains("watch=true") {
                assert!(accept.contains("as=PartialObjectMetadata;"));
                if query.contains("sendInitialEvents") {
                    let body = BodyExt::boxed(Full::from("no"));
                    return std::future::ready(Ok(Response::builder()
                        .status(422)
                        .body(body)
                        .unwrap()));
                }
                let line = format!("{{\"type\":\"MODIFIED\",\"object\":{{{meta}\"2\"}}}}}}\n");
                let frame = http_body::Frame::data(Bytes::from(line));
                let line = futures::stream::iter([Ok::<_, Infallible>(frame)]);
                use futures::StreamExt;
                BodyExt::boxed(StreamBody::new(line.chain(futures::stream::pending())))
            } else {
                let list = format!(
                    r#"{{"kind":"PartialObjectMetadataList","metadata":{{"resourceVersion":"1"}},"items":[{{{meta}"1"}}}}]}}"#
                );
                BodyExt::boxed(Full::from(list))
            };
            return std::future::ready(Ok(Response::builder().body(body).unwrap()));
        }
        let (code, body) = if request.uri().path().contains("secrets") {
            (404, BodyExt::boxed(Full::from("404 page not found")))
        } else if query.contains("sendInitialEvents") {
            (422, BodyExt::boxed(Full::from("no")))
        } else if query.contains("watch=true") {
            (200, BodyExt::boxed(StreamBody::new(futures::stream::pending())))
        } else {
            (200, BodyExt::boxed(Full::from(r#"{"metadata":{"resourceVersion":"1"},"items":[]}"#)))
        };
        std::future::ready(Ok(Response::builder().status(code).body(body).unwrap()))
    }
}

fn options() -> FactoryOptions {
    let mut options = FactoryOptions::default();
    options.seed = Some(0);
    options
}

fn factory() -> (InformerFactory, JoinSet<()>, CancellationToken) {
    let client = Client::new(Server, "default");
    let (factory, worker) = InformerFactory::new(client, options());
    let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
    tasks.spawn(worker.run(stop.clone()));
    (factory, tasks, stop)
}

#[tokio::test(start_paused = true)]
async fn fac_1_one_informer_per_type_and_the_first_request_decides() {
    let (factory, _tasks, _stop) = factory();
    let first = factory.informer_with::<Pod>(&(), |builder| builder.object_index("x", |_| vec![]));
    let second = factory.informer_with::<Pod>(&(), |_| unreachable!("it is built already"));
    assert!(second.lister().objects_by_index("x", "").is_ok());
    assert_eq!(first.resource_type(), second.resource_type());
    let dynamic = |resource: &ApiResource| {
        factory.informer_with::<DynamicObject>(resource, |builder| builder)
    };
    let pods = dynamic(&ApiResource::erase::<Pod>(&()));
    let maps = dynamic(&ApiResource::erase::<ConfigMap>(&()));
    assert_eq!(pods.resource_type().to_string(), "pods");
    assert_eq!(maps.resource_type().to_string(), "configmaps");
}

#[tokio::test(start_paused = true)]
async fn fac_3_4_start_runs_requested_informers_and_wait_covers_started_ones() {
    let (factory, _tasks, _stop) = factory();
    let pods = factory.informer::<Pod>();
    factory.start();
    factory.start();
    let late = factory.informer::<ConfigMap>();
    factory.wait_for_sync().await.unwrap();
    assert!(pods.has_synced() && !late.has_synced(), "requested after the start");
    factory.start();
    factory.wait_for_sync().await.unwrap();
    assert!(late.has_synced());
}

#[tokio::test(start_paused = true)]
async fn fac_4_5_shutdown_ends_every_informer_and_those_that_never_synced_are_named() {
    let (factory, mut tasks, _stop) = factory();
    let (pods, secrets) = (factory.informer::<Pod>(), factory.informer::<Secret>());
    factory.start();
    pods.synced().await.unwrap();
    let degraded = secrets.status();
    let never = factory.informer::<ConfigMap>();
    let ((), waited) = futures::future::join(factory.shutdown(), factory.wait_for_sync()).await;
    assert_eq!(waited.unwrap_err().resources, ["secrets"]);
    assert!(pods.has_stopped() && secrets.has_stopped() && never.has_stopped());
    assert!(degraded.degraded.is_some() || !degraded.has_synced);
    factory.start();
    assert!(factory.informer::<k8s_openapi::api::core::v1::Node>().has_stopped());
    tasks.join_next().await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_stop_signal_ends_the_factory_too() {
    let (factory, mut tasks, stop) = factory();
    let pods = factory.informer::<Pod>();
    factory.start();
    pods.synced().await.unwrap();
    stop.cancel();
    tasks.join_next().await.unwrap().unwrap();
    assert!(pods.has_stopped());
    factory.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn fac_1_2_one_informer_per_type_and_selection() {
    let (factory, _tasks, _stop) = factory();
    let ours = || {
        let mut selection = Selection::default();
        selection.namespace = Some("ours".to_owned());
        factory.request::<Pod>(&()).selection(selection)
    };
    let all = factory.informer::<Pod>();
    let build = |builder: setpoint_informer::SharedInformerBuilder<Pod>| {
        builder.object_index("x", |_| vec![])
    };
    let one = ours().build(build).pinned();
    let same = ours().build(|_| unreachable!("it is built already")).pinned();
    assert!(same.lister().objects_by_index("x", "").is_ok() && one.lister().is_empty());
    assert!(all.lister().objects_by_index("x", "").is_err());
    factory.start();
    factory.wait_for_sync().await.unwrap();
    assert!(all.has_synced() && one.has_synced());
}

#[tokio::test(start_paused = true)]
async fn fac_7_metadata_is_requested_and_cached() {
    let (factory, _tasks, _stop) = factory();
    let nodes = factory.metadata::<Node>();
    factory.start();
    factory.wait_for_sync().await.unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let node = nodes.lister().get("", "n1").unwrap().unwrap();
    assert_eq!(node.metadata.resource_version.as_deref(), Some("2"), "changed by the watch");
    assert_eq!(nodes.resource_type().to_string(), "nodes");
    let whole = factory.informer::<Node>();
    factory.start();
    factory.wait_for_sync().await.unwrap();
    assert!(whole.lister().get("", "n1").unwrap().is_none(), "another cache, of whole objects");
    assert!(factory.metadata::<Node>().lister().get("", "n1").unwrap().is_some(), "as before");
}

#[tokio::test(start_paused = true)]
async fn fac_7_metadata_is_read_from_whole_objects_requested_before_the_start() {
    let (factory, _tasks, _stop) = factory();
    let nodes = factory.metadata::<Node>();
    let whole = factory.informer::<Node>();
    factory.start();
    factory.wait_for_sync().await.unwrap();
    assert_eq!(factory.statuses().len(), 1);
    assert!(nodes.has_synced() && whole.has_synced());
    assert!(nodes.lister().is_empty(), "the server's list of whole nodes is empty");
}

#[tokio::test(start_paused = true)]
async fn an_informer_ends_with_its_last_lease_and_a_later_request_makes_a_new_one() {
    let (factory, _tasks, _stop) = factory();
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let before = tasks();
    let first = factory.request::<Pod>(&()).leased();
    let second = factory.request::<Pod>(&()).leased();
    factory.start();
    first.synced().await.unwrap();
    drop(first);
    assert!(!second.has_stopped());
    let kept = second.lister();
    let informer = (*second).clone();
    drop(second);
    assert!(informer.stopped().await.has_synced);
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert_eq!(tasks(), before, "no task remains");
    assert!(kept.is_empty(), "its cache still answers");

    let again = factory.request::<Pod>(&()).leased();
    assert!(!again.has_synced() && !again.has_stopped());
    factory.wait_for_sync().await.unwrap();
    assert!(!again.has_synced(), "it was not started");
    factory.start();
    again.synced().await.unwrap();
    let pinned = factory.informer::<Pod>();
    drop(again);
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert!(!pinned.has_stopped(), "it is pinned");

    let never = factory.request::<ConfigMap>(&()).leased();
    let informer = (*never).clone();
    drop(never);
    assert!(informer.has_stopped(), "it was removed before its start");
    factory.start();
    factory.wait_for_sync().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn ref_33_informer_that_gave_up_is_replaced_on_request() {
    let mut options = options();
    options.give_up_after = Some(std::time::Duration::from_secs(60));
    options.resync_of.insert(
        setpoint_informer::ResourceType::of::<Pod>(&()),
        std::time::Duration::from_secs(77),
    );
    let (factory, worker) = InformerFactory::new(Client::new(Server, "default"), options);
    let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
    tasks.spawn(worker.run(stop.clone()));
    let secrets = factory.informer::<Secret>();
    let pods = factory.informer::<Pod>();
    factory.start();
    let failed = factory.wait_for_sync().await.unwrap_err();
    assert_eq!(failed.resources, ["secrets"]);
    let why = "failed to list secrets: the server could not find the requested resource";
    assert_eq!(failed.causes["secrets"], why);
    assert!(factory.statuses()["secrets"].has_given_up && factory.statuses()["pods"].has_synced);
    assert!(secrets.status().has_given_up && !factory.informer::<Secret>().has_stopped());
    let handler = |_: setpoint_informer::Event<Pod>| ();
    let registration = pods.add_handler(handler, Default::default()).unwrap();
    assert_eq!(registration.resync_period(), Some(std::time::Duration::from_secs(77)));
    factory.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn fac_1_a_factory_has_one_informer_for_a_resource_whatever_types_read_it() {
    let (factory, _tasks, _stop) = factory();
    let maps = factory.informer::<ConfigMap>();
    maps.add_object_index("x", |_| vec![]).unwrap();
    let versions = factory.informer_with::<Version>(&(), |_| unreachable!("it is built already"));
    assert!(versions.lister().objects_by_index("x", "").is_ok());
    let metadata = factory.metadata::<ConfigMap>();
    assert!(metadata.lister().objects_by_index("x", "").is_ok());
    let resource = ApiResource::erase::<ConfigMap>(&());
    let lease = factory.request::<DynamicObject>(&resource).leased();
    assert!(lease.lister().objects_by_index("x", "").is_ok());
    drop(lease);
    assert!(!maps.has_stopped(), "others need it");
    assert_eq!(format!("{factory:?}").matches("n_informers: 1").count(), 1);

    // Values of one type are another cache.
    let held = factory.informer_with::<Pod>(&(), |builder| builder.policy(CachePolicy::Decoded));
    let pods = ApiResource::erase::<Pod>(&());
    let dynamic = factory.informer_with::<DynamicObject>(&pods, |builder| builder);
    assert!(held.view::<DynamicObject>().is_none() && dynamic.view::<Version>().is_some());
    assert_eq!(format!("{factory:?}").matches("n_informers: 3").count(), 1);
}
