//! A target without replicas.

use super::{AUTOSCALERS, Fake, WORKERS, autoscaler, path, pod, worker, worker_definition};
use crate::autoscale::{ACTIVE, PODS};
use crate::cluster::{Cluster, condition, until_either};
use serde_json::{Value, json};
use setpoint_controllers::Setup;
use setpoint_controllers::workload::autoscaler::HorizontalPodAutoscalerController;
use setpoint_registry::{Feature, RuntimeConfig};
use setpoint_runtime::events::EventApi;
use setpoint_testenv::TestEnv;
use std::time::Duration;

const QUEUE: &str = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/queue";

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn target_sleeps_and_wakes_with_its_queue(_: &TestEnv) {
    let fake = Fake::default();
    let env = TestEnv::builder()
        .simulated(7)
        .definitions([worker_definition()])
        .control_plane(|plane| {
            let config = RuntimeConfig::with_gates("", [Feature::HPAScaleToZero]).unwrap();
            fake.serve(plane).runtime_config(config)
        })
        .start()
        .await
        .unwrap();
    let setup = Setup::new(env.client(), env.clock().clone()).scale_to_zero(true);
    let mut manager = env.manager().events(EventApi::Core).build();
    HorizontalPodAutoscalerController::new(setup).add_to(&mut manager).unwrap();
    env.run(manager);
    let cluster = Cluster::of(&env);
    fake.set(QUEUE, json!([{"value": "2"}]));
    cluster.create(PODS, &pod("p", "w")).await;
    worker(&cluster, "w", 2).await;
    let metric = json!({"type": "External", "external": {
        "metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "1"},
    }});
    let spec = json!({"minReplicas": 0, "metrics": [metric]});
    cluster.create(AUTOSCALERS, &autoscaler("Worker", "w", spec)).await;
    let held = format!("{WORKERS}/w");
    // Plays the controller of the workers.
    let follow = async {
        loop {
            let held = cluster.get(&held).await.unwrap();
            let status = json!({"status": {"replicas": held["spec"]["replicas"]}});
            cluster.patch(&format!("{WORKERS}/w/status"), &status).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let zero = |a: &Value| condition(a, "ScaledToZero")["status"].clone();
    let user = async {
        cluster.until(&path("w"), |a| a["status"]["desiredReplicas"] == 2).await;
        fake.set(QUEUE, json!([{"value": "0"}]));
        cluster.until(&held, |w| w["spec"]["replicas"] == 0).await;
        let found = cluster.until(&path("w"), |a| zero(a) == "True").await;
        assert_eq!(condition(&found, "ScaledToZero")["reason"], "ScaledToZero");
        // It goes on to look at the queue.
        fake.set(QUEUE, json!([{"value": "3"}]));
        cluster.until(&held, |w| w["spec"]["replicas"] == 3).await;
        let found = cluster.until(&path("w"), |a| zero(a) == "False").await;
        assert_eq!(condition(&found, "ScaledToZero")["reason"], "NotScaledToZero");
        // A user's zero stays.
        let off = json!({"spec": {"replicas": 0}});
        cluster.patch(&held, &off).await;
        let is_off = |a: &Value| condition(a, ACTIVE)["reason"] == "ScalingDisabled";
        cluster.until(&path("w"), is_off).await;
        tokio::time::sleep(Duration::from_secs(400)).await;
        assert_eq!(cluster.get(&held).await.unwrap()["spec"]["replicas"], 0);
        // Its own does not, once there have to be some.
        cluster.patch(&held, &json!({"spec": {"replicas": 2}})).await;
        fake.set(QUEUE, json!([{"value": "0"}]));
        cluster.until(&path("w"), |a| zero(a) == "True").await;
        cluster.patch(&path("w"), &json!({"spec": {"minReplicas": 2}})).await;
        cluster.until(&held, |w| w["spec"]["replicas"] == 2).await;
        cluster.until(&path("w"), |a| zero(a) == "False").await;
    };
    until_either(user, follow).await;
}
