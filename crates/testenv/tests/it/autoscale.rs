//! HorizontalPodAutoscalers, as a user sees them.

mod fake;
mod surge;
mod zero;

use crate::cluster::{Cluster, Fate, condition, until_either};
use fake::Fake;
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint_testenv::TestEnv;
use std::time::Duration;

const AUTOSCALERS: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
const PODS: &str = "/api/v1/namespaces/default/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const WORKERS: &str = "/apis/ex.io/v1/namespaces/default/workers";
const ABLE: &str = "AbleToScale";
const ACTIVE: &str = "ScalingActive";
const LIMITED: &str = "ScalingLimited";

fn path(name: &str) -> String {
    format!("{AUTOSCALERS}/{name}")
}

/// An autoscaler of a target of the same name, with these members of its spec.
fn autoscaler(kind: &str, name: &str, spec: Value) -> Value {
    let version = if kind == "Worker" { "ex.io/v1" } else { "apps/v1" };
    let mut autoscaler = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name},
        "spec": {
            "scaleTargetRef": {"apiVersion": version, "kind": kind, "name": name},
            "maxReplicas": 10,
        },
    });
    for (member, value) in spec.as_object().unwrap() {
        autoscaler["spec"][member] = value.clone();
    }
    autoscaler
}

fn reasons(autoscaler: &Value) -> [String; 3] {
    [ABLE, ACTIVE, LIMITED].map(|kind| {
        let held = condition(autoscaler, kind);
        let words = [&held["status"], &held["reason"]].map(|text| text.as_str().unwrap_or("-"));
        words.join(" ")
    })
}

/// An environment with metrics APIs, and a kind with a scale that no controller handles.
async fn environment() -> (TestEnv, Fake) {
    let fake = Fake::default();
    let env = TestEnv::builder()
        .simulated(7)
        .definitions([worker_definition()])
        .control_plane(|plane| fake.serve(plane))
        .start()
        .await
        .unwrap();
    (env, fake)
}

fn worker_definition()
-> k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    serde_json::from_value(json!({
        "metadata": {"name": "workers.ex.io"},
        "spec": {
            "group": "ex.io", "scope": "Namespaced",
            "names": {"plural": "workers", "kind": "Worker"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
                    "status": schema,
                }}},
                "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
                    "labelSelectorPath": ".status.selector",
                }},
            }],
        },
    }))
    .unwrap()
}

/// Creates a worker of `n` replicas.
async fn worker(cluster: &Cluster, name: &str, n: i32) {
    let worker = json!({
        "apiVersion": "ex.io/v1", "kind": "Worker", "metadata": {"name": name},
        "spec": {"replicas": n},
    });
    cluster.create(WORKERS, &worker).await;
    let status = json!({"status": {"replicas": n, "selector": format!("app={name}")}});
    cluster.patch(&format!("{WORKERS}/{name}/status"), &status).await;
}

fn pod(name: &str, app: &str) -> Value {
    let container = json!({
        "name": "c", "image": "i", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
    });
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": app}},
        "spec": {"nodeName": "n1", "containers": [container]},
    })
}

