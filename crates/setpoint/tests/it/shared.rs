//! Several control planes over one store, in one process: changes through one are effective at all.

use crate::plane::{NETWORKS_CRD, Person, map, maps, network, networks, owner};
use serde_json::{Value, json};
use setpoint::{ControlPlane, control_plane::ControlPlaneError};
use setpoint_store::{At, MemoryStore, Op, Store, Txn};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const LEASE: &str =
    "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/setpoint-controllers";

/// One of several servers, and a client of it.
struct Server {
    person: Person,
    stop: CancellationToken,
    tasks: JoinSet<Result<(), ControlPlaneError>>,
}

impl Server {
    /// Starts a server, and gives it time to win a free election.
    async fn start(store: &MemoryStore, identity: &str, seed: u64) -> Self {
        let builder = ControlPlane::builder().store(Arc::new(store.clone())).simulated(seed);
        let plane = builder.shared_as(identity).build();
        let (person, stop) = (Person { client: plane.client() }, CancellationToken::new());
        let mut tasks = JoinSet::new();
        tasks.spawn(plane.run(stop.clone()));
        tokio::time::sleep(Duration::from_secs(5)).await;
        Self { person, stop, tasks }
    }
    async fn two(store: &MemoryStore) -> (Self, Self) {
        let a = Self::start(store, "a", 1).await;
        (a, Self::start(store, "b", 2).await)
    }
    /// A graceful stop.
    async fn stop(mut self) {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap().unwrap();
        }
    }
    async fn holder(&self) -> Value {
        self.person.get(LEASE).await.unwrap()["spec"]["holderIdentity"].clone()
    }
    async fn create_namespace(&self, name: &str) {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.person.create("/api/v1/namespaces", &namespace).await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_server_runs_the_controllers_and_the_next_takes_over() {
    let store = MemoryStore::default();
    let (a, b) = Server::two(&store).await;
    assert_eq!(b.holder().await, "a");
    // Garbage is collected, whichever server deleted its owner.
    let first = b.person.create(&maps("default", ""), &map("first", &[])).await;
    a.person.create(&maps("default", ""), &map("second", &[owner(&first)])).await;
    b.person.delete(&maps("default", "first"), "Background").await;
    b.person.gone(&maps("default", "second")).await;
    // A graceful stop hands over at once.
    a.stop().await;
    b.create_namespace("shop").await;
    b.person.create(&maps("shop", ""), &map("x", &[])).await;
    b.person.delete("/api/v1/namespaces/shop", "Background").await;
    b.person.gone("/api/v1/namespaces/shop").await;
    assert_eq!(b.holder().await, "b");
    // After a crash the Lease has to expire.
    let c = Server::start(&store, "c", 3).await;
    drop(b);
    c.create_namespace("shop").await;
    c.person.create(&maps("shop", ""), &map("x", &[])).await;
    c.person.delete("/api/v1/namespaces/shop", "Background").await;
    c.person.gone("/api/v1/namespaces/shop").await;
    assert_eq!(c.holder().await, "c");
    c.stop().await;
}

#[tokio::test(start_paused = true)]
async fn definitions_through_one_server_are_served_by_the_other() {
    let store = MemoryStore::default();
    let (a, b) = Server::two(&store).await;
    a.person.define_networks().await;
    let path = networks("default", "one");
    // The other server learns of it through the store.
    tokio::time::sleep(Duration::from_millis(10)).await;
    let made =
        b.person.create(&networks("default", ""), &network("one", "10.0.0.0/8", "10.0.0.1")).await;
    assert_eq!(a.person.get(&path).await.unwrap(), made);
    for server in [&a, &b] {
        let served = server.person.get("/apis/samplecrd.k8s.io/v1").await.unwrap();
        assert!(served.to_string().contains("networks"), "{served}");
        let schema = server.person.get("/openapi/v3/apis/samplecrd.k8s.io/v1").await.unwrap();
        assert!(schema.to_string().contains("cidr"));
    }
    // Deleted through one server, it is gone from both, objects first. Defined again, it starts
    // empty and no new object is lost.
    for round in 0..5_u32 {
        let (one, other) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
        one.person.delete(NETWORKS_CRD, "Background").await;
        other.person.gone(NETWORKS_CRD).await;
        one.person.gone(NETWORKS_CRD).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
        other.person.define_networks().await;
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(one.person.get(&path).await.is_none());
        let network = network("one", "10.0.0.0/8", "10.0.0.1");
        let made = one.person.create(&networks("default", ""), &network).await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(other.person.get(&path).await, Some(made));
    }
    a.stop().await;
    b.stop().await;
}

#[tokio::test(start_paused = true)]
async fn changed_schema_applies_to_reads_through_the_other_server_at_once() {
    let store = MemoryStore::default();
    let (a, b) = Server::two(&store).await;
    a.person.define_networks().await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    b.person.create(&networks("default", ""), &network("one", "10.0.0.0/8", "10.0.0.1")).await;
    let mut crd = b.person.get(NETWORKS_CRD).await.unwrap();
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
    let spec = crd.pointer_mut(spec).unwrap();
    spec["properties"]["mtu"] = json!({"type": "integer", "default": 1500});
    b.person.request("PUT", NETWORKS_CRD, "application/json", &crd).await.unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
    // Written by a server that does not know the new schema yet, after this one does.
    let key = "/registry/samplecrd.k8s.io/networks/default/one";
    let old = store.get(key.as_bytes(), At::Latest).await.unwrap().value.unwrap();
    assert!(!String::from_utf8_lossy(&old.value).contains("mtu"));
    let late = String::from_utf8(old.value.to_vec()).unwrap().replace("10.0.0.0/8", "10.1.0.0/16");
    let put = Txn { ops: vec![Op::Put(key.into(), late.into())], ..Txn::default() };
    store.commit(put).await.unwrap();
    for server in [&a, &b] {
        let seen = server.person.get(&networks("default", "one")).await.unwrap();
        assert_eq!(seen["spec"]["cidr"], "10.1.0.0/16");
        assert_eq!(seen["spec"]["mtu"], 1500, "a default of the schema that is served");
    }
    a.stop().await;
    b.stop().await;
}

#[tokio::test(start_paused = true)]
async fn other_server_waits_for_a_revision_and_generated_names_do_not_clash() {
    let store = MemoryStore::default();
    let (a, b) = Server::two(&store).await;
    let generated =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "g-"}});
    let mut uids = std::collections::BTreeSet::new();
    for i in 0..200 {
        let server = if i % 2 == 0 { &a } else { &b };
        let other = if i % 2 == 0 { &b } else { &a };
        let made = server.person.create(&maps("default", ""), &generated).await;
        assert!(uids.insert(made["metadata"]["uid"].as_str().unwrap().to_owned()));
        let revision = made["metadata"]["resourceVersion"].as_str().unwrap();
        let name = made["metadata"]["name"].as_str().unwrap();
        let path = format!("{}?resourceVersion={revision}", maps("default", name));
        assert_eq!(other.person.get(&path).await, Some(made.clone()));
        let list = format!("{}?resourceVersion={revision}", maps("default", ""));
        let items = other.person.get(&list).await.unwrap();
        assert_eq!(items["items"].as_array().unwrap().len(), i + 1);
    }
    a.stop().await;
    b.stop().await;
}

