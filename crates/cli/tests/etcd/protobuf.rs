//! Objects as a kube-apiserver stores them with default settings: built-in kinds in protobuf.

use crate::keys::{MAPS, etcdctl};
use crate::server::Server;
use crate::two::{ask, client, eventually, maps, serve, text};
use crate::writers::revision;
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::api::{WatchEvent, WatchParams};
use network::api::CRD_YAML;
use serde_json::{Value, json};
use setpoint::encryption::{EncryptedStore, EncryptionConfig, NonceSource};
use setpoint::object::time::Clock;
use setpoint::store::{At, Op, Store, Txn};
use setpoint_store_etcd::testing::Cluster;
use std::ffi::OsStr;
use std::sync::Arc;

const NETWORKS: &str = "/apis/samplecrd.k8s.io/v1/namespaces/default/networks";

/// Encodes an object as a kube-apiserver stores it.
pub(crate) fn packed(object: &Value) -> Bytes {
    setpoint_schema::protobuf::object(object.to_string().as_bytes()).unwrap().into()
}

async fn put(store: &dyn Store, key: &str, value: Bytes) {
    let ops = vec![Op::Put(Bytes::from(key.to_owned()), value)];
    store.commit(Txn { ops, ..Txn::default() }).await.unwrap();
}

/// The stored bytes of a key in etcd.
async fn stored(store: &dyn Store, key: &str) -> Bytes {
    store.get(key.as_bytes(), At::Latest).await.unwrap().value.unwrap().value
}

fn metadata(name: &str) -> Value {
    json!({
        "name": name, "namespace": "default", "uid": format!("5a1f3c5e-0000-4000-8000-{name:0>12}"),
        "creationTimestamp": "2026-11-20T10:00:00Z", "labels": {"by": "them"},
    })
}

fn config_map(name: &str, n: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(name), "data": {"n": n}})
}

/// Objects of several kinds: their key in etcd, their API path, and their content.
fn objects() -> Vec<(&'static str, &'static str, Value)> {
    let containers = json!([{
        "name": "web", "image": "web", "imagePullPolicy": "Always", "resources": {"limits": {"cpu": "100m"}},
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        "ports": [{"containerPort": 80, "protocol": "TCP"}],
        "readinessProbe": {
            "httpGet": {"path": "/", "port": "http", "scheme": "HTTP"},
            "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3,
        },
    }]);
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata("web"),
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": 1}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {
                    "containers": containers, "restartPolicy": "Always", "terminationGracePeriodSeconds": 30,
                    "dnsPolicy": "ClusterFirst", "securityContext": {}, "schedulerName": "default-scheduler",
                    "volumes": [{"name": "v", "emptyDir": {}}],
                },
            },
        },
        "status": {},
    });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": metadata("s"), "type": "Opaque", "data": {"k": "/wAB"},
    });
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata("l"),
        "spec": {"holderIdentity": "them", "leaseDurationSeconds": 15, "renewTime": "2026-11-20T10:00:00.000017Z"},
    });
    vec![
        (
            "/registry/deployments/default/web",
            "/apis/apps/v1/namespaces/default/deployments/web",
            deployment,
        ),
        ("/registry/secrets/default/s", "/api/v1/namespaces/default/secrets/s", secret),
        (
            "/registry/leases/default/l",
            "/apis/coordination.k8s.io/v1/namespaces/default/leases/l",
            lease,
        ),
        (
            "/registry/configmaps/default/m",
            "/api/v1/namespaces/default/configmaps/m",
            config_map("m", "1"),
        ),
    ]
}

