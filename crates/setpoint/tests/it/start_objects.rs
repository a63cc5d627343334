//! What a fresh server has, and what it keeps.

use crate::plane::{NETWORKS_CRD, Person, with_person};
use serde_json::{Value, json};
use setpoint::object::time::Clock;
use setpoint::store::MemoryStore;
use setpoint::{ControlPlane, ServeOptions};
use setpoint_controllers::ServerIdentity;
use setpoint_registry::{Feature, RuntimeConfig};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints/kubernetes";
const SLICE: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";

#[tokio::test(start_paused = true)]
async fn each_served_group_version_has_an_api_service() {
    with_person(async |person| {
        let groups = person.get("/apis").await.unwrap();
        let versions = groups["groups"].as_array().unwrap().iter().flat_map(|group| {
            let versions = group["versions"].as_array().unwrap().iter();
            versions.map(|version| {
                format!("{}.{}", version["version"].as_str().unwrap(), group["name"].as_str().unwrap())
            })
        });
        for name in versions.chain(["v1.".to_owned()]) {
            if name.ends_with("apiregistration.k8s.io") {
                continue;
            }
            let service = person.get(&format!("{SERVICES}/{name}")).await.expect(&name);
            assert_eq!(service["status"]["conditions"][0]["reason"], "Local", "{name}");
        }
        // Definitions get theirs, and lose them.
        person.define_networks().await;
        let path = format!("{SERVICES}/v1.samplecrd.k8s.io");
        let is_available = |service: &Option<Value>| {
            service.as_ref().is_some_and(|s| s["status"]["conditions"][0]["status"] == "True")
        };
        let made = person.until(&path, "it is available", is_available).await.unwrap();
        let label = "kube-aggregator.kubernetes.io/automanaged";
        assert_eq!(made["metadata"]["labels"][label], "true");
        let managers = made["metadata"]["managedFields"].as_array().unwrap();
        assert!(managers.iter().all(|fields| fields["manager"] == "kube-apiserver"), "{managers:?}");
        assert_eq!(
            made["spec"],
            json!({"group": "samplecrd.k8s.io", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 100})
        );
        person.patch(&path, &json!({"spec": {"versionPriority": 7}})).await;
        let is_restored = |s: &Option<Value>| s.as_ref().unwrap()["spec"] == made["spec"];
        person.until(&path, "it is restored", is_restored).await;
        person.delete(&path, "Background").await;
        person.until(&path, "it exists again", is_available).await;
        person.delete(NETWORKS_CRD, "Background").await;
        person.gone(&path).await;
    })
    .await;
}

/// A served control plane, and a client of it.
struct Served {
    person: Person,
    port: u16,
    stop: CancellationToken,
    running: JoinSet<()>,
}

impl Served {
    async fn start(store: &MemoryStore, name: &str, ip: Ipv4Addr) -> Self {
        let builder = ControlPlane::builder().store(Arc::new(store.clone()));
        Self::of(builder.shared_as(name).build(), ip.into()).await
    }

    async fn of(plane: ControlPlane, ip: IpAddr) -> Self {
        let options = ServeOptions::new(([127, 0, 0, 1], 0)).advertise_address(ip);
        let serving = plane.serve(options).await.unwrap();
        let (person, port) = (Person { client: serving.client() }, serving.port());
        let (stop, mut running) = (CancellationToken::new(), JoinSet::new());
        let until = stop.clone();
        running.spawn(async move { serving.run(until).await.unwrap() });
        Self { person, port, stop, running }
    }

    async fn stop(mut self) {
        self.stop.cancel();
        while let Some(ended) = self.running.join_next().await {
            ended.unwrap();
        }
    }
}

