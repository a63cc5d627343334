//! kube-apiserver and etcd, as processes.

use crate::envtest::environment::{client, is_healthy, write_certificates};
use anyhow::{Context, bail, ensure};
use setpoint_store_etcd::testing::free_ports;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long the start may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often readiness is asked for.
const POLL: Duration = Duration::from_millis(200);

/// Whether etcd waits for the disk at each commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fsync {
    /// As etcd does.
    On,
    /// `--unsafe-no-fsync`.
    Off,
}

/// A process; killed when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) name: &'static str,
    child: Child,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    /// Starts a program whose standard error goes to a file.
    pub(crate) fn start(
        name: &'static str,
        path: &Path,
        args: &[String],
        log: &Path,
    ) -> anyhow::Result<Self> {
        let mut command = Command::new(path);
        let log = std::fs::File::create(log)?;
        command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().with_context(|| path.display().to_string())?;
        Ok(Self { name, child })
    }
    /// The id of the process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }
}

/// Starts etcd and kube-apiserver and waits until they are ready. `programs` has both; files go to
/// `folder`. Returns kube-apiserver, etcd and the administrator's kubeconfig.
pub(crate) async fn server(
    programs: &Path,
    folder: &Path,
    fsync: Fsync,
) -> anyhow::Result<(Vec<Process>, String)> {
    let path = |name: &str| -> PathBuf { folder.join(name) };
    let file = |flag: &str, name: &str| format!("--{flag}={}", path(name).display());
    let ports = free_ports(3);
    let [port, etcd_port, peer_port] = ports[..] else { bail!("three ports") };
    let kubeconfig = write_certificates(folder, port)?;
    let etcd_url = format!("http://127.0.0.1:{etcd_port}");
    let args = [
        format!("--advertise-client-urls={etcd_url}"),
        file("data-dir", "etcd"),
        format!("--listen-client-urls={etcd_url}"),
        format!("--listen-peer-urls=http://127.0.0.1:{peer_port}"),
        format!("--unsafe-no-fsync={}", fsync == Fsync::Off),
    ];
    let etcd = Process::start("etcd", &programs.join("etcd"), &args, &path("etcd.log"))?;
    let began = Instant::now();
    while !is_healthy(etcd_port) {
        ensure!(began.elapsed() < PATIENCE, "etcd is not healthy");
        tokio::time::sleep(POLL).await;
    }
    let args = [
        "--allow-privileged=true".to_owned(),
        "--authorization-mode=RBAC".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
        file("cert-dir", ""),
        file("client-ca-file", "client-cert-auth-ca.crt"),
        format!("--etcd-servers={etcd_url}"),
        format!("--secure-port={port}"),
        format!("--service-account-issuer=https://127.0.0.1:{port}/"),
        file("service-account-key-file", "sa-signer.crt"),
        file("service-account-signing-key-file", "sa-signer.key"),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
    ];
    let api_server = programs.join("kube-apiserver");
    let api_server = Process::start("kube-apiserver", &api_server, &args, &path("server.log"))?;
    let health = client(&kubeconfig).await?;
    loop {
        let request = http::Request::get("/readyz").body(Vec::new())?;
        if health.request_text(request).await.is_ok() {
            break;
        }
        ensure!(began.elapsed() < PATIENCE, "kube-apiserver is not ready");
        tokio::time::sleep(POLL).await;
    }
    Ok((vec![api_server, etcd], kubeconfig))
}
