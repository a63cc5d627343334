//! Claims of devices: from templates, for pods that use them, until these have ended.

use crate::cluster::{Cluster, controllers};
use serde_json::{Value, json};
use setpoint_control_plane::ControlPlaneBuilder;
use setpoint_controllers::Selection;
use setpoint_runtime::BoxError;
use setpoint_testenv::scenario::check;
use setpoint_testenv::{Life, Plans, Scenario, TestEnv};
use std::time::Duration;

const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const TEMPLATES: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates";
const PODS: &str = "/api/v1/namespaces/default/pods";
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

fn claim_spec() -> Value {
    json!({"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}})
}

fn template(name: &str) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {
            "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}, "spec": claim_spec(),
        },
    })
}

/// An allocated claim of a user.
async fn allocate(cluster: &Cluster, name: &str) {
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": name, "finalizers": [FINALIZER]}, "spec": claim_spec(),
    });
    cluster.create(CLAIMS, &claim).await;
    let device = json!({"request": "r", "driver": "d.example.com", "pool": "p", "device": "one"});
    let status = json!({"status": {"allocation": {"devices": {"results": [device]}}}});
    cluster.patch(&format!("{CLAIMS}/{name}/status"), &status).await;
}

fn pod(name: &str, node: Option<&str>) -> Value {
    let claims = json!([
        {"name": "made", "resourceClaimTemplateName": "t"},
        {"name": "mine", "resourceClaimName": "shared"},
    ]);
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "nodeName": node, "containers": [{"name": "c", "image": "i"}], "resourceClaims": claims,
        },
    })
}

fn of_pod(name: &str) -> String {
    format!("{PODS}/{name}")
}

fn of_claim(name: &str) -> String {
    format!("{CLAIMS}/{name}")
}

/// The name of the claim that was made for a pod.
fn made_for(pod: &Value) -> Option<&str> {
    pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"].as_str()
}

