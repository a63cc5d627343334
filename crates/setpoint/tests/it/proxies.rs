//! The proxies of pods, Services and nodes, and kubelets, as clients of a control plane see them.
//! Texts and paths are those of kube-apiserver 1.36.

mod peer;

use crate::extension_backend::{JSON, send as send_as};
use crate::https::Ca;
use crate::serve::{Served, local};
use futures::{SinkExt as _, StreamExt as _};
use hyper_util::rt::TokioIo;
use kube_client::Client;
use peer::{Answer, Peer, ask, get, global_address, header_of, request, send};
use serde_json::{Value, json};
use setpoint::apiserver::{Credentials, Identity};
use setpoint::registry::{Feature, FeatureGates, RuntimeConfig};
use setpoint::webhook_client::Identity as ClientCertificate;
use setpoint::{ControlPlane, ControlPlaneBuilder, KubeletOptions};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

const PODS: &str = "/api/v1/namespaces/default/pods";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const NODES: &str = "/api/v1/nodes";
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A served control plane, and a user without rights.
struct Stage {
    server: String,
    bob: Client,
    _served: Served,
    _dir: tempfile::TempDir,
}

impl Stage {
    async fn new(change: impl FnOnce(ControlPlaneBuilder) -> ControlPlaneBuilder) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let plane = change(ControlPlane::builder().rbac().service_accounts(false)).build();
        let bob = Credentials::none().token("bobs", Identity::new("bob", ["system:authenticated"]));
        let options = local().credentials(bob).insecure_port(0);
        let served = Served::start(dir.path(), "p", plane, options).await;
        let server = served.insecure.clone().unwrap();
        let bob = Client::try_from(served.config_of("{token: bobs}").await).unwrap();
        Self { server, bob, _served: served, _dir: dir }
    }

    async fn write(&self, method: &str, path: &str, object: &Value) {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { JSON };
        let mut request = request(&self.server, method, path, &object.to_string());
        request.headers_mut().insert("content-type", kind.parse().unwrap());
        let answer = send(&self.server, request).await;
        assert!(answer.code < 300, "{path}: {answer:?}");
    }

    async fn pod(&self, name: &str, spec: Value, ip: Option<IpAddr>) {
        self.write("POST", PODS, &json!({"metadata": {"name": name}, "spec": spec})).await;
        if let Some(ip) = ip {
            let status = json!({"status": {"podIP": ip, "podIPs": [{"ip": ip}]}});
            self.write("PATCH", &format!("{PODS}/{name}/status"), &status).await;
        }
    }

    async fn node(&self, name: &str, ip: IpAddr, port: u16, features: Value) {
        self.write("POST", NODES, &json!({"metadata": {"name": name}})).await;
        let status = json!({"status": {
            "addresses": [{"type": "InternalIP", "address": ip}], "declaredFeatures": features,
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }});
        self.write("PATCH", &format!("{NODES}/{name}/status"), &status).await;
    }

    async fn get(&self, path: &str) -> Answer {
        get(&self.server, path).await
    }

    /// Asks for another protocol; returns the answer's code, what the peer has seen, and what it
    /// makes of `hello`.
    async fn upgrade(&self, method: &str, path: &str, protocol: &str) -> (u16, Value, String) {
        let mut request = request(&self.server, method, path, "");
        let head = request.headers_mut();
        for (name, value) in [
            ("connection", "Upgrade"),
            ("upgrade", protocol),
            ("x-stream-protocol-version", "v4.channel.k8s.io"),
        ] {
            head.insert(name, value.parse().unwrap());
        }
        let answer = ask(&self.server, request).await;
        let code = answer.status().as_u16();
        let seen = answer.headers().get("x-seen").map(|seen| seen.to_str().unwrap().to_owned());
        let Some(seen) = seen else { return (code, Value::Null, String::new()) };
        let mut io = TokioIo::new(hyper::upgrade::on(answer).await.unwrap());
        io.write_all(b"hello").await.unwrap();
        let mut echo = [0; 5];
        io.read_exact(&mut echo).await.unwrap();
        (code, serde_json::from_str(&seen).unwrap(), String::from_utf8_lossy(&echo).into_owned())
    }
}

fn container(port: Option<u16>) -> Value {
    let ports: Vec<_> = port.iter().map(|port| json!({"containerPort": port})).collect();
    json!({"containers": [{"name": "c", "image": "i", "ports": ports}]})
}

