//! Priority classes and the priority of pods.
use crate::server::{Server, refused};
use crate::slow::SlowStore;
use serde_json::{Value, json};
use setpoint_store::MemoryStore;
use std::sync::Arc;

const PODS: &str = "/api/v1/namespaces/default/pods";
const CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";

fn pod(name: &str, class: &str) -> Value {
    let mut pod = json!({"metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    if !class.is_empty() {
        pod["spec"]["priorityClassName"] = class.into();
    }
    pod
}

#[tokio::test(start_paused = true)]
async fn a_class_applies_once_created_and_is_read_from_the_cache() {
    let store = Arc::new(SlowStore::new(MemoryStore::default(), 3));
    let server = Server::on(store.clone(), Arc::new(MemoryStore::default()), 7).await;
    store.ranges.lock().clear();
    let spec = async |name: &str, class: &str| {
        let created = server.create(PODS, pod(name, class)).await.unwrap();
        (created["spec"]["priorityClassName"].clone(), created["spec"]["priority"].clone())
    };
    assert_eq!(spec("none", "").await, (Value::Null, json!(0)));
    for n in 0..20 {
        let class = json!({"metadata": {"name": format!("c{n}")}, "value": n});
        server.create(CLASSES, class).await.unwrap();
        let name = format!("c{n}");
        assert_eq!(spec(&format!("p{n}"), &name).await, (json!(name), json!(n)));
    }
    let default = json!({"metadata": {"name": "default"}, "value": 77, "globalDefault": true});
    server.create(CLASSES, default).await.unwrap();
    assert_eq!(spec("some", "").await, (json!("default"), json!(77)));
    let other = json!({"metadata": {"name": "other"}, "value": 78, "globalDefault": true});
    assert!(refused(server.create(CLASSES, other).await).ends_with(
        "PriorityClass default is already marked as default. Only one default can exist"
    ));
    assert!(
        refused(server.create(PODS, pod("bad", "missing")).await)
            .ends_with("no PriorityClass with name missing was found")
    );
    assert_eq!(*store.ranges.lock(), Vec::<bytes::Bytes>::new());
    server.stop().await;
}
