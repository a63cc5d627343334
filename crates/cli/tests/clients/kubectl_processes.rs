//! Pods that run as processes, as kubectl sees and uses them.

use crate::server::{Lines, PATIENCE, Program, Server};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Instant;

pub(crate) fn start() -> Server {
    let server = Server::start_with(&["--process-nodes".as_ref(), "1".as_ref()]);
    let kubectl = server.kubectl();
    kubectl.eventually("get nodes", |table| table.matches(" Ready ").count() == 1);
    kubectl.eventually("get serviceaccount default", |found| found.contains("default"));
    drop(kubectl);
    server
}

/// Creates a pod of one container from a part of its spec.
pub(crate) fn create(server: &Server, kubectl: &Program<'_>, name: &str, spec: &str) {
    let pod = format!("{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {spec}}}");
    server.file(&format!("{name}.yaml"), &pod);
    kubectl.ok(&format!("create -f {name}.yaml"));
}

#[test]
fn logs_are_read_followed_and_kept_over_a_restart() {
    let server = start();
    let kubectl = &server.kubectl();
    let script = "echo run $HOSTNAME; echo oops >&2; sleep 0.2; exit 3";
    let spec = format!(
        "{{restartPolicy: OnFailure, containers: [{{name: c, image: i, command: [sh, -c, '{script}']}}]}}"
    );
    create(&server, kubectl, "crash", &spec);
    kubectl.eventually("get pod crash", |table| table.contains("CrashLoopBackOff"));
    let previous = kubectl.ok("logs crash --previous");
    assert!(previous.contains("run crash\n") && previous.contains("oops\n"), "{previous}");
    assert_eq!(kubectl.ok("logs crash --tail=1").lines().count(), 1);
    let code =
        "get pod crash -o jsonpath={.status.containerStatuses[0].lastState.terminated.exitCode}";
    assert_eq!(kubectl.ok(code), "3");
    let script = "i=0; while [ $i -lt 500 ]; do echo line $i; i=$((i+1)); sleep 0.05; done";
    let spec = format!("{{containers: [{{name: c, image: i, command: [sh, -c, '{script}']}}]}}");
    create(&server, kubectl, "count", &spec);
    kubectl.ok("wait pod/count --for=condition=Ready --timeout=30s");
    let lines = Lines::of(kubectl.command("logs -f count"));
    assert_eq!((lines.next(), lines.next()), ("line 0".to_owned(), "line 1".to_owned()));
    let timed = kubectl.ok("logs count --timestamps --limit-bytes=64");
    assert!(timed.starts_with("20") && timed.contains("Z line 0"), "{timed}");
    let unknown = kubectl.fails("logs count -c x");
    assert!(unknown.contains("container x is not valid for pod count"), "{unknown}");
}

#[test]
fn commands_run_beside_a_container() {
    let server = start();
    let spec = "{terminationGracePeriodSeconds: 1, containers: [{name: c, image: i, \
        command: [sleep, '1000'], env: [{name: A, value: 'x$(B)'}, {name: IP, valueFrom: \
        {fieldRef: {fieldPath: status.podIP}}}], volumeMounts: [{name: v, mountPath: /data}]}], \
        volumes: [{name: v, emptyDir: {}}]}";
    create(&server, &server.kubectl(), "p", spec);
    server.kubectl().ok("wait pod/p --for=condition=Ready --timeout=30s");
    // The newest kubectl uses WebSockets, the old one SPDY.
    for kubectl in [server.kubectl(), server.kubectl_old()] {
        assert_eq!(kubectl.ok("exec p -- sh -c 'echo $A $IP'").split(' ').next(), Some("x$(B)"));
        kubectl.ok("exec p -- sh -c 'echo kept > /data/file'");
        assert_eq!(kubectl.ok("exec p -- cat /data/file"), "kept\n");
        let output = kubectl.command("exec p -- sh -c 'echo bad >&2; exit 7'").output().unwrap();
        assert_eq!(output.status.code(), Some(7));
        assert!(String::from_utf8_lossy(&output.stderr).starts_with("bad\n"));
        let mut wc = kubectl
            .command("exec -i p -- wc -c")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let big = vec![b'x'; 300_000];
        wc.stdin.take().unwrap().write_all(&big).unwrap();
        let output = wc.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "300000");
    }
    let kubectl = server.kubectl();
    let mark = "SETPOINT_CONTAINER_RUN";
    let id = kubectl.ok(&format!("exec p -- sh -c 'setsid sleep 4321 & echo ${mark}'"));
    assert!(id.contains(".exec."), "{id}");
    kubectl.ok("delete pod p --timeout=30s");
    assert!(processes_with(&format!("{mark}={}", id.trim())).is_empty());
}

