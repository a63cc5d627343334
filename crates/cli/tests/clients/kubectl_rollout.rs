//! Current kubectl: rollouts, with the workload controllers of `setpoint up`.

use crate::server::{PATIENCE, Program, Server};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Makes pods ready and ends those that are being deleted, until `stop`.
fn kubelet(kubectl: &Program<'_>, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let pods: Value = serde_json::from_str(&kubectl.ok("get pods -o json")).unwrap();
        for pod in pods["items"].as_array().into_iter().flatten() {
            let name = pod["metadata"]["name"].as_str().unwrap();
            if pod["metadata"]["deletionTimestamp"].is_string() {
                attempt(kubectl, &format!("delete pod {name} --force --grace-period=0"));
            } else if pod["status"]["phase"] == "Pending" {
                let condition = json!({
                    "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z",
                });
                let status = json!({"status": {"phase": "Running", "conditions": [condition]}});
                attempt(
                    kubectl,
                    &format!("patch pod {name} --subresource=status --type=merge -p '{status}'"),
                );
            }
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Runs a command that may fail, because the pod may be gone.
fn attempt(kubectl: &Program<'_>, line: &str) {
    kubectl.command(line).output().unwrap();
}

/// Runs a test beside the kubelet.
fn with_kubelet(server: &Server, test: impl FnOnce(&Program<'_>)) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| kubelet(&server.kubectl(), &stop));
        // Stops the kubelet also if the test panics.
        let _stop = Stop(&stop);
        test(&server.kubectl());
    });
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waits until a command prints a text.
fn until(kubectl: &Program<'_>, line: &str, wanted: &str) {
    let started = Instant::now();
    loop {
        let said = kubectl.ok(line);
        if said == wanted {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "{line}: {said:?} and not {wanted:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn deployment_is_rolled_out_paused_undone_and_restarted() {
    let server = Server::start_with(&["--controllers=*".as_ref()]);
    with_kubelet(&server, |kubectl| {
        kubectl.ok("create deployment web --image=nginx:1 --replicas=3");
        let done = "deployment \"web\" successfully rolled out\n";
        let status = "rollout status deployment/web --timeout=60s";
        assert!(kubectl.ok(status).ends_with(done));
        kubectl.ok("set image deployment/web nginx=nginx:2");
        assert!(kubectl.ok(status).ends_with(done));
        let history = kubectl.ok("rollout history deployment/web");
        assert_eq!(
            history,
            "deployment.apps/web \nREVISION  CHANGE-CAUSE\n1         <none>\n2         <none>\n\n"
        );
        assert!(kubectl.ok("rollout history deployment/web --revision=1").contains("nginx:1"));

        let image = "get deployment web -o jsonpath={.spec.template.spec.containers[0].image}";
        assert_eq!(kubectl.ok("rollout undo deployment/web"), "deployment.apps/web rolled back\n");
        assert!(kubectl.ok(status).ends_with(done));
        assert_eq!(kubectl.ok(image), "nginx:1");
        let history = kubectl.ok("rollout history deployment/web");
        assert!(history.contains("\n2  ") && history.contains("\n3  "), "{history}");

        kubectl.ok("rollout pause deployment/web");
        kubectl.ok("set image deployment/web nginx=nginx:3");
        kubectl.ok("scale deployment web --replicas=5");
        let available = "get deployment web -o jsonpath={.status.availableReplicas}";
        until(kubectl, available, "5");
        assert_eq!(kubectl.ok("get rs -o name").lines().count(), 2, "no new one while paused");
        kubectl.ok("rollout resume deployment/web");
        assert!(kubectl.ok(status).ends_with(done));
        assert_eq!(kubectl.ok("get rs -o name").lines().count(), 3);

        kubectl.ok("rollout restart deployment/web");
        assert!(kubectl.ok(status).ends_with(done));
        let described = kubectl.ok("describe deployment web");
        for text in ["Scaled up replica set web-", "NewReplicaSetAvailable", "5 available"] {
            assert!(described.contains(text), "{text} in\n{described}");
        }
        kubectl.ok("delete deployment web");
        until(kubectl, "get pods -o name", "");
    });
}

#[test]
fn stateful_set_is_rolled_out_and_undone() {
    let server = Server::start_with(&["--controllers=*".as_ref()]);
    server.file(
        "db.yaml",
        "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db}, spec: {replicas: 2, \
         serviceName: db, selector: {matchLabels: {app: db}}, template: {metadata: {labels: \
         {app: db}}, spec: {containers: [{name: c, image: v1}]}}}}",
    );
    with_kubelet(&server, |kubectl| {
        kubectl.ok("apply -f db.yaml");
        let status = "rollout status statefulset/db --timeout=60s";
        kubectl.ok(status);
        assert_eq!(kubectl.ok("get pods -o name"), "pod/db-0\npod/db-1\n");
        kubectl.ok("set image statefulset/db c=v2");
        kubectl.ok(status);
        kubectl.ok("rollout undo statefulset/db");
        kubectl.ok(status);
        let images = "get pods -o jsonpath={.items[*].spec.containers[0].image}";
        assert_eq!(kubectl.ok(images), "v1 v1");
        kubectl.ok("scale statefulset db --replicas=1");
        until(kubectl, "get pods -o name", "pod/db-0\n");
    });
}

#[test]
fn controllers_can_be_turned_off() {
    let server = Server::start_with(&["--controllers=*,-deployment".as_ref()]);
    let kubectl = server.kubectl();
    kubectl.ok("create deployment web --image=nginx:1");
    // Another controller works meanwhile.
    let set = r#"{"apiVersion":"apps/v1","kind":"ReplicaSet","metadata":{"name":"r"},"spec":{
        "replicas":1,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{
        "a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}"#;
    server.file("r.json", set);
    kubectl.ok("create -f r.json");
    until(&kubectl, "get rs r -o jsonpath={.status.replicas}", "1");
    assert_eq!(kubectl.ok("get rs -o name"), "replicaset.apps/r\n");
}
