//! A control plane over a store with history.

use crate::plane::with_person_of;
use serde_json::json;
use setpoint::ControlPlane;
use setpoint_store::{DiskOptions, DiskStore};
use std::sync::Arc;

/// The default: a watch from before a restart resumes without a list.
#[tokio::test]
async fn watches_resume_after_a_restart_of_a_durable_store() {
    let folder = tempfile::tempdir().unwrap();
    let open = || DiskStore::open(folder.path(), DiskOptions::default()).unwrap();
    let path = "/api/v1/namespaces/default/configmaps";
    let store = open();
    let plane = ControlPlane::builder().store(Arc::new(store.clone())).build();
    let version = with_person_of(plane, async |person| {
        let create = async |name: &str| {
            let body = json!({"metadata": {"name": name}});
            person.request("POST", path, "application/json", &body).await.unwrap()
        };
        let first = create("first").await;
        create("second").await;
        first["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
    })
    .await;
    store.close().await;
    drop(store);
    let store = open();
    let plane = ControlPlane::builder().store(Arc::new(store.clone())).build();
    let events = with_person_of(plane, async |person| {
        let watch = format!("{path}?watch=1&timeoutSeconds=1&resourceVersion={version}");
        let request = http::Request::get(watch).body(Vec::new()).unwrap();
        person.client.request_text(request).await.unwrap()
    })
    .await;
    assert!(events.contains("ADDED") && events.contains("second"), "{events}");
    assert!(!events.contains("\"first\""), "{events}");
    store.close().await;
}