async fn end(cluster: &Cluster, pod: &str) {
    let ended = json!({"status": {"phase": "Succeeded"}});
    cluster.patch(&format!("{PODS}/{pod}/status"), &ended).await;
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn claims_are_made_from_templates(env: &TestEnv) {
    let cluster = Cluster::start(env, "resourceclaim-controller");
    let made = cluster.create(PODS, &pod("web", None)).await;
    let refusal = "Warning FailedResourceClaimCreation PodResourceClaim made: resource claim template \"t\": resourceclaimtemplate.resource.k8s.io \"t\" not found";
    let seen = async {
        while !cluster.events("Pod").await.iter().any(|event| event == refusal) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), seen).await.unwrap();
    cluster.create(TEMPLATES, &template("t")).await;
    let held = cluster.until(&of_pod("web"), |pod| made_for(pod).is_some()).await;
    assert_eq!(held["metadata"]["managedFields"][0]["manager"], "ResourceClaimController");
    let name = made_for(&held).unwrap();
    assert!(name.starts_with("web-made-"), "{name}");
    let claim = cluster.get(&of_claim(name)).await.unwrap();
    assert_eq!(claim["metadata"]["labels"], json!({"a": "b"}));
    let annotations = json!({"c": "d", "resource.kubernetes.io/pod-claim-name": "made"});
    assert_eq!(claim["metadata"]["annotations"], annotations);
    let owner = json!([{
        "apiVersion": "v1", "kind": "Pod", "name": "web", "uid": made["metadata"]["uid"],
        "controller": true,
    }]);
    assert_eq!(claim["metadata"]["ownerReferences"], owner);
    assert_eq!(claim["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"], "gpu");

    // A deleted claim is made again, and the pod names it.
    cluster.delete(&of_claim(name), &json!({})).await;
    let is_new = |pod: &Value| made_for(pod).is_some_and(|new| new != name);
    let held = cluster.until(&of_pod("web"), is_new).await;
    let name = made_for(&held).unwrap();
    // The claim ends with the pod, even if the pod stays; and no other is made.
    end(&cluster, "web").await;
    cluster.until(&of_claim(name), Value::is_null).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(cluster.list(CLAIMS).await, Vec::<Value>::new());
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn a_pod_keeps_the_names_of_its_other_claims(env: &TestEnv) {
    let cluster = Cluster::start(env, "resourceclaim-controller");
    cluster.create(TEMPLATES, &template("t")).await;
    let mut web = pod("web", None);
    web["spec"]["resourceClaims"] = json!([
        {"name": "a", "resourceClaimTemplateName": "t"},
        {"name": "b", "resourceClaimTemplateName": "t"},
    ]);
    cluster.create(PODS, &web).await;
    let names = |pod: &Value| {
        let names = pod["status"]["resourceClaimStatuses"].as_array().cloned().unwrap_or_default();
        let name = |of: &Value| of["resourceClaimName"].as_str().unwrap_or_default().to_owned();
        names.iter().map(name).collect::<Vec<String>>()
    };
    let held = cluster.until(&of_pod("web"), |pod| names(pod).len() == 2).await;
    let before = names(&held);
    cluster.delete(&of_claim(&before[0]), &json!({})).await;
    let is_replaced = |pod: &Value| {
        let now = names(pod);
        now.len() == 2 && !now.contains(&before[0]) && now.contains(&before[1])
    };
    let held = cluster.until(&of_pod("web"), is_replaced).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let later = cluster.get(&of_pod("web")).await.unwrap();
    assert_eq!(later["metadata"]["resourceVersion"], held["metadata"]["resourceVersion"]);
    assert_eq!(cluster.list(CLAIMS).await.len(), 2);
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn a_claim_is_reserved_for_pods_that_may_run(env: &TestEnv) {
    let cluster = Cluster::start(env, "resourceclaim-controller");
    cluster.create(TEMPLATES, &template("t")).await;
    allocate(&cluster, "shared").await;
    for name in ["one", "two"] {
        // A pod that no scheduler has seen.
        cluster.create(PODS, &pod(name, Some("n1"))).await;
    }
    let users = |claim: &Value| {
        let users = claim["status"]["reservedFor"].as_array().cloned().unwrap_or_default();
        let mut users: Vec<Value> = users.iter().map(|user| user["name"].clone()).collect();
        users.sort_by_key(ToString::to_string);
        users
    };
    cluster.until(&of_claim("shared"), |claim| users(claim) == ["one", "two"]).await;
    end(&cluster, "one").await;
    let held = cluster.until(&of_claim("shared"), |claim| users(claim) == ["two"]).await;
    assert!(held["status"]["allocation"].is_object(), "it is still used");
    cluster.delete(&of_pod("two"), &json!({"gracePeriodSeconds": 0})).await;
    let is_free = |claim: &Value| {
        users(claim).is_empty()
            && claim["status"]["allocation"].is_null()
            && claim["metadata"]["finalizers"].is_null()
    };
    cluster.until(&of_claim("shared"), is_free).await;

    // One that was never used, but is allocated.
    allocate(&cluster, "unused").await;
    cluster.delete(&of_claim("unused"), &json!({})).await;
    cluster.until(&of_claim("unused"), Value::is_null).await;
}

/// Pods with claims that come and end.
struct Claims;

impl Scenario for Claims {
    type World = ();

    fn world(&self) {}

    fn control_plane(&self, builder: ControlPlaneBuilder) -> ControlPlaneBuilder {
        builder.controllers("garbagecollector".parse::<Selection>().unwrap())
    }

    async fn live(&self, life: Life, _world: ()) -> Result<(), BoxError> {
        let names = "resourceclaim-controller";
        let manager = controllers(life.manager(), &life.client, &life.clock, names)?;
        Ok(manager.run(life.stop.clone()).await?)
    }

    async fn drive(&self, env: &TestEnv, _world: &()) {
        let cluster = Cluster::of(env);
        cluster.create(TEMPLATES, &template("t")).await;
        allocate(&cluster, "shared").await;
        for name in ["a", "b"] {
            cluster.create(PODS, &pod(name, Some("n1"))).await;
        }
        for name in ["a", "b"] {
            let held = cluster.until(&of_pod(name), |pod| made_for(pod).is_some()).await;
            let claim = cluster.get(&of_claim(made_for(&held).unwrap())).await;
            assert!(claim.is_some(), "{held:#}");
        }
        assert_eq!(cluster.list(CLAIMS).await.len(), 3, "one for each pod, and the shared one");
        let n_users = |claim: &Value| claim["status"]["reservedFor"].as_array().map_or(0, Vec::len);
        cluster.until(&of_claim("shared"), |claim| n_users(claim) == 2).await;
        end(&cluster, "a").await;
        cluster.until(&of_claim("shared"), |claim| n_users(claim) == 1).await;
        cluster.delete(&of_pod("b"), &json!({"gracePeriodSeconds": 0})).await;
        cluster.until_all(CLAIMS, |claims| claims.len() == 1).await;
        let is_free = |claim: &Value| claim["status"]["allocation"].is_null();
        cluster.until(&of_claim("shared"), is_free).await;
        cluster.delete(&of_claim("shared"), &json!({})).await;
        cluster.until(&of_claim("shared"), Value::is_null).await;
        // Its status has a generated name.
        cluster.delete(&of_pod("a"), &json!({"gracePeriodSeconds": 0})).await;
        cluster.until(&of_pod("a"), Value::is_null).await;
    }
}

#[test]
fn claims_are_made_once_and_released_with_every_plan() {
    check(&Claims, &Plans::new().crashes().storms(8));
}
