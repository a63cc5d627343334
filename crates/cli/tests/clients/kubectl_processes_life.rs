//! The life of a pod that runs as processes: hooks, probes, its end, and what outlives it.

use crate::kubectl_processes::{create, start};
use crate::server::{Program, Server};
use std::path::PathBuf;

/// A folder that pods write to, and the volume of it.
fn record(server: &Server) -> (PathBuf, String) {
    let folder = server.folder.path().join("record");
    std::fs::create_dir_all(&folder).unwrap();
    let volume = format!("{{name: v, hostPath: {{path: '{}'}}}}", folder.display());
    (folder, volume)
}

/// A container that writes its begin and its end to the record. Its script takes TERM calmly.
fn container(name: &str, rest: &str) -> String {
    let script = format!(
        "trap \"echo {name} term >> /v/log; exit 0\" TERM; echo {name} runs >> /v/log; \
         while :; do sleep 0.05; done"
    );
    format!(
        "{{name: {name}, image: i, command: [sh, -c, '{script}'], \
         volumeMounts: [{{name: v, mountPath: /v}}]{rest}}}"
    )
}

/// A hook that writes to the record.
fn hook(kind: &str, script: &str) -> String {
    format!("{kind}: {{exec: {{command: [sh, -c, '{script}']}}}}")
}

fn lines(folder: &std::path::Path) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// A part of the only container's status.
fn status(kubectl: &Program<'_>, pod: &str, path: &str) -> String {
    kubectl.ok(&format!("get pod {pod} -o jsonpath={{.status.containerStatuses[0].{path}}}"))
}

#[test]
fn hooks_run_after_the_start_and_before_the_end() {
    let server = start();
    let kubectl = &server.kubectl();
    let (folder, volume) = record(&server);
    let post = hook("postStart", "until test -f /v/go; do sleep 0.05; done; echo post >> /v/log");
    let pre = hook("preStop", "echo pre begins >> /v/log; sleep 0.3; echo pre ends >> /v/log");
    let first = container("a", &format!(", lifecycle: {{{post}, {pre}}}"));
    let second = container("b", "");
    create(
        &server,
        kubectl,
        "p",
        &format!("{{containers: [{first}, {second}], volumes: [{volume}]}}"),
    );
    // Neither the container nor the one after it runs before the hook has ended.
    kubectl.eventually("get events", |events| events.contains("Started container a"));
    assert!(status(kubectl, "p", "state").contains("ContainerCreating"));
    assert!(!lines(&folder).iter().any(|line| line.starts_with('b')));
    std::fs::write(folder.join("go"), "").unwrap();
    kubectl.ok("wait pod/p --for=condition=Ready --timeout=30s");
    kubectl.eventually("get pod p", |_| lines(&folder).len() == 3);
    assert_eq!(lines(&folder), ["a runs", "post", "b runs"]);
    kubectl.ok("delete pod p --timeout=30s");
    let mut end = lines(&folder).split_off(3);
    end.retain(|line| line != "b term");
    assert_eq!(end, ["pre begins", "pre ends", "a term"]);
}

#[test]
fn a_container_whose_hook_fails_is_restarted() {
    let server = start();
    let kubectl = &server.kubectl();
    let (folder, volume) = record(&server);
    let script = "test -f /v/ok || { echo no such luck; exit 1; }";
    let one = container("c", &format!(", lifecycle: {{{}}}", hook("postStart", script)));
    create(&server, kubectl, "p", &format!("{{containers: [{one}], volumes: [{volume}]}}"));
    kubectl.eventually("describe pod p", |text| {
        text.contains("FailedPostStartHook") && text.contains("no such luck")
    });
    std::fs::write(folder.join("ok"), "").unwrap();
    kubectl.ok("wait pod/p --for=condition=Ready --timeout=60s");
    assert_ne!(status(kubectl, "p", "restartCount"), "0");
    assert!(lines(&folder).contains(&"c term".to_owned()));
}

