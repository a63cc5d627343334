//! Several servers over one store: allocated numbers stay unique.
use crate::server::{Server, refused};
use serde_json::{Value, json};
use setpoint_registry::{RegistryBuilder, StorageMediaType};
use setpoint_store::memory::MemoryOptions;
use setpoint_store::{At, MemoryStore, Op, RangeRequest, Store, Txn};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn service(name: &str, spec: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": spec})
}

/// The numbers of each Service, by the Services and by the claims.
pub(crate) async fn numbers(
    store: &dyn Store,
) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
    let read = async |prefix: &'static str| {
        let entries = store.range(RangeRequest::prefix(prefix)).await.unwrap().value.entries;
        let tree = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
        entries
            .into_iter()
            .map(|entry| (String::from_utf8(entry.key.to_vec()).unwrap(), tree(&entry.value)))
            .collect::<Vec<_>>()
    };
    let mut held = BTreeMap::new();
    for (_, service) in read("/registry/services/specs/").await {
        let (uid, spec) = (service["metadata"]["uid"].as_str().unwrap(), &service["spec"]);
        let addresses = spec["clusterIPs"].as_array().into_iter().flatten();
        let addresses = addresses.filter(|a| *a != "None").map(|a| a.as_str().unwrap().to_owned());
        let ports = spec["ports"].as_array().into_iter().flatten().map(|p| &p["nodePort"]);
        let ports = ports.chain([&spec["healthCheckNodePort"]]).filter_map(Value::as_u64);
        let ports: BTreeSet<u64> = ports.filter(|port| *port != 0).collect();
        for number in addresses.chain(ports.iter().map(u64::to_string)) {
            let other = held.insert(number.clone(), uid.to_owned());
            assert_eq!(other, None, "{number} is given twice: {service}");
        }
    }
    let claims = read("/registry/ranges/").await.into_iter().map(|(key, claim)| {
        let number = key.rsplit('/').next().unwrap().to_owned();
        (number, claim["metadata"]["uid"].as_str().unwrap().to_owned())
    });
    (held, claims.collect())
}
async fn check(store: &dyn Store) -> BTreeMap<String, String> {
    let (held, claims) = numbers(store).await;
    assert_eq!(held, claims, "what Services have is what is claimed");
    claims
}

#[tokio::test(start_paused = true)]
async fn an_address_that_another_server_allocated_is_refused_until_its_service_is_deleted() {
    let a = Server::start().await;
    let b = Server::joining(&a, 8).await;
    let spec = json!({"type": "NodePort", "clusterIP": "10.0.0.50", "ports": [{"port": 80, "nodePort": 30080}]});
    a.create(SERVICES, service("one", spec.clone())).await.unwrap();
    assert_eq!(
        refused(b.create(SERVICES, service("two", spec.clone())).await),
        r#"422 Service "two" is invalid: spec.clusterIPs: Invalid value: ["10.0.0.50"]: failed to allocate IP 10.0.0.50: provided IP is already allocated"#
    );
    b.delete(&format!("{SERVICES}/one")).await.unwrap();
    check(&*a.store).await;
    a.create(SERVICES, service("two", spec.clone())).await.unwrap();
    // A number that b's Service releases, a allocates.
    let external =
        json!({"spec": {"type": "ExternalName", "externalName": "x.example.com", "ports": null}});
    b.patch(&format!("{SERVICES}/two"), external).await.unwrap();
    check(&*a.store).await;
    a.create(SERVICES, service("three", spec)).await.unwrap();
    check(&*a.store).await;
}

/// Of a store whose values tests look at.
fn shared_in_json(builder: RegistryBuilder) -> RegistryBuilder {
    builder.seed(7).shared(true).storage_media_type(StorageMediaType::Json)
}

#[tokio::test(start_paused = true)]
async fn an_address_of_a_service_that_another_program_wrote_gets_its_object() {
    let store = Arc::new(MemoryStore::default());
    let b = Server::configured(store.clone(), store.clone(), shared_in_json).await;
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": "old", "namespace": "default", "uid": "08675309-9376-9376-9376-086753099999",
        },
        "spec": {"clusterIP": "10.0.0.11", "ports": [{"port": 81, "protocol": "TCP"}]},
    });
    let key = "/registry/services/specs/default/old";
    let put = Op::Put(key.into(), service.to_string().into());
    store.commit(Txn { ops: vec![put], ..Txn::default() }).await.unwrap();
    // Well before the objects are looked through, which happens once a minute.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let address = b.get("/apis/networking.k8s.io/v1/ipaddresses/10.0.0.11").await.unwrap();
    assert_eq!(address["spec"]["parentRef"]["name"], "old");
    assert!(check(&*store).await.contains_key("10.0.0.11"));
}

