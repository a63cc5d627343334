//! The factory, over a client whose server knows two resources.
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube_client::Client;
use kube_client::client::Body;
use kube_core::{ApiResource, DynamicObject};
use setpoint_informer::InformerFactory;
use setpoint_informer::factory::FactoryOptions;
use std::convert::Infallible;
use std::task::{Context, Poll};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Lists nothing, and keeps watches open; knows no secrets.
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

fn factory() -> (InformerFactory, JoinSet<()>, CancellationToken) {
    let client = Client::new(Server, "default");
    let (factory, worker) = InformerFactory::new(client, FactoryOptions::default());
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
async fn fac_3_4_start_runs_what_was_requested_and_wait_covers_what_was_started() {
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
