//! The two sides, and what runs on them.

use super::{NODES, Programs, said};
use crate::servers::{free_ports, logged, make_key, start_etcd, wait};
use crate::started::Started;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Users, whose tokens are `…-token`: what they are called here, and their names and groups.
const USERS: [(&str, &str); 3] = [
    ("admin", "admin,,system:masters"),
    ("scheduler", "system:kube-scheduler,,"),
    ("proxy", "system:kube-proxy,,"),
];
/// The token of the first of them.
const ADMIN_TOKEN: &str = "admin-token";
/// The token that nodes join with, as `cluster.yaml` has it.
const JOIN: &str = "abcdef.0123456789abcdef";
/// Notes what the components ask, once for each request.
const AUDIT_POLICY: &str = r#"{
    "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "userGroups": ["system:nodes", "system:bootstrappers"]},
        {"level": "Metadata", "users": ["system:kube-scheduler", "system:kube-proxy"]},
        {"level": "None"}
    ]
}"#;
/// Files of the originals: the key of service account tokens, and the CA of nodes with its key.
const SIGNING_KEY: &str = "service-account.key";
const CA: &str = "ca.crt";
const CA_KEY: &str = "ca.key";

/// Who has the place of kube-apiserver and kube-controller-manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Ours,
    Original,
}

/// A cluster that runs. Everything ends when this is dropped.
#[derive(Debug)]
pub(super) struct Cluster {
    work: PathBuf,
    /// By the node: its kubelet, if it runs.
    kubelets: [Option<Started>; NODES.len()],
    /// In the order in which they end.
    _others: Vec<Started>,
}

impl Cluster {
    /// Starts the server, the controllers, the scheduler, kube-proxy and the kubelets.
    pub(super) fn new(programs: &Programs, side: Side, work: &Path) -> Result<Self> {
        let [port] = free_ports::<1>()?;
        let tokens = USERS.map(|(name, user)| format!("{name}-token,{user}\n")).concat();
        fs::write(work.join("tokens.csv"), tokens)?;
        fs::write(work.join("audit-policy.json"), AUDIT_POLICY)?;
        for (name, _) in USERS {
            kubeconfig(work, name, port, &format!("{name}-token"))?;
        }
        kubeconfig(work, "join", port, JOIN)?;
        let mut others = match side {
            Side::Ours => vec![setpoint(programs, work, port)?],
            Side::Original => originals(programs, work, port)?,
        };
        let cluster = work.join("cluster.yaml");
        fs::write(&cluster, include_str!("cluster.yaml"))?;
        said(kubectl(programs, work).args(["apply", "-f"]).arg(&cluster))?;

        let mut scheduler = Command::new(programs.built.join("kube-scheduler"));
        scheduler.arg("--kubeconfig").arg(work.join("scheduler.kubeconfig"));
        scheduler.args(["--secure-port", "0"]);
        let mut proxy = Command::new(programs.built.join("kubemark"));
        proxy.args(["--morph", "proxy", "--name", NODES[0]]);
        proxy.arg("--kubeconfig").arg(work.join("proxy.kubeconfig"));
        others.insert(0, logged(scheduler, &work.join("kube-scheduler.log"))?);
        others.insert(0, logged(proxy, &work.join("kube-proxy.log"))?);
        let kubelets = [const { None }; NODES.len()];
        let mut cluster = Self { work: work.to_owned(), kubelets, _others: others };
        for node in NODES {
            cluster.join(programs, node)?;
        }
        Ok(cluster)
    }

    /// Starts the kubelet of a node. It has its certificate, or asks for one.
    pub(super) fn join(&mut self, programs: &Programs, node: &str) -> Result<()> {
        let [port] = free_ports::<1>()?;
        let folder = self.work.join(node);
        fs::create_dir_all(&folder)?;
        let mut kubelet = Command::new(programs.built.join("kubemark"));
        kubelet.args(["--morph", "kubelet", "--name", node, "--use-host-image-service=false"]);
        kubelet.args(["--kubelet-read-only-port", "0", "--kubelet-port", &port.to_string()]);
        kubelet.arg("--bootstrap-kubeconfig").arg(self.work.join("join.kubeconfig"));
        kubelet.arg("--kubeconfig").arg(folder.join("kubeconfig"));
        kubelet.arg("--cert-dir").arg(folder.join("pki")).env("TMPDIR", &folder);
        let log = self.work.join(format!("kubelet-{node}-{port}.log"));
        self.kubelets[index(node)?] = Some(logged(kubelet, &log)?);
        Ok(())
    }

    /// Stops the kubelet of a node.
    pub(super) fn stop(&mut self, node: &str) -> Result<()> {
        self.kubelets[index(node)?] = None;
        Ok(())
    }

