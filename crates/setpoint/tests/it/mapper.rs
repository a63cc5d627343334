//! Discovery of the resource of a kind from a real API server (CLU-4).

use crate::plane::with_person;
use kube_client::Client;
use kube_client::client::Body;
use parking_lot::Mutex;
use setpoint::object::GroupVersionKind;
use setpoint::runtime::{
    client::layer,
    mapper::{MAPPER_ASK_AGAIN, Mapper, MapperError},
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tower::util::MapRequestLayer;

/// The requests to the server, in order.
#[derive(Clone, Default)]
struct Requests(Arc<Mutex<Vec<String>>>);

impl Requests {
    /// A client whose requests are recorded; without aggregated discovery if `plain`.
    fn noting(&self, client: Client, plain: bool) -> Client {
        let requests = self.0.clone();
        let note = move |mut request: http::Request<Body>| {
            requests.lock().push(request.uri().path().to_owned());
            if plain {
                let json = http::HeaderValue::from_static("application/json");
                request.headers_mut().insert(http::header::ACCEPT, json);
            }
            request
        };
        layer::layered(client, &MapRequestLayer::new(note))
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock())
    }
}

fn network() -> GroupVersionKind {
    GroupVersionKind::new("samplecrd.k8s.io", "v1", "Network")
}

#[tokio::test(start_paused = true)]
async fn clu_4_kinds_are_discovered_on_demand_and_missing_ones_are_retried() {
    with_person(async |person| {
        let requests = Requests::default();
        let mapper = Mapper::new(requests.noting(person.client.clone(), false));
        assert_eq!(requests.take(), [""; 0], "nothing before it is needed");

        let pod = mapper.resolve(&GroupVersionKind::new("", "v1", "Pod")).await.unwrap();
        assert_eq!((&*pod.resource.plural, pod.is_namespaced), ("pods", true));
        assert_eq!(requests.take(), ["/apis", "/api"], "everything at once");
        let node = mapper.resolve_preferred("", "Node").await.unwrap();
        assert_eq!((&*node.resource.plural, node.is_namespaced), ("nodes", false));
        let deployment = mapper.resolve_preferred("apps", "Deployment").await.unwrap();
        assert_eq!(deployment.resource.api_version, "apps/v1");
        assert_eq!(requests.take(), [""; 0], "it is known");

        // A missing kind is requested at most once in a while, regardless of the number of callers.
        for _ in 0..100 {
            let error = mapper.resolve(&network()).await.unwrap_err();
            assert!(error.is_no_match());
            let message = r#"no matches for kind "Network" in version "samplecrd.k8s.io/v1""#;
            assert_eq!(error.to_string(), message);
        }
        assert_eq!(requests.take(), ["/apis/samplecrd.k8s.io/v1"]);
        person.define_networks().await;
        tokio::time::sleep(MAPPER_ASK_AGAIN).await;
        let of_many = (0..10).map(|_| {
            let mapper = mapper.clone();
            async move { mapper.resolve(&network()).await.unwrap() }
        });
        let mappings = futures::future::join_all(of_many).await;
        assert!(mappings.iter().all(|mapping| mapping.resource.plural == "networks"));
        assert_eq!(requests.take(), ["/apis/samplecrd.k8s.io/v1"], "once for all who wait");
        let preferred = mapper.resolve_preferred("samplecrd.k8s.io", "Network").await.unwrap();
        assert_eq!(preferred, mappings[0]);

        requests.take();
        mapper.forget("samplecrd.k8s.io");
        mapper.resolve(&network()).await.unwrap();
        assert_eq!(requests.take(), ["/apis/samplecrd.k8s.io/v1"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn clu_4_server_without_aggregated_discovery_is_read_group_by_group() {
    with_person(async |person| {
        let requests = Requests::default();
        let mapper = Mapper::new(requests.noting(person.client.clone(), true));
        let pod = mapper.resolve(&GroupVersionKind::new("", "v1", "Pod")).await.unwrap();
        assert_eq!((&*pod.resource.plural, pod.is_namespaced), ("pods", true));
        requests.take();
        let deployment = mapper.resolve_preferred("apps", "Deployment").await.unwrap();
        assert_eq!(deployment.resource.api_version, "apps/v1");
        assert_eq!(requests.take(), ["/apis", "/apis/apps/v1"]);
        let error = mapper.resolve_preferred("no.such.group", "Thing").await.unwrap_err();
        assert_eq!(error.to_string(), r#"no matches for kind "Thing" in group "no.such.group""#);
        assert!(mapper.resolve(&GroupVersionKind::new("", "v1", "Thing")).await.is_err());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn clu_4_unreachable_server_is_an_error() {
    let broken = tower::service_fn(|_: http::Request<Body>| async {
        Err::<http::Response<Body>, _>(std::io::Error::other("it is off"))
    });
    let mapper = Mapper::new(Client::new(broken, "default"));
    for _ in 0..2 {
        let error = mapper.resolve(&network()).await.unwrap_err();
        assert!(matches!(error, MapperError::Discover { .. }), "{error:?}");
        assert_eq!(error.to_string(), "discover samplecrd.k8s.io/v1");
    }
}

#[tokio::test(start_paused = true)]
async fn clu_4_aggregated_discovery_is_tried_again_after_a_failed_request() {
    with_person(async |person| {
        let requests = Requests::default();
        let is_off = Arc::new(AtomicBool::new(true));
        let switch = is_off.clone();
        let behind = requests.noting(person.client.clone(), false);
        let through = tower::service_fn(move |request: http::Request<Body>| {
            let (behind, is_off) = (behind.clone(), switch.load(Ordering::SeqCst));
            async move {
                if is_off {
                    return Err(std::io::Error::other("it is off"));
                }
                behind.send(request).await.map_err(std::io::Error::other)
            }
        });
        let client = Client::new(through, "default");
        let mapper = Mapper::new(client);
        let pod = GroupVersionKind::new("", "v1", "Pod");
        let error = mapper.resolve(&pod).await.unwrap_err();
        assert!(matches!(error, MapperError::Discover { .. }), "{error:?}");
        is_off.store(false, Ordering::SeqCst);
        mapper.resolve(&pod).await.unwrap();
        mapper.resolve_preferred("apps", "Deployment").await.unwrap();
        assert_eq!(requests.take(), ["/apis", "/api"], "everything at once");
    })
    .await;
}
