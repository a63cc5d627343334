//! Group versions of other servers, by APIService objects, as clients of a control plane over HTTPS
//! see them. The other server is a control plane of its own.

mod collected;
mod server;

use crate::extension_backend::{AGGREGATED, JSON, discovered, get, get_json, send};
use crate::https::Ca;
use crate::plane::with_person;
use crate::serve::{Served, local};
use futures::StreamExt as _;
use http::Request;
use http_body_util::BodyDataStream;
use kube_client::{Client, Config};
use serde_json::{Value, json};
use server::{Extension, Mode, text};
use setpoint::apiserver::{Credentials, Identity};
use setpoint::object::time::Clock;
use setpoint::spans::{EndedSpan, Sampling, Tracer};
use setpoint::{ControlPlane, ControlPlaneBuilder};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const THINGS: &str = "/apis/ext.example.com/v1/namespaces/default/things";
const AWAY: &str = "service unavailable\n";

/// A control plane, an extension server that is not registered yet, and clients.
struct Stage {
    client: Client,
    bob: Client,
    ca: Ca,
    extension: Extension,
    served: Served,
    dir: tempfile::TempDir,
}

fn client(mut config: Config) -> Client {
    // No retries: a 503 is a response too.
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

/// Polls until a value is as wanted.
async fn until<T: std::fmt::Debug>(
    what: &str,
    mut look: impl AsyncFnMut() -> T,
    is_wanted: impl Fn(&T) -> bool,
) -> T {
    let mut last = None;
    for _ in 0..6000 {
        let found = look().await;
        if is_wanted(&found) {
            return found;
        }
        last = Some(found);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{what}: {last:?}")
}

impl Stage {
    async fn new() -> Self {
        Self::of(|plane| plane).await
    }

    /// With a changed control plane.
    async fn of(change: impl FnOnce(ControlPlaneBuilder) -> ControlPlaneBuilder) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let credentials = Credentials::none()
            .token("bobs", Identity::new("bob", ["dev", "system:authenticated"]));
        let plane = change(ControlPlane::builder().rbac()).build();
        let options = local().credentials(credentials).insecure_port(0);
        let served = Served::start(dir.path(), "host", plane, options).await;
        let admin = client(served.config().await);
        let bob = client(served.config_of("{token: bobs}").await);
        let map = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
        let map = until(
            "the proxy's CA is published",
            async || get(&admin, map).await,
            |(_, map)| map.contains("requestheader-client-ca-file"),
        )
        .await;
        let map: Value = serde_json::from_str(&map.1).unwrap();
        let ca = Ca::new();
        let client_ca = map["data"]["requestheader-client-ca-file"].as_str().unwrap();
        let extension = Extension::start(&ca, client_ca).await;
        Self { client: admin, bob, ca, extension, served, dir }
    }

    async fn send(&self, method: &str, path: &str, body: &Value) -> (u16, String) {
        send(&self.client, method, path, JSON, body).await
    }

    async fn create(&self, path: &str, object: &Value) -> Value {
        let (code, text) = self.send("POST", path, object).await;
        assert_eq!(code, 201, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    /// Creates the Service, which leads to this machine.
    async fn create_service(&self) {
        self.create("/api/v1/namespaces", &json!({"metadata": {"name": "ext"}})).await;
        let port = json!([{"port": self.extension.port}]);
        let spec = json!({"type": "ExternalName", "externalName": "localhost", "ports": port});
        let service = json!({"metadata": {"name": "api"}, "spec": spec});
        self.create("/api/v1/namespaces/ext/services", &service).await;
    }

    fn api_service(&self) -> Value {
        json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.ext.example.com"},
            "spec": {"group": "ext.example.com", "version": "v1", "groupPriorityMinimum": 1500, "versionPriority": 20,
                "caBundle": self.ca.bundle(),
                "service": {"namespace": "ext", "name": "api", "port": self.extension.port}}})
    }

    /// Waits for the condition `Available`; returns its message.
    async fn available(&self, status: &str, reason: &str) -> String {
        let path = format!("{SERVICES}/v1.ext.example.com");
        let look = async || {
            let found = get_json(&self.client, &path, JSON).await;
            found["status"]["conditions"][0].clone()
        };
        let is_wanted = |found: &Value| found["status"] == status && found["reason"] == reason;
        let found = until(reason, look, is_wanted).await;
        found["message"].as_str().unwrap().to_owned()
    }

    async fn register(&self) {
        self.create_service().await;
        self.create(SERVICES, &self.api_service()).await;
        self.available("True", "Passed").await;
        let resources = async || discovered(&self.client, "ext.example.com").await;
        until("documents are fetched", resources, |group| {
            group["versions"][0]["freshness"] == "Current"
        })
        .await;
    }
}

fn thing(name: &str) -> Value {
    json!({"apiVersion": "ext.example.com/v1", "kind": "Thing", "metadata": {"name": name}, "spec": {"size": 1}})
}

#[tokio::test]
async fn things_of_another_server_are_discovered_written_read_and_watched() {
    let stage = Stage::new().await;
    stage.register().await;
    let client = &stage.client;

    let groups = get_json(client, "/apis", JSON).await;
    assert!(groups["groups"].as_array().unwrap().iter().any(|g| g["name"] == "ext.example.com"));
    let group = get_json(client, "/apis/ext.example.com", JSON).await;
    assert_eq!(group["preferredVersion"]["groupVersion"], "ext.example.com/v1");
    let resources = get_json(client, "/apis/ext.example.com/v1", JSON).await;
    assert_eq!(resources["resources"][0]["shortNames"], json!(["th"]));
    let listed = discovered(client, "ext.example.com").await;
    assert_eq!(listed["versions"][0]["resources"][0]["resource"], "things");

    // The index has the server's own URL, and its documents come from there.
    let index = get_json(client, "/openapi/v3", JSON).await;
    let url = index["paths"]["apis/ext.example.com/v1"]["serverRelativeURL"].as_str().unwrap();
    let document = get_json(client, url, JSON).await;
    let schema = &document["components"]["schemas"]["com.example.ext.v1.Thing"];
    assert_eq!(
        schema["properties"]["spec"]["properties"]["size"]["description"],
        "How large it is."
    );
    let v2 = async || {
        get_json(client, "/openapi/v2", JSON).await["definitions"]["com.example.ext.v1.Thing"]
            .clone()
    };
    until("OpenAPI v2 has it", v2, |found| found.is_object()).await;

    let watch = Request::get(format!("{THINGS}?watch=true")).body(Vec::new().into()).unwrap();
    let watch = client.send(watch).await.unwrap();
    let mut events = BodyDataStream::new(watch.into_body());
    let made = stage.create(THINGS, &thing("a")).await;
    let event: Value = serde_json::from_slice(&events.next().await.unwrap().unwrap()).unwrap();
    assert_eq!(event, json!({"type": "ADDED", "object": made}));
    let list = get_json(client, THINGS, JSON).await;
    assert_eq!(list["items"][0]["metadata"]["uid"], made["metadata"]["uid"]);
    let table = get_json(client, THINGS, "application/json;as=Table;v=v1;g=meta.k8s.io").await;
    assert_eq!(table["kind"], "Table");
    let (code, missing) = get(client, &format!("{THINGS}/b")).await;
    assert_eq!(code, 404);
    assert!(missing.contains(r#"things.ext.example.com \"b\" not found"#), "{missing}");

    // Deleting the object ends all of it at once.
    let path = format!("{SERVICES}/v1.ext.example.com");
    assert_eq!(stage.send("DELETE", &path, &Value::Null).await.0, 200);
    let gone = async || get(client, THINGS).await.0;
    until("it is gone", gone, |code| *code == 404).await;
    assert_eq!(discovered(client, "ext.example.com").await, Value::Null);
    let index = get_json(client, "/openapi/v3", JSON).await;
    assert!(index["paths"]["apis/ext.example.com/v1"].is_null());
    stage.served.stop().await;
}

/// A server that starts after its registration refuses the first requests.
#[tokio::test]
async fn documents_of_a_server_that_was_not_ready_come_with_its_readiness() {
    let stage = Stage::new().await;
    stage.extension.set(Mode::Code(403));
    stage.create_service().await;
    stage.create(SERVICES, &stage.api_service()).await;
    let asked = async || stage.extension.take().iter().any(|seen| seen.path.ends_with("/apis"));
    until("discovery is asked for", asked, |asked| *asked).await;
    stage.extension.set(Mode::Serve);
    let known = async || get(&stage.client, "/openapi/v3").await.1;
    let known = until("its OpenAPI is known", known, |index| index.contains("ext.example.com"));
    // Documents that were fetched are fetched again after a minute.
    tokio::time::timeout(Duration::from_secs(40), known).await.unwrap();
    stage.served.stop().await;
}

#[tokio::test]
async fn server_gets_the_user_in_headers_and_the_request_as_it_was() {
    let stage = Stage::new().await;
    stage.register().await;
    // Authorization comes first.
    let (code, refused) = send(&stage.bob, "GET", THINGS, JSON, &Value::Null).await;
    assert_eq!(code, 403);
    let message = r#"things.ext.example.com is forbidden: User \"bob\" cannot list resource \"things\" in API group \"ext.example.com\" in the namespace \"default\""#;
    assert!(refused.contains(message), "{refused}");
    let role = json!({"metadata": {"name": "reader"},
        "rules": [{"apiGroups": ["ext.example.com"], "resources": ["*"], "verbs": ["get", "list"]}]});
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    stage.create(roles, &role).await;
    let binding = json!({"metadata": {"name": "bob"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}]});
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    stage.create(bindings, &binding).await;
    let allowed = async || send(&stage.bob, "GET", THINGS, JSON, &Value::Null).await.0;
    until("bob may list", allowed, |code| *code == 200).await;
    stage.extension.take();

    let request = Request::get(format!("{THINGS}/a%2Fb?x=%2F&y=1"))
        .header("x-remote-user", "root")
        .header("x-remote-group", "system:masters")
        .header("cookie", "c=1")
        .header("x-forwarded-for", "10.1.2.3")
        .header("user-agent", "test")
        .header("audit-id", "0123")
        .body(Vec::new().into());
    let answer = stage.bob.send(request.unwrap()).await.unwrap();
    assert_eq!(answer.headers()["audit-id"], "0123");
    let seen = stage.extension.take();
    let seen = seen.iter().find(|seen| seen.header("user-agent") == "test").unwrap();
    let uri: http::Uri = seen.path.parse().unwrap();
    assert_eq!(uri.path_and_query().unwrap().as_str(), format!("{THINGS}/a/b?x=%2F&y=1"));
    for (name, value) in [
        ("x-remote-user", "bob"),
        ("x-remote-group", "dev|system:authenticated"),
        ("x-remote-uid", ""),
        ("authorization", ""),
        ("cookie", "c=1"),
        ("x-forwarded-for", "10.1.2.3, 127.0.0.1"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-uri", &format!("{THINGS}/a/b")),
        ("x-forwarded-host", &format!("localhost:{}", stage.extension.port)),
        ("audit-id", "0123"),
    ] {
        assert_eq!(seen.header(name), value, "{name}");
    }
    // The user that an administrator acts as.
    let request = Request::get(THINGS)
        .header("impersonate-user", "carol")
        .header("impersonate-group", "system:masters")
        .header("impersonate-extra-example.com%2Fteam", "a")
        .header("user-agent", "test2");
    let request = request.body(Vec::new().into()).unwrap();
    assert_eq!(stage.client.send(request).await.unwrap().status(), 200);
    let seen = stage.extension.take();
    let seen = seen.iter().find(|seen| seen.header("user-agent") == "test2").unwrap();
    assert_eq!(seen.header("x-remote-user"), "carol");
    assert_eq!(seen.header("x-remote-extra-example.com%2fteam"), "a");
    assert_eq!(seen.header("impersonate-user"), "");
    stage.served.stop().await;
}

#[tokio::test]
async fn failures_have_the_texts_of_the_reference() {
    let mut stage = Stage::new().await;
    let port = stage.extension.port;
    stage.create(SERVICES, &stage.api_service()).await;
    let message = stage.available("False", "ServiceNotFound").await;
    assert_eq!(message, r#"service/api in "ext" is not present"#);
    for path in [THINGS, "/apis/ext.example.com/v1"] {
        assert_eq!(get(&stage.client, path).await, (503, AWAY.to_owned()));
    }
    // The group is listed, and aggregated discovery says that it is stale.
    assert_eq!(get(&stage.client, "/apis/ext.example.com").await.0, 200);
    let stale = json!([{"version": "v1", "freshness": "Stale"}]);
    assert_eq!(discovered(&stage.client, "ext.example.com").await["versions"], stale);

    // A Service without and with endpoints.
    let namespace = json!({"metadata": {"name": "ext"}});
    stage.create("/api/v1/namespaces", &namespace).await;
    let services = "/api/v1/namespaces/ext/services";
    let service = json!({"metadata": {"name": "api"}, "spec": {"ports": [{"port": 1}]}});
    stage.create(services, &service).await;
    let message = stage.available("False", "ServicePortError").await;
    assert_eq!(message, format!(r#"service/api in "ext" is not listening on port {port}"#));
    let path = format!("{services}/api");
    let patch = async |path: &str, patch: Value| {
        let request = Request::patch(path).header("content-type", "application/merge-patch+json");
        let request = request.body(patch.to_string().into_bytes().into()).unwrap();
        let answer = stage.client.send(request).await.unwrap();
        assert_eq!(answer.status(), 200, "{}", text(answer).await);
    };
    patch(&path, json!({"spec": {"ports": [{"port": port}]}})).await;
    let message = stage.available("False", "EndpointsNotFound").await;
    assert_eq!(message, r#"cannot find endpointslices for service/api in "ext""#);
    let slices = "/apis/discovery.k8s.io/v1/namespaces/ext/endpointslices";
    let slice = json!({"metadata": {"name": "api", "labels": {"kubernetes.io/service-name": "api"}},
        "addressType": "IPv4", "endpoints": [{"addresses": ["10.9.9.9"], "conditions": {"ready": false}}],
        "ports": [{"name": "", "port": port}]});
    stage.create(slices, &slice).await;
    let message = stage.available("False", "MissingEndpoints").await;
    let none = r#"endpointslices for service/api in "ext" have no addresses with port name """#;
    assert_eq!(message, none);
    assert_eq!(stage.send("DELETE", &format!("{slices}/api"), &Value::Null).await.0, 200);
    assert_eq!(stage.send("DELETE", &path, &Value::Null).await.0, 200);
    let spec = json!({"type": "ExternalName", "externalName": "localhost"});
    stage.create(services, &json!({"metadata": {"name": "api"}, "spec": spec})).await;
    stage.available("True", "Passed").await;

    // What the server does.
    let base = format!("https://localhost:{port}/apis/ext.example.com/v1");
    stage.extension.set(Mode::Redirect);
    let redirect = "the backend attempted to redirect this request, which is not permitted";
    assert_eq!(get(&stage.client, THINGS).await, (502, redirect.to_owned()));
    stage.extension.set(Mode::Silent);
    let (code, late) = get(&stage.client, &format!("{THINGS}?timeout=1s")).await;
    let late: Value = serde_json::from_str(&late).unwrap();
    let message = "Timeout: request did not complete within the allotted timeout";
    assert_eq!((code, &late["message"]), (504, &json!(message)));
    stage.extension.set(Mode::Broken);
    let request = Request::get(THINGS).body(Vec::new().into()).unwrap();
    let broken = stage.client.send(request).await.unwrap();
    let mut pieces = BodyDataStream::new(broken.into_body());
    assert_eq!(pieces.next().await.unwrap().unwrap(), "{");
    stage.extension.break_off();
    assert!(pieces.next().await.unwrap().is_err());
    stage.extension.set(Mode::Code(500));
    assert_eq!(get(&stage.client, THINGS).await, (500, "no\n".to_owned()));
    // A change of the object has it checked.
    let api_service = format!("{SERVICES}/v1.ext.example.com");
    patch(&format!("{api_service}/status"), json!({"status": {"conditions": []}})).await;
    let message = stage.available("False", "FailedDiscoveryCheck").await;
    assert_eq!(
        message,
        format!("failing or missing response from {base}: bad status from {base}: 500")
    );
    let shown = async || discovered(&stage.client, "ext.example.com").await["versions"].clone();
    until("it is stale", shown, |versions| *versions == stale).await;
    // What it answers at `/apis` counts for discovery, whatever the check says.
    stage.extension.set(Mode::OnlyDiscovery);
    let current = |versions: &Value| {
        versions[0]["freshness"] == "Current" && versions[0]["resources"][0]["resource"] == "things"
    };
    until("it is current", shown, current).await;
    assert_eq!(get(&stage.client, THINGS).await, (503, AWAY.to_owned()));
    stage.extension.set(Mode::Serve);
    stage.available("True", "Passed").await;

    // A certificate of another authority.
    patch(&api_service, json!({"spec": {"caBundle": Ca::new().bundle()}})).await;
    let message = stage.available("False", "FailedDiscoveryCheck").await;
    let unknown =
        "tls: failed to verify certificate: x509: certificate signed by unknown authority";
    assert_eq!(
        message,
        format!("failing or missing response from {base}: Get {base:?}: {unknown}")
    );
    // Any certificate.
    patch(&api_service, json!({"spec": {"caBundle": null, "insecureSkipTLSVerify": true}})).await;
    stage.available("True", "Passed").await;
    assert_eq!(get(&stage.client, THINGS).await.0, 200);
    // A bundle that is none: the condition stays, and every request says why.
    patch(&api_service, json!({"spec": {"caBundle": "bm9uZQ==", "insecureSkipTLSVerify": null}}))
        .await;
    let wrong = "unable to load root certificates: unable to parse bytes as PEM block\n";
    let look = async || get(&stage.client, THINGS).await;
    until("the bundle is wrong", look, |found| *found == (500, wrong.to_owned())).await;
    patch(&api_service, json!({"spec": {"caBundle": stage.ca.bundle()}})).await;
    let look = async || get(&stage.client, THINGS).await.0;
    until("the bundle is right", look, |code| *code == 200).await;

    // The server is away.
    let mut extension = stage.extension;
    extension.stop_listening().await;
    let (code, refused) = get(&stage.client, THINGS).await;
    assert_eq!(code, 503);
    let refused = refused.trim_start_matches("error trying to reach service: dial tcp ");
    assert!(refused.ends_with(&format!(":{port}: connect: connection refused\n")), "{refused}");
    stage.extension = extension;
    stage.served.stop().await;
}

#[tokio::test]
async fn server_gets_the_trace_of_the_request() {
    let tracer = Tracer::new(Sampling::NEVER, Clock::wall(), 1);
    let queue = tracer.queue().clone();
    let stage = Stage::of(|plane| plane.tracer(tracer)).await;
    stage.register().await;
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let sent = format!("00-{trace}-b7ad6b7169203331-01");
    let request = Request::get(THINGS).header("user-agent", "test").header("traceparent", &sent);
    let answer = stage.client.send(request.body(Vec::new().into()).unwrap()).await.unwrap();
    assert_eq!(answer.status(), 200);
    drop(answer);
    let seen = stage.extension.take();
    let seen = seen.iter().find(|seen| seen.header("user-agent") == "test").unwrap();
    let seen = seen.header("traceparent");
    assert!(seen.starts_with(&format!("00-{trace}-")) && seen != sent, "{seen}");
    let ended = async || queue.take(usize::MAX);
    let name = "GET /apis/ext.example.com/v1/namespaces/{:namespace}/things";
    let is_over = |spans: &Vec<EndedSpan>| {
        spans.iter().any(|span| span.name == name && span.context.to_string() == seen)
    };
    until("the span of the request", ended, is_over).await;
    stage.served.stop().await;
}

#[tokio::test]
async fn upgrades_reach_the_server() {
    let stage = Stage::new().await;
    stage.register().await;
    stage.extension.set(Mode::Echo);
    let address = stage.served.insecure.clone().unwrap();
    let mut connection = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "GET {THINGS}/a/exec?command=x HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
    );
    connection.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(connection.read_u8().await.unwrap());
    }
    let answer = String::from_utf8(answer).unwrap().to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 101 "), "{answer}");
    assert!(answer.contains("upgrade: spdy/3.1"), "{answer}");
    for word in [&b"hello"[..], b"again"] {
        connection.write_all(word).await.unwrap();
        let mut back = [0; 5];
        connection.read_exact(&mut back).await.unwrap();
        assert_eq!(back, word);
    }
    let seen = stage.extension.take();
    let seen = seen.iter().find(|seen| seen.path.contains("/exec")).unwrap();
    assert_eq!(seen.header("x-remote-user"), "system:unsecured");
    assert_eq!(seen.header("x-forwarded-uri"), "");
    // An answer that is no upgrade.
    stage.extension.set(Mode::Code(403));
    let mut refused = TcpStream::connect(stage.served.insecure.clone().unwrap()).await.unwrap();
    refused.write_all(head.as_bytes()).await.unwrap();
    let mut first = [0; 12];
    refused.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 403");
    // The end of the server ends the connection.
    stage.served.stop().await;
    assert_eq!(connection.read(&mut [0; 1]).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn namespace_deletion_says_which_group_it_waits_for() {
    let stage = Stage::new().await;
    stage.create(SERVICES, &stage.api_service()).await;
    stage.available("False", "ServiceNotFound").await;
    let path = "/api/v1/namespaces/waits";
    stage.create("/api/v1/namespaces", &json!({"metadata": {"name": "waits"}})).await;
    assert_eq!(stage.send("DELETE", path, &Value::Null).await.0, 200);
    let look = async || {
        let namespace = get_json(&stage.client, path, JSON).await;
        let conditions = namespace["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let wanted = |condition: &Value| condition["type"] == "NamespaceDeletionDiscoveryFailure";
        conditions.into_iter().find(wanted).unwrap_or_default()
    };
    let found = until("it waits", look, |found| found["status"] == "True").await;
    let message = "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: ext.example.com/v1: stale GroupVersion discovery: ext.example.com/v1";
    assert_eq!((&found["reason"], &found["message"]), (&json!("DiscoveryFailed"), &json!(message)));
    stage.create_service().await;
    stage.available("True", "Passed").await;
    let gone = async || get(&stage.client, path).await.0;
    until("it is gone", gone, |code| *code == 404).await;
    stage.served.stop().await;
}

#[tokio::test(start_paused = true)]
async fn objects_without_a_service_order_and_list_groups() {
    with_person(async |person| {
        let client = &person.client;
        let legacy = async || -> Vec<String> {
            let groups = get_json(client, "/apis", JSON).await;
            let groups = groups["groups"].as_array().unwrap().iter();
            groups.map(|group| group["name"].as_str().unwrap().to_owned()).collect()
        };
        let aggregated = async || -> Vec<String> {
            let groups = get_json(client, "/apis", AGGREGATED).await;
            let groups = groups["items"].as_array().unwrap().iter();
            groups.map(|group| group["metadata"]["name"].as_str().unwrap().to_owned()).collect()
        };
        let before = legacy().await;
        assert_eq!(before[..2], ["apiregistration.k8s.io", "apps"]);
        assert_eq!(aggregated().await, before);
        // A group that nobody serves.
        let local = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": "v1.nobody.io"}, "spec": {"group": "nobody.io", "version": "v1",
                "groupPriorityMinimum": 17_790, "versionPriority": 1}});
        person.create(SERVICES, &local).await;
        until("it is listed", legacy, |names| names.contains(&"nobody.io".to_owned())).await;
        assert_eq!(legacy().await[..3], ["apiregistration.k8s.io", "apps", "nobody.io"]);
        assert_eq!(aggregated().await, before);
        assert_eq!(get(client, "/apis/nobody.io").await.0, 200);
        assert_eq!(get(client, "/apis/nobody.io/v1").await.0, 404);
        // The object of a group of this server.
        person
            .patch(
                &format!("{SERVICES}/v1.batch"),
                &json!({"spec": {"groupPriorityMinimum": 19_000}}),
            )
            .await;
        until("it is first", legacy, |names| names[1] == "batch").await;
        assert_eq!(aggregated().await[1], "batch");
        person.delete(&format!("{SERVICES}/v1.batch"), "Background").await;
        until("it is not listed", legacy, |names| !names.contains(&"batch".to_owned())).await;
        assert_eq!(get(client, "/apis/batch").await.0, 200);
        assert_eq!(get(client, "/apis/batch/v1/jobs").await.0, 200);
        assert!(aggregated().await.contains(&"batch".to_owned()));
    })
    .await;
}

/// Needs kubectl, as the tests of clients do; without it there is nothing to see.
#[tokio::test]
async fn kubectl_works_through_the_control_plane() {
    let Some(binary) = std::env::var_os("SETPOINT_TEST_KUBECTL") else { return };
    let mut stage = Stage::new().await;
    stage.register().await;
    let config = stage.dir.path().join("host.kubeconfig");
    let cache = stage.dir.path().join("cache");
    let kubectl = async |words: &str, input: &Value| -> (bool, String) {
        let mut command = tokio::process::Command::new(&binary);
        command.arg("--kubeconfig").arg(&config).arg("--cache-dir").arg(&cache);
        command.args(words.split(' ')).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut stdin = process.stdin.take().unwrap();
        stdin.write_all(input.to_string().as_bytes()).await.unwrap();
        drop(stdin);
        let output = process.wait_with_output().await.unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    };
    let none = Value::Null;
    let (_, resources) = kubectl("api-resources --api-group=ext.example.com", &none).await;
    let words: Vec<&str> = resources.split_whitespace().skip(5).collect();
    assert_eq!(words, ["things", "th", "ext.example.com/v1", "true", "Thing"], "{resources}");
    let (_, explained) = kubectl("explain things.spec", &none).await;
    assert!(explained.contains("How large it is."), "{explained}");
    let applied = kubectl("apply -f -", &thing("a")).await;
    assert_eq!(applied, (true, "thing.ext.example.com/a created\n".to_owned()));
    let (_, got) = kubectl("get th -o name", &none).await;
    assert_eq!(got, "thing.ext.example.com/a\n");
    let (_, services) = kubectl("get apiservices v1.ext.example.com --no-headers", &none).await;
    let words: Vec<&str> = services.split_whitespace().take(3).collect();
    assert_eq!(words, ["v1.ext.example.com", "ext/api", "True"]);
    stage.extension.stop_listening().await;
    let (is_ok, refused) = kubectl("get things", &none).await;
    let message = "the server is currently unable to handle the request";
    assert!(!is_ok && refused.contains(message), "{refused}");
    assert!(kubectl("get namespaces", &none).await.0);
    stage.served.stop().await;
}
