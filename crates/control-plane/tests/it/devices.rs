//! Devices of simulated nodes.

use crate::user::with_user;
use serde_json::{Value, json};
use setpoint_control_plane::ControlPlane;
use std::time::Duration;

/// The relative speed of two threads is random: a simulation is a function of its seed.
#[test]
fn a_simulated_scheduler_evaluates_costly_expressions_on_its_own_thread() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        // The only other thread is busy.
        let (busy, wait) = std::sync::mpsc::channel::<()>();
        let ended = tokio::task::spawn_blocking(move || wait.recv());
        let placing = with_user(ControlPlane::builder().nodes(1), async |user| {
            let claims = json!([{"name": "c", "resourceClaimName": "c"}]);
            let containers = json!([{"name": "c", "image": "i:1"}]);
            user.pod("a", json!({"containers": containers, "resourceClaims": claims})).await;
            let group = "/apis/resource.k8s.io/v1";
            let class = json!({"metadata": {"name": "gpu"}, "spec": {}});
            user.create(&format!("{group}/deviceclasses"), class).await;
            let slice = json!({
                "metadata": {"name": "s"},
                "spec": {
                    "driver": "gpu.example.com", "nodeName": "node-0",
                    "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
                    "devices": [{"name": "g0"}],
                },
            });
            user.create(&format!("{group}/resourceslices"), slice).await;
            // Its length alone makes it costly.
            let expression = format!("device.driver != '{}'", "x".repeat(600));
            let claim = json!({
                "metadata": {"name": "c"},
                "spec": {"devices": {"requests": [{"name": "r", "exactly": {
                    "deviceClassName": "gpu", "selectors": [{"cel": {"expression": expression}}],
                }}]}},
            });
            user.create(&format!("{group}/namespaces/default/resourceclaims"), claim).await;
            let is_placed = |pod: &Value| pod["spec"]["nodeName"] == "node-0";
            user.until("/api/v1/namespaces/default/pods/a", is_placed).await;
        });
        tokio::time::timeout(Duration::from_secs(60), placing).await.expect("the pod is placed");
        drop(busy);
        assert!(ended.await.unwrap().is_err());
    });
}
