//! Services and ServiceCIDRs of both families.
use crate::server::{Server, refused};
use serde_json::{Value, json};
use setpoint_registry::WriteOptions;
use setpoint_store::memory::MemoryOptions;
use setpoint_store::{At, MemoryStore, Op, RangeRequest, Store, Txn};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const ALL: &str = "/api/v1/namespaces/default/services";
const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";
const RANGES: &str = "/apis/networking.k8s.io/v1/servicecidrs";
const BOTH: &str = "10.0.0.0/24,fd00:10::/112";

async fn over(store: Arc<MemoryStore>, networks: &str) -> Server {
    let networks = networks.parse().unwrap();
    Server::configured(store.clone(), store, |b| b.seed(7).service_networks(networks)).await
}
async fn start(networks: &str) -> Server {
    over(Arc::new(MemoryStore::new(MemoryOptions::default())), networks).await
}
fn path(name: &str) -> String {
    format!("{ALL}/{name}")
}
fn service(name: &str, mut spec: Value) -> Value {
    if spec.get("ports").is_none() {
        spec["ports"] = json!([{"port": 80}]);
    }
    json!({"metadata": {"name": name}, "spec": spec})
}
fn texts(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}
fn addresses(service: &Value) -> Vec<&str> {
    texts(&service["spec"]["clusterIPs"])
}
/// The names of the addresses' objects, without that of the Service `kubernetes`.
async fn objects(server: &Server) -> BTreeSet<String> {
    let all = RangeRequest::prefix("/registry/ipaddresses/");
    let found = server.store.range(all).await.unwrap().value.entries;
    let found = found.iter().map(|found| serde_json::from_slice::<Value>(&found.value).unwrap());
    let of_services = found.filter(|found| found["spec"]["parentRef"]["name"] != "kubernetes");
    of_services.map(|found| found["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// A Service as the lines of the data show it.
fn shown(service: &Value) -> String {
    let spec = &service["spec"];
    let given = ["10.0.0.5", "10.0.0.6", "fd00:10::5", "FD00:10::0005", "None"];
    let mut ips = addresses(service);
    assert_eq!(ips.first().copied(), spec["clusterIP"].as_str(), "{spec}");
    for ip in ips.iter_mut().filter(|ip| !given.contains(ip)) {
        *ip = if ip.contains(':') { "<6>" } else { "<4>" };
    }
    let policy = spec["ipFamilyPolicy"].as_str().unwrap_or_default();
    let families = texts(&spec["ipFamilies"]).join(",");
    [policy, &families, &ips.join(",")].join(" ").trim().to_owned()
}
/// A refusal, with addresses of the server's choice as the data has them.
fn refusal(result: Result<Value, setpoint_object::ApiError>, chosen: &[String]) -> String {
    let mut text = refused(result).replace(r#"Service "r" is invalid: "#, "");
    for ip in chosen {
        text = text.replace(ip, if ip.contains(':') { "<6>" } else { "<4>" });
    }
    text
}

#[tokio::test(start_paused = true)]
async fn services_have_the_families_that_kube_apiserver_gives_them() {
    let mut server = start(BOTH).await;
    let (mut n, mut wrong) = (0, Vec::new());
    let (mut request, mut last) = ("", None);
    for line in include_str!("../data/service_families.txt").lines() {
        match line.split_at_checked(2) {
            Some(("= ", networks)) => server = start(networks).await,
            Some(("> ", spec)) => {
                _ = server.delete(&path("r")).await;
                request = spec;
                last = Some(
                    server.create(ALL, service("r", serde_json::from_str(spec).unwrap())).await,
                );
            }
            Some(("+ ", patch)) => {
                request = patch;
                let patch: Value = serde_json::from_str(patch).unwrap();
                last = Some(server.patch(&path("r"), json!({"spec": patch})).await);
            }
            Some((start, _)) if start != "# " => {
                let now = server.get(&path("r")).await.unwrap_or_default();
                let held = addresses(&now).into_iter().filter(|ip| *ip != "None");
                let held: BTreeSet<String> =
                    held.map(|ip| ip.parse::<std::net::IpAddr>().unwrap().to_string()).collect();
                let chosen = held.iter().filter(|ip| !ip.ends_with("5") || ip.len() > 10);
                let chosen: Vec<String> = chosen.cloned().collect();
                let answer = match last.take().unwrap() {
                    Ok(made) => shown(&made),
                    error => refusal(error, &chosen),
                };
                if answer != line.trim_start_matches('-') {
                    wrong.push(format!("{request}\n  {line}\n  {answer}"));
                }
                assert_eq!(objects(&server).await, held, "{request}");
                n += 1;
            }
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{} of {n} answers differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(n > 250, "{n}");
}

#[tokio::test(start_paused = true)]
async fn a_fresh_control_plane_has_its_networks_and_the_first_address() {
    for (networks, cidrs, address, family) in [
        (BOTH, json!(["10.0.0.0/24", "fd00:10::/112"]), "10.0.0.1", "IPv4"),
        ("fd00::/112,10.0.0.0/24", json!(["fd00::/112", "10.0.0.0/24"]), "fd00::1", "IPv6"),
        ("fd00::/64", json!(["fd00::/64"]), "fd00::1", "IPv6"),
    ] {
        let server = start(networks).await;
        let range = server.get(&format!("{RANGES}/kubernetes")).await.unwrap();
        assert_eq!(range["spec"]["cidrs"], cidrs);
        let kubernetes = server.get(&path("kubernetes")).await.unwrap();
        assert_eq!(
            shown(&kubernetes),
            format!("SingleStack {family} {}", { if family == "IPv4" { "<4>" } else { "<6>" } })
        );
        assert_eq!(addresses(&kubernetes), [address]);
        let object = server.get(&format!("{ADDRESSES}/{address}")).await.unwrap();
        assert_eq!(object["metadata"]["labels"]["ipaddress.kubernetes.io/ip-family"], family);
    }
}

#[tokio::test(start_paused = true)]
async fn addresses_of_ipv6_are_objects_with_canonical_names() {
    let server = start(BOTH).await;
    let wanted = json!({
        "clusterIP": "FD00:10::0005", "ipFamilyPolicy": "RequireDualStack",
        "ipFamilies": ["IPv6", "IPv4"],
    });
    let made = server.create(ALL, service("a", wanted)).await.unwrap();
    assert_eq!(addresses(&made)[0], "FD00:10::0005", "as its user wrote it");
    let object = server.get(&format!("{ADDRESSES}/fd00:10::5")).await.unwrap();
    assert_eq!(object["metadata"]["labels"]["ipaddress.kubernetes.io/ip-family"], "IPv6");
    assert_eq!(object["spec"]["parentRef"]["name"], "a");
    let four = addresses(&made)[1].to_owned();
    // Both are in use, in any form, and are repaired.
    let other = service("b", json!({"clusterIP": "fd00:10:0::5"}));
    let taken = refused(server.create(ALL, other.clone()).await);
    assert!(taken.ends_with("provided IP is already allocated"), "{taken}");
    server.delete(&format!("{ADDRESSES}/fd00:10::5")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(130)).await;
    assert_eq!(objects(&server).await, ["fd00:10::5".to_owned(), four].into());
    // A dry run takes none, and a delete frees both.
    let dry = WriteOptions { dry_run: true, ..WriteOptions::default() };
    let both = service("d", json!({"ipFamilyPolicy": "RequireDualStack"}));
    let made = server.create_with(ALL, both, &dry).await.unwrap();
    assert_eq!(addresses(&made).len(), 2);
    assert_eq!(objects(&server).await.len(), 2);
    server.delete(&path("a")).await.unwrap();
    assert_eq!(objects(&server).await.len(), 0);
    server.create(ALL, other).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_refused_second_address_leaves_the_first_free() {
    let server = start(BOTH).await;
    server.create(ALL, service("a", json!({"clusterIP": "fd00:10::5"}))).await.unwrap();
    let both = json!({
        "clusterIP": "10.0.0.5", "clusterIPs": ["10.0.0.5", "fd00:10::5"],
        "ipFamilyPolicy": "RequireDualStack",
    });
    assert_eq!(
        refused(server.create(ALL, service("b", both)).await),
        r#"422 Service "b" is invalid: spec.clusterIPs: Invalid value: ["10.0.0.5","fd00:10::5"]: failed to allocate IP fd00:10::5: provided IP is already allocated"#
    );
    server.create(ALL, service("b", json!({"clusterIP": "10.0.0.5"}))).await.unwrap();
    // The same when a Service gets a second one.
    let more = json!({"spec": {
        "clusterIPs": ["10.0.0.5", "fd00:10::5"], "ipFamilyPolicy": "PreferDualStack",
    }});
    let error = refused(server.patch(&path("b"), more).await);
    assert!(error.ends_with("provided IP is already allocated"), "{error}");
    assert_eq!(objects(&server).await, ["10.0.0.5".to_owned(), "fd00:10::5".to_owned()].into());
}

#[tokio::test(start_paused = true)]
async fn ranges_of_users_give_addresses_of_the_planes_families() {
    let add = async |server: &Server, name: &str, networks: &[&str]| {
        let range = json!({"metadata": {"name": name}, "spec": {"cidrs": networks}});
        server.create(RANGES, range).await.unwrap();
    };
    let server = start("10.0.0.0/24,fd00:10::/125").await;
    for n in 0..7 {
        let six = service(&format!("s{n}"), json!({"ipFamilies": ["IPv6"]}));
        server.create(ALL, six).await.unwrap();
    }
    let both = json!({"ipFamilyPolicy": "RequireDualStack"});
    assert_eq!(
        refused(server.create(ALL, service("full", both.clone())).await),
        r#"500 Internal error occurred: failed to allocate a serviceIP for Service "full": range is full"#
    );
    add(&server, "more", &["10.1.0.0/24", "fd00:11::/64"]).await;
    // No allocator takes one that is wider.
    add(&server, "wide", &["fd00:12::/48"]).await;
    let made = server.create(ALL, service("a", both)).await.unwrap();
    assert!(addresses(&made)[1].starts_with("fd00:11::"), "{made}");
    for outside in ["fd00:11::", "fd00:12::5", "fd00:11:0:1::5"] {
        let error = server.create(ALL, service("b", json!({"clusterIP": outside}))).await;
        let error = refused(error);
        assert!(error.ends_with("does not match the current range"), "{outside}: {error}");
    }
    let last = json!({"clusterIP": "fd00:11::ffff:ffff:ffff:ffff"});
    server.create(ALL, service("last", last)).await.unwrap();
    // A plane of one family has Services of no other, whatever ranges there are.
    let single = start("10.0.0.0/24").await;
    add(&single, "six", &["fd00:11::/112"]).await;
    let error = refused(single.create(ALL, service("a", json!({"ipFamilies": ["IPv6"]}))).await);
    assert!(error.ends_with("not configured on this cluster"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_plane_gets_a_second_family() {
    let single = start("10.0.0.0/24").await;
    let prefers = json!({"ipFamilyPolicy": "PreferDualStack"});
    single.create(ALL, service("prefers", prefers)).await.unwrap();
    let store = single.store.clone();
    single.stop().await;
    let server = over(store.clone(), BOTH).await;
    let range = server.get(&format!("{RANGES}/kubernetes")).await.unwrap();
    assert_eq!(range["spec"]["cidrs"], json!(["10.0.0.0/24", "fd00:10::/112"]));
    // Other updates leave the Service alone.
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let kept = server.patch(&path("prefers"), label).await.unwrap();
    assert_eq!(shown(&kept), "PreferDualStack IPv4 <4>");
    let requires = json!({"spec": {"ipFamilyPolicy": "RequireDualStack"}});
    let both = server.patch(&path("prefers"), requires).await.unwrap();
    assert_eq!(shown(&both), "RequireDualStack IPv4,IPv6 <4>,<6>");
    // With one family again, it keeps both addresses until it is deleted.
    server.stop().await;
    let server = over(store.clone(), "10.0.0.0/24").await;
    assert_eq!(objects(&server).await.len(), 2);
    server.delete(&path("prefers")).await.unwrap();
    assert_eq!(objects(&server).await.len(), 0);
    server.stop().await;
    // The range of another first network is its user's.
    let server = over(store, "10.9.0.0/24,fd00:9::/112").await;
    let range = server.get(&format!("{RANGES}/kubernetes")).await.unwrap();
    assert_eq!(range["spec"]["cidrs"], json!(["10.0.0.0/24", "fd00:10::/112"]));
}

#[tokio::test(start_paused = true)]
async fn services_from_before_there_were_families_get_them_at_the_start() {
    let server = start(BOTH).await;
    for (name, spec) in [
        ("web", json!({})),
        ("six", json!({"ipFamilies": ["IPv6"]})),
        ("both", json!({"ipFamilyPolicy": "RequireDualStack"})),
        ("headless", json!({"clusterIP": "None", "selector": {"a": "b"}})),
        ("bare", json!({"clusterIP": "None"})),
        ("name", json!({"type": "ExternalName", "externalName": "a.example.com"})),
    ] {
        server.create(ALL, service(name, spec)).await.unwrap();
    }
    let store = server.store.clone();
    server.stop().await;
    let mut ops = Vec::new();
    for name in ["web", "six", "both", "headless", "bare", "name"] {
        let key = bytes::Bytes::from(format!("/registry/services/specs/default/{name}"));
        let found = store.get(&key, At::Latest).await.unwrap().value.unwrap();
        let mut old: Value = serde_json::from_slice(&found.value).unwrap();
        let spec = old["spec"].as_object_mut().unwrap();
        let has_two = spec.get("clusterIPs").is_some_and(|ips| texts(ips).len() == 2);
        for member in ["ipFamilies", "ipFamilyPolicy", "clusterIPs"] {
            if member != "clusterIPs" || !has_two {
                spec.remove(member);
            }
        }
        ops.push(Op::Put(key, old.to_string().into()));
    }
    store.commit(Txn { ops, ..Txn::default() }).await.unwrap();
    let server = over(store, BOTH).await;
    for (name, expected) in [
        ("web", "SingleStack IPv4 <4>"),
        ("six", "SingleStack IPv6 <6>"),
        ("both", "RequireDualStack IPv4,IPv6 <4>,<6>"),
        ("headless", "SingleStack IPv4 None"),
        ("bare", "RequireDualStack IPv4,IPv6 None"),
        ("name", ""),
    ] {
        assert_eq!(shown(&server.get(&path(name)).await.unwrap()), expected, "{name}");
    }
}
