//! Services and their allocated numbers (spec: api-server §12.1).
use crate::server::{Server, refused};
use serde_json::{Value, json};
use setpoint_store::{At, Op, Store as _, Txn};
use std::time::Duration;

const ALL: &str = "/api/v1/namespaces/default/services";

fn service(name: &str, spec: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": spec})
}
fn path(name: &str) -> String {
    format!("{ALL}/{name}")
}

#[tokio::test(start_paused = true)]
async fn a_fresh_control_plane_has_the_kubernetes_service() {
    let server = Server::start().await;
    let kubernetes = server.get(&path("kubernetes")).await.unwrap();
    assert_eq!(kubernetes["spec"]["clusterIPs"], json!(["10.0.0.1"]));
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        let namespace = server.get(&format!("/api/v1/namespaces/{name}")).await.unwrap();
        assert_eq!(namespace["status"]["phase"], "Active");
    }
    // A second start finds everything present and in use.
    let revision = server.revision().await;
    let store = server.store.clone();
    server.stop().await;
    let server = Server::over(store).await;
    assert_eq!(server.revision().await, revision);
    let taken = service("a", json!({"clusterIP": "10.0.0.1", "ports": [{"port": 80}]}));
    assert!(refused(server.create(ALL, taken).await).ends_with("provided IP is already allocated"));
}

