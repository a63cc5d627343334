//! The clusters that are compared, each with its processes.

use crate::envtest::environment::{client, is_healthy, write_certificates};
use crate::process::{Program, cpu, memory_kib};
use anyhow::{Context, bail, ensure};
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube_client::Client;
use kube_client::api::{Api, ListParams};
use setpoint_store_etcd::testing::free_ports;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a cluster may take until all its nodes are ready.
const PATIENCE: Duration = Duration::from_secs(300);
/// How often that is asked.
const POLL: Duration = Duration::from_millis(200);
/// What `setpoint up --controllers` gets beside kube-controller-manager, which has all of them.
const NO_CONTROLLERS: &str =
    "-node-lifecycle-controller,-taint-eviction-controller,-token-cleaner-controller";

/// Who does the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// `setpoint up --nodes`, one process.
    Ours,
    /// The same without controllers, and kube-controller-manager.
    Manager(Limits),
    /// kube-apiserver, etcd, kube-controller-manager; nodes and scheduler are setpoint's.
    Originals(Limits),
}

/// The client-side limits of kube-controller-manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limits {
    /// 20 requests a second and bursts of 30, for each controller.
    Default,
    /// Limits that it does not reach.
    Raised,
}

impl Kind {
    /// As the table names it.
    pub(super) fn name(self) -> String {
        let limits = |limits| match limits {
            Limits::Default => "default limits",
            Limits::Raised => "raised limits",
        };
        match self {
            Self::Ours => "setpoint".to_owned(),
            Self::Manager(of) => format!("kube-controller-manager over setpoint, {}", limits(of)),
            Self::Originals(of) => format!("originals, {}", limits(of)),
        }
    }
}

/// A process; killed when dropped.
#[derive(Debug)]
struct Process {
    name: &'static str,
    child: Child,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    fn start(name: &'static str, path: &Path, args: &[String], log: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(path);
        let log = std::fs::File::create(log)?;
        command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().with_context(|| path.display().to_string())?;
        Ok(Self { name, child })
    }
}

