//! An operator of kopf, the framework for Python.

use crate::server::{Lines, Server, part};
use network::api::CRD_YAML;
use std::process::Command;

/// Starts the operator for one namespace.
fn operator(server: &Server) -> Lines {
    let mut kopf = Command::new(part("SETPOINT_TEST_KOPF"));
    kopf.args(["run", "--quiet", "--standalone", "--namespace", "default"]);
    kopf.arg(std::path::absolute("tests/clients/kopf/operator.py").unwrap());
    kopf.env("KUBECONFIG", server.kubeconfig()).env("PYTHONDONTWRITEBYTECODE", "1");
    kopf.current_dir(server.folder.path());
    Lines::of(kopf)
}

/// Reads lines until all of these were printed, in any order.
#[track_caller]
fn expect(lines: &Lines, wanted: &[&str]) {
    let mut wanted = wanted.to_vec();
    while !wanted.is_empty() {
        let line = lines.next();
        wanted.retain(|wanted| *wanted != line);
    }
}

/// Starts the operator beside its definition.
fn started(server: &Server) -> Lines {
    server.file("crd.yaml", CRD_YAML);
    server.kubectl().ok("apply -f crd.yaml");
    let lines = operator(server);
    expect(&lines, &["started"]);
    lines
}

fn network(name: &str, cidr: &str) -> String {
    format!(
        "{{apiVersion: samplecrd.k8s.io/v1, kind: Network, metadata: {{name: {name}}}, \
         spec: {{cidr: {cidr}, gateway: 10.0.0.1}}}}"
    )
}

#[test]
fn operator_creates_retries_updates_and_finishes() {
    let server = Server::start();
    let kubectl = server.kubectl();
    let lines = started(&server);

    server.file("net.yaml", &network("net", "10.0.0.0/16"));
    kubectl.ok("apply -f net.yaml");
    expect(
        &lines,
        &["create net 10.0.0.0/16 try 0", "gateway net None 10.0.0.1", "daemon net runs"],
    );
    let status =
        "get network net -o jsonpath={.status.cidr},{.status.gateway},{.metadata.finalizers}";
    kubectl.eventually(status, |s| s == "10.0.0.0/16,10.0.0.1,[\"samplecrd.k8s.io/kopf\"]");

    // A handler that fails is called again; its progress is kept in annotations.
    server.file("flaky.yaml", &network("flaky", "10.1.0.0/16"));
    kubectl.ok("apply -f flaky.yaml");
    expect(&lines, &["create flaky 10.1.0.0/16 try 1"]);

    // A change of one field, with the difference to what was handled last.
    kubectl.ok(r#"patch network net --type merge -p {"spec":{"gateway":"10.0.0.9"}}"#);
    expect(&lines, &["gateway net 10.0.0.1 10.0.0.9"]);
    kubectl.eventually("get network net -o jsonpath={.status.gateway}", |s| s == "10.0.0.9");
    let events = kubectl.eventually("get events", |table| table.contains("network/net"));
    assert!(events.contains("Given") && events.contains("it has 10.0.0.0/16"), "{events}");

    // An index over objects, read by a timer; events of a built-in kind by a label.
    server.file("timed.yaml", &network("timed", "10.2.0.0/16"));
    kubectl.ok("apply -f timed.yaml");
    expect(&lines, &["timer timed ['timed']"]);
    kubectl.ok("create configmap seen");
    kubectl.ok("label configmap seen watched=yes");
    kubectl.ok("delete configmap seen");
    expect(&lines, &["event DELETED seen"]);

    // The finalizer holds a deleted object until the handler is done.
    kubectl.ok("delete network net");
    expect(&lines, &["daemon net stops", "delete net"]);
    kubectl.fails("get network net");
}

#[test]
fn operator_resumes_what_it_has_handled_before() {
    let server = Server::start();
    let kubectl = server.kubectl();
    let lines = started(&server);
    server.file("net.yaml", &network("net", "10.0.0.0/16"));
    kubectl.ok("apply -f net.yaml");
    expect(&lines, &["create net 10.0.0.0/16 try 0"]);
    // What was handled is recorded in an annotation when its handlers are done.
    let handled = "get network net -o jsonpath={.metadata.annotations}";
    kubectl.eventually(handled, |annotations| annotations.contains("last-handled-configuration"));
    drop(lines);

    // Changed while nobody watched: the next process sees the difference, not a new object.
    kubectl.ok(r#"patch network net --type merge -p {"spec":{"gateway":"10.0.0.9"}}"#);
    let lines = operator(&server);
    let mut seen = vec![lines.next()];
    while seen.last().is_some_and(|line| !line.starts_with("gateway")) {
        seen.push(lines.next());
    }
    assert!(seen.contains(&"gateway net 10.0.0.1 10.0.0.9".to_owned()), "{seen:?}");
    assert!(!seen.iter().any(|line| line.starts_with("create")), "{seen:?}");
}
