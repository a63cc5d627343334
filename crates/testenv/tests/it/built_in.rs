//! The built-in controllers pass the scenario checks.

use crate::copier::create_map;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube_client::api::{DeleteParams, PostParams};
use kube_client::{Api, ResourceExt as _};
use serde_json::json;
use setpoint_control_plane::ControlPlaneBuilder;
use setpoint_controllers::{GarbageCollector, NamespaceController, Setup};
use setpoint_runtime::BoxError;
use setpoint_testenv::scenario::check;
use setpoint_testenv::{Life, Plans, Scenario, TestEnv, exists, gone};

/// A namespace that is deleted with its content, and an owner with two dependents.
struct Deletions;

impl Scenario for Deletions {
    type World = ();

    fn world(&self) {}

    fn control_plane(&self, builder: ControlPlaneBuilder) -> ControlPlaneBuilder {
        builder.controllers(false)
    }

    async fn live(&self, life: Life, _world: ()) -> Result<(), BoxError> {
        let (client, stop) = (life.client.clone(), life.stop.clone());
        let setup = Setup::new(client.clone(), life.clock.clone()).seed(life.seed);
        let namespaces = setup.run(stop.clone(), |setup, manager| {
            NamespaceController::new(setup.clone()).add_to(manager)
        });
        let garbage = GarbageCollector::new(client).seed(life.seed).run(stop.clone());
        let (ended, ()) = tokio::join!(namespaces, garbage);
        ended
    }

    async fn drive(&self, env: &TestEnv, _world: &()) {
        let namespaces: Api<Namespace> = Api::all(env.client());
        let namespace = json!({"metadata": {"name": "team"}});
        let namespace = serde_json::from_value(namespace).unwrap();
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        let inside: Api<ConfigMap> = Api::namespaced(env.client(), "team");
        let map = serde_json::from_value(json!({"metadata": {"name": "inside"}})).unwrap();
        inside.create(&PostParams::default(), &map).await.unwrap();

        create_map(env.client(), "owner", "red").await;
        let maps: Api<ConfigMap> = Api::default_namespaced(env.client());
        let owner = maps.get("owner").await.unwrap();
        for name in ["first", "second"] {
            let map = json!({"metadata": {"name": name, "ownerReferences": [{
                "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.uid(),
            }]}});
            let map = serde_json::from_value(map).unwrap();
            maps.create(&PostParams::default(), &map).await.unwrap();
        }
        env.until(&maps, "second", exists()).await;

        maps.delete("owner", &DeleteParams::background()).await.unwrap();
        namespaces.delete("team", &DeleteParams::default()).await.unwrap();
        env.until(&maps, "first", gone()).await;
        env.until(&maps, "second", gone()).await;
        env.until(&namespaces, "team", gone()).await;
    }

    /// The garbage collector watches every resource.
    fn requests_afterwards_max(&self) -> usize {
        400
    }
}

#[test]
fn deletions_reach_the_same_state_with_every_plan() {
    let n = check(&Deletions, &Plans::new().crashes().storms(15));
    assert!(n > 20, "{n} plans");
}