    /// Runs a command of kubectl, in which `@workloads` is a file.
    pub(super) fn kubectl(
        &self,
        programs: &Programs,
        words: &[&str],
        workloads: &Path,
    ) -> Result<()> {
        let mut command = kubectl(programs, &self.work);
        command.args(["--namespace", "work"]);
        for word in words {
            match *word {
                "@workloads" => command.arg(workloads),
                word => command.arg(word),
            };
        }
        said(&mut command).with_context(|| words.join(" "))
    }

    /// Ends everything. Returns the audit log.
    pub(super) fn end(self) -> PathBuf {
        self.work.join("audit.log")
    }
}

/// The place of a node.
fn index(node: &str) -> Result<usize> {
    NODES.iter().position(|name| *name == node).with_context(|| format!("no node {node}"))
}

fn kubectl(programs: &Programs, work: &Path) -> Command {
    let mut command = Command::new(programs.built.join("kubectl"));
    command.arg("--kubeconfig").arg(work.join("admin.kubeconfig"));
    command.env("HOME", work);
    command
}

/// Writes a kubeconfig with a token.
fn kubeconfig(work: &Path, name: &str, port: u16, token: &str) -> Result<()> {
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         clusters: [{{name: c, cluster: {{server: \"https://127.0.0.1:{port}\", \
         insecure-skip-tls-verify: true}}}}]\n\
         users: [{{name: u, user: {{token: {token}}}}}]\n\
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n"
    );
    fs::write(work.join(format!("{name}.kubeconfig")), text).context("write a kubeconfig")
}

/// What both servers are told.
fn common(command: &mut Command, work: &Path, port: u16) {
    command.args(["--secure-port", &port.to_string(), "--bind-address", "127.0.0.1"]);
    command.args(["--authorization-mode", "Node,RBAC", "--enable-bootstrap-token-auth=true"]);
    command.args(["--enable-admission-plugins", "NodeRestriction", "--allow-privileged=true"]);
    command.arg("--token-auth-file").arg(work.join("tokens.csv"));
    command.arg("--cert-dir").arg(work.join("certificates"));
    command.arg("--audit-policy-file").arg(work.join("audit-policy.json"));
    command.arg("--audit-log-path").arg(work.join("audit.log"));
}

fn setpoint(programs: &Programs, work: &Path, port: u16) -> Result<Started> {
    let mut command = Command::new(&programs.setpoint);
    command.args(["up", "--insecure-port", "0", "--kubeconfig"]).arg(work.join("own.kubeconfig"));
    common(&mut command, work, port);
    Started::up(&mut command, &work.join("setpoint.log"))
}

/// An etcd, kube-apiserver and kube-controller-manager, in the order in which they end.
fn originals(programs: &Programs, work: &Path, port: u16) -> Result<Vec<Started>> {
    let (etcd, client) = start_etcd(&programs.etcd, work)?;
    let (key, ca) = (work.join(SIGNING_KEY), work.join(CA));
    make_key(&key)?;
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30"]);
    command.args(["-subj", "/CN=authority", "-keyout"]).arg(work.join(CA_KEY));
    said(command.arg("-out").arg(&ca))?;

    let mut command = Command::new(programs.built.join("kube-apiserver"));
    common(&mut command, work, port);
    command.args(["--etcd-servers", &client, "--service-cluster-ip-range", "10.96.0.0/16"]);
    command.args(["--service-account-issuer", "https://kubernetes.default.svc.cluster.local"]);
    command.arg("--service-account-signing-key-file").arg(&key);
    command.arg("--service-account-key-file").arg(&key).arg("--client-ca-file").arg(&ca);
    let apiserver = logged(command, &work.join("kube-apiserver.log"))?;
    // The controllers end if their server is not ready soon.
    wait(&format!("127.0.0.1:{port}"), ADMIN_TOKEN, work)?;
    Ok(vec![controllers(programs, work)?, apiserver, etcd])
}

fn controllers(programs: &Programs, work: &Path) -> Result<Started> {
    let mut command = Command::new(programs.built.join("kube-controller-manager"));
    command.arg("--kubeconfig").arg(work.join("admin.kubeconfig"));
    command.args(["--secure-port", "0", "--leader-elect=false"]);
    command.arg("--service-account-private-key-file").arg(work.join(SIGNING_KEY));
    command.arg("--root-ca-file").arg(work.join(CA));
    command.arg("--cluster-signing-cert-file").arg(work.join(CA));
    command.arg("--cluster-signing-key-file").arg(work.join(CA_KEY));
    logged(command, &work.join("kube-controller-manager.log"))
}