#[tokio::test(start_paused = true)]
async fn changed_ports_are_claimed_and_released_with_the_service() {
    let a = Server::start().await;
    let b = Server::joining(&a, 8).await;
    let ports = |ports: &[u16]| {
        let ports =
            ports.iter().map(|p| json!({"name": format!("p{p}"), "port": p, "nodePort": p}));
        json!({"type": "NodePort", "ports": ports.collect::<Vec<_>>()})
    };
    let one = a.create(SERVICES, service("one", ports(&[30100, 30101]))).await.unwrap();
    let mut changed = service("one", ports(&[30101, 30102]));
    changed["spec"]["clusterIP"] = one["spec"]["clusterIP"].clone();
    b.update(&format!("{SERVICES}/one"), changed.clone()).await.unwrap();
    let claims = check(&*a.store).await;
    let ports_claimed: Vec<&str> =
        claims.keys().map(String::as_str).filter(|number| !number.contains('.')).collect();
    assert_eq!(ports_claimed, ["30101", "30102"]);
    a.create(SERVICES, service("two", ports(&[30100]))).await.unwrap();
    let taken = b.create(SERVICES, service("three", ports(&[30102]))).await;
    assert!(refused(taken).ends_with("30102: provided port is already allocated"));
    // A dry run allocates and releases nothing.
    let revision = a.revision().await;
    let dry = setpoint_registry::WriteOptions { dry_run: true, ..Default::default() };
    b.create_with(SERVICES, service("four", ports(&[30103])), &dry).await.unwrap();
    let gone = json!({"spec": {"type": "ClusterIP"}});
    let path = format!("{SERVICES}/one");
    b.patch_with(&path, setpoint_registry::PatchType::Merge, gone, &dry).await.unwrap();
    assert_eq!(a.revision().await, revision);
    a.create(SERVICES, service("five", ports(&[30103]))).await.unwrap();
    check(&*a.store).await;
}

#[tokio::test(start_paused = true)]
async fn two_concurrent_requests_for_one_port_get_one_success() {
    let a = Server::start().await;
    let (a, b) = (a.slow(1).await, a.slow(2).await);
    for i in 0..40 {
        let spec = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30200 + i}]});
        let (first, second) = (format!("a{i}"), format!("b{i}"));
        let (first, second) = tokio::join!(
            a.create(SERVICES, service(&first, spec.clone())),
            b.create(SERVICES, service(&second, spec.clone())),
        );
        assert!(first.is_ok() != second.is_ok(), "{first:?} {second:?}");
        let refusal = refused(if first.is_ok() { second } else { first });
        assert!(refusal.ends_with("provided port is already allocated"), "{refusal}");
    }
    check(&*a.store).await;
}

#[tokio::test(start_paused = true)]
async fn two_servers_agree_when_a_range_is_full_and_use_it_again_when_it_is_not() {
    let a = Server::start().await;
    let b = Server::joining(&a, 8).await;
    let many = |name: &str, n: u16| {
        let ports = (0..n).map(|p| json!({"name": format!("p{p}"), "port": p + 1}));
        service(name, json!({"type": "NodePort", "ports": ports.collect::<Vec<_>>()}))
    };
    // 2,768 node ports.
    a.create(SERVICES, many("one", 1384)).await.unwrap();
    b.create(SERVICES, many("two", 1384)).await.unwrap();
    for server in [&a, &b] {
        let full = refused(server.create(SERVICES, many("three", 1)).await);
        assert!(full.contains("failed to allocate a nodePort: range is full"), "{full}");
    }
    b.delete(&format!("{SERVICES}/one")).await.unwrap();
    check(&*a.store).await;
    a.create(SERVICES, many("three", 700)).await.unwrap();
    b.create(SERVICES, many("four", 684)).await.unwrap();
    assert_eq!(check(&*a.store).await.len(), 2768 + 4);
}

