//! The objects of a fresh control plane.
use crate::server::Server;
use serde_json::{Value, json};
use setpoint_store::{Op, RangeRequest, Store, Txn};

/// As kube-apiserver sends them: collection and object.
fn sent() -> [(&'static str, Value); 7] {
    let namespace = |name: &str| ("/api/v1/namespaces", json!({"metadata": {"name": name}}));
    let class = |name: &str, value: i64, description: &str| {
        let class = json!({"metadata": {"name": name}, "value": value, "description": description});
        ("/apis/scheduling.k8s.io/v1/priorityclasses", class)
    };
    [
        namespace("kube-system"),
        namespace("kube-public"),
        namespace("kube-node-lease"),
        namespace("default"),
        class(
            "system-node-critical",
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
        class(
            "system-cluster-critical",
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
        (
            "/api/v1/namespaces/default/services",
            json!({
                "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
                "spec": {
                    "clusterIP": "10.0.0.1",
                    "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}],
                    "sessionAffinity": "None",
                    "type": "ClusterIP",
                },
            }),
        ),
    ]
}
async fn everything(server: &Server) -> Vec<(String, Value)> {
    let range = server.store.range(RangeRequest::prefix("/registry/")).await.unwrap();
    let reduced = |bytes: &[u8]| {
        let mut object: Value = serde_json::from_slice(bytes).unwrap();
        let meta = object["metadata"].as_object_mut().unwrap();
        assert_eq!(meta.remove("uid").unwrap().as_str().unwrap().len(), 36);
        object
    };
    let entries = range.value.entries;
    entries
        .iter()
        .map(|e| (String::from_utf8_lossy(&e.key).into_owned(), reduced(&e.value)))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn start_up_objects_equal_those_of_the_write_path() {
    let mut server = Server::start().await;
    let stored = everything(&server).await;
    // Removed without a DELETE, together with their claims.
    let ops = stored.iter().map(|(key, _)| Op::Delete(key.clone().into())).collect();
    server.store.commit(Txn { ops, ..Txn::default() }).await.unwrap();
    server.user_agent = "kube-apiserver/v1.36".to_owned();
    for (path, object) in sent() {
        let mut object = object;
        if object["spec"]["clusterIP"].is_string() {
            // The address is still in use in this control plane, which has not seen the removal of
            // its Service.
            object["spec"]["clusterIP"] = "10.0.0.2".into();
        }
        server.create(path, object).await.unwrap();
    }
    let made = serde_json::to_string(&everything(&server).await).unwrap();
    let made = made.replace("10.0.0.2", "10.0.0.1");
    assert_eq!(made, serde_json::to_string(&stored).unwrap());
}