async fn start() -> (TestEnv, Fake, Cluster) {
    let (env, fake) = environment().await;
    let names = "horizontalpodautoscaling,deployment,replicaset";
    let cluster = Cluster::start(&env, names);
    (env, fake, cluster)
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn target_follows_the_load(_: &TestEnv) {
    let (env, fake, cluster) = start().await;
    let env = &env;
    let load = Mutex::new(400);
    // The load is spread evenly over the pods.
    let spread = async {
        loop {
            let pods = cluster.list(PODS).await;
            let n = i64::try_from(pods.len().max(1)).unwrap();
            let each = *load.lock() / n;
            let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap().to_owned();
            let pods: Vec<_> = pods.iter().map(|pod| (name(pod), each)).collect();
            fake.set_cpu(env, &pods);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let user = async {
        let template = json!({
            "metadata": {"labels": {"app": "web"}},
            "spec": {"nodeName": "n1", "containers": pod("", "")["spec"]["containers"]},
        });
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {
                "replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template,
            },
        });
        cluster.create(DEPLOYMENTS, &deployment).await;
        let is_ready = |n: usize| move |d: &Value| d["status"]["readyReplicas"] == n;
        cluster.until(&format!("{DEPLOYMENTS}/web"), is_ready(2)).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let target = json!({"type": "Utilization", "averageUtilization": 50});
        let metrics = json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]);
        let spec = json!({"minReplicas": 1, "metrics": metrics});
        cluster.create(AUTOSCALERS, &autoscaler("Deployment", "web", spec)).await;
        // 200 % of two: 8, but at most the double, and 4.
        let held = cluster.until(&path("web"), |a| a["status"]["desiredReplicas"] == 4).await;
        assert_eq!(
            reasons(&held),
            ["True SucceededRescale", "True ValidMetricFound", "True ScaleUpLimit"],
            "{held:#}"
        );
        cluster.until(&format!("{DEPLOYMENTS}/web"), is_ready(8)).await;
        tokio::time::sleep(Duration::from_secs(31)).await;
        let held = cluster.get(&path("web")).await.unwrap();
        let status = &held["status"];
        assert_eq!(
            (&status["currentReplicas"], &status["desiredReplicas"]),
            (&json!(8), &json!(8))
        );
        let current = &status["currentMetrics"][0]["resource"];
        assert_eq!(
            current,
            &json!({"name": "cpu", "current": {"averageUtilization": 50, "averageValue": "50m"}})
        );
        // A fraction of the load remains. The target shrinks when 5 min have passed.
        let before = env.clock().now();
        *load.lock() = 90;
        let held =
            cluster.until(&path("web"), |a| reasons(a)[0] == "True ScaleDownStabilized").await;
        assert_eq!(held["status"]["desiredReplicas"], 8);
        let held = cluster.until(&path("web"), |a| a["status"]["desiredReplicas"] == 2).await;
        assert!(held["status"]["lastScaleTime"].is_string());
        let took = env.clock().now().since(before).as_secs();
        assert!((285..345).contains(&took), "{took} s");
        tokio::time::sleep(Duration::from_secs(2)).await;
        let name = "cpu resource utilization (percentage of request) above target";
        assert_eq!(
            cluster.events("HorizontalPodAutoscaler").await,
            [
                format!("Normal SuccessfulRescale New size: 4; reason: {name}"),
                format!("Normal SuccessfulRescale New size: 8; reason: {name}"),
                "Normal SuccessfulRescale New size: 2; reason: All metrics below target".to_owned(),
            ]
        );
    };
    until_either(cluster.with_kubelets(|_| Fate::Run, user), spread).await;
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn without_metrics_the_conditions_say_why(env: &TestEnv) {
    let cluster = Cluster::start(env, "horizontalpodautoscaling,deployment,replicaset");
    let template = json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    });
    cluster.create(DEPLOYMENTS, &deployment).await;
    cluster.create(AUTOSCALERS, &autoscaler("Deployment", "web", json!({}))).await;
    let error = "failed to get cpu utilization: unable to get metrics for resource cpu: unable to fetch metrics from resource metrics API: the server could not find the requested resource (get pods.metrics.k8s.io)";
    let is_failed = |a: &Value| condition(a, ACTIVE)["reason"] == "FailedGetResourceMetric";
    let held = cluster.until(&path("web"), is_failed).await;
    let able = condition(&held, ABLE);
    assert_eq!((&able["status"], &able["reason"]), (&json!("True"), &json!("SucceededGetScale")));
    let message = "the HPA controller was able to get the target's current scale";
    assert_eq!(able["message"], message);
    let active = condition(&held, ACTIVE);
    assert_eq!(active["status"], "False");
    let message = format!("the HPA was unable to compute the replica count: {error}");
    assert_eq!(active["message"], message);
    assert_eq!(held["status"]["currentReplicas"], 1);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let all = format!(
        "invalid metrics (1 invalid out of 1), first error is: failed to get cpu resource metric value: {error}"
    );
    assert_eq!(
        cluster.events("HorizontalPodAutoscaler").await,
        [
            format!("Warning FailedGetResourceMetric {error}"),
            format!("Warning FailedComputeMetricsReplicas {all}"),
        ]
    );
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn targets_that_cannot_be_scaled(_: &TestEnv) {
    let (_env, _fake, cluster) = start().await;
    let reason = async |name: &str, kind: &str, expected: &str| {
        let held = cluster.until(&path(name), |a| condition(a, kind)["reason"] == expected).await;
        condition(&held, kind)["message"].as_str().unwrap().to_owned()
    };
    let unable = "the HPA controller was unable to get the target's current scale";
    cluster.create(AUTOSCALERS, &autoscaler("Deployment", "none", json!({}))).await;
    assert_eq!(
        reason("none", ABLE, "FailedGetScale").await,
        format!("{unable}: deployments.apps \"none\" not found")
    );
    cluster.create(AUTOSCALERS, &autoscaler("Thing", "kind", json!({}))).await;
    assert_eq!(
        reason("kind", ABLE, "FailedGetScale").await,
        format!("{unable}: no matches for kind \"Thing\" in group \"apps\"")
    );

    worker(&cluster, "off", 0).await;
    cluster.create(AUTOSCALERS, &autoscaler("Worker", "off", json!({}))).await;
    assert_eq!(
        reason("off", ACTIVE, "ScalingDisabled").await,
        "scaling is disabled since the replica count of the target is zero"
    );

    worker(&cluster, "blind", 2).await;
    let status = json!({"status": {"selector": null}});
    cluster.patch(&format!("{WORKERS}/blind/status"), &status).await;
    cluster.create(AUTOSCALERS, &autoscaler("Worker", "blind", json!({}))).await;
    assert_eq!(
        reason("blind", ACTIVE, "InvalidSelector").await,
        "the HPA target's scale is missing a selector"
    );

    worker(&cluster, "big", 20).await;
    cluster.create(AUTOSCALERS, &autoscaler("Worker", "big", json!({}))).await;
    let replicas = |n: i32| move |worker: &Value| worker["spec"]["replicas"] == n;
    cluster.until(&format!("{WORKERS}/big"), replicas(10)).await;
    worker(&cluster, "small", 1).await;
    let bounds = json!({"minReplicas": 3});
    cluster.create(AUTOSCALERS, &autoscaler("Worker", "small", bounds)).await;
    cluster.until(&format!("{WORKERS}/small"), replicas(3)).await;

    // Two autoscalers of one target stop.
    worker(&cluster, "two", 2).await;
    cluster.create(PODS, &pod("p1", "two")).await;
    cluster.create(AUTOSCALERS, &autoscaler("Worker", "two", json!({}))).await;
    let mut second = autoscaler("Worker", "two", json!({}));
    second["metadata"]["name"] = "second".into();
    cluster.create(AUTOSCALERS, &second).await;
    assert_eq!(
        reason("two", ACTIVE, "AmbiguousSelector").await,
        "pods by selector app=two are controlled by multiple HPAs: [default/second default/two]"
    );

    tokio::time::sleep(Duration::from_secs(2)).await;
    let events = cluster.events("HorizontalPodAutoscaler").await;
    for event in [
        "Warning FailedGetScale deployments.apps \"none\" not found",
        "Warning SelectorRequired selector is required",
        "Normal SuccessfulRescale New size: 10; reason: Current number of replicas above Spec.MaxReplicas",
        "Normal SuccessfulRescale New size: 3; reason: Current number of replicas below Spec.MinReplicas",
    ] {
        assert!(events.iter().any(|held| held == event), "{event}\n{events:#?}");
    }
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn metrics_of_every_source(_: &TestEnv) {
    let (env, fake, cluster) = start().await;
    let user = async {
        for n in 1..=4 {
            cluster.create(PODS, &pod(&format!("p{n}"), "w")).await;
        }
        let is_ready = |pod: &Value| pod["status"]["phase"] == "Running";
        cluster.until_all(PODS, |pods| pods.iter().filter(|pod| is_ready(pod)).count() == 4).await;
        let pods: Vec<_> = (1..=4).map(|n| (format!("p{n}"), 30)).collect();
        fake.set_cpu(&env, &pods);
        let custom = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default";
        let value = |name: &str, value: &str| {
            json!({
                "describedObject": {"kind": "Pod", "name": name, "namespace": "default"},
                "metric": {"name": "hits"}, "timestamp": "2026-01-01T00:00:00Z", "value": value,
            })
        };
        let hits: Value = (1..=4).map(|n| value(&format!("p{n}"), "15")).collect();
        fake.set(&format!("{custom}/pods/*/hits"), hits);
        fake.set(&format!("{custom}/services/s/hits"), json!([value("s", "3k")]));
        fake.set(&format!("{custom}/metrics/hits"), json!([value("default", "2500m")]));
        let external = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/queue";
        fake.set(external, json!([{"value": "20"}, {"value": "10"}]));
        let metric = json!({"name": "hits"});
        let object = |kind: &str, name: &str, target: Value| {
            json!({"type": "Object", "object": {
                "describedObject": {"apiVersion": "v1", "kind": kind, "name": name},
                "metric": metric, "target": target,
            }})
        };
        let queue = |target: Value| {
            let metric = json!({"name": "queue", "selector": {"matchLabels": {"q": "a"}}});
            json!({"type": "External", "external": {"metric": metric, "target": target}})
        };
        let utilization = json!({"type": "Utilization", "averageUtilization": 20});
        let shown = "&LabelSelector{MatchLabels:map[string]string{q: a,},MatchExpressions:[]LabelSelectorRequirement{},}";
        let cases = [
            (
                json!({"type": "ContainerResource", "containerResource": {
                    "name": "cpu", "container": "c", "target": utilization,
                }}),
                6,
                json!({"averageUtilization": 30, "averageValue": "30m"}),
                "cpu container resource utilization (percentage of request)".to_owned(),
            ),
            (
                json!({"type": "Resource", "resource": {
                    "name": "cpu", "target": {"type": "AverageValue", "averageValue": "15m"},
                }}),
                8,
                json!({"averageValue": "30m"}),
                "cpu resource".to_owned(),
            ),
            (
                json!({"type": "Pods", "pods": {
                    "metric": metric, "target": {"type": "AverageValue", "averageValue": "10"},
                }}),
                6,
                json!({"averageValue": "15"}),
                "pods metric hits".to_owned(),
            ),
            (
                object("Service", "s", json!({"type": "Value", "value": "2k"})),
                6,
                json!({"value": "3k"}),
                "Service metric hits".to_owned(),
            ),
            (
                object("Service", "s", json!({"type": "AverageValue", "averageValue": "600"})),
                5,
                json!({"averageValue": "750"}),
                "external metric hits(nil)".to_owned(),
            ),
            (
                object("Namespace", "default", json!({"type": "Value", "value": "2"})),
                5,
                json!({"value": "2500m"}),
                "Namespace metric hits".to_owned(),
            ),
            (
                queue(json!({"type": "Value", "value": "20"})),
                6,
                json!({"value": "30"}),
                format!("external metric queue({shown})"),
            ),
            (
                queue(json!({"type": "AverageValue", "averageValue": "6"})),
                5,
                json!({"averageValue": "7500m"}),
                format!("external metric queue({shown})"),
            ),
        ];
        for (n, (metric, replicas, current, name)) in cases.into_iter().enumerate() {
            worker(&cluster, "w", 4).await;
            let metrics = json!({"metrics": [metric], "maxReplicas": 20});
            cluster.create(AUTOSCALERS, &autoscaler("Worker", "w", metrics)).await;
            let is_scaled = |a: &Value| a["status"]["lastScaleTime"].is_string();
            let held = cluster.until(&path("w"), is_scaled).await;
            assert_eq!(held["status"]["desiredReplicas"], replicas, "case {n}: {held:#}");
            let status = &held["status"]["currentMetrics"][0];
            assert_eq!(status["type"], metric["type"]);
            let member = metric["type"].as_str().unwrap();
            let member = format!("{}{}", member[..1].to_lowercase(), &member[1..]);
            assert_eq!(status[&member]["current"], current, "case {n}");
            let message = condition(&held, ACTIVE)["message"].as_str().unwrap().to_owned();
            let expected = "the HPA was able to successfully calculate a replica count from ";
            assert_eq!(message, format!("{expected}{name}"));
            cluster.delete(&path("w"), &json!({})).await;
            cluster.delete(&format!("{WORKERS}/w"), &json!({})).await;
            cluster.until(&path("w"), Value::is_null).await;
        }

        // One of two metrics is missing: the other may let the target grow, but not shrink.
        worker(&cluster, "w", 4).await;
        let missing = object("Service", "none", json!({"type": "Value", "value": "1"}));
        let more = queue(json!({"type": "AverageValue", "averageValue": "5"}));
        let metrics = json!({"metrics": [missing, more]});
        cluster.create(AUTOSCALERS, &autoscaler("Worker", "w", metrics)).await;
        let held = cluster.until(&path("w"), |a| a["status"]["desiredReplicas"] == 6).await;
        assert_eq!(held["status"]["currentMetrics"][0]["type"], "");
        cluster.patch(&format!("{WORKERS}/w/status"), &json!({"status": {"replicas": 6}})).await;
        fake.set(external, json!([{"value": "5"}]));
        let is_stopped = |a: &Value| condition(a, ACTIVE)["reason"] == "FailedGetObjectMetric";
        cluster.until(&path("w"), is_stopped).await;
        tokio::time::sleep(Duration::from_secs(400)).await;
        let held = cluster.get(&format!("{WORKERS}/w")).await.unwrap();
        assert_eq!(held["spec"]["replicas"], 6);
    };
    cluster.with_kubelets(|_| Fate::Run, user).await;
}

#[setpoint_testenv::test(crate = setpoint_testenv)]
async fn behavior_limits_the_rate(_: &TestEnv) {
    let (env, fake, cluster) = start().await;
    let external = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/queue";
    fake.set(external, json!([{"value": "8"}]));
    cluster.create(PODS, &pod("p", "w")).await;
    worker(&cluster, "w", 2).await;
    let metric = json!({"type": "External", "external": {
        "metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "1"},
    }});
    let policy = |n: i32| json!([{"type": "Pods", "value": n, "periodSeconds": 60}]);
    let behavior = json!({
        "scaleUp": {"policies": policy(2)},
        "scaleDown": {"stabilizationWindowSeconds": 30, "policies": policy(3)},
    });
    let spec = json!({"metrics": [metric], "behavior": behavior});
    cluster.create(AUTOSCALERS, &autoscaler("Worker", "w", spec)).await;
    // Plays the controller of the workers.
    let follow = async {
        loop {
            let held = cluster.get(&format!("{WORKERS}/w")).await.unwrap();
            let status = json!({"status": {"replicas": held["spec"]["replicas"]}});
            cluster.patch(&format!("{WORKERS}/w/status"), &status).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let user = async {
        let begin = env.clock().now();
        let mut times = Vec::new();
        for n in [4, 6, 8] {
            let held = cluster.until(&path("w"), |a| a["status"]["desiredReplicas"] == n).await;
            times.push(env.clock().now().since(begin).as_secs());
            if n < 8 {
                assert_eq!(reasons(&held)[2], "True ScaleUpLimit");
            }
        }
        assert!(times[0] < 5 && times[1] >= 60 && times[2] >= 120 && times[2] < 160, "{times:?}");
        // Replicas added within a policy's period do not count at the start of the period.
        tokio::time::sleep(Duration::from_secs(90)).await;
        fake.set(external, json!([{"value": "1"}]));
        let begin = env.clock().now();
        let held = cluster.until(&path("w"), |a| a["status"]["desiredReplicas"] == 5).await;
        assert_eq!(reasons(&held)[2], "True ScaleDownLimit");
        cluster.until(&path("w"), |a| a["status"]["desiredReplicas"] == 2).await;
        cluster.until(&path("w"), |a| a["status"]["desiredReplicas"] == 1).await;
        let took = env.clock().now().since(begin).as_secs();
        assert!((120..220).contains(&took), "{took} s");
    };
    until_either(user, follow).await;
}