/// The processes with a variable.
fn processes_with(variable: &str) -> Vec<String> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let has = |path: &std::path::Path| {
        let environment = std::fs::read(path.join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|found| found == variable.as_bytes())
    };
    all.filter(|entry| has(&entry.path())).map(|entry| format!("{:?}", entry.path())).collect()
}

#[test]
fn ports_are_forwarded() {
    let server = start();
    let kubectl = &server.kubectl();
    let python = crate::server::part("SETPOINT_TEST_PYTHON");
    let spec = format!(
        "{{containers: [{{name: c, image: i, workingDir: /www, command: ['{}', -m, http.server, '8080', --bind, $(IP)], \
        env: [{{name: IP, valueFrom: {{fieldRef: {{fieldPath: status.podIP}}}}}}], \
        readinessProbe: {{httpGet: {{path: /page, port: 8080}}, periodSeconds: 1}}, \
        volumeMounts: [{{name: www, mountPath: /www}}]}}], \
        volumes: [{{name: www, configMap: {{name: www}}}}]}}",
        python.display()
    );
    create(&server, kubectl, "web", &spec);
    // The volume is missing.
    kubectl.eventually("describe pod web", |text| text.contains("configmap \"www\" not found"));
    kubectl.ok("create configmap www --from-literal=page=hello");
    kubectl.ok("wait pod/web --for=condition=Ready --timeout=60s");
    for kubectl in [server.kubectl(), server.kubectl_old()] {
        let forward = Lines::of(kubectl.command("port-forward pod/web :8080"));
        let line = forward.next();
        let port = line.split_once("127.0.0.1:").and_then(|(_, rest)| rest.split_once(' '));
        let port: u16 = port.unwrap().0.parse().unwrap();
        for _ in 0..3 {
            let mut connection = TcpStream::connect(("127.0.0.1", port)).unwrap();
            connection.write_all(b"GET /page HTTP/1.0\r\n\r\n").unwrap();
            let mut answer = String::new();
            connection.read_to_string(&mut answer).unwrap();
            assert!(answer.ends_with("hello"), "{answer}");
        }
    }
}

#[test]
fn no_process_outlives_a_killed_server() {
    let mut server = start();
    let kubectl = &server.kubectl();
    let spec = "{containers: [{name: c, image: i, command: [sh, -c, 'setsid sleep 5432 & echo $SETPOINT_NODE_RUN; sleep 5432']}]}";
    create(&server, kubectl, "p", spec);
    let run = kubectl.eventually("logs p", |text| !text.contains(' ') && text.ends_with('\n'));
    let mark = format!("SETPOINT_NODE_RUN={}", run.trim());
    assert!(processes_with(&mark).len() >= 2);
    server.stop("KILL");
    let started = Instant::now();
    while !processes_with(&mark).is_empty() {
        assert!(started.elapsed() < PATIENCE, "{:?}", processes_with(&mark));
        std::thread::yield_now();
    }
}

#[test]
fn init_containers_and_sidecars_run_in_order() {
    let server = start();
    let kubectl = &server.kubectl();
    let spec = "{restartPolicy: Never, terminationGracePeriodSeconds: 5, initContainers: [\
        {name: first, image: i, command: [sh, -c, 'echo 1 > /v/n'], volumeMounts: [{name: v, mountPath: /v}]}, \
        {name: side, image: i, restartPolicy: Always, command: [sleep, '1000'], startupProbe: {exec: {command: ['true']}, periodSeconds: 1}}], \
        containers: [{name: c, image: i, command: [sh, -c, 'cat /v/n; exit 0'], volumeMounts: [{name: v, mountPath: /v}]}], \
        volumes: [{name: v, emptyDir: {}}]}";
    create(&server, kubectl, "p", spec);
    kubectl.ok("wait pod/p --for=jsonpath={.status.phase}=Succeeded --timeout=30s");
    assert_eq!(kubectl.ok("logs p -c c"), "1\n");
    kubectl.ok("delete pod p --timeout=30s");
}
