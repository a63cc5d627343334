//! Files that flags name: those that have no end, and what is said of those that are refused.
//!
//! The story: an audit policy, a kubeconfig or a certificate was read as a whole, whatever was
//! there, until the memory was full.

use std::process::{Command, Output};

/// Enough for the program, and far less than the machine has: one that reads on ends here.
const MEMORY_KIB_MAX: u64 = 8 << 20;

/// What the program says with options. It ends by itself, or after a minute.
fn up(options: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let script = format!("ulimit -v {MEMORY_KIB_MAX}; exec timeout 60 \"$0\" \"$@\"");
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", &script, env!("CARGO_BIN_EXE_setpoint"), "up", "--secure-port=0"]);
    shell.arg(format!("--kubeconfig={}", folder.path().join("kubeconfig").display()));
    shell.args(options.split(' ')).output().unwrap()
}

#[test]
fn a_file_without_an_end_is_refused() {
    for options in [
        "--admission-control-config-file=FILE",
        "--audit-log-path=- --audit-policy-file=FILE",
        "--audit-policy-file=FILE --audit-webhook-config-file=FILE",
        "--authentication-config=FILE",
        "--authentication-token-webhook-config-file=FILE",
        "--authorization-config=FILE",
        "--authorization-mode=ABAC --authorization-policy-file=FILE",
        "--authorization-mode=Webhook --authorization-webhook-config-file=FILE",
        "--client-ca-file=FILE",
        "--cluster-signing-cert-file=FILE --cluster-signing-key-file=FILE",
        "--egress-selector-config-file=FILE",
        "--encryption-provider-config=FILE",
        "--etcd-endpoints=https://127.0.0.1:1 --etcd-cafile=FILE",
        "--etcd-endpoints=http://127.0.0.1:1 --etcd-user=a --etcd-password-file=FILE",
        "--kubelet-certificate-authority=FILE",
        "--kubelet-client-certificate=FILE --kubelet-client-key=FILE",
        "--nodes=1 --stages=FILE",
        "--oidc-issuer-url=https://a.example --oidc-client-id=a --oidc-ca-file=FILE",
        "--openapi=FILE",
        "--proxy-client-cert-file=FILE --proxy-client-key-file=FILE",
        "--requestheader-client-ca-file=FILE",
        "--service-account-key-file=FILE",
        "--service-account-signing-key-file=FILE",
        "--tls-cert-file=FILE --tls-private-key-file=FILE",
        "--token-auth-file=FILE",
        "--tracing-config-file=FILE",
    ] {
        let output = up(&options.replace("FILE", "/dev/zero"));
        let said = String::from_utf8_lossy(&output.stderr);
        let is_refused = output.status.code() == Some(1) && said.contains(" bytes");
        assert!(is_refused, "{options}: {} {said}", output.status);
    }
}

/// Errors of libraries may print their causes, which were then there twice.
#[test]
fn causes_are_told_once() {
    for options in [
        "--admission-control-config-file=FILE",
        "--audit-log-path=- --audit-policy-file=FILE",
        "--authentication-config=FILE",
        "--authorization-config=FILE",
        "--egress-selector-config-file=FILE",
        "--encryption-provider-config=FILE",
        "--tracing-config-file=FILE",
    ] {
        let output = up(&options.replace("FILE", "/dev/null"));
        let said = String::from_utf8_lossy(&output.stderr);
        let parts: Vec<&str> = said.trim().split(": ").collect();
        let is_once = parts.windows(2).all(|pair| pair[0] != pair[1]);
        assert!(output.status.code() == Some(1) && is_once, "{options}: {} {said}", output.status);
    }
}

#[test]
fn a_pipe_into_which_nothing_is_written_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let output = up(&format!("--authentication-config={}", pipe.display()));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("it does not end"), "{said}");
}
