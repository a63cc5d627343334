//! The two servers of chores that compare: kube-apiserver over an etcd, and `setpoint up`.

use crate::conformance;
use crate::http::{Address, Connection, trusting};
use crate::started::Started;
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What [`Layout::Admitting`] notes of requests.
const AUDIT_POLICY: &str = r#"{
    "apiVersion": "audit.k8s.io/v1", "kind": "Policy",
    "rules": [{"level": "Request", "omitStages": ["RequestReceived"]}]
}"#;
/// Plugins that call others, that keep an account of objects, or that make names by chance.
const PLUGINS_OFF: &str = "MutatingAdmissionPolicy,MutatingAdmissionWebhook,ResourceQuota,\
                           ServiceAccount,ValidatingAdmissionPolicy,ValidatingAdmissionWebhook";
/// The plugin of [`Layout::Admitting`] that is off: it makes names by chance.
const CHANCE_OFF: &str = "ServiceAccount";
/// Plugins of [`Layout::Admitting`] that are on, and off by default.
const PLUGINS_ON: &str = "AlwaysPullImages,DenyServiceExternalIPs,ExtendedResourceToleration,\
                          LimitPodHardAntiAffinityTopology,PodNodeSelector,\
                          PodTolerationRestriction";
/// The addresses of Services.
const SERVICES: &str = "10.96.0.0/16";
/// The administrator's token at kube-apiserver.
const TOKEN: &str = "validation";
/// How often kube-apiserver is asked whether it is ready, once in a quarter of a second.
const ASKED_MAX: usize = 480;

/// Where `setpoint up` keeps its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// In its memory.
    Apart,
    /// In its memory. Both ask more admission plugins, and have an audit log.
    Admitting,
    /// In the etcd of kube-apiserver. Both are published at these addresses, and limit requests as
    /// they do by default.
    Shared,
}

/// The address that kube-apiserver is published at, and the program's.
pub(crate) const PUBLISHED: [&str; 2] = ["10.1.1.1", "10.1.1.2"];

/// Two running servers.
#[derive(Debug)]
pub(crate) struct Servers {
    /// The audit logs, ours first, of [`Layout::Admitting`].
    pub(crate) audit_logs: [PathBuf; 2],
    pub(crate) ours: Address,
    pub(crate) original: Address,
    /// The etcd of kube-apiserver.
    pub(crate) etcd: Address,
    /// Dropped in this order.
    _started: [Started; 3],
}

/// The programs, and where they write.
#[derive(Debug, clap::Args)]
pub(crate) struct Programs {
    /// The program `kube-apiserver` of a Kubernetes release.
    #[arg(long)]
    kube_apiserver: PathBuf,
    /// The program `etcd`.
    #[arg(long, default_value = "etcd")]
    etcd: PathBuf,
    /// The built program (default: builds `setpoint` without optimization).
    #[arg(long)]
    program: Option<PathBuf>,
    /// The folder for logs and stores (default: a new one below the system's).
    #[arg(long)]
    work: Option<PathBuf>,
    #[command(flatten)]
    switches: Switches,
}

/// What both servers are told to turn on and off.
#[derive(Debug, Clone, clap::Args)]
struct Switches {
    /// The features of both servers. The chore's page, if it has one, is of those by default.
    #[arg(long)]
    feature_gates: Option<String>,
    /// The group versions that both servers have beside those by default, and those that they
    /// have not.
    #[arg(long)]
    runtime_config: Option<String>,
    /// The release that both servers emulate.
    #[arg(long)]
    emulated_version: Option<String>,
}

impl Switches {
    /// Whether nothing differs from the default.
    fn is_default(&self) -> bool {
        self.options().iter().all(|(_, value)| value.is_none())
    }

    fn options(&self) -> [(&'static str, &Option<String>); 3] {
        [
            ("--feature-gates", &self.feature_gates),
            ("--runtime-config", &self.runtime_config),
            ("--emulated-version", &self.emulated_version),
        ]
    }

    fn add_to(&self, command: &mut Command) {
        for (option, value) in self.options() {
            if let Some(value) = value {
                command.args([option, value]);
            }
        }
    }
}

impl Programs {
    fn apiserver(&self) -> Result<PathBuf> {
        self.kube_apiserver.canonicalize().context("no such kube-apiserver")
    }

