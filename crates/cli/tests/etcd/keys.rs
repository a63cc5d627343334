//! The content of etcd: other programs read what setpoint wrote, and setpoint reads what they
//! wrote.

use crate::protobuf::{packed, unversioned};
use crate::two::{ask, client, eventually, maps, serve, serve_with, text};
use futures::{StreamExt as _, TryStreamExt as _};
use kube_client::api::{WatchEvent, WatchParams};
use serde_json::{Value, json};
use setpoint_store_etcd::testing::Cluster;
use std::io::Write as _;
use std::process::Stdio;

pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Runs etcdctl with an input and returns its output.
pub(crate) fn etcdctl(cluster: &Cluster, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut etcdctl = cluster.etcdctl().expect("etcdctl is installed");
    etcdctl.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = etcdctl.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "etcdctl {arguments:?}");
    output.stdout
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcdctl_reads_our_keys() {
    let cluster = Cluster::start(1).await;
    let server = serve(&cluster);
    let client = client(&server);
    let map = json!({"metadata": {"name": "x", "labels": {"a": "b"}}, "data": {"k": "v"}});
    let made = ask(&client, "POST", MAPS, Some(&map)).await.unwrap();
    let value = value(&cluster);
    assert_eq!(value.trim_ascii_end(), packed(&unversioned(made)).trim_ascii_end());
    let keys = etcdctl(&cluster, &["get", "--prefix", "--keys-only", "/"], b"");
    let keys = String::from_utf8(keys).unwrap();
    for key in [
        "/registry/namespaces/default",
        "/registry/services/specs/default/kubernetes",
        "/registry/leases/kube-system/setpoint-controllers",
    ] {
        assert!(keys.lines().any(|line| line == key), "{key}: {keys}");
    }
    let others: Vec<&str> =
        keys.lines().filter(|key| !key.is_empty() && !key.starts_with("/registry/")).collect();
    assert_eq!(others, Vec::<&str>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_stored_in_json_if_that_is_asked_for() {
    let cluster = Cluster::start(1).await;
    let json = ["--storage-media-type", "application/json"];
    let made = {
        let server = serve_with(&cluster, &json);
        let map = json!({"metadata": {"name": "x", "labels": {"a": "b"}}, "data": {"k": "v"}});
        ask(&client(&server), "POST", MAPS, Some(&map)).await.unwrap()
    };
    let stored: Value = serde_json::from_slice(&value(&cluster)).unwrap();
    let made = unversioned(made);
    assert_eq!(stored, made, "the object as it was answered, but for its revision");
    // A write that changes nothing stores it as the server does now.
    let server = serve(&cluster);
    let client = client(&server);
    let found = ask(&client, "GET", &format!("{MAPS}/x"), None).await.unwrap();
    ask(&client, "PUT", &format!("{MAPS}/x"), Some(&found)).await.unwrap();
    assert_eq!(value(&cluster).trim_ascii_end(), packed(&made).trim_ascii_end());
}

/// The stored value of the ConfigMap `x`, and a line break.
fn value(cluster: &Cluster) -> Vec<u8> {
    etcdctl(cluster, &["get", "--print-value-only", "/registry/configmaps/default/x"], b"")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn json_objects_of_another_tool_are_served_changed_and_deleted() {
    let cluster = Cluster::start(1).await;
    let server = serve(&cluster);
    let client = client(&server);
    let mut events = maps(&client).watch(&WatchParams::default(), "0").await.unwrap().boxed();
    // As a kube-apiserver with --storage-media-type=application/json encodes it.
    let theirs = concat!(
        r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"theirs","namespace":"default","#,
        r#""uid":"5a1f3c5e-0000-4000-8000-000000000001","creationTimestamp":"2026-11-20T10:00:00Z","#,
        r#""managedFields":[{"manager":"kubectl-create","operation":"Update","apiVersion":"v1","#,
        r#""time":"2026-11-20T10:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:data":{".":{},"f:a":{}}}}]},"#,
        r#""data":{"a":"b"}}"#,
        "\n"
    );
    etcdctl(&cluster, &["put", "/registry/configmaps/default/theirs"], theirs.as_bytes());
    let received = loop {
        match events.try_next().await.unwrap() {
            // Every namespace has one.
            Some(WatchEvent::Added(other))
                if other.metadata.name.as_deref() == Some("kube-root-ca.crt") => {}
            Some(WatchEvent::Added(received)) => break received,
            // The end of the initial events.
            Some(WatchEvent::Bookmark(_)) => {}
            other => panic!("an addition, not {other:?}"),
        }
    };
    assert_eq!(received.metadata.name.as_deref(), Some("theirs"));
    let path = format!("{MAPS}/theirs");
    let got = ask(&client, "GET", &path, None).await.unwrap();
    assert_eq!(got["data"], json!({"a": "b"}));
    assert_eq!(
        got["metadata"]["resourceVersion"].as_str(),
        received.metadata.resource_version.as_deref()
    );
    let patch = json!({"data": {"c": "d"}});
    let patched = ask(&client, "PATCH", &path, Some(&patch)).await.unwrap();
    assert_eq!(patched["data"], json!({"a": "b", "c": "d"}));
    assert_eq!(patched["metadata"]["managedFields"][0]["manager"], "kubectl-create");
    ask(&client, "DELETE", &path, None).await.unwrap();
    assert_eq!(etcdctl(&cluster, &["get", "/registry/configmaps/default/theirs"], b""), b"");

    // A protobuf value of an unknown kind is reported as an error and does not affect other kinds.
    etcdctl(
        &cluster,
        &["put", "/registry/configmaps/default/binary"],
        b"k8s\0\n\x0f\n\x02v1\x12\x09ConfigMop",
    );
    let (code, body) = text(&client, &format!("{MAPS}/binary")).await;
    assert!(code == 500 && body.contains("is encoded in protobuf"), "{code} {body}");
    let said = async || {
        let (code, body) = text(&client, MAPS).await;
        (code == 500 && body.contains("is encoded in protobuf")).then_some(())
    };
    eventually("a list says so", said).await;
    ask(&client, "GET", "/api/v1/namespaces/default/secrets", None).await.unwrap();
    etcdctl(&cluster, &["del", "/registry/configmaps/default/binary"], b"");
    eventually("the list is well again", async || {
        (text(&client, MAPS).await.0 == 200).then_some(())
    })
    .await;
}
