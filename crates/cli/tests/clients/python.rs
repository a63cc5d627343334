//! The Python client: each script makes its own assertions and leaves the server to the next test.

use crate::server::{Server, part};
use network::api::CRD_YAML;
use std::process::Command;

#[track_caller]
fn run(script: &str) {
    let server = Server::start();
    server.file("crd.yaml", CRD_YAML);
    let path = std::path::absolute(format!("tests/clients/python/{script}")).unwrap();
    let output = Command::new(part("SETPOINT_TEST_PYTHON"))
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
