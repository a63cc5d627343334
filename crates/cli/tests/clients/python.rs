//! The Python client and others in Python: each script makes its own assertions and leaves the
//! server to the next test.

use crate::server::{Server, part};
use network::api::CRD_YAML;
use std::process::Command;

#[track_caller]
fn run(script: &str) {
    run_with("SETPOINT_TEST_PYTHON", script, &Server::start());
}

/// Runs a script of another client, whose pods become ready.
#[track_caller]
fn run_other(script: &str) {
    let options = ["--nodes", "2", "--controllers=*"].map(AsRef::as_ref);
    run_with("SETPOINT_TEST_PYTHON_OTHERS", script, &Server::start_with(&options));
}

#[track_caller]
fn run_with(python: &str, script: &str, server: &Server) {
    server.file("crd.yaml", CRD_YAML);
    let path = std::path::absolute(format!("tests/clients/python/{script}")).unwrap();
    let output = Command::new(part(python))
        .arg(path)
        .env("KUBECONFIG", server.kubeconfig())
        .current_dir(server.folder.path())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{script}:\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn typed_client_creates_reads_patches_and_deletes() {
    run("typed.py");
}

#[test]
fn dynamic_client_uses_custom_resources() {
    run("dynamic.py");
}

#[test]
fn watch_resumes_and_reports_an_expired_version() {
    run("watching.py");
}

#[test]
fn lists_come_in_pages() {
    run("pages.py");
}

#[test]
fn errors_carry_their_status() {
    run("errors.py");
}

#[test]
fn compacted_history_is_answered_with_410() {
    run("expired.py");
}

#[test]
fn patches_are_made_and_watched_by_both_clients() {
    run("patches.py");
}

#[test]
fn kr8s_waits_watches_and_has_classes_for_kinds() {
    run_other("with_kr8s.py");
}

#[test]
fn lightkube_selects_patches_applies_and_evicts() {
    run_other("with_lightkube.py");
}

#[test]
fn kubernetes_asyncio_writes_and_watches_at_the_same_time() {
    run_other("with_asyncio.py");
}
