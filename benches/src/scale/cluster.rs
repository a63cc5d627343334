//! The clusters that are compared, each with its processes.

use crate::envtest::environment::{client, write_certificates};
use crate::originals::{Fsync, Process, server};
use crate::process::{Program, cpu, memory_kib};
use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube_client::Client;
use kube_client::api::{Api, ListParams};
use std::ffi::OsStr;
use std::path::Path;
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
                let (mut processes, kubeconfig) =
                    server(programs()?, folder.path(), Fsync::Off).await?;
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
        ours.chain(self.processes.iter().map(|process| (process.name, process.id())))
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
