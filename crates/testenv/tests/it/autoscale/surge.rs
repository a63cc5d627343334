//! A target that follows its load, through crashes and storms.

use super::{
    AUTOSCALERS, PODS, WORKERS, autoscaler, path, pod, reasons, worker, worker_definition,
};
use crate::cluster::{Cluster, until_either};
use futures::FutureExt as _;
use futures::future::{BoxFuture, ready};
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint_controllers::Setup;
use setpoint_controllers::workload::autoscaler::{
    HorizontalPodAutoscalerController, MetricObject, MetricsError, MetricsSource, PodMetric,
    PodMetrics,
};
use setpoint_runtime::BoxError;
use setpoint_runtime::events::EventApi;
use setpoint_testenv::scenario::check;
use setpoint_testenv::{Life, Plans, Scenario, TestEnv};
use std::sync::Arc;
use std::time::Duration;

/// The load, in thousandths, and the pods that share it.
#[derive(Clone, Default)]
struct Load(Arc<Mutex<(i64, Vec<String>)>>);

impl Load {
    fn refuse<T: Send + 'static>() -> BoxFuture<'static, Result<T, MetricsError>> {
        ready(Err(MetricsError("there is no such metric".to_owned()))).boxed()
    }
}

impl MetricsSource for Load {
    fn resource<'a>(
        &'a self,
        _: &'a str,
        _: &'a str,
        _: &'a str,
        _: Option<&'a str>,
    ) -> BoxFuture<'a, Result<PodMetrics, MetricsError>> {
        Self::refuse()
    }

    fn pods<'a>(
        &'a self,
        _: &'a str,
        _: &'a str,
        _: &'a str,
        _: &'a str,
    ) -> BoxFuture<'a, Result<PodMetrics, MetricsError>> {
        let (load, pods) = &*self.0.lock();
        let milli = load / i64::try_from(pods.len().max(1)).unwrap();
        let metric = PodMetric { milli, at: Default::default(), window: Duration::ZERO };
        let metrics = pods.iter().map(|pod| (pod.clone(), metric)).collect();
        ready(Ok(metrics)).boxed()
    }

    fn object<'a>(
        &'a self,
        _: &'a str,
        _: MetricObject<'a>,
        _: &'a str,
        _: &'a str,
    ) -> BoxFuture<'a, Result<i64, MetricsError>> {
        Self::refuse()
    }

    fn external<'a>(
        &'a self,
        _: &'a str,
        _: &'a str,
        _: &'a str,
    ) -> BoxFuture<'a, Result<Vec<i64>, MetricsError>> {
        Self::refuse()
    }
}

/// A target that grows with its load, and shrinks again.
struct Surge;

impl Scenario for Surge {
    type World = Load;

    fn world(&self) -> Load {
        Load::default()
    }

    fn definitions(
        &self,
    ) -> Vec<k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition>
    {
        vec![worker_definition()]
    }

    async fn live(&self, life: Life, world: Load) -> Result<(), BoxError> {
        let setup = Setup::new(life.client.clone(), life.clock.clone());
        let mut manager = life.manager().events(EventApi::Core).build();
        HorizontalPodAutoscalerController::new(setup)
            .metrics(Arc::new(world))
            .add_to(&mut manager)?;
        Ok(manager.run(life.stop.clone()).await?)
    }

    async fn drive(&self, env: &TestEnv, world: &Load) {
        let cluster = Cluster::of(env);
        let worker_path = format!("{WORKERS}/w");
        // Plays the controller of the workers, and the kubelets.
        let follow = async {
            let mut changes = cluster.changes();
            loop {
                if let Some(held) = cluster.get(&worker_path).await {
                    let n = usize::try_from(held["spec"]["replicas"].as_i64().unwrap()).unwrap();
                    assert!((2..=6).contains(&n), "{n} is out of bounds");
                    let pods = cluster.list(PODS).await;
                    for n in pods.len()..n {
                        let name = format!("p{n}");
                        cluster.create(PODS, &pod(&name, "w")).await;
                        let running = json!({"status": {"phase": "Running"}});
                        cluster.patch(&format!("{PODS}/{name}/status"), &running).await;
                    }
                    for n in n..pods.len() {
                        let now = json!({"gracePeriodSeconds": 0});
                        cluster.delete(&format!("{PODS}/p{n}"), &now).await;
                    }
                    world.0.lock().1 = (0..n).map(|n| format!("p{n}")).collect();
                    if held["status"]["replicas"] != n {
                        let status = json!({"status": {"replicas": n, "selector": "app=w"}});
                        cluster.patch(&format!("{worker_path}/status"), &status).await;
                    }
                }
                changes.next().await;
                tokio::time::sleep(Duration::from_secs(2)).await;
                changes.skip();
            }
        };
        let user = async {
            let settled = async |n: i64| {
                let is_settled = |a: &Value| {
                    let status = &a["status"];
                    status["currentReplicas"] == n
                        && status["desiredReplicas"] == n
                        && reasons(a)[0] == "True ReadyForNewScale"
                        && reasons(a)[1] == "True ValidMetricFound"
                };
                cluster.until(&path("w"), is_settled).await;
            };
            world.0.lock().0 = 20_000;
            worker(&cluster, "w", 2).await;
            let metric = json!({"type": "Pods", "pods": {
                "metric": {"name": "hits"}, "target": {"type": "AverageValue", "averageValue": "4"},
            }});
            let spec = json!({"metrics": [metric], "minReplicas": 2, "maxReplicas": 6});
            cluster.create(AUTOSCALERS, &autoscaler("Worker", "w", spec)).await;
            settled(5).await;
            world.0.lock().0 = 9_000;
            settled(3).await;
            cluster.until_all(PODS, |pods| pods.len() == 3).await;
        };
        until_either(user, follow).await;
    }
}

#[test]
fn autoscaler_stays_in_its_bounds_and_settles_with_every_plan() {
    let n = check(&Surge, &Plans::new().crashes().storms(16));
    assert!(n > 20, "{n} plans");
}