/// A response without the fields that the store sets.
pub(crate) fn unversioned(mut object: Value) -> Value {
    let metadata = object["metadata"].as_object_mut().unwrap();
    assert!(metadata.remove("resourceVersion").is_some());
    object
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn existing_cluster_is_served() {
    let cluster = Cluster::start(1).await;
    let store = cluster.store().await;
    for (key, _, object) in objects() {
        put(&store, key, packed(&object)).await;
    }
    // A definition is a built-in kind; its objects are JSON.
    let mut crd: Value = serde_saphyr::from_str(CRD_YAML).unwrap();
    crd["metadata"]["uid"] = "5a1f3c5e-0000-4000-8000-00000000000c".into();
    let key = "/registry/apiextensions.k8s.io/customresourcedefinitions/networks.samplecrd.k8s.io";
    put(&store, key, packed(&crd)).await;

    let server = serve(&cluster);
    let client = client(&server);
    for (key, path, object) in objects() {
        let got = ask(&client, "GET", path, None).await.unwrap();
        assert_eq!(unversioned(got.clone()), object);
        let (all, _) = path.rsplit_once('/').unwrap();
        let list = ask(&client, "GET", &format!("{all}?labelSelector=by%3Dthem"), None).await;
        let mut item = got;
        for member in ["apiVersion", "kind"] {
            item.as_object_mut().unwrap().remove(member);
        }
        let listed = list.unwrap()["items"][0].clone();
        let same = |member: &str| assert_eq!(listed[member], item[member], "{key}");
        ["metadata", "spec", "data", "status"].into_iter().for_each(same);
    }
    let network = json!({
        "apiVersion": "samplecrd.k8s.io/v1", "kind": "Network", "metadata": {"name": "one"},
        "spec": {"cidr": "10.0.0.0/8", "gateway": "10.0.0.1"},
    });
    eventually("Networks are served", async || {
        ask(&client, "POST", NETWORKS, Some(&network)).await.ok()
    })
    .await;

    // A changed object is stored in protobuf, too.
    let (key, path, _) = &objects()[0];
    assert!(stored(&store, key).await.starts_with(b"k8s\0"));
    server.kubectl().ok("scale deployment web --replicas=3");
    server.kubectl().ok("label deployment web changed=yes");
    let labels = "get deployment web -o jsonpath={.spec.replicas}{.metadata.labels}";
    assert_eq!(server.kubectl().ok(labels), r#"3{"by":"them","changed":"yes"}"#);
    let got = unversioned(ask(&client, "GET", path, None).await.unwrap());
    assert_eq!(stored(&store, key).await, packed(&got));
    let (key, path, _) = &objects()[1];
    ask(&client, "DELETE", path, None).await.unwrap();
    assert!(store.get(key.as_bytes(), At::Latest).await.unwrap().value.is_none());
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_are_watched_in_order() {
    let cluster = Cluster::start(1).await;
    let server = serve(&cluster);
    let client = client(&server);
    let from = revision(&client).await.to_string();
    let watch = WatchParams::default().labels("by=them");
    let mut events = maps(&client).watch(&watch, &from).await.unwrap().boxed();
    let mut next = async || match events.try_next().await.unwrap().unwrap() {
        WatchEvent::Added(map) => ("added", n(&map)),
        WatchEvent::Modified(map) => ("modified", n(&map)),
        WatchEvent::Deleted(map) => ("deleted", n(&map)),
        other => panic!("{other:?}"),
    };
    let key = "/registry/configmaps/default/m";
    let write = |object: &Value| etcdctl(&cluster, &["put", key], &packed(object));
    write(&config_map("m", "1"));
    assert_eq!(next().await, ("added", "1".to_owned()));
    write(&config_map("m", "2"));
    assert_eq!(next().await, ("modified", "2".to_owned()));
    // The object leaves the selection: the event has its previous state, which is in protobuf too.
    let mut other = config_map("m", "3");
    other["metadata"]["labels"] = json!({"by": "others"});
    write(&other);
    assert_eq!(next().await, ("deleted", "2".to_owned()));
    write(&config_map("m", "4"));
    assert_eq!(next().await, ("added", "4".to_owned()));
    let path = format!("{MAPS}/m");
    ask(&client, "PATCH", &path, Some(&json!({"data": {"n": "5"}}))).await.unwrap();
    assert_eq!(next().await, ("modified", "5".to_owned()));
    write(&config_map("m", "6"));
    assert_eq!(next().await, ("modified", "6".to_owned()));
    etcdctl(&cluster, &["del", key], b"");
    assert_eq!(next().await, ("deleted", "6".to_owned()));
}

fn n(map: &ConfigMap) -> String {
    map.data.as_ref().unwrap()["n"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn encrypted_protobuf_is_read_and_plain_protobuf_only_if_identity_is_allowed() {
    const CONFIG: &str = "apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers: [{aesgcm: {keys: [{name: one, secret: AAECAwQFBgcICQoLDA0ODw==}]}}]
- resources: [configmaps]
  providers: [{aesgcm: {keys: [{name: one, secret: AAECAwQFBgcICQoLDA0ODw==}]}}, {identity: {}}]
";
    let cluster = Cluster::start(1).await;
    let etcd = cluster.store().await;
    let config = EncryptionConfig::parse(CONFIG.as_bytes()).unwrap();
    let nonces = NonceSource::new(|bytes| getrandom::fill(bytes).map_err(std::io::Error::from));
    let sealing = EncryptedStore::new(Arc::new(etcd.clone()), config, nonces, Clock::wall());
    for (key, _, object) in objects() {
        put(&sealing, key, packed(&object)).await;
    }
    for key in ["/registry/secrets/default/s", "/registry/configmaps/default/m"] {
        assert!(stored(&etcd, key).await.starts_with(b"k8s:enc:aesgcm:v1:one:"));
    }
    put(&etcd, "/registry/configmaps/default/plain", packed(&config_map("plain", "p"))).await;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("encryption.yaml");
    std::fs::write(&path, CONFIG).unwrap();
    let endpoints = cluster.endpoints_flag();
    let options: [&OsStr; 4] = [
        "--etcd-endpoints".as_ref(),
        endpoints.as_ref(),
        "--encryption-provider-config".as_ref(),
        path.as_ref(),
    ];
    let server = tokio::task::block_in_place(|| Server::start_with(&options));
    let client = client(&server);
    for (_, path, object) in objects() {
        let got = ask(&client, "GET", path, None).await.unwrap();
        assert_eq!(unversioned(got), object);
    }
    let plain = ask(&client, "GET", &format!("{MAPS}/plain"), None).await.unwrap();
    assert_eq!(unversioned(plain), config_map("plain", "p"));
    // If no provider accepts plain values, protobuf values are not accepted either.
    let (key, path, secret) = &objects()[1];
    put(&etcd, key, packed(secret)).await;
    let all = "/api/v1/namespaces/default/secrets";
    for path in [*path, all] {
        eventually("it is refused", async || (text(&client, path).await.0 == 500).then_some(()))
            .await;
    }
    etcd.close().await;
}
