//! The rights in `manifests/operator.yaml` are those that the operator uses.

use crate::plans::{agent, backup, cluster, settled};
use crate::world::{World, kubelet, request};
use etcd_operator::api::{EtcdBackup, EtcdCluster};
use etcd_operator::manager;
use serde_json::{Value, json};
use setpoint::kube_client::Api;
use setpoint::kube_client::api::{Patch, PatchParams, PostParams};
use setpoint::prelude::*;
use setpoint::runtime::client::layer::layered;
use setpoint::testenv::{TestEnv, matches};
use std::sync::Arc;
use tower::util::MapRequestLayer;

const USER: &str = "system:serviceaccount:etcd-operator:etcd-operator";

/// Creates the objects of the manifest, but not the program.
async fn install(env: &TestEnv) {
    let text = include_str!("../../manifests/operator.yaml");
    for object in serde_saphyr::from_multiple::<Value>(text).unwrap() {
        let group = object["apiVersion"].as_str().unwrap();
        let resource = match object["kind"].as_str().unwrap() {
            "Namespace" => "/api/v1/namespaces",
            "ServiceAccount" => "/api/v1/namespaces/etcd-operator/serviceaccounts",
            "ClusterRole" => "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            "ClusterRoleBinding" => "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            "Role" => "/apis/rbac.authorization.k8s.io/v1/namespaces/etcd-operator/roles",
            "RoleBinding" => {
                "/apis/rbac.authorization.k8s.io/v1/namespaces/etcd-operator/rolebindings"
            }
            "Deployment" => continue,
            kind => panic!("{group} {kind}"),
        };
        request(env, "POST", resource, &object).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn manifest_gives_the_rights_that_the_operator_uses() {
    let env = TestEnv::builder().simulated(0).control_plane(|plane| plane.rbac()).start().await;
    let env = &env.unwrap();
    install(env).await;
    let layer = MapRequestLayer::new(|mut request: http::Request<_>| {
        request.headers_mut().insert("impersonate-user", USER.parse().unwrap());
        request
    });
    let client = layered(env.client(), &layer);
    let election = ElectionOptions::new("etcd-operator").namespace("etcd-operator");
    let builder = Manager::builder(client.clone()).clock(env.clock().clone()).seed(0);
    let builder = builder.leader_election(election).unwrap();
    let world = World::default();
    env.run(manager(builder, Arc::new(world.clone()), agent()).await.unwrap());
    let user = async {
        let params = PostParams::default();
        let clusters: Api<EtcdCluster> = Api::default_namespaced(env.client());
        let backups: Api<EtcdBackup> = Api::default_namespaced(env.client());
        clusters.create(&params, &cluster("demo", 2, Value::Null)).await.unwrap();
        settled(env, "demo").await;
        env.event("default", "demo", "MemberPromoted").await;
        let smaller = Patch::Merge(json!({"spec": {"size": 1}}));
        clusters.patch("demo", &PatchParams::default(), &smaller).await.unwrap();
        settled(env, "demo").await;
        backups.create(&params, &backup("b", "demo")).await.unwrap();
        let is_complete = |found: &Value| found["status"]["phase"] == "Complete";
        env.until(&backups, "b", matches("is complete", is_complete)).await;
    };
    tokio::select! {
        biased;
        () = kubelet(env, &world) => {}
        () = user => {}
    }
    // It may not do more than that: read Secrets, for example.
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::default_namespaced(client);
    let refused = secrets.list(&Default::default()).await.unwrap_err().to_string();
    assert!(refused.contains("forbidden"), "{refused}");
}