fn status(code: u16, reason: &str, message: &str) -> (u16, String, String) {
    (code, reason.to_owned(), message.to_owned())
}

#[tokio::test]
async fn requests_pass_to_pods_with_every_method_and_any_body() {
    let Some(ip) = global_address() else { return };
    let peer = Peer::start(ip).await;
    let stage = Stage::new(|plane| plane).await;
    stage.pod("p", container(Some(peer.port())), Some(ip)).await;
    let proxy = format!("{PODS}/p/proxy");
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
        let asked = request(&stage.server, method, &format!("{proxy}/a%2Fb!/?c=d&e=%20f"), "hello");
        let seen = send(&stage.server, asked).await.seen();
        let uri = format!("{proxy}/a/b%21/");
        assert_eq!(
            (&seen["method"], &seen["target"], &seen["n_bytes"]),
            (&json!(method), &json!("/a/b%21/?c=d&e=%20f"), &json!(5))
        );
        assert_eq!(header_of(&seen, "x-forwarded-uri"), Some(&*uri));
        assert_eq!(header_of(&seen, "x-forwarded-for"), Some("127.0.0.1"));
        assert_eq!(header_of(&seen, "host"), Some(&*stage.server));
    }
    let head = send(&stage.server, request(&stage.server, "HEAD", &format!("{proxy}/x"), "")).await;
    assert_eq!((head.code, &*head.text), (200, ""));
    let trace = send(&stage.server, request(&stage.server, "TRACE", &proxy, "")).await;
    assert_eq!(trace.status().0, 405);
    // More than any body of an object may have.
    let large = "x".repeat(5 << 20);
    let large = send(&stage.server, request(&stage.server, "POST", &proxy, &large)).await.seen();
    assert_eq!((&large["n_bytes"], &large["target"]), (&json!(5 << 20), &json!("/")));
    let by_name = stage.get(&format!("{PODS}/http:p:{}/proxy/x//y/../z", peer.port())).await.seen();
    assert_eq!(by_name["target"], "/x/z");
}

#[tokio::test]
async fn headers_of_users_and_connections_do_not_pass() {
    let Some(ip) = global_address() else { return };
    let peer = Peer::start(ip).await;
    let stage = Stage::new(|plane| plane).await;
    stage.pod("p", container(Some(peer.port())), Some(ip)).await;
    let mut asked = request(&stage.server, "GET", &format!("{PODS}/p/proxy/x"), "");
    for (name, value) in [
        ("authorization", "Bearer secret"),
        ("connection", "x-hop"),
        ("x-hop", "1"),
        ("keep-alive", "5"),
        ("te", "trailers"),
        ("cookie", "a=b"),
        ("x-remote-user", "root"),
        ("x-forwarded-for", "10.0.0.1"),
        ("x-forwarded-host", "outer"),
    ] {
        asked.headers_mut().insert(name, value.parse().unwrap());
    }
    let answer = send(&stage.server, asked).await;
    let seen = answer.seen();
    for (name, value) in [
        ("authorization", None),
        ("x-hop", None),
        ("keep-alive", None),
        ("x-remote-user", None),
        ("te", Some("trailers")),
        ("cookie", Some("a=b")),
        ("x-forwarded-for", Some("10.0.0.1, 127.0.0.1")),
        ("x-forwarded-host", Some("outer")),
        ("x-forwarded-proto", None),
    ] {
        assert_eq!(header_of(&seen, name), value, "{name}");
    }
    assert!(!answer.headers.contains_key("access-control-allow-origin"));
    assert_eq!(answer.headers["cache-control"], "no-cache, private");
}

#[tokio::test]
async fn links_and_redirects_lead_through_the_server() {
    let Some(ip) = global_address() else { return };
    let peer = Peer::start(ip).await;
    let stage = Stage::new(|plane| plane).await;
    stage.pod("p", container(Some(peer.port())), Some(ip)).await;
    let proxy = format!("{PODS}/p/proxy");
    let moved = stage.get(&format!("{proxy}?a=b")).await;
    assert_eq!(moved.location(), (301, &*format!("{proxy}/?a=b")));
    let redirect = stage.get(&format!("{proxy}/redirect")).await;
    assert_eq!(redirect.location(), (302, &*format!("{proxy}/next")));
    let page = stage.get(&format!("{proxy}/page")).await;
    let expected = format!("<a href=\"{proxy}/a?b=1&amp;c\">a</a><a href=\"b\">b</a>");
    assert_eq!(page.text, expected);
}