/// The addresses of the Service `kubernetes`.
fn addresses(endpoints: &Option<Value>) -> Vec<String> {
    let addresses = endpoints.as_ref().map(|e| e["subsets"][0]["addresses"].clone());
    let addresses = addresses.as_ref().and_then(Value::as_array).into_iter().flatten();
    addresses.map(|address| address["ip"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn the_service_kubernetes_has_the_addresses_of_the_servers_that_run() {
    let store = MemoryStore::default();
    let a = Served::start(&store, "a", Ipv4Addr::new(10, 9, 0, 1)).await;
    a.person.until(ENDPOINTS, "it has a", |e| addresses(e) == ["10.9.0.1"]).await;
    let slice = a.person.until(SLICE, "it exists", Option::is_some).await.unwrap();
    assert_eq!(slice["endpoints"][0]["addresses"], json!(["10.9.0.1"]));
    assert_eq!(slice["endpoints"][0]["conditions"]["ready"], true);
    assert_eq!(slice["ports"][0]["port"], a.port);
    let service = a.person.get("/api/v1/namespaces/default/services/kubernetes").await.unwrap();
    assert_eq!(service["spec"]["ports"][0]["targetPort"], a.port);
    let map = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let is_in = |n: usize| {
        move |map: &Option<Value>| {
            let pem =
                map.as_ref().map(|m| m["data"]["client-ca-file"].as_str().unwrap().to_owned());
            pem.is_some_and(|pem| pem.matches("BEGIN CERTIFICATE").count() == n)
        }
    };
    let made = a.person.until(map, "it has the CA", is_in(1)).await.unwrap();
    // The other six are about the proxy's certificate.
    assert_eq!(made["data"].as_object().unwrap().len(), 7);
    assert_eq!(made["data"]["requestheader-allowed-names"], r#"["front-proxy-client"]"#);
    // There, too, whether or not anything ends unused tokens.
    let tracked = "/api/v1/namespaces/kube-system/configmaps/\
        kube-apiserver-legacy-service-account-token-tracking";
    let has_date =
        |map: &Option<Value>| map.as_ref().is_some_and(|m| m["data"]["since"].is_string());
    a.person.until(tracked, "it has a date", has_date).await;

    let b = Served::start(&store, "b", Ipv4Addr::new(10, 9, 0, 2)).await;
    let both = ["10.9.0.1", "10.9.0.2"];
    b.person.until(ENDPOINTS, "it has both", |e| addresses(e) == both).await;
    b.person.until(map, "it has both CAs", is_in(2)).await;
    // A graceful stop removes the address at once.
    a.stop().await;
    assert_eq!(addresses(&b.person.get(ENDPOINTS).await), ["10.9.0.2"]);
    b.stop().await;
    // A loopback address is of no use to others.
    let c = Served::start(&store, "c", Ipv4Addr::LOCALHOST).await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let lease = format!("{leases}/apiserver-127.0.0.1-{}", c.port);
    c.person.until(&lease, "it exists", Option::is_some).await;
    assert!(addresses(&c.person.get(ENDPOINTS).await).is_empty());
    c.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_service_kubernetes_that_is_created_again_has_the_port_of_the_server() {
    with_person(async |person| {
        let address = SocketAddr::from(([10, 9, 0, 1], 7443));
        let identity = ServerIdentity::new(person.client.clone(), Clock::wall(), address);
        let stop = CancellationToken::new();
        let path = "/api/v1/namespaces/default/services/kubernetes";
        let has_port = |service: &Option<Value>| {
            service.as_ref().is_some_and(|s| s["spec"]["ports"][0]["targetPort"] == 7443)
        };
        let work = async {
            person.until(path, "it has the port", has_port).await;
            person.delete(path, "Background").await;
            person.until(path, "the new one has the port", has_port).await;
            stop.cancel();
        };
        tokio::join!(identity.run(stop.clone()), work);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_named_after_the_host_unless_another_server_of_it_lives() {
    with_person(async |person| {
        let identity = |port: u16| {
            let address = SocketAddr::from(([10, 9, 0, 1], port));
            ServerIdentity::new(person.client.clone(), Clock::wall(), address).host("host")
        };
        let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
        // As a kube-apiserver on a machine of this name calls it.
        let of_host = format!("{leases}/apiserver-dd6egxogzxmivwqge6rcnj6rwi");
        let of_address = format!("{leases}/apiserver-10.9.0.1-2");
        let (first, second) = (CancellationToken::new(), CancellationToken::new());
        let work = async {
            let lease = person.until(&of_host, "it exists", Option::is_some).await.unwrap();
            assert_eq!(
                lease["metadata"]["labels"],
                json!({
                    "apiserver.kubernetes.io/identity": "kube-apiserver",
                    "kubernetes.io/hostname": "host",
                })
            );
            let other = async {
                person.until(&of_address, "it exists", Option::is_some).await;
                second.cancel();
            };
            tokio::join!(identity(2).run(second.clone()), other);
            person.until(&of_address, "it is gone", Option::is_none).await;
            let lease = person.get(&of_host).await.unwrap();
            let address = &lease["metadata"]["annotations"]["kubernetes.io/peer-advertise-address"];
            assert_eq!(address, "10.9.0.1:1");
            first.cancel();
        };
        tokio::join!(identity(1).run(first.clone()), work);
    })
    .await;
}

#[tokio::test]
async fn each_server_says_what_it_stores() {
    const VERSIONS: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";
    let plane = |name: &str, store: &Arc<MemoryStore>, beta: &str| {
        let served = format!("internal.apiserver.k8s.io/v1alpha1=true{beta}");
        let config = RuntimeConfig::with_gates(&served, [Feature::StorageVersionAPI]).unwrap();
        ControlPlane::builder().runtime_config(config).store(store.clone()).shared_as(name).build()
    };
    let store = Arc::new(MemoryStore::default());
    let a = Served::of(plane("a", &store, ""), Ipv4Addr::new(10, 9, 0, 1).into()).await;
    let path = |name: &str| format!("{VERSIONS}/{name}");
    let entries = |object: &Option<Value>| {
        let object = object.as_ref();
        object.map_or(Value::Null, |object| object["status"]["storageVersions"].clone())
    };
    let entry = |object: &Option<Value>, at: usize| {
        let entry = entries(object)[at].clone();
        let member = |name: &str| entry[name].clone();
        json!([member("encodingVersion"), member("decodableVersions"), member("servedVersions")])
    };
    let has = |n: usize| {
        move |object: &Option<Value>| entries(object).as_array().is_some_and(|all| all.len() == n)
    };
    // The last one.
    a.person.until(&path("storage.k8s.io.volumeattributesclasses"), "it is written", has(1)).await;
    for (name, expected) in [
        ("core.pods", json!(["v1", ["v1"], ["v1"]])),
        ("core.events", json!(["v1", ["v1", "events.k8s.io/v1"], ["v1"]])),
        (
            "autoscaling.horizontalpodautoscalers",
            json!([
                "autoscaling/v2",
                ["autoscaling/v2", "autoscaling/v1"],
                ["autoscaling/v2", "autoscaling/v1"]
            ]),
        ),
        (
            "admissionregistration.k8s.io.validatingwebhookconfigurations",
            json!([
                "admissionregistration.k8s.io/v1",
                ["admissionregistration.k8s.io/v1"],
                ["admissionregistration.k8s.io/v1"]
            ]),
        ),
        (
            "apiextensions.k8s.io.customresourcedefinitions",
            json!([
                "apiextensions.k8s.io/v1beta1",
                ["apiextensions.k8s.io/v1", "apiextensions.k8s.io/v1beta1"],
                ["apiextensions.k8s.io/v1"]
            ]),
        ),
    ] {
        let object = a.person.get(&path(name)).await;
        assert_eq!(entry(&object, 0), expected, "{name}");
        let object = object.unwrap();
        assert_eq!(object["status"]["commonEncodingVersion"], expected[0], "{name}");
        assert_eq!(object["status"]["conditions"][0]["reason"], "CommonEncodingVersionSet");
        let id = format!("apiserver-10.9.0.1-{}", a.port);
        assert_eq!(object["status"]["storageVersions"][0]["apiServerID"], id);
    }
    for absent in ["events.k8s.io.events", "authorization.k8s.io.subjectaccessreviews"] {
        assert!(a.person.get(&path(absent)).await.is_none(), "{absent}");
    }
    // Another one serves more; each has an entry.
    let beta = ",networking.k8s.io/v1beta1=true";
    let b = Served::of(plane("b", &store, beta), Ipv4Addr::new(10, 9, 0, 2).into()).await;
    let addresses = path("networking.k8s.io.ipaddresses");
    let object = b.person.until(&addresses, "it has both", has(2)).await;
    let v1 = "networking.k8s.io/v1";
    let both = json!([v1, "networking.k8s.io/v1beta1"]);
    assert_eq!(entry(&object, 0), json!([v1, [v1], [v1]]));
    assert_eq!(entry(&object, 1), json!([v1, both, both]));
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn the_endpoints_of_the_service_kubernetes_are_of_its_family() {
    let plane = |networks: &str| {
        ControlPlane::builder().service_networks(networks.parse().unwrap()).build()
    };
    let both = "fd00:10::/112,10.0.0.0/24";
    let served = Served::of(plane(both), "fd00::9".parse().unwrap()).await;
    served.person.until(ENDPOINTS, "it has the address", |e| addresses(e) == ["fd00::9"]).await;
    let slice = served.person.until(SLICE, "it exists", Option::is_some).await.unwrap();
    assert_eq!(slice["addressType"], "IPv6");
    assert_eq!(slice["endpoints"][0]["addresses"], json!(["fd00::9"]));
    let service = served.person.get("/api/v1/namespaces/default/services/kubernetes").await;
    assert_eq!(service.unwrap()["spec"]["clusterIPs"], json!(["fd00:10::1"]));
    served.stop().await;
    for (networks, address) in [(both, "10.9.0.1"), ("10.0.0.0/24", "fd00::9")] {
        let options = ServeOptions::new(([127, 0, 0, 1], 0));
        let options = options.advertise_address(address.parse().unwrap());
        let error = plane(networks).serve(options).await.map(drop).unwrap_err().to_string();
        let expected = format!(
            "service IP family \"{networks}\" must match public address family \"{address}\""
        );
        assert_eq!(error, expected);
    }
}