#[test]
fn rules_restart_a_container_or_all_of_its_pod() {
    let server = start();
    let kubectl = &server.kubectl();
    let (_, volume) = record(&server);
    for (action, counts) in [("Restart", "0,1 0"), ("RestartAllContainers", "1,1 1")] {
        let name = action.to_lowercase();
        let script =
            format!("test -f /v/{name} && exec sleep 1000; touch /v/{name}; sleep 0.3; exit 42");
        let rule = format!("{{action: {action}, exitCodes: {{operator: In, values: [42]}}}}");
        let source = format!(
            "{{name: source, image: i, command: [sh, -c, '{script}'], restartPolicy: Never, \
             volumeMounts: [{{name: v, mountPath: /v}}], restartPolicyRules: [{rule}]}}"
        );
        let other = container("other", "");
        let spec = format!(
            "{{restartPolicy: Never, initContainers: [{{name: i, image: i, command: ['true']}}], \
             containers: [{source}, {other}], volumes: [{volume}]}}"
        );
        create(&server, kubectl, &name, &spec);
        let init = "{.status.initContainerStatuses[*].restartCount}";
        let main = "{.status.containerStatuses[*].restartCount}";
        kubectl.eventually(&format!("get pod {name} -o jsonpath={init},{main}"), |found| {
            found == counts
        });
        kubectl.ok(&format!("wait pod/{name} --for=condition=Ready --timeout=30s"));
    }
    // It has its own policy, too.
    create(
        &server,
        kubectl,
        "never",
        "{containers: [{name: c, image: i, command: ['false'], restartPolicy: Never}]}",
    );
    kubectl.ok("wait pod/never --for=jsonpath={.status.phase}=Failed --timeout=30s");
}

#[test]
fn the_grace_period_ends_hooks_and_processes() {
    let server = start();
    let kubectl = &server.kubectl();
    let (folder, volume) = record(&server);
    // It does not end by itself, and its hook takes longer than the pod has.
    let deaf = "{name: c, image: i, volumeMounts: [{name: v, mountPath: /v}], command: [sh, -c, \
        'trap \"echo term >> /v/log\" TERM; echo runs >> /v/log; while :; do sleep 0.05; done'], \
        lifecycle: {preStop: {exec: {command: [sh, -c, 'echo pre >> /v/log; sleep 1000; echo never >> /v/log']}}}}";
    let spec = format!(
        "{{terminationGracePeriodSeconds: 600, containers: [{deaf}], volumes: [{volume}]}}"
    );
    create(&server, kubectl, "p", &spec);
    kubectl.ok("wait pod/p --for=condition=Ready --timeout=30s");
    kubectl.eventually("get pod p", |_| lines(&folder).len() == 1);
    kubectl.ok("delete pod p --wait=false");
    kubectl.eventually("get pod p", |_| lines(&folder).len() == 2);
    // The grace period becomes shorter while the hook runs.
    kubectl.ok("delete pod p --grace-period=1 --timeout=30s");
    // After the hook there is time for the signal.
    assert_eq!(lines(&folder), ["runs", "pre", "term"]);
    let events = kubectl.ok("get events");
    assert!(events.contains("FailedPreStopHook"), "{events}");
}

#[test]
fn sidecars_end_after_the_others_and_the_last_first() {
    let server = start();
    let kubectl = &server.kubectl();
    let (folder, volume) = record(&server);
    let side = |name: &str, rest: &str| container(name, &format!(", restartPolicy: Always{rest}"));
    let pre = format!(", lifecycle: {{{}}}", hook("preStop", "echo s2 pre >> /v/log"));
    let (s1, s2, main) = (side("s1", ""), side("s2", &pre), container("m", ""));
    let spec =
        format!("{{initContainers: [{s1}, {s2}], containers: [{main}], volumes: [{volume}]}}");
    create(&server, kubectl, "p", &spec);
    kubectl.ok("wait pod/p --for=condition=Ready --timeout=30s");
    kubectl.eventually("get pod p", |_| lines(&folder).len() == 3);
    assert_eq!(lines(&folder), ["s1 runs", "s2 runs", "m runs"]);
    let started = "get pod p -o jsonpath={.status.initContainerStatuses[*].started}";
    assert_eq!(kubectl.ok(started), "true true");
    kubectl.ok("delete pod p --timeout=30s");
    let end = lines(&folder).split_off(3);
    let signals: Vec<_> = end.iter().filter(|line| line.ends_with("term")).collect();
    assert_eq!(signals, ["m term", "s2 term", "s1 term"]);
    assert!(end.contains(&"s2 pre".to_owned()));
}

