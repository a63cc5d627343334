//! Taints of devices: which pods leave, what rules say about it, and where new pods go.

use crate::user::{User, as_account, with_user};
use futures::FutureExt as _;
use serde_json::{Value, json};
use setpoint_control_plane::{ControlPlane, ControlPlaneBuilder, Selection};
use setpoint_controllers::Setup;
use setpoint_controllers::workload::device_taint_eviction::DeviceTaintEviction;
use setpoint_registry::{Feature, RuntimeConfig};
use setpoint_runtime::BoxError;
use setpoint_runtime::events::EventApi;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const PODS: &str = "/api/v1/namespaces/default/pods";
const SLICE: &str = "/apis/resource.k8s.io/v1/resourceslices/s";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const RULES: &str = "/apis/resource.k8s.io/v1beta2/devicetaintrules";
const RULE: &str = "/apis/resource.k8s.io/v1beta2/devicetaintrules/r";
const DRIVER: &str = "gpu.example.com";
const ACCOUNT: &str = "device-taint-eviction-controller";

fn gated(gates: &[Feature]) -> ControlPlaneBuilder {
    let served = "resource.k8s.io/v1beta2=true";
    ControlPlane::builder().runtime_config(RuntimeConfig::with_gates(served, gates).unwrap())
}

/// Runs the controller until `stop`.
async fn run(setup: Setup, stop: CancellationToken, has_rules: bool) -> Result<(), BoxError> {
    let setup = setup.device_taint_rules(has_rules);
    let builder = setup.manager()?.events(EventApi::Core);
    let mut manager = builder.field_manager("kube-controller-manager").build();
    DeviceTaintEviction::new(setup).add_to(&mut manager)?;
    Ok(manager.run(stop).await?)
}

fn taint(key: &str, effect: &str) -> Value {
    json!({"key": key, "value": "yes", "effect": effect})
}

/// A slice with some devices of one pool.
async fn slice(user: &User, node: &str, names: &[&str]) {
    let devices: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
    let slice = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"},
        "spec": {
            "driver": DRIVER, "nodeName": node, "devices": devices,
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        },
    });
    user.create("/apis/resource.k8s.io/v1/resourceslices", slice).await;
}

/// Sets the taints of a device of the slice.
async fn set_taints(user: &User, device: &str, taints: Value) {
    let mut slice = user.get(SLICE).await;
    let devices = slice["spec"]["devices"].as_array_mut().unwrap();
    let device = devices.iter_mut().find(|found| found["name"] == device).unwrap();
    device["taints"] = taints;
    user.request("PUT", SLICE, &slice).await.unwrap();
}

/// A pod that runs with a device; `None`: it does not stand taints, otherwise for how long.
async fn pod(user: &User, name: &str, device: &str, tolerated: Option<Value>) {
    let account = json!({"metadata": {"name": "default"}});
    // It may be there.
    _ = user.request("POST", "/api/v1/namespaces/default/serviceaccounts", &account).await;
    let claims = json!([{"name": "gpu", "resourceClaimName": name}]);
    let spec = json!({
        "nodeName": "n", "containers": [{"name": "c", "image": "i"}], "resourceClaims": claims,
    });
    user.pod(name, spec).await;
    let request = json!({"name": "r", "exactly": {"deviceClassName": "gpu"}});
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
        "spec": {"devices": {"requests": [request]}},
    });
    user.create(CLAIMS, claim).await;
    let mut result = json!({"request": "r", "driver": DRIVER, "pool": "p", "device": device});
    if let Some(seconds) = tolerated {
        result["tolerations"] = json!([{
            "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds,
        }]);
    }
    let uid = user.get(&format!("{PODS}/{name}")).await["metadata"]["uid"].clone();
    let status = json!({
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": name, "uid": uid}],
    });
    user.patch(&format!("{CLAIMS}/{name}/status"), json!({"status": status})).await;
}

fn is_leaving(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_string()
}

async fn until_leaving(user: &User, name: &str) -> Value {
    user.until(&format!("{PODS}/{name}"), is_leaving).await
}

async fn stays(user: &User, name: &str) {
    let pod = user.get(&format!("{PODS}/{name}")).await;
    assert!(pod.is_object() && !is_leaving(&pod), "{pod:#}");
}