#[tokio::test]
async fn connections_switch_protocols_with_pods() {
    let Some(ip) = global_address() else { return };
    let peer = Peer::start(ip).await;
    let stage = Stage::new(|plane| plane).await;
    stage.pod("p", container(Some(peer.port())), Some(ip)).await;
    let proxy = format!("{PODS}/p/proxy");
    let (code, seen, echo) = stage.upgrade("GET", &format!("{proxy}/ws?x=y"), "websocket").await;
    assert_eq!((code, &*echo), (101, "HELLO"));
    assert_eq!((&seen["target"], header_of(&seen, "upgrade")), (&json!("/ws"), Some("websocket")));
    let (code, _, _) = stage.upgrade("GET", &format!("{proxy}/never"), "websocket").await;
    assert_eq!(code, 403);
    stage.pod("closed", container(Some(1)), Some(ip)).await;
    let mut asked = request(&stage.server, "GET", &format!("{PODS}/closed/proxy/"), "");
    asked.headers_mut().insert("connection", "upgrade".parse().unwrap());
    asked.headers_mut().insert("upgrade", "websocket".parse().unwrap());
    let refused = send(&stage.server, asked).await.status();
    let why = format!("error dialing backend: dial tcp {ip}:1: connect: connection refused");
    assert_eq!(refused, status(500, "", &why));
}

#[tokio::test]
async fn services_lead_to_their_pods_over_http_and_https() {
    let Some(ip) = global_address() else { return };
    let (plain, ca) = (Peer::start(ip).await, Ca::new());
    // Nobody checks this name.
    let secure = Peer::secure(ip, &ca.sign_for(&["elsewhere"]), &ca.pem()).await;
    let stage = Stage::new(|plane| plane).await;
    stage.pod("p", container(None), Some(ip)).await;
    let ports = json!([{"name": "http", "port": 80}, {"name": "tls", "port": 443}]);
    let pod = json!({"kind": "Pod", "namespace": "default", "name": "p"});
    for (name, target) in [("web", pod.clone()), ("foreign", Value::Null)] {
        let service = json!({"metadata": {"name": name}, "spec": {"ports": ports}});
        stage.write("POST", SERVICES, &service).await;
        let endpoints = json!({"metadata": {"name": name}, "subsets": [{
            "addresses": [{"ip": ip, "targetRef": target}],
            "ports": [{"name": "http", "port": plain.port()}, {"name": "tls", "port": secure.port()}],
        }]});
        stage.write("POST", "/api/v1/namespaces/default/endpoints", &endpoints).await;
    }
    for name in ["web:http", "web:80", "http:web:80", "https:web:443", "https:web:tls"] {
        let seen = stage.get(&format!("{SERVICES}/{name}/proxy/x?y=1")).await.seen();
        assert_eq!((&seen["target"], &seen["certificate"]), (&json!("/x?y=1"), &json!(false)));
    }
    let external = json!({"metadata": {"name": "ext"}, "spec": {
        "type": "ExternalName", "externalName": "example.com", "ports": [{"port": 80}],
    }});
    stage.write("POST", SERVICES, &external).await;
    let none = |name: &str| format!("no endpoints available for service \"{name}\"");
    for (name, code, reason, message) in [
        ("web", 503, "ServiceUnavailable", none("web")),
        ("web:other", 503, "ServiceUnavailable", none("web:other")),
        ("foreign:80", 503, "ServiceUnavailable", none("foreign:80")),
        (
            "web:81",
            503,
            "ServiceUnavailable",
            "no service port 81 found for service \"web\"".into(),
        ),
        ("ext", 404, "NotFound", "services \"ext\" not found".into()),
        ("ext:80", 404, "NotFound", "services \"ext\" not found".into()),
        ("gone", 404, "NotFound", "services \"gone\" not found".into()),
        ("a:b:c:d", 400, "BadRequest", "invalid service request \"a:b:c:d\"".into()),
    ] {
        let answer = stage.get(&format!("{SERVICES}/{name}/proxy/")).await;
        assert_eq!(answer.status(), status(code, reason, &message), "{name}");
    }
    // Slices take the place of Endpoints.
    let labels = json!({"kubernetes.io/service-name": "sliced"});
    let service = json!({"metadata": {"name": "sliced"}, "spec": {"ports": [{"port": 80}]}});
    stage.write("POST", SERVICES, &service).await;
    let slice = json!({"metadata": {"name": "s", "labels": labels}, "addressType": "IPv4",
        "ports": [{"port": plain.port()}], "endpoints": [{"addresses": [ip], "targetRef": pod}]});
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    stage.write("POST", slices, &slice).await;
    assert_eq!(stage.get(&format!("{SERVICES}/sliced:80/proxy/")).await.code, 200);
}