    /// Whether both servers are as by default.
    pub(crate) fn is_default(&self) -> bool {
        self.switches.is_default()
    }

    /// The version of kube-apiserver.
    pub(crate) fn version(&self) -> Result<String> {
        conformance::version(&self.apiserver()?)
    }

    /// Starts both servers for a chore, with empty stores, and waits until they are ready.
    pub(crate) fn start(&self, chore: &str, layout: Layout) -> Result<Servers> {
        let apiserver = self.apiserver()?;
        let program = match &self.program {
            Some(program) => program.canonicalize().context("no such program")?,
            None => conformance::build()?,
        };
        let own = || std::env::temp_dir().join(format!("setpoint-{chore}-{}", std::process::id()));
        let work = self.work.clone().unwrap_or_else(own);
        std::fs::create_dir_all(&work).context("make the folder")?;
        let work = work.canonicalize()?;
        println!("logs in {}", work.display());
        Servers::start(&apiserver, &self.etcd, &program, (&work, layout), &self.switches)
    }
}

impl Layout {
    /// Which admission plugins both servers ask.
    fn add_plugins_to(self, command: &mut Command) {
        match self {
            Self::Apart | Self::Shared => {
                command.args(["--disable-admission-plugins", PLUGINS_OFF]);
            }
            Self::Admitting => {
                command.args(["--disable-admission-plugins", CHANCE_OFF]);
                command.args(["--enable-admission-plugins", PLUGINS_ON]);
            }
        }
    }

    /// Has a server write an audit log, if both do.
    fn add_audit_to(self, command: &mut Command, work: &Path, log: &Path) -> Result<()> {
        if self == Self::Admitting {
            let policy = work.join("audit-policy.json");
            std::fs::write(&policy, AUDIT_POLICY)?;
            command.arg("--audit-policy-file").arg(policy);
            command.arg("--audit-log-path").arg(log);
        }
        Ok(())
    }
}

impl Servers {
    /// A connection to each: ours, and the original.
    pub(crate) fn connect(&self) -> [Connection; 2] {
        [Connection::new(&self.ours), Connection::new(&self.original)]
    }

