//! Servers of one store that serve different resources.

use crate::server::Server;
use crate::start::write_certificates;
use crate::two::{ask, client, eventually, serve_with, text};
use futures::TryStreamExt as _;
use kube_client::Client;
use serde_json::{Value, json};
use setpoint_store_etcd::testing::Cluster;
use std::path::Path;

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A server without one group version, whose peers know its proxy and its certificate.
fn serve_without(cluster: &Cluster, folder: &Path, disabled: &str) -> Server {
    let path = |name: &str| folder.join(name).display().to_string();
    let (pki, ca, own) = (path("pki"), path("ca.pem"), path("pki/ca.crt"));
    let (certificate, key) = (path("client.pem"), path("client-key.pem"));
    let config = format!("{disabled}=false");
    serve_with(
        cluster,
        &[
            "--cert-dir",
            &pki,
            "--peer-ca-file",
            &own,
            "--proxy-client-cert-file",
            &certificate,
            "--proxy-client-key-file",
            &key,
            "--requestheader-client-ca-file",
            &ca,
            "--requestheader-username-headers",
            "X-Remote-User",
            "--requestheader-group-headers",
            "X-Remote-Group",
            "--runtime-config",
            &config,
        ],
    )
}

/// Whether the discovery of a server has a group version.
async fn discovers(client: &Client, accept: &str, (group, version): (&str, &str)) -> bool {
    let request = http::Request::get("/apis").header("accept", accept).body(Vec::new()).unwrap();
    let list: Value = client.request(request).await.unwrap();
    let mut groups = list["items"].as_array().unwrap().iter();
    groups.any(|found| {
        let mut versions = found["versions"].as_array().unwrap().iter();
        found["metadata"]["name"] == group && versions.any(|found| found["version"] == version)
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_passes_on_what_only_another_one_serves() {
    let cluster = Cluster::start(1).await;
    let folder = tempfile::tempdir().unwrap();
    write_certificates(folder.path());
    // The first one makes the CA of both.
    let (first, second) = {
        let start =
            serve_with(&cluster, &["--cert-dir", &folder.path().join("pki").display().to_string()]);
        drop(start);
        let first = serve_without(&cluster, folder.path(), "apps/v1");
        (first, serve_without(&cluster, folder.path(), "batch/v1"))
    };
    let (at_first, at_second) = (client(&first), client(&second));

    // A write, a list and a watch.
    let containers = json!([{"name": "c", "image": "i"}]);
    let pod = json!({"spec": {"containers": containers, "restartPolicy": "Never"}});
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": pod},
    });
    let made = ask(&at_second, "POST", JOBS, Some(&job)).await.unwrap();
    let list = ask(&at_second, "GET", JOBS, None).await.unwrap();
    assert_eq!(list["items"][0]["metadata"]["uid"], made["metadata"]["uid"]);
    let request = http::Request::get(format!("{JOBS}?watch=true")).body(Vec::new()).unwrap();
    let events = at_second.request_events::<Value>(request).await.unwrap();
    let mut events = std::pin::pin!(events);
    let first_event = serde_json::to_value(events.try_next().await.unwrap().unwrap()).unwrap();
    assert_eq!(first_event["object"]["metadata"]["name"], "j");

    // The other way round, once the first one has asked again.
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    eventually("the first server knows the second", async || {
        ask(&at_first, "GET", deployments, None).await.ok()
    })
    .await;

    // A request that has been passed on is not passed on again, nor one that nobody serves.
    let looped = http::Request::get(JOBS).header("x-kubernetes-peer-proxied", "true");
    let looped = at_second.request::<Value>(looped.body(Vec::new()).unwrap()).await;
    assert!(looped.is_err());
    assert_eq!(text(&at_second, "/apis/batch/v7/jobs").await.0, 404);

    // Discovery has both, unless only one server is asked for.
    for (client, missing) in [(&at_first, ("apps", "v1")), (&at_second, ("batch", "v1"))] {
        assert!(discovers(client, AGGREGATED, missing).await);
        assert!(!discovers(client, &format!("{AGGREGATED};profile=nopeer"), missing).await);
    }
    let (_, page) = text(&at_second, "/metrics").await;
    let counted = r#"apiserver_rerouted_request_total{code="201",group="batch",version="v1",resource="jobs"} 1"#;
    assert!(page.contains(counted), "{page}");

    // A peer that is gone is an error, and is forgotten.
    drop(first);
    eventually("the peer is forgotten", async || {
        let (code, text) = text(&at_second, JOBS).await;
        assert!([503, 404].contains(&code), "{code} {text}");
        (code == 404).then_some(())
    })
    .await;
}
