//! Real clients: kubectl, Python's, etcdctl; and a real etcd.

use crate::harness::{Process, Start, assets, eventually, free_port, plain_status};
use std::path::PathBuf;
use std::process::Command;

pub(crate) fn part(variable: &str) -> PathBuf {
    std::env::var_os(variable)
        .unwrap_or_else(|| panic!("{variable} is not set: run these tests with `cargo xtask test`"))
        .into()
}

#[track_caller]
pub(crate) fn ok(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}\n{out}{err}");
    out
}

#[test]
fn kubectl_is_run_as_envtest_runs_it() {
    let environment = Start::default().start();
    let admin = environment.authorities.user("admin", &["system:masters"]);
    let kubeconfig = environment.folder.path().join("1.kubecfg");
    std::fs::write(&kubeconfig, environment.kubeconfig(&admin)).unwrap();
    let kubectl = || {
        let mut command = Command::new(assets().join("kubectl"));
        command.env("SETPOINT_KUBECTL", part("SETPOINT_TEST_KUBECTL"));
        command.env("HOME", environment.folder.path());
        command.arg(format!("--kubeconfig={}", kubeconfig.display()));
        command
    };
    assert!(ok(kubectl().args(["get", "ns", "default"])).contains("Active"));
    ok(kubectl().args(["create", "configmap", "a", "--from-literal=k=v"]));
    assert_eq!(ok(kubectl().args(["get", "cm", "a", "-o", "jsonpath={.data.k}"])), "v");
}

#[test]
fn python_starts_the_binaries_as_a_fixture() {
    let script = std::path::absolute("tests/envtest/fixture.py").unwrap();
    let mut python = Command::new(part("SETPOINT_TEST_PYTHON"));
    python.arg(script).env("KUBEBUILDER_ASSETS", assets());
    assert!(ok(&mut python).contains("passed"));
}

#[test]
fn etcdctl_uses_the_etcd_directly() {
    let environment = Start::default().start();
    let etcdctl = |line: &str| {
        let mut command = Command::new(part("SETPOINT_TEST_ETCDCTL"));
        command.env("ETCDCTL_API", "3");
        command.env("ETCDCTL_ENDPOINTS", format!("127.0.0.1:{}", environment.etcd_port));
        ok(command.args(line.split(' ')))
    };
    assert_eq!(etcdctl("put a 1"), "OK\n");
    assert_eq!(etcdctl("get a"), "a\n1\n");
    assert_eq!(etcdctl("put ab 2 --prev-kv"), "OK\n");
    assert_eq!(etcdctl("get a --prefix --keys-only --order DESCEND"), "ab\n\na\n\n");
    let lease = etcdctl("lease grant 600");
    let id = lease.split(' ').nth(1).unwrap();
    etcdctl(&format!("put leased x --lease={id}"));
    assert!(etcdctl(&format!("lease timetolive {id} --keys")).contains("leased"));
    etcdctl(&format!("lease revoke {id}"));
    assert_eq!(etcdctl("get leased"), "");
    assert_eq!(etcdctl("del a --prefix"), "2\n");
    assert!(etcdctl("member list").contains("started"));
    etcdctl("endpoint health");
    assert!(
        etcdctl("watch a --rev=2 --prefix -w json --progress-notify=false --help")
            .contains("watch")
    );
}

/// With a real etcd, objects are stored in it.
#[test]
fn a_real_etcd_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}");
    let mut etcd = Command::new(part("SETPOINT_TEST_ETCD"));
    etcd.args([
        &format!("--data-dir={}", folder.path().join("data").display()),
        &format!("--listen-client-urls={url}"),
        &format!("--advertise-client-urls={url}"),
        &format!("--listen-peer-urls=http://127.0.0.1:{}", free_port()),
        "--unsafe-no-fsync=true",
    ]);
    let _etcd = Process::start(&mut etcd, folder.path().join("log"));
    eventually("etcd is healthy", || plain_status(port, "/health") == 200);
    let _environment = Start { etcd: Some(url), ..Start::default() }.start();
    let mut etcdctl = Command::new(part("SETPOINT_TEST_ETCDCTL"));
    etcdctl.env("ETCDCTL_API", "3").env("ETCDCTL_ENDPOINTS", format!("127.0.0.1:{port}"));
    let found = ok(etcdctl.args(["get", "/registry/namespaces/default", "--keys-only"]));
    assert!(found.contains("/registry/namespaces/default"), "{found}");
}