/// CPU time of each process.
pub(super) type Cpu = Vec<(&'static str, Duration)>;

/// A running cluster with nodes.
pub(super) struct Cluster {
    /// The administrator's.
    pub(super) client: Client,
    // Clients end before their servers.
    processes: Vec<Process>,
    ours: Option<Program>,
    _folder: tempfile::TempDir,
}

impl Cluster {
    /// Starts one and waits until its nodes are ready and pods can be created. `originals` has the
    /// programs that setpoint is compared with.
    pub(super) async fn start(
        kind: Kind,
        n_nodes: u32,
        originals: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let programs = || originals.context("a folder of the originals");
        let cluster = match kind {
            Kind::Ours => {
                let program = up(n_nodes, &[])?;
                let kubeconfig = std::fs::read_to_string(&program.kubeconfig)?;
                let (client, processes) = (client(&kubeconfig).await?, Vec::new());
                Self { client, processes, ours: Some(program), _folder: folder }
            }
            Kind::Manager(limits) => {
                let program = up(n_nodes, &["--controllers".as_ref(), NO_CONTROLLERS.as_ref()])?;
                let kubeconfig = std::fs::read_to_string(&program.kubeconfig)?;
                write_certificates(folder.path(), 0)?;
                let manager = manager(programs()?, &folder, &program.kubeconfig, limits)?;
                let (client, processes) = (client(&kubeconfig).await?, vec![manager]);
                Self { client, processes, ours: Some(program), _folder: folder }
            }
            Kind::Originals(limits) => {
                let (mut processes, kubeconfig) = server(programs()?, &folder).await?;
                let client = client(&kubeconfig).await?;
                let path = folder.path().join("kubeconfig");
                std::fs::write(&path, kubeconfig)?;
                processes.insert(0, manager(programs()?, &folder, &path, limits)?);
                processes.insert(0, nodes(&folder, &path, n_nodes)?);
                Self { client, processes, ours: None, _folder: folder }
            }
        };
        cluster.wait(n_nodes).await?;
        Ok(cluster)
    }

    /// Until the nodes are ready and without taints, and there is an account for pods.
    async fn wait(&self, n_nodes: u32) -> anyhow::Result<()> {
        let (nodes, began) = (Api::<Node>::all(self.client.clone()), Instant::now());
        let accounts = Api::<ServiceAccount>::default_namespaced(self.client.clone());
        loop {
            // Watch caches answer: this is asked often.
            let params = ListParams::default().match_any();
            let n_ready = match nodes.list(&params).await {
                Ok(found) => found.items.iter().filter(|node| is_ready(node)).count(),
                // The server has only just started.
                Err(_) => 0,
            };
            if n_ready == n_nodes as usize && accounts.get_opt("default").await?.is_some() {
                return Ok(());
            }
            ensure!(began.elapsed() < PATIENCE, "{n_ready} of {n_nodes} nodes are ready");
            tokio::time::sleep(POLL).await;
        }
    }

    fn ids(&self) -> impl Iterator<Item = (&'static str, u32)> {
        let ours = self.ours.iter().map(|program| ("setpoint", program.id()));
        ours.chain(self.processes.iter().map(|process| (process.name, process.child.id())))
    }

    /// CPU time of each process so far.
    pub(super) fn cpu(&self) -> anyhow::Result<Cpu> {
        self.ids().map(|(name, id)| Ok((name, cpu(id)?))).collect()
    }

    /// A figure of all processes' memory, in MiB; of peaks the sum, though they may be at different
    /// times.
    pub(super) fn memory_mib(&self, name: &str) -> anyhow::Result<f64> {
        let each = self.ids().map(|(_, id)| memory_kib(id, name));
        Ok(each.sum::<anyhow::Result<u64>>()? as f64 / 1024.0)
    }
}

fn is_ready(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let is_ready = |condition: &k8s_openapi::api::core::v1::NodeCondition| {
        condition.type_ == "Ready" && condition.status == "True"
    };
    taints.is_none_or(Vec::is_empty) && conditions.is_some_and(|all| all.iter().any(is_ready))
}

/// `setpoint up` with nodes.
fn up(n_nodes: u32, args: &[&OsStr]) -> anyhow::Result<Program> {
    let n_nodes = n_nodes.to_string();
    Program::start_with(&[&["--nodes".as_ref(), n_nodes.as_ref()], args].concat())
}

fn manager(
    programs: &Path,
    folder: &tempfile::TempDir,
    kubeconfig: &Path,
    limits: Limits,
) -> anyhow::Result<Process> {
    let key = folder.path().join("sa-signer.key");
    let mut args = vec![
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--service-account-private-key-file={}", key.display()),
        "--leader-elect=false".to_owned(),
        "--secure-port=0".to_owned(),
    ];
    if limits == Limits::Raised {
        args.extend(["--kube-api-qps=5000", "--kube-api-burst=10000"].map(str::to_owned));
    }
    let path = programs.join("kube-controller-manager");
    Process::start("kube-controller-manager", &path, &args, &folder.path().join("manager.log"))
}

/// Nodes and the scheduler, by this program.
fn nodes(folder: &tempfile::TempDir, kubeconfig: &Path, n: u32) -> anyhow::Result<Process> {
    let args = [
        "scale-nodes".to_owned(),
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--nodes={n}"),
    ];
    let log = folder.path().join("nodes.log");
    Process::start("nodes and scheduler", &std::env::current_exe()?, &args, &log)
}

/// kube-apiserver and etcd; the administrator's kubeconfig.
async fn server(
    programs: &Path,
    folder: &tempfile::TempDir,
) -> anyhow::Result<(Vec<Process>, String)> {
    let path = |name: &str| -> PathBuf { folder.path().join(name) };
    let file = |flag: &str, name: &str| format!("--{flag}={}", path(name).display());
    let ports = free_ports(3);
    let [port, etcd_port, peer_port] = ports[..] else { bail!("three ports") };
    let kubeconfig = write_certificates(folder.path(), port)?;
    let etcd_url = format!("http://127.0.0.1:{etcd_port}");
    let args = [
        format!("--advertise-client-urls={etcd_url}"),
        file("data-dir", "etcd"),
        format!("--listen-client-urls={etcd_url}"),
        format!("--listen-peer-urls=http://127.0.0.1:{peer_port}"),
        "--unsafe-no-fsync=true".to_owned(),
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