#[tokio::test]
async fn addresses_of_the_own_machine_are_refused() {
    let stage = Stage::new(|plane| plane).await;
    for (name, ip) in [("loop", Some("127.0.0.1")), ("link", Some("169.254.1.1")), ("none", None)] {
        stage.pod(name, container(Some(80)), ip.map(|ip| ip.parse().unwrap())).await;
        let answer = stage.get(&format!("{PODS}/{name}/proxy/")).await;
        assert_eq!(answer.status(), status(400, "BadRequest", "address not allowed"), "{name}");
    }
    stage.node("here", LOOPBACK, 1, json!([])).await;
    let answer = stage.get(&format!("{NODES}/here/proxy/metrics")).await;
    assert_eq!(answer.status(), status(400, "BadRequest", "address not allowed"));
    stage.write("POST", NODES, &json!({"metadata": {"name": "bare"}})).await;
    let answer = stage.get(&format!("{NODES}/bare/proxy/metrics")).await;
    let why = "no preferred addresses found; known addresses: []";
    assert_eq!(answer.status(), status(500, "", why));
}

#[tokio::test]
async fn nothing_is_connected_to_if_connections_are_off() {
    let stage = Stage::new(|plane| plane.connections(false)).await;
    stage.node("n", "10.0.0.1".parse().unwrap(), 1, json!([])).await;
    let answer = stage.get(&format!("{NODES}/n/proxy/metrics")).await;
    let why = "no node agent serves nodes \"n\"";
    assert_eq!(answer.status(), status(503, "ServiceUnavailable", why));
}

#[tokio::test]
async fn nodes_are_reached_with_the_servers_certificate() {
    let Some(ip) = global_address() else { return };
    let ca = Ca::new();
    let kubelet = Peer::secure(ip, &ca.sign_for(&[&ip.to_string()]), &ca.pem()).await;
    let stranger = Peer::secure(ip, &Ca::new().sign_for(&[&ip.to_string()]), &ca.pem()).await;
    let plain = Peer::start(ip).await;
    let (certificates, key) = ca.sign_for(&["kube-apiserver"]);
    let identity = ClientCertificate { certificates: certificates.into(), key: key.into() };
    let options = KubeletOptions::default().identity(identity).authority(ca.pem());
    let stage = Stage::new(|plane| plane.kubelets(options)).await;
    stage.node("n", ip, kubelet.port(), json!([])).await;
    stage.node("stranger", ip, stranger.port(), json!([])).await;
    let with_port = format!("n:{}", kubelet.port());
    for name in ["n", &with_port] {
        let seen = stage.get(&format!("{NODES}/{name}/proxy/stats/summary?a=b")).await.seen();
        let expected = (&json!("/stats/summary?a=b"), &json!(true));
        assert_eq!((&seen["target"], &seen["certificate"]), expected, "{name}");
    }
    let other = stage.get(&format!("{NODES}/n:{}/proxy/", plain.port())).await.seen();
    assert_eq!(other["certificate"], false);
    let (code, _, message) = stage.get(&format!("{NODES}/stranger/proxy/")).await.status();
    assert_eq!(code, 503);
    assert!(message.contains("certificate signed by unknown authority"), "{message}");
}