#[tokio::test(start_paused = true)]
async fn refusals_of_a_service() {
    let server = Server::start().await;
    let taken = json!({"clusterIP": "10.0.0.50", "ports": [{"port": 80}]});
    server.create(ALL, service("a", taken.clone())).await.unwrap();
    let node_port = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]});
    server.create(ALL, service("n", node_port.clone())).await.unwrap();
    for (spec, expected) in [
        (
            taken,
            r#"spec.clusterIPs: Invalid value: ["10.0.0.50"]: failed to allocate IP 10.0.0.50: provided IP is already allocated"#,
        ),
        (
            json!({"clusterIP": "1.2.3.4", "ports": [{"port": 80}]}),
            r#"spec.clusterIPs: Invalid value: ["1.2.3.4"]: failed to allocate IP 1.2.3.4: the provided network does not match the current range"#,
        ),
        (
            json!({"clusterIP": "foo", "ports": [{"port": 80}]}),
            r#"spec.clusterIPs[0]: Invalid value: "foo": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"#,
        ),
        (
            node_port,
            "spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated",
        ),
        (
            json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]}),
            "spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid ports is 30000-32767",
        ),
        (json!({}), "spec.ports: Required value"),
        (
            json!({"ports": [{"port": 1}, {"port": 2}]}),
            "[spec.ports[0].name: Required value, spec.ports[1].name: Required value]",
        ),
        (
            json!({"type": "Foo", "ports": [{"port": 1}]}),
            r#"spec.type: Unsupported value: "Foo": supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort""#,
        ),
        (
            json!({"ports": [{"port": 0}]}),
            "[spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive, spec.ports[0].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive]",
        ),
    ] {
        let error = refused(server.create(ALL, service("x", spec.clone())).await);
        assert_eq!(error, format!(r#"422 Service "x" is invalid: {expected}"#), "{spec}");
    }
    // The first port has the second one's, also where a dry run looks at the range last.
    let ports = json!([{"name": "a", "port": 80}, {"name": "b", "port": 80, "nodePort": 80}]);
    let spec = json!({"type": "NodePort", "ports": ports});
    let dry = setpoint_registry::WriteOptions { dry_run: true, ..Default::default() };
    assert_eq!(
        refused(server.create_with(ALL, service("x", spec), &dry).await),
        r#"422 Service "x" is invalid: [spec.ports[1].nodePort: Duplicate value: 80, spec.ports[1]: Duplicate value: {"port":80,"protocol":"TCP"}]"#
    );
}

#[tokio::test(start_paused = true)]
async fn allocations_are_carried_over_released_and_not_owned() {
    let server = Server::start().await;
    let spec = json!({"type": "NodePort", "ports": [{"port": 80}]});
    let created = server.create(ALL, service("a", spec.clone())).await.unwrap();
    let port = created["spec"]["ports"][0]["nodePort"].as_i64().unwrap();
    let address = created["spec"]["clusterIP"].as_str().unwrap();
    let owned = created["metadata"]["managedFields"].to_string();
    assert!(owned.contains("f:targetPort") && !owned.contains("f:clusterIP\""), "{owned}");
    // Omitted in a PUT, null in a patch: both keep the numbers.
    let mut put = service("a", spec);
    put["metadata"]["labels"] = json!({"x": "y"});
    let updated = server.update(&path("a"), put).await.unwrap();
    assert_eq!(updated["spec"], created["spec"]);
    let patched = server.patch(&path("a"), json!({"spec": {"clusterIP": null}})).await.unwrap();
    assert_eq!(patched["spec"], created["spec"]);
    let other = json!({"spec": {"clusterIP": "10.0.0.51", "clusterIPs": ["10.0.0.51"]}});
    assert_eq!(
        refused(server.patch(&path("a"), other).await),
        r#"422 Service "a" is invalid: spec.clusterIPs[0]: Invalid value: ["10.0.0.51"]: may not change once set"#
    );
    // A type without addresses releases them.
    let external =
        json!({"spec": {"type": "ExternalName", "externalName": "x.example.com", "ports": null}});
    let external = server.patch(&path("a"), external).await.unwrap();
    for member in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        assert!(external["spec"].get(member).is_none(), "{member}: {external}");
    }
    let again = json!({"clusterIP": address, "type": "NodePort", "ports": [{"port": 80, "nodePort": port}]});
    server.create(ALL, service("b", again.clone())).await.unwrap();
    // So does deletion.
    let last = server.delete(&path("b")).await.unwrap().expect("Services are returned");
    assert_eq!(last["spec"]["clusterIP"], address);
    server.create(ALL, service("c", again)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_releases_its_numbers() {
    let server = Server::start().await;
    let address = json!({"clusterIP": "10.0.0.60", "ports": [{"port": 80}]});
    server.create(ALL, service("a", json!({"ports": [{"port": 80}]}))).await.unwrap();
    let taken = server.create(ALL, service("a", address.clone())).await;
    assert_eq!(refused(taken), r#"409 services "a" already exists"#);
    server.create(ALL, service("b", address)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn services_without_an_address() {
    let server = Server::start().await;
    let headless = json!({"clusterIP": "None", "selector": {"a": "b"}});
    let headless = server.create(ALL, service("h", headless)).await.unwrap();
    assert_eq!(headless["spec"]["clusterIPs"], json!(["None"]));
    assert_eq!(headless["spec"]["ipFamilyPolicy"], "SingleStack");
    let bare = json!({"clusterIP": "None", "ports": [{"port": 80}]});
    let bare = server.create(ALL, service("i", bare)).await.unwrap();
    assert_eq!(bare["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]));
    assert_eq!(bare["spec"]["ipFamilyPolicy"], "RequireDualStack");
    let name = json!({
        "type": "ExternalName", "externalName": "x.example.com", "internalTrafficPolicy": "Cluster",
    });
    let name = server.create(ALL, service("e", name)).await.unwrap();
    assert!(name["spec"].get("internalTrafficPolicy").is_none(), "{name}");
}

const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";

fn address(name: &str) -> String {
    format!("{ADDRESSES}/{name}")
}

#[tokio::test(start_paused = true)]
async fn each_cluster_address_is_an_object() {
    let server = Server::start().await;
    let first = server.get(&address("10.0.0.1")).await.unwrap();
    assert_eq!(
        first["spec"],
        json!({"parentRef": {"resource": "services", "namespace": "default", "name": "kubernetes"}})
    );
    let labels = json!({
        "ipaddress.kubernetes.io/ip-family": "IPv4",
        "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
    });
    assert_eq!(first["metadata"]["labels"], labels);
    assert_eq!(first["metadata"]["managedFields"][0]["manager"], "kube-apiserver");

    // Written and removed with its Service, in the same revision.
    let made = server.create(ALL, service("a", json!({"ports": [{"port": 80}]}))).await.unwrap();
    let given = made["spec"]["clusterIP"].as_str().unwrap();
    let object = server.get(&address(given)).await.unwrap();
    assert_eq!(object["spec"]["parentRef"]["name"], "a");
    assert_eq!(object["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
    server.delete(&path("a")).await.unwrap();
    assert_eq!(server.get(&address(given)).await.unwrap_err().code(), 404);

    // Services without addresses have none; a dry run writes none.
    server.create(ALL, service("h", json!({"clusterIP": "None"}))).await.unwrap();
    let dry = setpoint_registry::WriteOptions { dry_run: true, ..Default::default() };
    let wanted = service("d", json!({"clusterIP": "10.0.0.70", "ports": [{"port": 80}]}));
    server.create_with(ALL, wanted.clone(), &dry).await.unwrap();
    assert_eq!(server.get(&address("10.0.0.70")).await.unwrap_err().code(), 404);
    // Nor does it look at who has an address, so other faults are reported.
    server.create(ALL, wanted.clone()).await.unwrap();
    let error = refused(server.create_with(ALL, wanted, &dry).await);
    assert_eq!(error, r#"409 services "d" already exists"#);
    let other = service("e", json!({"clusterIP": "10.0.0.70", "ports": [{"port": 80}]}));
    server.create_with(ALL, other.clone(), &dry).await.unwrap();
    let outside = service("e", json!({"clusterIP": "10.9.0.70", "ports": [{"port": 80}]}));
    let error = refused(server.create_with(ALL, outside, &dry).await);
    assert!(error.contains("failed to allocate IP 10.9.0.70"), "{error}");
    let error = refused(server.create(ALL, other).await);
    assert!(error.ends_with("provided IP is already allocated"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_address_that_a_user_has_made_is_in_use() {
    let server = Server::start().await;
    let reserved = json!({
        "metadata": {"name": "10.0.0.80"},
        "spec": {"parentRef": {"group": "example.com", "resource": "gateways", "name": "g"}},
    });
    server.create(ADDRESSES, reserved).await.unwrap();
    let wanted = service("a", json!({"clusterIP": "10.0.0.80", "ports": [{"port": 80}]}));
    let error = refused(server.create(ALL, wanted.clone()).await);
    assert!(error.ends_with("provided IP is already allocated"), "{error}");
    // The repair leaves it alone.
    tokio::time::sleep(Duration::from_secs(130)).await;
    server.delete(&address("10.0.0.80")).await.unwrap();
    server.create(ALL, wanted).await.unwrap();
    assert_eq!(server.get(&address("10.0.0.80")).await.unwrap()["spec"]["parentRef"]["name"], "a");
}

#[tokio::test(start_paused = true)]
async fn objects_of_addresses_are_repaired() {
    let server = Server::start().await;
    let wanted = service("a", json!({"clusterIP": "10.0.0.90", "ports": [{"port": 80}]}));
    server.create(ALL, wanted).await.unwrap();
    let before = server.get(&address("10.0.0.90")).await.unwrap();
    // Removed by a user, and the allocator's without a Service.
    server.delete(&address("10.0.0.90")).await.unwrap();
    let mut orphan = json!({"metadata": {"name": "10.0.0.91"}, "spec": before["spec"]});
    orphan["metadata"]["labels"] = before["metadata"]["labels"].clone();
    server.create(ADDRESSES, orphan).await.unwrap();
    // The number stays the Service's meanwhile.
    let other = service("b", json!({"clusterIP": "10.0.0.90", "ports": [{"port": 80}]}));
    assert!(refused(server.create(ALL, other).await).ends_with("already allocated"));
    tokio::time::sleep(Duration::from_secs(130)).await;
    let after = server.get(&address("10.0.0.90")).await.unwrap();
    assert_eq!(after["spec"], before["spec"]);
    assert_ne!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(server.get(&address("10.0.0.91")).await.unwrap_err().code(), 404);

    // At start, Services that were stored without objects get them.
    let store = server.store.clone();
    server.stop().await;
    let keys = ["/registry/ipaddresses/10.0.0.90", "/registry/ipaddresses/10.0.0.1"];
    let ops = keys.map(|key| setpoint_store::Op::Delete(key.into())).to_vec();
    setpoint_store::Store::commit(&*store, setpoint_store::Txn { ops, ..Default::default() })
        .await
        .unwrap();
    let server = Server::over(store).await;
    for name in ["10.0.0.1", "10.0.0.90"] {
        server.get(&address(name)).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn node_ports_follow_names_and_go_with_what_needs_them() {
    let server = Server::start().await;
    let node_ports = |service: &Value| -> Vec<i64> {
        let ports = service["spec"]["ports"].as_array().unwrap().iter();
        ports.map(|port| port["nodePort"].as_i64().unwrap_or(0)).collect()
    };
    // Ports of one number have one node port, also one that a later port asks for.
    let both = json!({"type": "NodePort", "ports": [
        {"name": "tcp", "port": 53},
        {"name": "udp", "port": 53, "protocol": "UDP", "nodePort": 30053},
        {"name": "web", "port": 80},
    ]});
    let made = server.create(ALL, service("dns", both)).await.unwrap();
    let web = node_ports(&made)[2];
    assert_eq!(node_ports(&made), [30053, 30053, web]);
    // An update keeps them by name, whatever the number.
    let ports = json!([{"name": "web", "port": 8080}, {"name": "new", "port": 81}]);
    let patch = json!({"spec": {"ports": ports}});
    let kept = server.patch(&path("dns"), patch).await.unwrap();
    assert_eq!(node_ports(&kept)[0], web);
    assert!(![0, web, 30053].contains(&node_ports(&kept)[1]), "{kept}");
    let twice = json!([
        {"name": "a", "port": 80, "nodePort": 30080}, {"name": "b", "port": 81, "nodePort": 30080},
    ]);
    let refusal = server.patch(&path("dns"), json!({"spec": {"ports": twice}})).await;
    assert_eq!(refused(refusal), "500 duplicate nodePort: {TCP 30080}");
    let refusal = server.create(ALL, service("x", json!({"type": "NodePort", "ports": twice})));
    assert_eq!(
        refused(refusal.await),
        r#"422 Service "x" is invalid: spec.ports[1].nodePort: Invalid value: 30080: provided port is already allocated"#
    );

    // The port for health checks, and what the balancer wrote, go when nobody needs them.
    let local = json!({
        "type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 80}],
    });
    let made = server.create(ALL, service("lb", local)).await.unwrap();
    assert!(made["spec"]["healthCheckNodePort"].is_i64(), "{made}");
    let ingress = json!({"status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}});
    server.patch(&format!("{}/status", path("lb")), ingress).await.unwrap();
    let cluster = json!({"spec": {"externalTrafficPolicy": "Cluster"}});
    let changed = server.patch(&path("lb"), cluster).await.unwrap();
    assert!(changed["spec"].get("healthCheckNodePort").is_none(), "{changed}");
    assert!(changed["status"]["loadBalancer"]["ingress"].is_array(), "{changed}");
    let changed = server.patch(&path("lb"), json!({"spec": {"type": "ClusterIP"}})).await.unwrap();
    assert_eq!(changed["status"]["loadBalancer"], json!({}));
    assert_eq!(node_ports(&changed), [0]);
}

#[tokio::test(start_paused = true)]
async fn addresses_in_another_than_the_canonical_form_are_warned_of() {
    let server = Server::start().await;
    let mut balanced = service(
        "lb",
        json!({
            "type": "LoadBalancer", "ports": [{"port": 80}], "externalIPs": ["FD00::0:5"],
            "loadBalancerIP": "fd00:0::6", "loadBalancerSourceRanges": ["FD00::/64", "fd01::/64"],
        }),
    );
    balanced["metadata"]["annotations"] =
        json!({"service.kubernetes.io/topology-aware-hints": "auto"});
    server.create(ALL, balanced).await.unwrap();
    assert_eq!(
        server.warnings(),
        [
            "annotation service.kubernetes.io/topology-aware-hints is deprecated, please use service.kubernetes.io/topology-mode instead",
            r#"spec.externalIPs[0]: IPv6 address "FD00::0:5" should be in RFC 5952 canonical format ("fd00::5")"#,
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
            r#"spec.loadBalancerIP: IPv6 address "fd00:0::6" should be in RFC 5952 canonical format ("fd00::6")"#,
            r#"spec.loadBalancerSourceRanges[0]: IPv6 CIDR value "FD00::/64" should be in RFC 5952 canonical format ("fd00::/64")"#,
        ]
    );

    let old = json!({
        "type": "LoadBalancer", "ports": [{"port": 80}], "loadBalancerIP": "010.0.0.1",
    });
    server.create(ALL, service("old", old)).await.unwrap();
    let warning =
        r#"spec.loadBalancerIP: non-standard IP address "010.0.0.1" is invalid: use "10.0.0.1""#;
    assert_eq!(server.warnings(), [warning]);

    // So are those of Endpoints, unless the controller has written them, and of policies.
    let mut endpoints = json!({"metadata": {"name": "a"}, "subsets": [
        {"addresses": [{"ip": "10.1.0.1"}], "notReadyAddresses": [{"ip": "FD00::3"}]},
    ]});
    let all = "/api/v1/namespaces/default/endpoints";
    server.create(all, endpoints.clone()).await.unwrap();
    let labels = json!({"endpoints.kubernetes.io/managed-by": "endpoint-controller"});
    endpoints["metadata"] = json!({"name": "b", "labels": labels});
    server.create(all, endpoints).await.unwrap();
    let block = json!({"cidr": "fd00:0::/64", "except": ["FD00::/96"]});
    let policy = json!({
        "metadata": {"name": "a"},
        "spec": {"podSelector": {}, "egress": [{"to": [{"ipBlock": block}]}]},
    });
    let policies = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
    server.create(policies, policy).await.unwrap();
    let places = [
        "subsets[0].notReadyAddresses[0].ip",
        "spec.egress[0].to[0].ipBlock.cidr",
        "spec.egress[0].to[0].ipBlock.except[0]",
    ];
    let warnings = server.warnings();
    let warnings = warnings.iter().filter(|warning| warning.contains("RFC 5952"));
    let warned: Vec<&str> = warnings.map(|warning| warning.split_once(": ").unwrap().0).collect();
    assert_eq!(warned, places);
}

/// As Kubernetes 1.36 stores the bitmap of node ports. The least significant bit is 30000.
fn bitmap(data: &[u8]) -> Vec<u8> {
    let metadata = b"\x0a\x10\x0a\0\x12\0\x1a\0\x22\0\x2a\0\x32\0\x38\0\x42\0";
    let length = u8::try_from(data.len()).unwrap();
    let raw = [&metadata[..], b"\x12\x0b30000-32767\x1a", &[length], data].concat();
    let names = b"k8s\0\x0a\x15\x0a\x02v1\x12\x0fRangeAllocation\x12";
    [&names[..], &[u8::try_from(raw.len()).unwrap()], &raw, b"\x1a\0\x22\0"].concat()
}

#[tokio::test(start_paused = true)]
async fn node_ports_of_a_kube_apiserver_are_in_use_and_it_sees_ours() {
    const BITMAP: &[u8] = b"/registry/ranges/servicenodeports";
    let server = Server::start().await;
    let ops = vec![Op::Put(BITMAP.into(), bitmap(&[0x01]).into())];
    server.store.commit(Txn { ops, ..Txn::default() }).await.unwrap();
    let stored = async || server.store.get(BITMAP, At::Latest).await.unwrap().value.unwrap().value;
    let at = |port: u16| json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]});
    let taken = refused(server.create(ALL, service("a", at(30000))).await);
    assert!(taken.ends_with("30000: provided port is already allocated"), "{taken}");
    server.create(ALL, service("a", at(30009))).await.unwrap();
    assert_eq!(stored().await, bitmap(&[0x02, 0x01]));
    let dry = setpoint_registry::WriteOptions { dry_run: true, ..Default::default() };
    server.create_with(ALL, service("b", at(30002)), &dry).await.unwrap();
    assert_eq!(stored().await, bitmap(&[0x02, 0x01]));
    server.update(&path("a"), service("a", at(30003))).await.unwrap();
    assert_eq!(stored().await, bitmap(&[0x09]));
    server.delete(&path("a")).await.unwrap();
    assert_eq!(stored().await, bitmap(&[0x01]));
}

#[tokio::test(start_paused = true)]
async fn numbers_of_a_service_that_another_program_deleted_are_free() {
    let server = Server::start().await;
    let spec = json!({
        "type": "NodePort", "clusterIP": "10.0.0.60", "ports": [{"port": 80, "nodePort": 30060}],
    });
    server.create(ALL, service("a", spec.clone())).await.unwrap();
    let refusal = refused(server.create(ALL, service("b", spec.clone())).await);
    assert!(refusal.ends_with("provided IP is already allocated"), "{refusal}");
    // A kube-apiserver removes the Service and the address.
    let keys = ["/registry/services/specs/default/a", "/registry/ipaddresses/10.0.0.60"];
    let ops = keys.map(|key| Op::Delete(key.into())).to_vec();
    server.store.commit(Txn { ops, ..Txn::default() }).await.unwrap();
    server.create(ALL, service("b", spec.clone())).await.unwrap();
    let refusal = refused(server.create(ALL, service("c", spec)).await);
    assert!(refusal.ends_with("provided IP is already allocated"), "{refusal}");
}
