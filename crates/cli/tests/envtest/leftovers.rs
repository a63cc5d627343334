//! A suite that is killed leaves no process, port or folder behind.

use crate::harness::{PATIENCE, assets, eventually, free_port, plain_status, tls_status};
use std::io::Read as _;
use std::process::{Command, Stdio};
use std::sync::mpsc;

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
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(other.join("log")).unwrap())
        .spawn()
        .unwrap();
    eventually("the suite's server is ready", || tls_status(port, "/readyz") == 200);
    assert!(certs.join("apiserver.crt").exists(), "it is made if it is missing, as the original's");
    // Both programs have the suite's output, which ends when the last one of the three has ended.
    let mut output = suite.stdout.take().unwrap();
    suite.kill().unwrap();
    suite.wait().unwrap();
    let (sender, ended) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let read = output.read_to_end(&mut Vec::new());
        // Nobody listens any more if the test has failed.
        let _ = sender.send(read);
    });
    ended.recv_timeout(PATIENCE).expect("both programs end").unwrap();
    reader.join().unwrap();
    assert_eq!((tls_status(port, "/readyz"), plain_status(etcd_port, "/health")), (0, 0));
    assert!(!certs.exists() && !data.exists(), "the folders are removed");
    assert!(other.join("log").exists(), "other folders stay");
}
