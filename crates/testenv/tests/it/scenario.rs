//! A correct controller passes every plan; incorrect ones are found.

use crate::copier::{Style, copier, create_map, secrets};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube_client::Api;
use kube_client::api::{Patch, PatchParams};
use serde_json::json;
use setpoint_runtime::BoxError;
use setpoint_testenv::scenario::check;
use setpoint_testenv::{Life, Plans, Scenario, TestEnv, exists, matches};

struct Copies(Style);

impl Scenario for Copies {
    type World = ();

    fn world(&self) {}

    async fn live(&self, life: Life, _world: ()) -> Result<(), BoxError> {
        let style = self.0;
        copier(life.manager(), style)?.run(life.stop).await?;
        Ok(())
    }

    async fn drive(&self, env: &TestEnv, _world: &()) {
        create_map(env.client(), "a", "red").await;
        if self.0 == Style::Forgetful {
            let maps: Api<ConfigMap> = Api::default_namespaced(env.client());
            let is_noted =
                |map: &serde_json::Value| map["metadata"]["annotations"]["made"] == "yes";
            env.until(&maps, "a", matches("is noted", is_noted)).await;
            return;
        }
        let secrets: Api<Secret> = secrets(env);
        env.until(&secrets, "a", exists()).await;
        let maps: Api<ConfigMap> = Api::default_namespaced(env.client());
        let blue = Patch::Merge(json!({"data": {"color": "blue"}}));
        maps.patch("a", &PatchParams::default(), &blue).await.unwrap();
        let is_blue = |secret: &serde_json::Value| secret["data"]["color"] == "Ymx1ZQ==";
        env.until(&secrets, "a", matches("is blue", is_blue)).await;
    }
}

fn fault_of(style: Style, plans: Plans) -> String {
    let caught = std::panic::catch_unwind(|| check(&Copies(style), &plans)).unwrap_err();
    caught.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[test]
fn declarative_controller_reaches_the_same_state_with_every_plan() {
    let n = check(&Copies(Style::Declarative), &Plans::new().crashes().storms(40));
    assert!(n >= 44, "{n} plans");
}

#[test]
fn controller_that_loses_track_of_its_objects_is_found_by_a_crash() {
    let fault = fault_of(Style::Forgetful, Plans::new().crashes());
    assert!(fault.contains("left over: /registry/secrets/default/copy-*"), "{fault}");
    assert!(fault.contains("process is killed"), "the trace is shown: {fault}");
}

#[test]
fn controller_that_requeues_forever_is_found() {
    let fault = fault_of(Style::Restless, Plans::new().plan(setpoint_testenv::Plan::clean(0)));
    assert!(fault.contains("requests after the end"), "{fault}");
}
