//! One environment, started as controller-runtime's envtest starts it.

use crate::process::memory_kib;
use anyhow::{Context, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube_client::Client;
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use serde_json::json;
use setpoint_store_etcd::testing::free_ports;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How often health is asked for.
const POLL: Duration = Duration::from_millis(1);
/// How long a start may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A folder with `kube-apiserver` and `etcd`.
#[derive(Debug)]
pub(super) struct Assets(pub(super) PathBuf);

/// A started program; killed when dropped.
#[derive(Debug)]
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    /// As envtest: first `--help`, then with the flags.
    fn start(program: &Path, flags: &[(&str, String)]) -> anyhow::Result<Self> {
        let command = || {
            let mut command = Command::new(program);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command
        };
        let what = || program.display().to_string();
        command().arg("--help").status().with_context(what)?;
        let flags = flags.iter().map(|(name, value)| format!("--{name}={value}"));
        Ok(Self(command().args(flags).spawn().with_context(what)?))
    }

    fn still_runs(&mut self) -> anyhow::Result<()> {
        match self.0.try_wait()? {
            Some(status) => bail!("a program ended with {status} before it was ready"),
            None => Ok(()),
        }
    }

    fn stop(mut self) -> anyhow::Result<()> {
        kill(Pid::from_raw(self.0.id().try_into()?), Signal::SIGTERM)?;
        self.0.wait()?;
        Ok(())
    }

    /// A figure of its memory, in KiB.
    fn memory_kib(&self, name: &str) -> anyhow::Result<u64> {
        memory_kib(self.0.id(), name)
    }
}

/// A started environment.
#[derive(Debug)]
pub(super) struct Environment {
    api_server: Process,
    etcd: Process,
    /// The administrator's.
    pub(super) kubeconfig: String,
    _folder: tempfile::TempDir,
}

impl Environment {
    /// Starts etcd, then the API server; returns it with the time until it was ready. Files are
    /// written before the stopwatch starts.
    pub(super) async fn start(assets: &Assets) -> anyhow::Result<(Self, Duration)> {
        let folder = tempfile::tempdir()?;
        let path = |name: &str| folder.path().join(name).display().to_string();
        let ports = free_ports(3);
        let [port, etcd_port, peer_port] = ports[..] else { bail!("three ports") };
        let kubeconfig = write_certificates(folder.path(), port)?;
        let etcd_url = format!("http://127.0.0.1:{etcd_port}");
        let began = Instant::now();
        let mut etcd = Process::start(
            &assets.0.join("etcd"),
            &[
                ("advertise-client-urls", etcd_url.clone()),
                ("data-dir", path("etcd")),
                ("listen-client-urls", etcd_url.clone()),
                ("listen-peer-urls", format!("http://127.0.0.1:{peer_port}")),
                ("unsafe-no-fsync", "true".to_owned()),
            ],
        )?;
        while !is_healthy(etcd_port) {
            etcd.still_runs()?;
            ensure!(began.elapsed() < PATIENCE, "etcd is not healthy");
            tokio::time::sleep(POLL).await;
        }
        let flags = [
            ("allow-privileged", "true".to_owned()),
            ("authorization-mode", "RBAC".to_owned()),
            ("bind-address", "127.0.0.1".to_owned()),
            ("cert-dir", path("")),
            ("client-ca-file", path("client-cert-auth-ca.crt")),
            ("disable-admission-plugins", "ServiceAccount".to_owned()),
            ("etcd-servers", etcd_url),
            ("secure-port", port.to_string()),
            ("service-account-issuer", format!("https://127.0.0.1:{port}/")),
            ("service-account-key-file", path("sa-signer.crt")),
            ("service-account-signing-key-file", path("sa-signer.key")),
            ("service-cluster-ip-range", "10.0.0.0/24".to_owned()),
        ];
        let mut api_server = Process::start(&assets.0.join("kube-apiserver"), &flags)?;
        let client = client(&kubeconfig).await?;
        for page in ["/healthz", "/api/v1/namespaces/default"] {
            loop {
                let request = http::Request::get(page).body(Vec::new())?;
                if client.request_text(request).await.is_ok() {
                    break;
                }
                api_server.still_runs()?;
                ensure!(began.elapsed() < PATIENCE, "{page} is not there");
                tokio::time::sleep(POLL).await;
            }
        }
        let wall = began.elapsed();
        Ok((Self { api_server, etcd, kubeconfig, _folder: folder }, wall))
    }

    /// Resident memory of both processes, in KiB.
    pub(super) fn resident_kib(&self) -> anyhow::Result<u64> {
        Ok(self.api_server.memory_kib("VmRSS")? + self.etcd.memory_kib("VmRSS")?)
    }

    /// The highest resident memory of both processes so far, in KiB.
    pub(super) fn peak_kib(&self) -> anyhow::Result<u64> {
        Ok(self.api_server.memory_kib("VmHWM")? + self.etcd.memory_kib("VmHWM")?)
    }

    /// The API server first, as envtest does.
    pub(super) fn stop(self) -> anyhow::Result<()> {
        self.api_server.stop()?;
        self.etcd.stop()
    }
}

/// A client of a kubeconfig.
pub(crate) async fn client(kubeconfig: &str) -> anyhow::Result<Client> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig)?;
    let options = KubeConfigOptions::default();
    let config = kube_client::Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    Ok(Client::try_from(config)?)
}

/// Whether etcd answers with 200.
pub(crate) fn is_healthy(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let request = b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let mut head = [0; 12];
    let answered = stream.write_all(request).and_then(|()| stream.read_exact(&mut head));
    answered.is_ok() && head.ends_with(b"200")
}

/// Writes the files of envtest; returns the administrator's kubeconfig.
pub(crate) fn write_certificates(folder: &Path, port: u16) -> anyhow::Result<String> {
    let params = |name: &str, organization: &str| {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationName, organization);
        params
    };
    let write = |name: &str, pem: String| std::fs::write(folder.join(name), pem);
    let mut authority = params("envtest-environment", "envtest");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
    write("client-cert-auth-ca.crt", authority.pem())?;
    for (name, common_name) in [("apiserver", "localhost"), ("sa-signer", "sa-signer")] {
        let mut leaf = params(common_name, "envtest");
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        leaf.subject_alt_names = CertificateParams::new(names)?.subject_alt_names;
        let key = KeyPair::generate()?;
        write(&format!("{name}.crt"), leaf.self_signed(&key)?.pem())?;
        write(&format!("{name}.key"), key.serialize_pem())?;
    }
    let key = KeyPair::generate()?;
    let certificate = params("admin", "system:masters").signed_by(&key, &authority)?.pem();
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{"name": "a", "cluster": {
            "server": format!("https://127.0.0.1:{port}"), "insecure-skip-tls-verify": true,
        }}],
        "users": [{"name": "a", "user": {
            "client-certificate-data": STANDARD.encode(certificate),
            "client-key-data": STANDARD.encode(key.serialize_pem()),
        }}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    });
    Ok(kubeconfig.to_string())
}
