//! The JavaScript client: each script makes its own assertions. It imports the client as a user's
//! program does, from a `node_modules` beside it.

use crate::server::{Server, part};
use network::api::CRD_YAML;
use std::ffi::OsStr;
use std::process::Command;

#[track_caller]
fn run(script: &str, options: &[&OsStr]) {
    let server = Server::start_with(options);
    server.file("crd.yaml", CRD_YAML);
    let folder = server.folder.path();
    std::os::unix::fs::symlink(part("SETPOINT_TEST_NODE_MODULES"), folder.join("node_modules"))
        .unwrap();
    let source = format!("tests/clients/node/{script}");
    std::fs::copy(source, folder.join(script)).unwrap();
    let mut node = Command::new("node");
    node.arg(folder.join(script)).env("KUBECONFIG", server.kubeconfig()).current_dir(folder);
    let output = node.output().unwrap();
    assert!(
        output.status.success(),
        "{script}:\n{}{}\nserver log:\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
        server.log()
    );
}

#[test]
fn typed_client_creates_reads_patches_and_deletes() {
    run("typed.mjs", &[]);
}

#[test]
fn manifests_are_applied_whatever_their_kinds() {
    run("manifests.mjs", &[]);
}

#[test]
fn informer_follows_its_selection_through_ended_watches() {
    run("informer.mjs", &[]);
}

#[test]
fn logs_and_commands_stream_from_a_pod() {
    run("streams.mjs", &["--process-nodes".as_ref(), "1".as_ref()]);
}