#[tokio::test(start_paused = true)]
async fn objects_of_a_kube_apiserver_are_served_and_undecodable_ones_are_clear_errors() {
    let store = MemoryStore::default();
    let a = Server::start(&store, "a", 1).await;
    let json = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"theirs","namespace":"default","uid":"5a1f3c5e-0000-4000-8000-000000000001","creationTimestamp":"2026-11-20T10:00:00Z"},"data":{"a":"b"}}"#;
    let put = async |name: &str, value: Vec<u8>| {
        let key = format!("/registry/configmaps/default/{name}");
        let txn = Txn { ops: vec![Op::Put(key.into(), value.into())], ..Txn::default() };
        store.commit(txn).await.unwrap();
    };
    put("theirs", format!("{json}\n").into_bytes()).await;
    let theirs = a.person.get(&maps("default", "theirs")).await.unwrap();
    assert_eq!(theirs["data"], json!({"a": "b"}));
    let list = a.person.get(&maps("default", "")).await.unwrap();
    assert_eq!(list["items"][0]["metadata"], theirs["metadata"]);
    // One line for each event.
    let watch = format!("{}?watch=1&resourceVersion=0&timeoutSeconds=1", maps("default", ""));
    let request = http::Request::get(&watch).body(Vec::new()).unwrap();
    let text = a.person.client.request_text(request).await.unwrap();
    assert!(text.lines().count() == 1 && text.contains("theirs"), "{text:?}");
    let changed = a.person.patch(&maps("default", "theirs"), &json!({"data": {"a": "c"}})).await;
    assert_eq!(changed["data"], json!({"a": "c"}));
    a.person.delete(&maps("default", "theirs"), "Background").await;

    let packed = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x1b\x0a\x11\x0a\x06packed\x1a\x07default\x12\x06\x0a\x01a\x12\x01b";
    put("packed", packed.to_vec()).await;
    let packed = a.person.get(&maps("default", "packed")).await.unwrap();
    assert_eq!(packed["data"], json!({"a": "b"}));

    put("binary", b"k8s\0\x0a\x0f\x0a\x05x.y/z\x12\x06Strange\x12\0".to_vec()).await;
    for path in [maps("default", "binary"), maps("default", "")] {
        let answer = a.person.request("GET", &path, "application/json", &Value::Null).await;
        let Err(kube_client::Error::Api(status)) = answer else { panic!("{answer:?}") };
        assert_eq!(status.code, 500);
        assert!(status.message.contains("is encoded in protobuf"), "{}", status.message);
    }
    a.stop().await;
}