#[test]
fn a_sidecar_that_ends_starts_again_and_one_that_is_not_started_holds_up_the_pod() {
    let server = start();
    let kubectl = &server.kubectl();
    let (folder, volume) = record(&server);
    let side = "{name: s, image: i, restartPolicy: Always, volumeMounts: [{name: v, mountPath: /v}], \
        command: [sh, -c, 'echo s runs >> /v/log; until test -f /v/end; do sleep 0.05; done; rm /v/end'], \
        startupProbe: {exec: {command: [test, -f, /v/started]}, periodSeconds: 1, failureThreshold: 100}}";
    let main = container("m", "");
    let spec = format!("{{initContainers: [{side}], containers: [{main}], volumes: [{volume}]}}");
    create(&server, kubectl, "p", &spec);
    kubectl.eventually("describe pod p", |text| text.contains("Startup probe failed"));
    kubectl.eventually("get pod p", |table| table.contains("Init:0/1"));
    std::fs::write(folder.join("started"), "").unwrap();
    kubectl.ok("wait pod/p --for=condition=Ready --timeout=30s");
    std::fs::write(folder.join("end"), "").unwrap();
    let restarts = "get pod p -o jsonpath={.status.initContainerStatuses[0].restartCount}";
    kubectl.eventually(restarts, |count| count == "1");
    kubectl.ok("wait pod/p --for=condition=Ready --timeout=30s");
    assert_eq!(status(kubectl, "p", "restartCount"), "0");
}

#[test]
fn a_container_that_fails_its_liveness_probe_is_killed_and_restarted() {
    let server = start();
    let kubectl = &server.kubectl();
    let (folder, volume) = record(&server);
    std::fs::write(folder.join("alive"), "").unwrap();
    // It ignores its signal. The probe's grace period counts, not that of the pod.
    let one = "{name: c, image: i, volumeMounts: [{name: v, mountPath: /v}], \
        command: [sh, -c, 'trap \"\" TERM; echo run $(date +%s%N); while :; do sleep 0.05; done'], \
        livenessProbe: {exec: {command: [cat, /v/alive]}, periodSeconds: 1, failureThreshold: 2, \
        terminationGracePeriodSeconds: 1}}";
    let spec =
        format!("{{terminationGracePeriodSeconds: 600, containers: [{one}], volumes: [{volume}]}}");
    create(&server, kubectl, "p", &spec);
    kubectl.ok("wait pod/p --for=condition=Ready --timeout=30s");
    let first = kubectl.eventually("logs p", |text| text.starts_with("run "));
    std::fs::remove_file(folder.join("alive")).unwrap();
    kubectl.eventually("get events", |events| {
        events.contains("Liveness probe failed")
            && events.contains("Container c failed liveness probe, will be restarted")
    });
    kubectl.eventually("get pod p -o jsonpath={.status.containerStatuses[0].restartCount}", |n| {
        n != "0"
    });
    std::fs::write(folder.join("alive"), "").unwrap();
    kubectl.ok("wait pod/p --for=condition=Ready --timeout=60s");
    assert_eq!(status(kubectl, "p", "lastState.terminated.exitCode"), "137");
    if status(kubectl, "p", "restartCount") == "1" {
        assert_eq!(kubectl.ok("logs p --previous"), first);
    }
    assert_ne!(kubectl.ok("logs p"), first);
    kubectl.ok("delete pod p --grace-period=1 --timeout=30s");
}