/// The events about pods: name, reason and message.
async fn events(user: &User) -> Vec<String> {
    let list = user.get("/api/v1/namespaces/default/events").await;
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let text = |event: &Value| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let name = text(&event["involvedObject"]["name"]);
        assert_eq!(event["source"]["component"], ACCOUNT);
        format!("{name}: {} {}", text(&event["reason"]), text(&event["message"]))
    };
    items.iter().map(text).collect()
}

fn seconds(n: u64) -> tokio::time::Sleep {
    tokio::time::sleep(Duration::from_secs(n))
}

#[tokio::test(start_paused = true)]
async fn pods_leave_devices_that_are_tainted_in_slices() {
    let run = |setup, stop| run(setup, stop, false).boxed();
    as_account(gated(&[]), ACCOUNT, run, async |user| {
        slice(&user, "n", &["one", "two"]).await;
        pod(&user, "now", "one", None).await;
        pod(&user, "later", "one", Some(60.into())).await;
        pod(&user, "never", "one", Some(Value::Null)).await;
        pod(&user, "cancelled", "two", Some(60.into())).await;
        // These evict nothing.
        set_taints(&user, "one", json!([taint("a", "NoSchedule"), taint("b", "None")])).await;
        seconds(30).await;
        stays(&user, "now").await;
        set_taints(&user, "one", json!([taint("broken", "NoExecute")])).await;
        let left = until_leaving(&user, "now").await;
        let mut conditions = left["status"]["conditions"].as_array().unwrap().iter();
        let target = conditions.find(|condition| condition["type"] == "DisruptionTarget").unwrap();
        assert_eq!(target["status"], "True");
        assert_eq!(target["reason"], "DeletionByDeviceTaintManager");
        assert_eq!(target["message"], "Device Taint manager: deleting due to NoExecute taint");
        assert!(target["lastTransitionTime"].is_string());
        seconds(55).await;
        stays(&user, "later").await;
        // It begins again if the taint does.
        set_taints(&user, "two", json!([taint("broken", "NoExecute")])).await;
        until_leaving(&user, "later").await;
        seconds(30).await;
        stays(&user, "cancelled").await;
        set_taints(&user, "two", json!([])).await;
        seconds(60).await;
        stays(&user, "cancelled").await;
        stays(&user, "never").await;
        let said = |name: &str, what: &str| format!("{name}: DeviceTaintManagerEviction {what}");
        let mut events = events(&user).await;
        events.sort();
        let expected = [
            said("cancelled", "Cancelling deletion"),
            said("later", "Marking for deletion"),
            said("now", "Marking for deletion"),
        ];
        assert_eq!(events, expected);
        // Slices of an older generation do not count, so the new one has to say it.
        pod(&user, "new", "two", None).await;
        let newer = json!({"pool": {"generation": 2}});
        user.patch(SLICE, json!({"spec": newer})).await;
        set_taints(&user, "two", json!([taint("broken", "NoExecute")])).await;
        until_leaving(&user, "new").await;
    })
    .await;
}

/// The condition of the rule, without its time.
async fn until_said(user: &User, expected: [&str; 3]) {
    let said = |rule: &Value| {
        let condition = rule["status"]["conditions"][0].clone();
        assert!(condition.is_null() || condition["type"] == "EvictionInProgress", "{rule:#}");
        let is_current = condition["observedGeneration"] == rule["metadata"]["generation"];
        is_current
            && [&condition["status"], &condition["reason"], &condition["message"]] == expected
    };
    user.until(RULE, said).await;
}

