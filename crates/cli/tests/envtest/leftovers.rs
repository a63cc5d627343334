//! A suite that is killed leaves no process, port or folder behind.

use crate::harness::{assets, eventually, free_port, plain_status, tls_status};
use std::process::{Command, Stdio};

/// The suite is a shell that starts both programs as envtest does, in folders of its own naming.
#[test]
fn nothing_outlives_a_suite_that_is_killed() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = |name: &str| temporary.path().join(name);
    let (certs, data) = (folder("k8s_test_framework_1"), folder("k8s_test_framework_2"));
    let other = folder("other");
    for made in [&certs, &data, &other] {
        std::fs::create_dir(made).unwrap();
    }
    let (port, etcd_port) = (free_port(), free_port());
    let assets = assets().display();
    let script = format!(
        "{assets}/etcd --data-dir={} --listen-client-urls=http://127.0.0.1:{etcd_port} & \
         {assets}/kube-apiserver --cert-dir={} --secure-port={port} --bind-address=127.0.0.1 \
         --etcd-servers=http://127.0.0.1:{etcd_port} & wait",
        data.display(),
        certs.display(),
    );
    let mut suite = Command::new("sh")
        .args(["-c", &script])
        .env("TMPDIR", temporary.path())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(other.join("log")).unwrap())
        .spawn()
        .unwrap();
    eventually("the suite's server is ready", || tls_status(port, "/readyz") == 200);
    assert!(certs.join("apiserver.crt").exists(), "it is made if it is missing, as the original's");
    suite.kill().unwrap();
    suite.wait().unwrap();
    eventually("the API server ends", || tls_status(port, "/readyz") == 0);
    eventually("etcd ends", || plain_status(etcd_port, "/health") == 0);
    eventually("the folders are removed", || !certs.exists() && !data.exists());
    assert!(other.join("log").exists(), "other folders stay");
}
