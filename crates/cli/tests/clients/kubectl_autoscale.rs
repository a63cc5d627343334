//! `kubectl autoscale` and `kubectl top`, with the autoscaler of `setpoint up`. The metrics are
//! custom resources of the metrics API's group.

use crate::server::{Program, Server};
use serde_json::{Value, json};

/// The metrics API as a custom resource.
const METRICS: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: pods.metrics.k8s.io
  annotations: {api-approved.kubernetes.io: 'unapproved, a test'}
spec:
  group: metrics.k8s.io
  scope: Namespaced
  names: {plural: pods, kind: PodMetrics, listKind: PodMetricsList}
  versions:
  - name: v1beta1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

/// Says that each pod of the Deployment uses so much CPU.
fn measure(server: &Server, kubectl: &Program<'_>, cpu: &str) -> usize {
    let pods: Value = serde_json::from_str(&kubectl.ok("get pods -l app=web -o json")).unwrap();
    let pods = pods["items"].as_array().unwrap();
    let metrics = pods.iter().map(|pod| {
        json!({
            "apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics",
            "metadata": {"name": pod["metadata"]["name"], "namespace": "default", "labels": {"app": "web"}},
            // The autoscaler takes no samples that are older than the pod's readiness.
            "timestamp": "2099-01-01T00:00:00Z", "window": "1s",
            "containers": [{"name": "nginx", "usage": {"cpu": cpu, "memory": "8Mi"}}],
        })
    });
    let list = json!({"apiVersion": "v1", "kind": "List", "items": metrics.collect::<Vec<_>>()});
    server.file("metrics.json", &list.to_string());
    kubectl.ok("apply -f metrics.json");
    pods.len()
}

#[test]
fn autoscaler_follows_the_load() {
    let server = Server::start_with(&["--nodes=2".as_ref(), "--controllers=*".as_ref()]);
    let kubectl = &server.kubectl();
    kubectl.eventually("get serviceaccount default", |found| found.contains("default"));
    server.file("metrics.yaml", METRICS);
    kubectl.ok("create -f metrics.yaml");
    kubectl.ok("wait crd/pods.metrics.k8s.io --for=condition=Established --timeout=30s");

    kubectl.ok("create deployment web --image=nginx --replicas=2");
    kubectl.ok("set resources deployment web --requests=cpu=100m");
    kubectl.ok("rollout status deployment/web --timeout=60s");
    // Pods of the first template may be on their way out.
    kubectl.eventually("get pods -l app=web -o name", |names| names.lines().count() == 2);
    assert_eq!(measure(&server, kubectl, "100m"), 2);
    let top = kubectl.eventually("top pods", |table| table.matches("100m").count() == 2);
    assert!(top.contains("CPU(cores)") && top.contains("8Mi"), "{top}");

    assert_eq!(
        kubectl.ok("autoscale deployment web --min=2 --max=6 --cpu=50%"),
        "horizontalpodautoscaler.autoscaling/web autoscaled\n"
    );
    // Twice the target: twice the replicas.
    kubectl.eventually("get deployment web", |table| table.contains("4/4"));
    let table = kubectl.eventually("get hpa web", |table| table.contains("100%/50%"));
    assert!(table.contains("Deployment/web"), "{table}");
    let described = kubectl.eventually("describe hpa web", |text| {
        text.contains("SuccessfulRescale") && text.contains("ScalingActive")
    });
    let why = "New size: 4; reason: cpu resource utilization (percentage of request) above target";
    assert!(described.contains(why), "{described}");
    for held in ["AbleToScale     True", "ScalingActive   True"] {
        assert!(described.contains(held), "{held} in\n{described}");
    }
}
