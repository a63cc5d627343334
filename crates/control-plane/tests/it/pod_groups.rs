//! PodGroups that are deleted while pods of them run.

use crate::user::{as_account, with_user};
use futures::FutureExt as _;
use serde_json::{Value, json};
use setpoint_control_plane::{ControlPlane, ControlPlaneBuilder};
use setpoint_controllers::{GroupProtection, Setup};
use setpoint_registry::{Feature, RuntimeConfig};
use setpoint_runtime::Manager;
use std::time::Duration;

const GROUPS: &str = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn gated(builder: ControlPlaneBuilder) -> ControlPlaneBuilder {
    let gates = [Feature::GenericWorkload];
    builder.runtime_config(RuntimeConfig::with_gates("api/alpha", gates).unwrap())
}
fn group(name: &str) -> Value {
    json!({
        "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": {"name": name},
        "spec": {"schedulingPolicy": {"basic": {}}},
    })
}
fn pod_of(group: &str) -> Value {
    json!({
        "containers": [{"name": "c", "image": "i"}], "schedulingGroup": {"podGroupName": group},
    })
}

#[tokio::test(start_paused = true)]
async fn group_stays_until_its_pods_have_ended() {
    with_user(gated(ControlPlane::builder().rbac()), async |user| {
        for name in ["free", "of-two", "of-one"] {
            user.create(GROUPS, group(name)).await;
        }
        for (name, group) in [("a", "of-two"), ("b", "of-two"), ("c", "of-one")] {
            user.pod(name, pod_of(group)).await;
        }
        for name in ["free", "of-two", "of-one"] {
            user.delete(&format!("{GROUPS}/{name}")).await;
        }
        user.until(&format!("{GROUPS}/free"), Value::is_null).await;
        let at_once = json!({"gracePeriodSeconds": 0});
        user.request("DELETE", &format!("{PODS}/a"), &at_once).await.unwrap();
        let ended = json!({"status": {"phase": "Succeeded"}});
        user.patch(&format!("{PODS}/c/status"), ended).await;
        user.until(&format!("{GROUPS}/of-one"), Value::is_null).await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert!(user.get(&format!("{GROUPS}/of-two")).await.is_object());
        user.request("DELETE", &format!("{PODS}/b"), &at_once).await.unwrap();
        user.until(&format!("{GROUPS}/of-two"), Value::is_null).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn protection_works_with_its_own_account_and_role() {
    as_account(
        gated(ControlPlane::builder()),
        "podgroup-protection-controller",
        |setup, stop| {
            let add = |setup: &Setup, manager: &mut Manager| {
                GroupProtection::new(setup.clone()).add_to(manager)
            };
            async move { setup.run(stop, add).await }.boxed()
        },
        async |user| {
            user.create(GROUPS, group("g")).await;
            user.pod("p", pod_of("g")).await;
            let path = format!("{GROUPS}/g");
            user.delete(&path).await;
            tokio::time::sleep(Duration::from_secs(30)).await;
            assert!(user.get(&path).await.is_object());
            let at_once = json!({"gracePeriodSeconds": 0});
            user.request("DELETE", &format!("{PODS}/p"), &at_once).await.unwrap();
            user.until(&path, Value::is_null).await;
        },
    )
    .await;
}