#[tokio::test]
async fn logs_come_from_the_kubelet_of_the_node() {
    let ca = Ca::new();
    let kubelet = Peer::secure(LOOPBACK, &ca.sign_for(&["127.0.0.1"]), &ca.pem()).await;
    let options = KubeletOptions::default().authority(Ca::new().pem());
    let stage = Stage::new(|plane| plane.kubelets(options)).await;
    stage.node("n", LOOPBACK, kubelet.port(), json!([])).await;
    let names = ["c", "missing", "waiting", "broken", "refused"];
    let containers: Vec<_> = names.iter().map(|name| json!({"name": name, "image": "i"})).collect();
    stage.pod("p", json!({"nodeName": "n", "containers": containers}), None).await;
    let log = async |query: &str| {
        let skip = "insecureSkipTLSVerifyBackend=true";
        stage.get(&format!("{PODS}/p/log?{skip}&{query}")).await
    };
    let answer = log(
        "container=c&follow=true&previous=true&timestamps=true&sinceTime=2020-01-01T00:00:00%2B02:00&tailLines=3&limitBytes=10",
    )
    .await;
    assert_eq!(answer.headers["content-type"], "text/plain");
    assert_eq!(
        answer.seen()["target"],
        "/containerLogs/default/p/c?follow=true&limitBytes=10&previous=true&sinceTime=2019-12-31T22%3A00%3A00Z&tailLines=3&timestamps=true"
    );
    let refused = log("container=c&stream=Stderr").await.status();
    let text = "PodLogOptions \"p\" is invalid: stream: Forbidden: may not be specified";
    assert_eq!(refused, status(422, "Invalid", text));
    let missing = "the server could not find the requested resource ( pods/log p)";
    for (container, code, reason, message) in [
        ("missing", 404, "NotFound", missing),
        ("waiting", 400, "BadRequest", "it waits"),
        ("broken", 500, "InternalError", "Internal error occurred: it broke"),
        ("refused", 403, "Forbidden", "not for you ( pods/log p)"),
        ("other", 400, "BadRequest", "container other is not valid for pod p"),
    ] {
        let answer = log(&format!("container={container}")).await;
        assert_eq!(answer.status(), status(code, reason, message), "{container}");
    }
    let checked = stage.get(&format!("{PODS}/p/log?container=c")).await;
    let url = format!("https://127.0.0.1:{}/containerLogs/default/p/c", kubelet.port());
    let why = format!(
        "Get \"{url}\": tls: failed to verify certificate: x509: certificate signed by unknown authority"
    );
    assert_eq!(checked.status(), status(500, "", &why));
}

#[tokio::test]
async fn a_log_may_be_of_one_output() {
    let ca = Ca::new();
    let kubelet = Peer::secure(LOOPBACK, &ca.sign_for(&["127.0.0.1"]), &ca.pem()).await;
    let options = KubeletOptions::default().authority(ca.pem());
    let features = FeatureGates::default().with(Feature::PodLogsQuerySplitStreams, true);
    let config = RuntimeConfig::with_gates("", features).unwrap();
    let stage = Stage::new(|plane| plane.kubelets(options).runtime_config(config)).await;
    stage.node("n", LOOPBACK, kubelet.port(), json!([])).await;
    let spec = json!({"nodeName": "n", "containers": [{"name": "c", "image": "i"}]});
    stage.pod("p", spec, None).await;
    for (query, sent) in [
        ("", "stream=All"),
        ("?stream=Stderr&follow=true", "follow=true&stream=Stderr"),
        ("?stream=All&tailLines=1", "stream=All&tailLines=1"),
    ] {
        let answer = stage.get(&format!("{PODS}/p/log{query}")).await;
        assert_eq!(answer.seen()["target"], format!("/containerLogs/default/p/c?{sent}"));
    }
    let refused = stage.get(&format!("{PODS}/p/log?stream=Stdout&tailLines=1")).await.status();
    let text = "PodLogOptions \"p\" is invalid: []: Forbidden: `tailLines` and specific `stream` are mutually exclusive for now";
    assert_eq!(refused, status(422, "Invalid", text));
}

