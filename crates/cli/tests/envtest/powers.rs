//! What envtest lacks: recorded requests, faults, and control planes of one process.

use crate::harness::{PATIENCE, Start, client, tls_status};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Service};
use kube_client::Client;
use kube_client::api::{Api, DeleteParams, PostParams, WatchParams};
use serde_json::{Value, json};
use std::net::Ipv4Addr;

/// A request to a page; returns its document.
async fn page(client: &Client, method: &str, path: &str, body: Value) -> Value {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let uri = format!("/setpoint/{path}");
    let request = http::Request::builder().method(method).uri(uri).body(body).unwrap();
    client.request(request).await.unwrap()
}

/// Waits until nobody listens on a port. The clients of this thread go on meanwhile.
async fn closed(port: u16) {
    let wait = async {
        while tokio::task::spawn_blocking(move || tls_status(port, "/readyz")).await.unwrap() != 0 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("the port is closed");
}

fn named(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

fn maps(client: &Client) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), "default")
}

fn code<T>(result: Result<T, kube_client::Error>) -> Option<u16> {
    match result {
        Ok(_) => None,
        Err(kube_client::Error::Api(status)) => Some(status.code),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn requests_are_recorded_for_assertions() {
    let environment = Start::default().start();
    let admin = environment.admin().await;
    let jane = environment.client(&environment.authorities.user("jane", &["system:masters"])).await;
    page(&admin, "POST", "requests", Value::Null).await;
    maps(&jane).create(&PostParams::default(), &named("a")).await.unwrap();
    assert_eq!(code(maps(&jane).get("b").await), Some(404));
    maps(&admin).get("a").await.unwrap();
    let recorded = page(&admin, "GET", "requests?user=jane", Value::Null).await;
    let lines: Vec<String> = recorded["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| format!("{} {} {} {}", one["verb"], one["resource"], one["name"], one["code"]))
        .collect();
    assert_eq!(lines, [r#""create" "configmaps" "" 201"#, r#""get" "configmaps" "b" 404"#,]);
    // Only texts were compared, and as they were sent: such a list was empty.
    let missing = page(&admin, "GET", "requests?code=404&user=ja%6Ee", Value::Null);
    assert_eq!(missing.await["items"].as_array().unwrap().len(), 1);
    page(&admin, "DELETE", "requests", Value::Null).await;
    maps(&jane).get("a").await.unwrap();
    let recorded = page(&admin, "GET", "requests", Value::Null).await;
    assert_eq!((&recorded["recording"], &recorded["items"]), (&json!(false), &json!([])));
}

#[tokio::test]
async fn faults_hit_the_requests_that_they_match_and_no_others() {
    let environment = Start::default().start();
    let admin = environment.admin().await;
    let jane = environment.client(&environment.authorities.user("jane", &["system:masters"])).await;
    let fault = json!({"match": {"user": "jane", "verb": "create", "resource": "configmaps"}, "status": 409, "times": 2});
    page(&admin, "POST", "faults", fault).await;
    let create = async |client: &Client, name: &str| {
        code(maps(client).create(&PostParams::default(), &named(name)).await)
    };
    assert_eq!(create(&admin, "a").await, None);
    assert_eq!(create(&jane, "b").await, Some(409));
    assert_eq!(create(&jane, "b").await, Some(409));
    assert_eq!(create(&jane, "b").await, None);
    let listed = page(&admin, "GET", "faults", Value::Null).await;
    assert_eq!(listed["items"], json!([{"id": 1, "hits": 2, "left": 0}]));
    for status in [429, 410, 500, 503] {
        page(&admin, "DELETE", "faults", Value::Null).await;
        let fault = json!({"match": {"user": "jane"}, "status": status, "times": 1});
        page(&admin, "POST", "faults", fault).await;
        // A client may repeat some of them by itself.
        let request = http::Request::get("/api/v1/namespaces").body(Vec::new()).unwrap();
        let result = jane.request::<Value>(request).await;
        assert!(result.is_ok() || code(result) == Some(status), "{status}");
    }
    // One request asks for its own.
    let request = http::Request::get("/api/v1/namespaces/default")
        .header("setpoint-fault", "status=409,delay=1ms");
    let result = admin.request::<Value>(request.body(Vec::new()).unwrap()).await;
    assert_eq!(code(result), Some(409));
    // Nobody else may use the pages.
    let joe = environment.client(&environment.authorities.user("joe", &["devs"])).await;
    let request = http::Request::get("/setpoint/faults").body(Vec::new()).unwrap();
    assert_eq!(code(joe.request::<Value>(request).await), Some(403));
}

#[tokio::test]
async fn a_watch_is_dropped_behind_its_events() {
    let environment = Start::default().start();
    let admin = environment.admin().await;
    for name in ["a", "b", "c"] {
        maps(&admin).create(&PostParams::default(), &named(name)).await.unwrap();
    }
    let fault = json!({"match": {"verb": "watch", "resource": "configmaps", "namespace": "default"}, "dropAfter": 2, "times": 1});
    page(&admin, "POST", "faults", fault).await;
    let names = async || -> usize {
        let events = maps(&admin).watch(&WatchParams::default().timeout(1), "0").await.unwrap();
        events.try_collect::<Vec<_>>().await.unwrap().len()
    };
    assert_eq!(names().await, 2);
    assert!(names().await >= 3, "only once");
}

#[tokio::test]
async fn planes_are_apart_and_gone_when_they_are_deleted() {
    let environment = Start::default().start();
    let admin = environment.admin().await;
    let first = page(&admin, "POST", "planes", Value::Null).await;
    let second = page(&admin, "POST", "planes", Value::Null).await;
    let one = client(first["kubeconfig"].as_str().unwrap()).await;
    let two = client(second["kubeconfig"].as_str().unwrap()).await;
    maps(&one).create(&PostParams::default(), &named("a")).await.unwrap();
    assert_eq!(code(maps(&two).get("a").await), Some(404));
    assert_eq!(code(maps(&admin).get("a").await), Some(404));
    let listed = page(&admin, "GET", "planes", Value::Null).await;
    assert_eq!(listed["items"].as_array().unwrap().len(), 2);
    page(&admin, "DELETE", "planes/1", Value::Null).await;
    // At once, though it takes a moment to end.
    let listed = page(&admin, "GET", "planes", Value::Null).await;
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    let port: u16 = first["url"].as_str().unwrap().rsplit(':').next().unwrap().parse().unwrap();
    closed(port).await;
    maps(&two).list(&Default::default()).await.unwrap();
}

#[tokio::test]
async fn a_plane_ends_with_the_answer_that_follows_it() {
    let mut environment = Start::default().start();
    let admin = environment.admin().await;
    let request = http::Request::post("/setpoint/planes").body(br#"{"follow": true}"#.to_vec());
    let body = kube_client::client::Body::from(request.as_ref().unwrap().body().clone());
    let answer = admin.send(request.unwrap().map(|_| body)).await.unwrap();
    let mut frames = http_body_util::BodyStream::new(answer.into_body());
    let line = frames.next().await.unwrap().unwrap().into_data().unwrap();
    let plane: Value = serde_json::from_slice(&line).unwrap();
    let one = client(plane["kubeconfig"].as_str().unwrap()).await;
    Api::<Namespace>::all(one).get("default").await.unwrap();
    let port: u16 = plane["url"].as_str().unwrap().rsplit(':').next().unwrap().parse().unwrap();
    drop(frames);
    closed(port).await;
    // One that is still followed does not hold up the end.
    let request = http::Request::post("/setpoint/planes");
    let body = kube_client::client::Body::from(br#"{"follow": true}"#.to_vec());
    let _answer = admin.send(request.body(body).unwrap()).await.unwrap();
    assert!(environment.api_server.terminate().success());
}

/// 14 of the 30 addresses are given before the others, which are for Services that ask for one.
#[tokio::test]
async fn services_get_addresses_of_the_range_and_a_reset_frees_them() {
    let environment = Start::default()
        .without("service-cluster-ip-range")
        .flag("--service-cluster-ip-range=10.96.7.0/27,fd00::/108")
        .start();
    let admin = environment.admin().await;
    let services = |client: &Client| Api::<Service>::namespaced(client.clone(), "default");
    let address = |service: Service| -> Ipv4Addr {
        service.spec.unwrap().cluster_ip.unwrap().parse().unwrap()
    };
    let kubernetes = services(&admin).get("kubernetes").await.unwrap();
    assert_eq!(address(kubernetes), Ipv4Addr::new(10, 96, 7, 1));
    page(&admin, "POST", "planes", Value::Null).await;
    let plane = page(&admin, "POST", "planes", Value::Null).await;
    let one = client(plane["kubeconfig"].as_str().unwrap()).await;
    page(&admin, "POST", "planes/2/snapshot", json!({"name": "start"})).await;
    let last_of_next = async |turn: usize| {
        let service =
            json!({"metadata": {"name": format!("s{turn}")}, "spec": {"ports": [{"port": 80}]}});
        let service = serde_json::from_value(service).unwrap();
        let made = services(&one).create(&PostParams::default(), &service).await.unwrap();
        let address = address(made).octets();
        assert_eq!(address[..3], [10, 96, 7]);
        address[3]
    };
    for turn in 0..14 {
        assert!(last_of_next(turn).await > 16, "the addresses that nobody asks for come first");
    }
    assert!(last_of_next(14).await <= 16);
    page(&admin, "POST", "planes/2/reset", json!({"name": "start"})).await;
    assert!(last_of_next(15).await > 16, "they are free again");
    // The second network is for Services of both families.
    let both = json!({
        "metadata": {"name": "both"},
        "spec": {"ipFamilyPolicy": "RequireDualStack", "ports": [{"port": 80}]},
    });
    let both = serde_json::from_value(both).unwrap();
    let made = services(&one).create(&PostParams::default(), &both).await.unwrap();
    let addresses = made.spec.unwrap().cluster_ips.unwrap();
    assert!(addresses[0].starts_with("10.96.7.") && addresses[1].starts_with("fd00::"));
}

#[tokio::test]
async fn a_reset_brings_a_snapshot_back_as_changes() {
    let environment = Start::default().start();
    let admin = environment.admin().await;
    let plane = page(&admin, "POST", "planes", Value::Null).await;
    let one = client(plane["kubeconfig"].as_str().unwrap()).await;
    maps(&one).create(&PostParams::default(), &named("stays")).await.unwrap();
    let kept = maps(&one).create(&PostParams::default(), &named("deleted")).await.unwrap();
    page(&admin, "POST", "planes/1/snapshot", json!({"name": "start"})).await;
    let newest = maps(&one).list(&Default::default()).await.unwrap();
    let newest = newest.metadata.resource_version.unwrap();
    let mut events = maps(&one).watch(&WatchParams::default(), &newest).await.unwrap().boxed();
    maps(&one).delete("deleted", &DeleteParams::default()).await.unwrap();
    maps(&one).create(&PostParams::default(), &named("new")).await.unwrap();
    let reset = page(&admin, "POST", "planes/1/reset", json!({"name": "start"})).await;
    assert!(reset["changed"].as_u64().unwrap() >= 2, "{reset}");
    // The watch goes on and sees it.
    let mut seen = Vec::new();
    while seen.len() < 4 {
        use kube_client::core::WatchEvent::{Added, Deleted};
        match events.try_next().await.unwrap().unwrap() {
            Added(map) => seen.push(format!("+{}", map.metadata.name.unwrap())),
            Deleted(map) => seen.push(format!("-{}", map.metadata.name.unwrap())),
            _ => {}
        }
    }
    seen[2..].sort();
    assert_eq!(seen, ["-deleted", "+new", "+deleted", "-new"]);
    assert_eq!(maps(&one).get("deleted").await.unwrap().metadata.uid, kept.metadata.uid);
    assert_eq!(code(maps(&one).get("new").await), Some(404));
    // Writes go on.
    maps(&one).create(&PostParams::default(), &named("new")).await.unwrap();
}

#[tokio::test]
async fn the_time_of_a_plane_is_advanced_and_its_controllers_follow() {
    let environment = Start::default()
        .variable("SETPOINT_CONTROLLERS", "*")
        .variable("SETPOINT_NODES", "1")
        .start();
    let admin = environment.admin().await;
    page(&admin, "POST", "planes", Value::Null).await;
    let plane = page(&admin, "POST", "planes", json!({"virtualTime": true})).await;
    let one = client(plane["kubeconfig"].as_str().unwrap()).await;
    let created = async |name: &str| {
        let map = maps(&one).create(&PostParams::default(), &named(name)).await.unwrap();
        map.metadata.creation_timestamp.unwrap().0.as_second()
    };
    let before = created("before").await;
    let every_hour: CronJob = serde_json::from_value(json!({
        "metadata": {"name": "hourly"},
        "spec": {
            "schedule": "0 * * * *",
            "jobTemplate": {"spec": {"template": {"spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "c", "image": "busybox", "command": ["sleep", "60"]}],
            }}}},
        },
    }))
    .unwrap();
    let jobs = Api::<CronJob>::namespaced(one.clone(), "default");
    jobs.create(&PostParams::default(), &every_hour).await.unwrap();
    // A connection without a request stays open, and so does one that is just made.
    let _idle = client(plane["kubeconfig"].as_str().unwrap()).await;
    let reached =
        page(&admin, "POST", "planes/2/advance", json!({"seconds": 4 * 60 * 60 + 300})).await;
    let after = created("after").await;
    assert!((4 * 3600 + 300..5 * 3600).contains(&(after - before)), "{before} {after} {reached}");
    let text = |seconds| k8s_openapi::jiff::Timestamp::from_second(seconds).unwrap().to_string();
    let reached = reached["time"].as_str().unwrap();
    assert!(*text(before) < *reached && *reached <= *text(after + 1), "{reached}");
    // Three that have succeeded are kept.
    let finished = async {
        loop {
            let all = Api::<Job>::namespaced(one.clone(), "default");
            let all = all.list(&Default::default()).await.unwrap().items;
            let is_done = |job: &Job| job.status.as_ref().is_some_and(|s| s.succeeded == Some(1));
            if all.iter().filter(|job| is_done(job)).count() == 3 {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, finished).await.expect("the jobs of three hours");
    // It is refused where time passes as that of the machine, and beyond a week.
    for (path, seconds) in [("planes/1/advance", 1), ("planes/2/advance", 604_801)] {
        let body = json!({"seconds": seconds}).to_string().into_bytes();
        let request = http::Request::post(format!("/setpoint/{path}")).body(body).unwrap();
        assert_eq!(code(admin.request::<Value>(request).await), Some(400), "{path}");
    }
}

#[tokio::test]
async fn node_ports_and_served_versions_are_those_of_the_flags() {
    let environment = Start::default()
        .flag("--service-node-port-range=31000-31000")
        .flag("--runtime-config=batch/v1=false")
        .start();
    let admin = environment.admin().await;
    // Those of a further control plane, too.
    let plane = page(&admin, "POST", "planes", Value::Null).await;
    let other = client(plane["kubeconfig"].as_str().unwrap()).await;
    for client in [&admin, &other] {
        let service = json!({
            "metadata": {"name": "s"},
            "spec": {"type": "NodePort", "ports": [{"port": 80}]},
        });
        let service = serde_json::from_value(service).unwrap();
        let services = Api::<Service>::namespaced(client.clone(), "default");
        let made = services.create(&PostParams::default(), &service).await.unwrap();
        let ports = made.spec.unwrap().ports.unwrap();
        assert_eq!(ports[0].node_port, Some(31_000));
        assert_eq!(
            code(Api::<Job>::all(client.clone()).list(&Default::default()).await),
            Some(404)
        );
    }
}