    /// Starts them with empty stores, and waits until both are ready. Logs are in a folder.
    fn start(
        apiserver: &Path,
        etcd: &Path,
        program: &Path,
        (work, layout): (&Path, Layout),
        switches: &Switches,
    ) -> Result<Self> {
        let file = |name: &str| work.join(name);
        let audit_logs = [file("setpoint.audit"), file("kube-apiserver.audit")];
        let (etcd, client) = start_etcd(etcd, work)?;
        let [port] = free_ports::<1>()?;

        // Without a uid, as the user of the program has none.
        std::fs::write(file("tokens.csv"), format!("{TOKEN},admin,,system:masters\n"))?;
        let key = file("service-account.key");
        make_key(&key)?;
        let port = port.to_string();
        let mut command = Command::new(apiserver);
        command.args(["--etcd-servers", &client, "--bind-address", "127.0.0.1"]);
        command.args(["--secure-port", &port]);
        command.args(["--service-cluster-ip-range", SERVICES, "--allow-privileged=true"]);
        command.args(["--authorization-mode", "RBAC"]);
        switches.add_to(&mut command);
        layout.add_plugins_to(&mut command);
        command.args(["--service-account-issuer", "https://kubernetes.default.svc.cluster.local"]);
        match layout {
            Layout::Apart | Layout::Admitting => {
                command.args(["--endpoint-reconciler-type", "none"]);
                command.args(["--advertise-address", "127.0.0.1"]);
                command.args(["--enable-priority-and-fairness=false", "--max-requests-inflight=0"]);
                command.args(["--max-mutating-requests-inflight=0"]);
            }
            Layout::Shared => _ = command.args(["--advertise-address", PUBLISHED[0]]),
        }
        command.arg("--service-account-signing-key-file").arg(&key);
        command.arg("--service-account-key-file").arg(&key);
        command.arg("--token-auth-file").arg(file("tokens.csv"));
        command.arg("--cert-dir").arg(file("certificates"));
        layout.add_audit_to(&mut command, work, &audit_logs[1])?;
        let apiserver = logged(command, &file("kube-apiserver.log"))?;

        let mut command = Command::new(program);
        command.args(["up", "--secure-port", "0", "--insecure-port", "0"]);
        switches.add_to(&mut command);
        command.args(["--service-cluster-ip-range", SERVICES]);
        layout.add_plugins_to(&mut command);
        // Without `*`, only the controllers that are named run: none.
        command.arg("--controllers=-nodelifecycle");
        match layout {
            Layout::Apart | Layout::Admitting => {
                command.arg("--enable-priority-and-fairness=false");
                command.args(["--max-requests-inflight=10000"]);
                command.args(["--max-mutating-requests-inflight=10000"]);
            }
            Layout::Shared => {
                command.args(["--etcd-endpoints", &client]);
                command.args(["--advertise-address", PUBLISHED[1]]);
            }
        }
        command.arg("--kubeconfig").arg(file("kubeconfig")).arg("--cert-dir").arg(file("pki"));
        layout.add_audit_to(&mut command, work, &audit_logs[0])?;
        let (setpoint, ready) = Started::ready(&mut command, &file("setpoint.log"))?;
        let insecure = ready.split_whitespace().find_map(|word| word.strip_prefix("insecure="));
        let insecure = insecure.and_then(|url| url.strip_prefix("http://"));
        let ours = Address {
            authority: insecure.context("no insecure port")?.to_owned(),
            tls: None,
            token: String::new(),
        };
        let original = wait(&format!("127.0.0.1:{port}"), TOKEN, work)?;
        let etcd_at = Address {
            authority: client.trim_start_matches("http://").to_owned(),
            tls: None,
            token: String::new(),
        };
        Ok(Self {
            audit_logs,
            ours,
            original,
            etcd: etcd_at,
            _started: [setpoint, apiserver, etcd],
        })
    }
}

/// Starts an etcd with an empty store in a folder. Returns its URL, too.
pub(crate) fn start_etcd(program: &Path, work: &Path) -> Result<(Started, String)> {
    let [client, peer] = free_ports::<2>()?.map(|port| format!("http://127.0.0.1:{port}"));
    let mut command = Command::new(program);
    command.arg("--data-dir").arg(work.join("etcd")).arg("--unsafe-no-fsync");
    command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    command.args(["--initial-cluster", &format!("default={peer}")]);
    Ok((logged(command, &work.join("etcd.log"))?, client))
}

/// Starts a program whose output goes to a file.
pub(crate) fn logged(mut command: Command, log: &Path) -> Result<Started> {
    let file = File::create(log).context("make a log")?;
    let started = command.stdout(file.try_clone()?).stderr(file).spawn();
    Ok(Started(started.with_context(|| format!("start {command:?}"))?))
}

/// Makes a key that signs the tokens of service accounts.
pub(crate) fn make_key(file: &Path) -> Result<()> {
    let mut command = Command::new("openssl");
    command.args(["genrsa", "-out"]).arg(file).arg("2048");
    let output = command.output().context("start openssl")?;
    if !output.status.success() {
        bail!("no key: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// Waits until kube-apiserver, with its folder `certificates`, is ready for the administrator.
pub(crate) fn wait(authority: &str, token: &str, work: &Path) -> Result<Address> {
    let certificate = work.join("certificates/apiserver.crt");
    let mut last = String::new();
    for _ in 0..ASKED_MAX {
        #[expect(clippy::disallowed_methods, reason = "another process is waited for")]
        std::thread::sleep(Duration::from_millis(250));
        if !certificate.exists() {
            continue;
        }
        let (authority, token) = (authority.to_owned(), token.to_owned());
        let address = Address { authority, tls: Some(trusting(&certificate)?), token };
        match Connection::new(&address).send("GET", "/readyz", b"") {
            Ok(answer) if answer.code == 200 => return Ok(address),
            Ok(answer) => last = String::from_utf8_lossy(&answer.body).into_owned(),
            Err(error) => last = format!("{error:#}"),
        }
    }
    bail!("kube-apiserver is not ready, see {}: {last}", work.display())
}

/// Ports on which no process listens now.
pub(crate) fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut ports = [0; N];
    let mut held = Vec::new();
    for port in &mut ports {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}