#[tokio::test(start_paused = true)]
async fn rules_evict_pods_and_say_so() {
    let run = |setup, stop| run(setup, stop, true).boxed();
    as_account(gated(&[Feature::DRADeviceTaintRules]), ACCOUNT, run, async |user| {
        slice(&user, "n", &["one", "two", "three"]).await;
        pod(&user, "later", "one", Some(30.into())).await;
        pod(&user, "never", "two", Some(Value::Null)).await;
        let set_effect = async |effect: &str| {
            user.patch(RULE, json!({"spec": {"taint": {"effect": effect}}})).await;
        };
        let selector = json!({"driver": DRIVER});
        let rule = json!({
            "apiVersion": "resource.k8s.io/v1beta2", "kind": "DeviceTaintRule",
            "metadata": {"name": "r"},
            "spec": {"deviceSelector": selector, "taint": taint("broken", "None")},
        });
        user.create(RULES, rule.clone()).await;
        let would = "3 published devices selected. 2 allocated devices selected. 1 pod would be evicted in 1 namespace if the effect was NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to trigger an update.";
        until_said(&user, ["False", "NoEffect", would]).await;
        let written = user.get(RULE).await;
        let managers = written["metadata"]["managedFields"].as_array().unwrap();
        let own = managers.iter().find(|held| held["manager"] == ACCOUNT).unwrap();
        assert_eq!((&own["operation"], &own["subresource"]), (&json!("Apply"), &json!("status")));
        set_effect("NoExecute").await;
        let pending = "1 pod needs to be evicted in 1 namespace.";
        until_said(&user, ["True", "PodsPendingEviction", pending]).await;
        stays(&user, "later").await;
        until_leaving(&user, "later").await;
        let evicted = "1 pod evicted since starting the controller.";
        until_said(&user, ["False", "Completed", evicted]).await;
        stays(&user, "never").await;
        set_effect("NoSchedule").await;
        let other = format!("Eviction only happens for the NoExecute effect. {evicted}");
        until_said(&user, ["False", "OtherEffect", &other]).await;
        // A pod that is to leave stays if the rule goes.
        pod(&user, "saved", "three", Some(60.into())).await;
        set_effect("NoExecute").await;
        let pending = format!("{pending} {evicted}");
        until_said(&user, ["True", "PodsPendingEviction", &pending]).await;
        user.delete(RULE).await;
        seconds(120).await;
        stays(&user, "saved").await;
        let said = "saved: DeviceTaintManagerEviction Cancelling deletion".to_owned();
        assert!(events(&user).await.contains(&said));
        // What an earlier rule of the name did does not count.
        let mut rule = rule;
        rule["spec"]["taint"] = taint("broken", "NoExecute");
        rule["spec"]["deviceSelector"] = json!({"device": "four"});
        user.create(RULES, rule).await;
        until_said(&user, ["False", "NotStarted", ""]).await;
        // Now it selects the device, too.
        user.patch(RULE, json!({"spec": {"deviceSelector": {"device": "three"}}})).await;
        until_leaving(&user, "saved").await;
    })
    .await;
}

/// A pod that needs a device, which the scheduler chooses.
async fn claimant(user: &User, name: &str) {
    let request = json!({"name": "r", "exactly": {"deviceClassName": "gpu"}});
    let claim = json!({
        "metadata": {"name": name}, "spec": {"devices": {"requests": [request]}},
    });
    user.create(CLAIMS, claim).await;
    let claims = json!([{"name": "gpu", "resourceClaimName": name}]);
    let containers = json!([{"name": "c", "image": "i"}]);
    user.pod(name, json!({"containers": containers, "resourceClaims": claims})).await;
}

#[tokio::test(start_paused = true)]
async fn with_the_feature_gate_a_plane_heeds_rules() {
    let is_placed = |pod: &Value| pod["spec"]["nodeName"].is_string();
    for gates in [&[][..], &[Feature::DRADeviceTaintRules]] {
        let plane = gated(gates).controllers(Selection::all()).nodes(1);
        with_user(plane, async |user| {
            let class = json!({"metadata": {"name": "gpu"}, "spec": {}});
            user.create("/apis/resource.k8s.io/v1/deviceclasses", class).await;
            slice(&user, "node-0", &["one"]).await;
            let rule = |effect: &str| {
                json!({
                    "metadata": {"name": "r"},
                    "spec": {"deviceSelector": {"pool": "p"}, "taint": taint("broken", effect)},
                })
            };
            user.create(RULES, rule("NoSchedule")).await;
            claimant(&user, "a").await;
            let path = format!("{PODS}/a");
            if gates.is_empty() {
                user.until(&path, is_placed).await;
                assert!(user.get(RULE).await["status"]["conditions"].is_null());
                return;
            }
            seconds(60).await;
            assert!(!is_placed(&user.get(&path).await));
            user.delete(RULE).await;
            user.until(&path, is_placed).await;
            user.create(RULES, rule("NoExecute")).await;
            user.until(&path, Value::is_null).await;
        })
        .await;
    }
}
