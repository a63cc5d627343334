//! Requests for the status of pools of devices.

use crate::user::{User, as_account, with_user};
use futures::FutureExt as _;
use serde_json::{Value, json};
use setpoint_control_plane::{ControlPlane, ControlPlaneBuilder};
use setpoint_controllers::PoolStatusController;
use setpoint_registry::{Feature, RuntimeConfig};
use std::time::Duration;

const REQUESTS: &str = "/apis/resource.k8s.io/v1alpha3/resourcepoolstatusrequests";
const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";

fn gated(gates: &[Feature]) -> ControlPlaneBuilder {
    let served = "resource.k8s.io/v1alpha3=true";
    ControlPlane::builder().runtime_config(RuntimeConfig::with_gates(served, gates).unwrap())
}

async fn slice(user: &User, name: &str, driver: &str, n_expected: u64, devices: &[&str]) {
    let pool = json!({"name": "pool", "generation": 1, "resourceSliceCount": n_expected});
    let devices: Vec<_> = devices.iter().map(|name| json!({"name": name})).collect();
    let spec = json!({"driver": driver, "nodeName": "n", "pool": pool, "devices": devices});
    user.create(SLICES, json!({"metadata": {"name": name}, "spec": spec})).await;
}

async fn ask(user: &User, name: &str, driver: &str) {
    user.create(REQUESTS, json!({"metadata": {"name": name}, "spec": {"driver": driver}})).await;
}

fn is_answered(request: &Value) -> bool {
    request["status"].is_object()
}

#[tokio::test(start_paused = true)]
async fn requests_are_answered_once_and_deleted() {
    let run = |setup: setpoint_controllers::Setup, stop| {
        setup
            .run(stop, |setup, manager| PoolStatusController::new(setup.clone()).add_to(manager))
            .boxed()
    };
    let account = "resourcepoolstatusrequest-controller";
    as_account(gated(&[Feature::DRAResourcePoolStatus]), account, run, async |user| {
        slice(&user, "a", "gpu.example.com", 2, &["one", "two"]).await;
        slice(&user, "other", "nic.example.com", 1, &["one"]).await;
        let request = json!({"name": "r", "exactly": {"deviceClassName": "gpu"}});
        let spec = json!({"devices": {"requests": [request]}});
        user.create(CLAIMS, json!({"metadata": {"name": "c"}, "spec": spec})).await;
        let result = json!({
            "request": "r", "driver": "gpu.example.com", "pool": "pool", "device": "one",
        });
        let status = json!({"allocation": {"devices": {"results": [result]}}});
        user.patch(&format!("{CLAIMS}/c/status"), json!({"status": status})).await;
        let path = |name: &str| format!("{REQUESTS}/{name}");
        ask(&user, "nothing", "none.example.com").await;
        let answer = user.until(&path("nothing"), is_answered).await;
        assert_eq!(answer["status"]["poolCount"], 0);
        // The pool is not complete yet.
        ask(&user, "gpu", "gpu.example.com").await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert!(!is_answered(&user.get(&path("gpu")).await));
        slice(&user, "b", "gpu.example.com", 2, &["three"]).await;
        let answer = user.until(&path("gpu"), is_answered).await;
        let pool = json!({
            "driver": "gpu.example.com", "poolName": "pool", "generation": 1, "nodeName": "n",
            "resourceSliceCount": 2, "totalDevices": 3, "allocatedDevices": 1,
            "availableDevices": 2, "unavailableDevices": 0,
        });
        assert_eq!(answer["status"]["pools"], json!([pool]));
        let condition = &answer["status"]["conditions"][0];
        assert_eq!(condition["type"], "Complete");
        assert_eq!(condition["reason"], "CalculationComplete");
        assert_eq!(condition["message"], "Calculated status for 1 pools");
        let fields = answer["metadata"]["managedFields"].to_string();
        assert!(fields.contains("kube-controller-manager"), "{fields}");
        // Another question about the same is another answer.
        tokio::time::sleep(Duration::from_secs(50 * 60)).await;
        assert_eq!(user.get(&path("gpu")).await, answer);
        user.delete(&format!("{SLICES}/b")).await;
        ask(&user, "incomplete", "gpu.example.com").await;
        tokio::time::sleep(Duration::from_secs(11 * 60)).await;
        for name in ["nothing", "gpu"] {
            assert!(user.get(&path(name)).await.is_null(), "{name}");
        }
        tokio::time::sleep(Duration::from_secs(23 * 60 * 60)).await;
        assert!(!is_answered(&user.get(&path("incomplete")).await));
        tokio::time::sleep(Duration::from_secs(60 * 60 + 17 * 60)).await;
        assert!(user.get(&path("incomplete")).await.is_null());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_plane_answers_with_the_feature_gate() {
    for gates in [&[][..], &[Feature::DRAResourcePoolStatus]] {
        with_user(gated(gates), async |user| {
            ask(&user, "q", "gpu.example.com").await;
            tokio::time::sleep(Duration::from_secs(30)).await;
            let found = user.get(&format!("{REQUESTS}/q")).await;
            assert_eq!(is_answered(&found), !gates.is_empty(), "{found:#}");
        })
        .await;
    }
}
