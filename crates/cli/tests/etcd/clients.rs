//! Two servers over one etcd, as clients see them: writes through one server are visible at the
//! other.

use crate::server::{Server, part};
use crate::two::{ask, client, eventually, maps, serve, summary};
use crate::writers::revision;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::api::{WatchEvent, WatchParams};
use network::api::CRD_YAML;
use serde_json::{Value, json};
use setpoint_store_etcd::testing::Cluster;
use std::process::Command;
use std::time::Instant;

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const NETWORKS: &str = "/apis/samplecrd.k8s.io/v1/namespaces/default/networks";

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_through_one_server_are_visible_at_the_other_at_once() {
    let cluster = Cluster::start(3).await;
    let (a, b) = (serve(&cluster), serve(&cluster));
    let (a, b) = (client(&a), client(&b));
    let from = revision(&b).await;
    let mut events =
        maps(&b).watch(&WatchParams::default(), &from.to_string()).await.unwrap().boxed();
    let (mut watched, mut got, mut listed) = (Vec::new(), Vec::new(), Vec::new());
    for i in 0..100 {
        let name = format!("m{i:03}");
        let made = maps(&a).create(&Default::default(), &map(&name)).await.unwrap();
        let written = Instant::now();
        // A get and a list that request no version newer than "now".
        let seen = maps(&b).get(&name).await.unwrap();
        got.push(written.elapsed());
        assert_eq!(seen.metadata.resource_version, made.metadata.resource_version);
        let list = maps(&b).list(&Default::default()).await.unwrap();
        listed.push(written.elapsed());
        assert_eq!(
            list.items.iter().filter(|map| map.metadata.name.as_deref() == Some(&name)).count(),
            1
        );
        assert!(list.metadata.resource_version >= made.metadata.resource_version || i == 0);
    }
    for i in 100..200 {
        let name = format!("m{i:03}");
        maps(&a).create(&Default::default(), &map(&name)).await.unwrap();
        let written = Instant::now();
        loop {
            let Some(WatchEvent::Added(map)) = events.try_next().await.unwrap() else {
                panic!("additions only")
            };
            if map.metadata.name.as_deref() == Some(&name) {
                break;
            }
        }
        watched.push(written.elapsed());
    }
    println!("a write through one server, after its answer:");
    println!("  received by a watch of the other: {}", summary(&mut watched));
    println!("  got from the other, and answered: {}", summary(&mut got));
    println!("  listed after that, and answered: {}", summary(&mut listed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_through_one_server_are_served_by_the_other() {
    let cluster = Cluster::start(1).await;
    let (a, b) = (serve(&cluster), serve(&cluster));
    let (a, b) = (client(&a), client(&b));
    let crd: Value = serde_saphyr::from_str(CRD_YAML).unwrap();
    ask(&a, "POST", CRDS, Some(&crd)).await.unwrap();
    let network = json!({
        "apiVersion": "samplecrd.k8s.io/v1", "kind": "Network", "metadata": {"name": "one"},
        "spec": {"cidr": "10.0.0.0/8", "gateway": "10.0.0.1"},
    });
    let (made, took) = eventually("the other server serves Networks", async || {
        ask(&b, "POST", NETWORKS, Some(&network)).await.ok()
    })
    .await;
    println!("a type defined through one server is served by the other after {took:?}");
    let path = format!("{NETWORKS}/one");
    // Each server follows the definition by itself, so either may be first.
    let got = async || ask(&a, "GET", &path, None).await.ok();
    assert_eq!(eventually("the server serves what it was watched", got).await.0, made);
    ask(&b, "DELETE", &format!("{CRDS}/networks.samplecrd.k8s.io"), None).await.unwrap();
    for server in [&a, &b] {
        let gone = async || {
            let answer = ask(server, "GET", NETWORKS, None).await;
            matches!(answer, Err(kube_client::Error::Api(status)) if status.code == 404)
                .then_some(())
        };
        eventually("Networks are served no more", gone).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_get_unique_addresses_from_both_servers() {
    let cluster = Cluster::start(1).await;
    let (a, b) = (serve(&cluster), serve(&cluster));
    let (a, b) = (client(&a), client(&b));
    let all = "/api/v1/namespaces/default/services";
    // Few ports, so that both servers often draw the same one.
    let create = async |client: &kube_client::Client, prefix: &str| {
        let mut n_refused = 0;
        for i in 0..40 {
            let spec = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30_000 + i}]});
            let service = json!({"metadata": {"name": format!("{prefix}{i}")}, "spec": spec});
            match ask(client, "POST", all, Some(&service)).await {
                Ok(_) => {}
                Err(kube_client::Error::Api(status)) if status.code == 422 => {
                    assert!(status.message.contains("already allocated"), "{status:?}");
                    n_refused += 1;
                }
                Err(error) => panic!("{error}"),
            }
        }
        n_refused
    };
    let (one, two) = tokio::join!(create(&a, "a"), create(&b, "b"));
    assert_eq!(one + two, 40, "each port has one Service");
    let list = ask(&a, "GET", all, None).await.unwrap();
    let addresses: std::collections::BTreeSet<&str> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|service| service["spec"]["clusterIP"].as_str().unwrap())
        .collect();
    assert_eq!(addresses.len(), 41);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_and_the_python_client_work_with_both() {
    let cluster = Cluster::start(1).await;
    let (a, b) = (serve(&cluster), serve(&cluster));
    a.file("deployment.yaml", DEPLOYMENT);
    a.kubectl().ok("apply -f deployment.yaml");
    let shown = b.kubectl().ok("get deployment web -o jsonpath={.spec.replicas}");
    assert_eq!(shown, "2");
    b.kubectl().ok("scale deployment web --replicas=3");
    assert_eq!(a.kubectl().ok("get deployment web -o jsonpath={.spec.replicas}"), "3");
    a.kubectl().ok("create namespace shop");
    b.kubectl().ok("create configmap x -n shop --from-literal=a=b");
    a.kubectl().ok("delete namespace shop");
    assert!(b.kubectl().fails("get namespace shop").contains("not found"));
    for script in ["typed.py", "dynamic.py", "watching.py", "pages.py", "patches.py"] {
        python(&b, script);
    }
}

const DEPLOYMENT: &str = "apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web}]}
";

fn python(server: &Server, script: &str) {
    server.file("crd.yaml", CRD_YAML);
    let path = std::path::absolute(format!("tests/clients/python/{script}")).unwrap();
    let mut python = Command::new(part("SETPOINT_TEST_PYTHON"));
    python.arg(path).env("KUBECONFIG", server.kubeconfig()).current_dir(server.folder.path());
    let output = python.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{script}:\n{}{}", text(&output.stdout), text(&output.stderr));
}
