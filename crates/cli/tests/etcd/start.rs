//! `setpoint up --store etcd`: its options, and an unreachable etcd.

use crate::server::Server;
use crate::two::{ask, client};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::json;
use setpoint_store_etcd::testing::{Cluster, ClusterOptions};
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The error message of `setpoint up`.
fn refusal(arguments: &[&str]) -> String {
    let mut program = Command::new(env!("CARGO_BIN_EXE_setpoint"));
    let output = program.args(["up", "--secure-port", "0"]).args(arguments).output().unwrap();
    assert!(!output.status.success() && output.stdout.is_empty(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn incompatible_options_are_refused_clearly() {
    let endpoints = "http://127.0.0.1:1";
    for (arguments, expected) in [
        (&["--store", "etcd"][..], "--etcd-endpoints URL"),
        (&["--store", "etcd", "--data", "/tmp/x", "--etcd-endpoints", endpoints], "not both"),
        (&["--data", "/tmp/x", "--etcd-endpoints", endpoints], "not both"),
        (&["--store", "memory", "--etcd-endpoints", endpoints], "needs --store etcd"),
        (&["--etcd-cafile", "/tmp/ca.pem"], "--etcd-endpoints"),
        (&["--etcd-endpoints", endpoints, "--etcd-certfile", "/tmp/c.pem"], "--etcd-keyfile"),
        (&["--etcd-endpoints", endpoints, "--etcd-user", "root"], "SETPOINT_ETCD_PASSWORD"),
        (&["--etcd-endpoints", "ftp://x"], "ftp://x"),
        (&["--etcd-endpoints", "https://127.0.0.1:1"], "needs a CA"),
    ] {
        let text = refusal(arguments);
        assert!(text.contains(expected), "{arguments:?}: {text}");
    }
}

#[test]
fn unreachable_etcd_is_waited_for_and_then_reported() {
    let started = Instant::now();
    let text = refusal(&["--etcd-servers", "http://127.0.0.1:1", "--etcd-start-timeout", "2"]);
    assert!(started.elapsed() < Duration::from_secs(30), "the wait has an end");
    assert!(text.contains("etcd") && text.contains("127.0.0.1:1"), "{text}");
    assert!(text.contains("gave up after 2 s"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prefixes_separate_control_planes_in_one_etcd() {
    let cluster = Cluster::start(1).await;
    let endpoints = cluster.endpoints_flag();
    let start = |prefix: &str| {
        let options = ["--etcd-endpoints", &endpoints, "--etcd-prefix", prefix];
        tokio::task::block_in_place(|| Server::start_with(&options.map(OsStr::new)))
    };
    let (one, two) = (start("one//other"), start("/registry"));
    let (one, two) = (client(&one), client(&two));
    let path = "/api/v1/namespaces/default/configmaps";
    ask(&one, "POST", path, Some(&json!({"metadata": {"name": "x"}}))).await.unwrap();
    let list = ask(&two, "GET", path, None).await.unwrap();
    // The other one has only its own.
    let mut names = list["items"].as_array().unwrap().iter().map(|map| &map["metadata"]["name"]);
    assert!(names.all(|name| name == "kube-root-ca.crt"), "{list}");
    let mut etcdctl = cluster.etcdctl().expect("etcdctl is installed");
    let output = etcdctl.args(["get", "--prefix", "--keys-only", "/"]).output().unwrap();
    let keys = String::from_utf8(output.stdout).unwrap();
    let mut keys = keys.lines().filter(|key| !key.is_empty());
    assert!(keys.clone().any(|key| key == "/one/other/configmaps/default/x"));
    assert!(keys.all(|key| key.starts_with("/one/other/") || key.starts_with("/registry/")));
}

/// Writes the certificates and keys of a CA, a server and a client.
pub(crate) fn write_certificates(folder: &Path) {
    let params = |name: &str| {
        let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params
    };
    let mut authority = params("etcd CA");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    std::fs::write(folder.join("ca.pem"), ca.pem()).unwrap();
    for name in ["server", "client"] {
        let key = KeyPair::generate().unwrap();
        let certificate = params(name).signed_by(&key, &ca).unwrap();
        std::fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(folder.join(format!("{name}-key.pem")), key.serialize_pem()).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_with_client_certificates_is_supported() {
    let folder = tempfile::tempdir().unwrap();
    write_certificates(folder.path());
    let path = |name: &str| folder.path().join(name).display().to_string();
    let mut options = ClusterOptions::default();
    let file = |name: &str| folder.path().join(name);
    options.tls = Some((file("server.pem"), file("server-key.pem"), file("ca.pem")));
    let cluster = Cluster::start_with(options).await;
    let (endpoints, ca) = (cluster.endpoints_flag(), path("ca.pem"));
    let (certificate, key) = (path("client.pem"), path("client-key.pem"));
    let mut flags = vec!["--etcd-servers", &endpoints, "--etcd-cafile", &ca];
    let mut without = flags.clone();
    without.extend(["--etcd-start-timeout", "2"]);
    let text = tokio::task::block_in_place(|| refusal(&without));
    assert!(text.contains("gave up after 2 s"), "{text}");
    flags.extend(["--etcd-certfile", &certificate, "--etcd-keyfile", &key]);
    let flags: Vec<&OsStr> = flags.into_iter().map(OsStr::new).collect();
    let server = tokio::task::block_in_place(|| Server::start_with(&flags));
    ask(&client(&server), "GET", "/api/v1/namespaces/default", None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_with_authentication_is_supported() {
    let cluster = Cluster::start(1).await;
    for line in ["user add root:secret", "user grant-role root root", "auth enable"] {
        let mut etcdctl = cluster.etcdctl().expect("etcdctl is installed");
        let output = etcdctl.args(line.split(' ')).output().unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
    }
    let endpoints = cluster.endpoints_flag();
    let folder = tempfile::tempdir().unwrap();
    let password = folder.path().join("password").display().to_string();
    let flags =
        ["--etcd-endpoints", &endpoints, "--etcd-user", "root", "--etcd-password-file", &password];
    std::fs::write(&password, "wrong\n").unwrap();
    let text = tokio::task::block_in_place(|| refusal(&flags));
    assert!(text.contains("etcd refused"), "{text}");
    std::fs::write(&password, "secret\n").unwrap();
    let server = tokio::task::block_in_place(|| Server::start_with(&flags.map(OsStr::new)));
    ask(&client(&server), "GET", "/api/v1/namespaces/default", None).await.unwrap();
}
