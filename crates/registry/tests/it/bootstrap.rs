//! The objects of a fresh control plane.
use crate::server::Server;
use bytes::Bytes;
use serde_json::{Value, json};
use setpoint_registry::{ListOptions, Verb, WriteOptions};
use setpoint_store::{At, Op, RangeRequest, Store, Txn};
use std::collections::BTreeMap;
use std::time::Duration;

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
                    "clusterIP": "10.0.0.1", "ipFamilyPolicy": "SingleStack",
                    "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}],
                    "sessionAffinity": "None",
                    "type": "ClusterIP",
                },
            }),
        ),
    ]
}
/// The collection of objects that [`sent`] does not have, by their key.
fn collection(key: &str) -> Option<&'static str> {
    let (_, path) = [
        ("/registry/flowschemas/", "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"),
        (
            "/registry/prioritylevelconfigurations/",
            "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations",
        ),
        (
            "/registry/apiregistration.k8s.io/apiservices/",
            "/apis/apiregistration.k8s.io/v1/apiservices",
        ),
        ("/registry/servicecidrs/", "/apis/networking.k8s.io/v1/servicecidrs"),
    ]
    .into_iter()
    .find(|(start, _)| key.starts_with(start))?;
    Some(path)
}
/// Creates a stored object again, and writes its status as the same manager did.
async fn send(server: &Server, collection: &str, stored: &Value) {
    let mut object = stored.clone();
    let (status, meta) = (object["status"].take(), object["metadata"].as_object_mut().unwrap());
    object_members(meta);
    let managers = stored["metadata"]["managedFields"].as_array().unwrap();
    let of = |subresource: &Value| {
        let entry = managers.iter().find(|entry| entry["subresource"] == *subresource)?;
        Some((entry["manager"].as_str().unwrap(), entry["operation"].as_str().unwrap()))
    };
    let (manager, _) = of(&Value::Null).unwrap();
    let options = WriteOptions { field_manager: manager.to_owned(), ..WriteOptions::default() };
    let mut made = server.create_with(collection, object, &options).await.unwrap();
    let path = format!("{collection}/{}/status", stored["metadata"]["name"].as_str().unwrap());
    match of(&json!("status")) {
        Some((manager, "Apply")) => {
            let status = json!({
                "apiVersion": stored["apiVersion"], "kind": stored["kind"],
                "metadata": {"name": stored["metadata"]["name"]}, "status": status,
            });
            server.apply(&path, manager, status).await.unwrap();
        }
        Some(_) => {
            made["status"] = status;
            server.update(&path, made).await.unwrap();
        }
        None => {}
    }
}
/// Removes the members of the metadata that the server sets.
fn object_members(meta: &mut serde_json::Map<String, Value>) {
    for name in ["creationTimestamp", "generation", "managedFields"] {
        meta.remove(name);
    }
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
    for (key, object) in &stored {
        if let Some(collection) = collection(key) {
            send(&server, collection, object).await;
        }
    }
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

#[tokio::test(start_paused = true)]
async fn flow_control_objects_and_namespaces_come_back_unless_users_take_them_over() {
    let server = Server::start().await;
    let schemas = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
    let levels = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations";
    let precedence = |n: i64| json!({"spec": {"matchingPrecedence": n}});
    let taken = json!({
        "metadata": {"annotations": {"apf.kubernetes.io/autoupdate-spec": "false"}},
        "spec": {"matchingPrecedence": 901},
    });
    let path = |name: &str| format!("{schemas}/{name}");
    server.patch(&path("kube-scheduler"), precedence(850)).await.unwrap();
    server.patch(&path("kube-system-service-accounts"), taken).await.unwrap();
    let error = server.patch(&path("catch-all"), precedence(5000)).await.unwrap_err();
    assert!(
        error.to_string().ends_with(": spec of 'catch-all' must equal the fixed value"),
        "{error}"
    );
    // Another version of the server may have other specs.
    let key = Bytes::from_static(b"/registry/flowschemas/catch-all");
    let stored = server.store.get(&key, At::Latest).await.unwrap().value.unwrap();
    let mut schema: Value = serde_json::from_slice(&stored.value).unwrap();
    schema["spec"]["matchingPrecedence"] = 5000.into();
    let ops = vec![Op::Put(key, schema.to_string().into())];
    server.store.commit(Txn { ops, ..Txn::default() }).await.unwrap();
    let shares = json!({"spec": {"exempt": {"nominalConcurrencyShares": 7}}});
    server.patch(&format!("{levels}/exempt"), shares).await.unwrap();
    server.delete(&path("probes")).await.unwrap();
    server.delete("/apis/apiregistration.k8s.io/v1/apiservices/v1.batch").await.unwrap();
    tokio::time::sleep(Duration::from_secs(61)).await;
    let now = async |name: &str| {
        server.get(&path(name)).await.unwrap()["spec"]["matchingPrecedence"].clone()
    };
    assert_eq!(now("kube-scheduler").await, 800);
    assert_eq!(now("kube-system-service-accounts").await, 901);
    assert_eq!(now("catch-all").await, 10_000);
    assert_eq!(now("probes").await, 2);
    let exempt = server.get(&format!("{levels}/exempt")).await.unwrap();
    assert_eq!(exempt["spec"]["exempt"]["nominalConcurrencyShares"], 7);
    let batch = server.get("/apis/apiregistration.k8s.io/v1/apiservices/v1.batch").await;
    assert_eq!(batch.unwrap_err().code(), 404);
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn objects_of_a_start_over_an_empty_store_are_known() {
    let (namespaces, classes) = ("/registry/namespaces/", "/registry/priorityclasses/");
    let server = Server::start().await;
    let last = server.store.revision().await.unwrap().0;
    assert!(server.registry.is_of_start(last) && !server.registry.is_of_start(last + 1));
    for prefix in [namespaces, classes, "/registry/pods/"] {
        assert!(server.registry.is_as_started(prefix), "{prefix}");
    }
    let one = json!({"metadata": {"name": "n"}});
    server.create("/api/v1/namespaces", one).await.unwrap();
    let request = server.request(Verb::List, "/api/v1/namespaces");
    let list = server.registry.list(&request, &ListOptions::default()).await.unwrap();
    assert_eq!(list.items.len(), 5);
    assert!(!server.registry.is_as_started(namespaces));
    assert!(server.registry.is_as_started(classes));

    // Each has a uid of its own, and the claim of the Service's address has the Service's.
    let range = server.store.range(RangeRequest::prefix("/registry/")).await.unwrap();
    let entries = range.value.entries.iter();
    let mut keys: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for entry in entries {
        let object: Value = serde_json::from_slice(&entry.value).unwrap();
        let uid = object["metadata"]["uid"].as_str().unwrap().to_owned();
        keys.entry(uid).or_default().push(String::from_utf8_lossy(&entry.key).into_owned());
    }
    let twice: Vec<_> = keys.values().filter(|keys| keys.len() > 1).collect();
    let claim = "/registry/ranges/serviceips/10.0.0.1".to_owned();
    let service = "/registry/services/specs/default/kubernetes".to_owned();
    assert_eq!(twice, [&vec![claim, service]]);

    // Another start finds them, and takes them for anybody's.
    let (store, before) = (server.store.clone(), server.store.revision().await.unwrap());
    server.stop().await;
    let server = Server::over(store).await;
    assert_eq!(server.store.revision().await.unwrap(), before);
    assert!(!server.registry.is_of_start(last) && !server.registry.is_as_started(classes));
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_service_of_the_api_servers_returns_within_ten_seconds() {
    const SERVICE: &str = "/api/v1/namespaces/default/services/kubernetes";
    let server = Server::start().await;
    for _ in 0..2 {
        let first = server.get(SERVICE).await.unwrap();
        server.delete(SERVICE).await.unwrap();
        tokio::time::sleep(Duration::from_secs(10)).await;
        let next = server.get(SERVICE).await.unwrap();
        assert_ne!(next["metadata"]["uid"], first["metadata"]["uid"]);
        assert_eq!(next["spec"]["clusterIP"], "10.0.0.1");
    }
    server.stop().await;
}