#[tokio::test(start_paused = true)]
async fn services_without_claims_get_them_even_if_two_servers_start_at_once() {
    let first = Server::start().await;
    for i in 0..120 {
        let spec = json!({"type": "NodePort", "ports": [{"port": 80}]});
        first.create(SERVICES, service(&format!("s{i}"), spec)).await.unwrap();
    }
    let store = first.store.clone();
    let expected = check(&*store).await;
    // The range for fixed requests is not used while other numbers are free.
    assert!(expected.keys().all(|n| n == "10.0.0.1" || !n.starts_with("10.0.0.")), "{expected:?}");
    assert!(expected.keys().all(|n| n.contains('.') || n.as_str() >= "30086"), "{expected:?}");
    first.stop().await;
    // As an older version left it, with the claim of a deleted Service, and a claim that names
    // another.
    let claims = store.range(RangeRequest::prefix("/registry/ranges/")).await.unwrap();
    let mut ops: Vec<Op> =
        claims.value.entries.iter().map(|entry| Op::Delete(entry.key.clone())).collect();
    let wrong = ops.pop().unwrap().key().clone();
    for key in [wrong, "/registry/ranges/serviceips/10.0.200.200".into()] {
        let gone = json!({"metadata": {"name": "gone", "namespace": "default", "uid": "x"}});
        ops.push(Op::Put(key, gone.to_string().into()));
    }
    store.commit(Txn { ops, ..Txn::default() }).await.unwrap();
    let (a, b) = tokio::join!(Server::over(store.clone()), Server::over_with(store.clone(), 9));
    assert_eq!(check(&*store).await, expected);
    // If there is nothing to repair, nothing is written.
    let revision = a.revision().await;
    b.stop().await;
    let _c = Server::over(store.clone()).await;
    assert_eq!(a.revision().await, revision);
}

#[tokio::test(start_paused = true)]
async fn of_two_services_with_the_same_address_the_older_one_gets_the_claim() {
    let first = Server::start().await;
    let spec = json!({"clusterIP": "10.0.0.70", "ports": [{"port": 80}]});
    let one = first.create(SERVICES, service("older", spec)).await.unwrap();
    let store = first.store.clone();
    // Another program wrote this one.
    let mut two = one.clone();
    two["metadata"]["name"] = "a-younger".into();
    two["metadata"]["uid"] = "another".into();
    let key = "/registry/services/specs/default/a-younger".into();
    let put = Txn { ops: vec![Op::Put(key, two.to_string().into())], ..Txn::default() };
    store.commit(put).await.unwrap();
    first.stop().await;
    let server = Server::over(store.clone()).await;
    let owner = async || {
        let key = b"/registry/ranges/serviceips/10.0.0.70";
        let claim = store.get(key, setpoint_store::At::Latest).await.unwrap().value.unwrap();
        let claim: Value = serde_json::from_slice(&claim.value).unwrap();
        claim["metadata"]["uid"].clone()
    };
    assert_eq!(owner().await, one["metadata"]["uid"]);
    // Its deletion does not change the claim of the other one.
    server.delete(&format!("{SERVICES}/a-younger")).await.unwrap();
    assert_eq!(owner().await, one["metadata"]["uid"]);
    check(&*store).await;
}

#[tokio::test(start_paused = true)]
async fn published_addresses_are_those_of_kube_apiservers_too_and_expire() {
    let store = Arc::new(MemoryStore::new(MemoryOptions::default()));
    let server = Server::configured(store.clone(), store.clone(), shared_in_json).await;
    let registry = &server.registry;
    let addresses = async || registry.published_addresses().await.unwrap();
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    // As a kube-apiserver stores it; only the key counts.
    let ops = vec![Op::Put("/registry/masterleases/10.1.1.1".into(), "k8s\0".into())];
    store.commit(Txn { ops, ..Txn::default() }).await.unwrap();
    registry.publish_address(ip("10.1.1.2")).await.unwrap();
    registry.publish_address(ip("fd00::2")).await.unwrap();
    assert_eq!(addresses().await, [ip("10.1.1.1"), ip("10.1.1.2"), ip("fd00::2")].into());
    let stored = store.get(b"/registry/masterleases/10.1.1.2", At::Latest).await.unwrap().value;
    let stored: Value = serde_json::from_slice(&stored.unwrap().value).unwrap();
    assert_eq!(stored["kind"], "Endpoints");
    assert_eq!(stored["subsets"], json!([{"addresses": [{"ip": "10.1.1.2"}]}]));
    registry.withdraw_address(ip("fd00::2")).await.unwrap();
    assert_eq!(addresses().await, [ip("10.1.1.1"), ip("10.1.1.2")].into());
    tokio::time::sleep(Duration::from_secs(16)).await;
    assert_eq!(addresses().await, [ip("10.1.1.1")].into());
    // A store of one server needs none.
    let alone = Server::start().await;
    alone.registry.publish_address(ip("10.1.1.2")).await.unwrap();
    assert!(alone.registry.published_addresses().await.unwrap().is_empty());
    assert!(
        alone
            .store
            .get(b"/registry/masterleases/10.1.1.2", At::Latest)
            .await
            .unwrap()
            .value
            .is_none()
    );
}