#[tokio::test]
async fn errors_of_nodes_are_those_of_the_original() {
    let stage = Stage::new(|plane| plane).await;
    stage.node("closed", LOOPBACK, 1, json!([])).await;
    let on = |node: &str| json!({"nodeName": node, "containers": [{"name": "c", "image": "i"}]});
    stage.pod("closed", on("closed"), None).await;
    stage.pod("lost", on("gone"), None).await;
    stage.pod("free", container(None), None).await;
    let refused = "dial tcp 127.0.0.1:1: connect: connection refused";
    let url = "https://127.0.0.1:1/containerLogs/default/closed/c";
    let log = stage.get(&format!("{PODS}/closed/log")).await;
    assert_eq!(log.status(), status(500, "", &format!("Get \"{url}\": {refused}")));
    for (path, code, reason, message) in [
        ("lost/log", 404, "NotFound", "pods \"gone\" not found"),
        ("lost/exec?command=x&stdout=1", 404, "NotFound", "pods \"gone\" not found"),
        ("closed/exec?command=x&stdout=1", 400, "BadRequest", "Upgrade request required"),
        ("closed/portforward", 400, "BadRequest", "Upgrade request required"),
        ("free/attach", 400, "BadRequest", "pod free does not have a host assigned"),
    ] {
        let answer = stage.get(&format!("{PODS}/{path}")).await;
        assert_eq!(answer.status(), status(code, reason, message), "{path}");
    }
    assert_eq!(stage.get(&format!("{PODS}/free/log")).await.code, 204);
}