#[test]
fn a_startup_probe_holds_back_the_others_and_restarts() {
    let server = start();
    let kubectl = &server.kubectl();
    let (folder, volume) = record(&server);
    let probe = |of: &str, failures: u32| {
        format!(
            "{{exec: {{command: [sh, -c, 'echo {of} >> /v/log; test -f /v/{of}']}}, periodSeconds: 1, failureThreshold: {failures}}}"
        )
    };
    let one = container(
        "c",
        &format!(
            ", startupProbe: {}, livenessProbe: {}",
            probe("startup", 3),
            probe("liveness", 1)
        ),
    );
    create(&server, kubectl, "p", &format!("{{containers: [{one}], volumes: [{volume}]}}"));
    kubectl.eventually("get events", |events| {
        events.contains("Container c failed startup probe, will be restarted")
    });
    assert!(!lines(&folder).contains(&"liveness".to_owned()));
    assert_eq!(status(kubectl, "p", "started"), "false");
    for name in ["liveness", "startup"] {
        std::fs::write(folder.join(name), "").unwrap();
    }
    kubectl.ok("wait pod/p --for=condition=Ready --timeout=60s");
    assert_eq!(status(kubectl, "p", "started"), "true");
    kubectl.eventually("get pod p", |_| lines(&folder).contains(&"liveness".to_owned()));
}

#[test]
fn readiness_decides_who_is_an_endpoint() {
    let options = ["--process-nodes", "1", "--process-nodes-network", "10.64.0.0/16"];
    let server = Server::start_with(&options.map(AsRef::as_ref));
    let kubectl = &server.kubectl();
    kubectl.eventually("get serviceaccount default", |found| found.contains("default"));
    let (folder, volume) = record(&server);
    let probe = "{exec: {command: [test, -f, /v/ready]}, periodSeconds: 1, failureThreshold: 1}";
    let one = container("c", &format!(", readinessProbe: {probe}, ports: [{{containerPort: 80}}]"));
    create(&server, kubectl, "p", &format!("{{containers: [{one}], volumes: [{volume}]}}"));
    kubectl.ok("label pod p app=web");
    server.file(
        "service.yaml",
        "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{port: 80}]}}",
    );
    kubectl.ok("create -f service.yaml");
    let ready = "get endpointslices -l kubernetes.io/service-name=web \
        -o jsonpath={.items[*].endpoints[*].conditions.ready}";
    kubectl.eventually(ready, |text| text == "false");
    assert_eq!(status(kubectl, "p", "ready"), "false");
    std::fs::write(folder.join("ready"), "").unwrap();
    kubectl.eventually(ready, |text| text == "true");
    std::fs::remove_file(folder.join("ready")).unwrap();
    kubectl.eventually(ready, |text| text == "false");
    // It is not restarted.
    assert_eq!(status(kubectl, "p", "restartCount"), "0");
    kubectl.eventually("get events", |events| events.contains("Readiness probe failed"));
}

#[test]
fn a_claims_data_survives_the_replacement_of_its_pod() {
    let options = ["--process-nodes", "1", "--controllers=*"];
    let server = Server::start_with(&options.map(AsRef::as_ref));
    let kubectl = &server.kubectl();
    kubectl.eventually("get serviceaccount default", |found| found.contains("default"));
    let text = "
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: folders}
provisioner: volumes.setpoint.dev/simulated
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: db
  selector: {matchLabels: {app: db}}
  persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete}
  template:
    metadata: {labels: {app: db}}
    spec:
      containers:
      - name: c
        image: i
        command: [sh, -c, 'echo $HOSTNAME >> /data/starts; exec sleep 1000']
        volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {storageClassName: folders, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
";
    server.file("db.yaml", text);
    kubectl.ok("create -f db.yaml");
    kubectl.ok("rollout status statefulset db --timeout=60s");
    let uid = kubectl.ok("get pod db-1 -o jsonpath={.metadata.uid}");
    kubectl.ok("delete pod db-1 --timeout=30s");
    kubectl.eventually("get pod db-1 -o jsonpath={.metadata.uid}", |now| {
        !now.contains("not found") && *now != uid
    });
    kubectl.ok("wait pod/db-1 --for=condition=Ready --timeout=60s");
    assert_eq!(kubectl.ok("exec db-1 -- cat /data/starts"), "db-1\ndb-1\n");
    assert_eq!(kubectl.ok("exec db-0 -- cat /data/starts"), "db-0\n");
    // The folder is that of the claim.
    let folder = kubectl.ok("exec db-1 -- sh -c 'readlink $SETPOINT_ROOT/data'");
    kubectl.ok("delete statefulset db --timeout=30s");
    kubectl.eventually("get pvc", |table| table.contains("No resources found"));
    kubectl.eventually("get pods", |_| !PathBuf::from(folder.trim()).exists());
}