#[tokio::test]
async fn commands_and_forwards_pass_to_the_kubelet() {
    let ca = Ca::new();
    let kubelet = Peer::secure(LOOPBACK, &ca.sign_for(&["127.0.0.1"]), &ca.pem()).await;
    let stage = Stage::new(|plane| plane).await;
    stage.node("n", LOOPBACK, kubelet.port(), json!([])).await;
    stage
        .pod("p", json!({"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}), None)
        .await;
    for (method, path, protocol, target) in [
        (
            "POST",
            "exec?command=ls&command=-l%20x&stdin=1&stdout=true&stderr=true&tty=true",
            "SPDY/3.1",
            "/exec/default/p/c?command=ls&command=-l+x&error=1&input=1&output=1&tty=1",
        ),
        ("GET", "exec?command=ls&stdout=1", "websocket", "/exec/default/p/c?command=ls&output=1"),
        ("POST", "attach?stdout=true", "SPDY/3.1", "/attach/default/p/c?output=1"),
        ("POST", "portforward?ports=80,443", "SPDY/3.1", "/portForward/default/p?port=80%2C443"),
    ] {
        let path = format!("{PODS}/p/{path}");
        let (code, seen, echo) = stage.upgrade(method, &path, protocol).await;
        assert_eq!((code, &*echo), (101, "HELLO"), "{path}");
        assert_eq!((&seen["method"], &seen["target"]), (&json!(method), &json!(target)));
        assert_eq!(header_of(&seen, "x-stream-protocol-version"), Some("v4.channel.k8s.io"));
    }
}

/// The outcome of a command comes in a channel of its own, and the end of its input is a message.
#[tokio::test]
async fn a_kubelet_without_websockets_gets_spdy() {
    let ca = Ca::new();
    let kubelet = Peer::secure(LOOPBACK, &ca.sign_for(&["127.0.0.1"]), &ca.pem()).await;
    let stage = Stage::new(|plane| plane).await;
    stage.node("old", LOOPBACK, kubelet.port(), json!([])).await;
    stage.node("new", LOOPBACK, kubelet.port(), json!(["ExtendWebSocketsToKubelet"])).await;
    stage.node("away", LOOPBACK, 1, json!([])).await;
    for (pod, node, container) in [
        ("spoken", "old", "c"),
        ("passed", "new", "c"),
        ("refused", "old", "never"),
        ("lost", "away", "c"),
    ] {
        let spec = json!({"nodeName": node, "containers": [{"name": container, "image": "i"}]});
        stage.pod(pod, spec, None).await;
    }
    let open = async |pod: &str, subresource: &str, protocol: &str| {
        let path = format!("{PODS}/{pod}/{subresource}");
        let mut asked = request(&stage.server, "GET", &path, "");
        for (name, value) in [
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-protocol", protocol),
        ] {
            asked.headers_mut().insert(name, value.parse().unwrap());
        }
        let answer = ask(&stage.server, asked).await;
        assert_eq!(answer.status(), 101);
        let seen = answer.headers().get("x-seen").map(|seen| seen.to_str().unwrap().to_owned());
        let io = TokioIo::new(hyper::upgrade::on(answer).await.unwrap());
        (WebSocketStream::from_raw_socket(io, Role::Client, None).await, seen)
    };
    let exec = "exec?command=cat&stdin=1&stdout=1";
    let (mut socket, seen) = open("spoken", exec, "v5.channel.k8s.io").await;
    assert_eq!(seen, None);
    socket.send(Message::binary(b"\0input".as_slice())).await.unwrap();
    socket.send(Message::binary([255, 0].as_slice())).await.unwrap();
    let mut channels: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
    while let Some(Ok(Message::Binary(message))) = socket.next().await {
        channels.entry(message[0]).or_default().extend_from_slice(&message[1..]);
    }
    assert_eq!(channels[&1], b"input");
    let outcome: Value = serde_json::from_slice(&channels[&3]).unwrap();
    assert_eq!(outcome["reason"], "NonZeroExitCode");
    // What goes wrong at the kubelet is the outcome of the command.
    for (pod, why) in [
        ("refused", "unable to upgrade connection: no other protocol"),
        (
            "lost",
            "error sending request: Post \"https://127.0.0.1:1/exec/default/lost/c?command=cat&input=1&output=1\": dial tcp 127.0.0.1:1: connect: connection refused",
        ),
    ] {
        let (mut socket, _) = open(pod, exec, "v5.channel.k8s.io").await;
        assert_eq!(socket.next().await.unwrap().unwrap().into_data(), "\u{1}");
        let outcome = socket.next().await.unwrap().unwrap().into_data();
        assert_eq!(outcome[0], 3);
        let outcome: Value = serde_json::from_slice(&outcome[1..]).unwrap();
        let expected = json!({"metadata": {}, "status": "Failure", "reason": "InternalError",
            "message": format!("Internal error occurred: {why}"),
            "details": {"causes": [{"message": why}]}, "code": 500});
        assert_eq!(outcome, expected);
        assert!(socket.next().await.unwrap().unwrap().is_close());
    }
    // The bytes of the SPDY connection inside come back in capitals.
    let (mut socket, seen) = open("spoken", "portforward", "SPDY/3.1+portforward.k8s.io").await;
    assert_eq!(seen, None);
    socket.send(Message::binary(b"spdy".as_slice())).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap().into_data(), "SPDY");
    let (_, seen) = open("passed", exec, "v5.channel.k8s.io").await;
    let seen: Value = serde_json::from_str(&seen.unwrap()).unwrap();
    assert_eq!(header_of(&seen, "sec-websocket-protocol"), Some("v5.channel.k8s.io"));
    assert_eq!(seen["target"], "/exec/default/passed/c?command=cat&input=1&output=1");
}

/// As `AuthorizePodWebsocketUpgradeCreatePermission`: who may read a pod may not run commands in
/// it.
#[tokio::test]
async fn a_command_needs_the_right_to_create_with_any_method() {
    let stage = Stage::new(|plane| plane).await;
    stage.node("n", LOOPBACK, 1, json!([])).await;
    stage
        .pod("p", json!({"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}), None)
        .await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let words = ["pods/exec", "pods/attach", "pods/portforward", "pods/log", "pods/proxy"];
    let rules = json!([{"apiGroups": [""], "resources": words, "verbs": ["get"]}]);
    let role = json!({"metadata": {"name": "r"}, "rules": rules});
    stage.write("POST", &format!("{rbac}/clusterroles"), &role).await;
    let binding = json!({"metadata": {"name": "r"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}]});
    stage.write("POST", &format!("{rbac}/clusterrolebindings"), &binding).await;
    let as_bob = async |method: &str, path: &str| {
        let path = format!("{PODS}/p/{path}");
        let (code, text) = send_as(&stage.bob, method, &path, JSON, &Value::Null).await;
        let status: Value = serde_json::from_str(&text).unwrap_or_default();
        (code, status["message"].as_str().unwrap_or_default().to_owned())
    };
    for path in ["exec?command=ls&stdout=1", "attach?stdout=1", "portforward"] {
        let refused = (403, "pods \"p\" is forbidden: ".to_owned());
        assert_eq!(as_bob("GET", path).await, refused, "{path}");
    }
    let (code, message) = as_bob("GET", "log").await;
    assert_eq!(code, 500, "{message}");
    assert_eq!(as_bob("GET", "proxy/").await.0, 400);
    let why = "pods \"p\" is forbidden: User \"bob\" cannot create resource \"pods/proxy\" in API group \"\" in the namespace \"default\"";
    assert_eq!(as_bob("POST", "proxy/").await, (403, why.to_owned()));
}
