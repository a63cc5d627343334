//! What controller-runtime's envtest does: files, flags, polls, stop.

use crate::certificates::{Authorities, User};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How long a start or a stop may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The folder of installed binaries, one for all tests.
pub(crate) fn assets() -> &'static Path {
    static ASSETS: OnceLock<PathBuf> = OnceLock::new();
    ASSETS.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("envtest-assets");
        let install = Command::new(env!("CARGO_BIN_EXE_setpoint"))
            .args(["envtest", "install"])
            .arg(&folder)
            .output()
            .unwrap();
        assert!(install.status.success(), "{}", String::from_utf8_lossy(&install.stderr));
        folder
    })
}

pub(crate) fn free_port() -> u16 {
    setpoint_store_etcd::testing::free_ports(1)[0]
}

/// Repeats until a condition holds.
#[track_caller]
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "{what}");
        // Health is polled by harnesses: they have no event to wait for.
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A child that is killed when dropped.
pub(crate) struct Process {
    pub(crate) child: Child,
    log: PathBuf,
}

impl Process {
    pub(crate) fn start(command: &mut Command, log: PathBuf) -> Self {
        let file = std::fs::File::create(&log).unwrap();
        let child = command.stdout(Stdio::null()).stderr(file).spawn().unwrap();
        Self { child, log }
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends SIGTERM and waits.
    pub(crate) fn terminate(&mut self) -> ExitStatus {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        self.ended()
    }

    /// Waits until it has ended. One that does not is killed, which its status shows.
    fn ended(&mut self) -> ExitStatus {
        let id = self.child.id().to_string();
        let (ended, watched) = mpsc::channel::<()>();
        let watchdog = std::thread::spawn(move || {
            if watched.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                // It is not waited for yet, so the number is still its own.
                let _ = Command::new("kill").args(["-KILL", &id]).status();
            }
        });
        let status = self.child.wait().unwrap();
        drop(ended);
        watchdog.join().unwrap();
        status
    }

    /// Ends the test early, with the log, if the process has ended.
    #[track_caller]
    fn still_runs(&mut self) {
        if let Some(status) = self.child.try_wait().unwrap() {
            panic!("{status}:\n{}", self.log());
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Already ended if the test succeeded.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The status of a GET over plain HTTP/1.1; 0 if the server cannot be reached.
pub(crate) fn plain_status(port: u16, path: &str) -> u16 {
    let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) else { return 0 };
    status_on(stream, path)
}

fn status_on(mut stream: impl std::io::Read + std::io::Write, path: &str) -> u16 {
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: a\r\nUser-Agent: Go-http-client/1.1\r\nConnection: close\r\n\r\n"
    );
    let mut head = [0; 12];
    let answered = stream.write_all(request.as_bytes()).and_then(|()| stream.read_exact(&mut head));
    let head = String::from_utf8_lossy(&head).into_owned();
    match answered {
        Ok(()) => head.rsplit(' ').next().unwrap().parse().unwrap(),
        Err(_) => 0,
    }
}

/// The status of a GET over TLS, anonymous and without verification, as harnesses poll.
pub(crate) fn tls_status(port: u16, path: &str) -> u16 {
    let Ok(tcp) = TcpStream::connect(("127.0.0.1", port)) else { return 0 };
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(std::sync::Arc::new(Unverified(provider)))
        .with_no_client_auth();
    let name = "localhost".try_into().unwrap();
    let tls = rustls::ClientConnection::new(std::sync::Arc::new(config), name).unwrap();
    status_on(rustls::StreamOwned::new(tls, tcp), path)
}

/// Trusts every server.
#[derive(Debug)]
struct Unverified(std::sync::Arc<rustls::crypto::CryptoProvider>);

impl rustls::client::danger::ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &[rustls::pki_types::CertificateDer<'_>],
        _: &rustls::pki_types::ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// A started environment.
pub(crate) struct Environment {
    pub(crate) api_server: Process,
    pub(crate) etcd: Process,
    pub(crate) port: u16,
    pub(crate) etcd_port: u16,
    pub(crate) authorities: Authorities,
    pub(crate) folder: tempfile::TempDir,
}

/// What a test adds to a start.
#[derive(Default)]
pub(crate) struct Start {
    pub(crate) flags: Vec<String>,
    /// Default flags, by name, that are left out.
    pub(crate) without: Vec<&'static str>,
    pub(crate) environment: Vec<(&'static str, &'static str)>,
    /// The address of another etcd.
    pub(crate) etcd: Option<String>,
}

impl Start {
    pub(crate) fn flag(mut self, flag: impl Into<String>) -> Self {
        self.flags.push(flag.into());
        self
    }

    pub(crate) fn without(mut self, name: &'static str) -> Self {
        self.without.push(name);
        self
    }

    pub(crate) fn variable(mut self, name: &'static str, value: &'static str) -> Self {
        self.environment.push((name, value));
        self
    }

    /// Starts etcd, then kube-apiserver, each until its health says 200.
    #[track_caller]
    pub(crate) fn start(self) -> Environment {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path("certs")).unwrap();
        let authorities = Authorities::new();
        authorities.write(&path("certs"));
        let (port, etcd_port) = (free_port(), free_port());
        let etcd_url = format!("http://127.0.0.1:{etcd_port}");
        let mut etcd = Command::new(assets().join("etcd"));
        etcd.args([
            format!("--advertise-client-urls={etcd_url}"),
            format!("--data-dir={}", path("etcd").display()),
            format!("--listen-client-urls={etcd_url}"),
            format!("--listen-peer-urls=http://127.0.0.1:{}", free_port()),
            "--unsafe-no-fsync=true".to_owned(),
        ]);
        let mut etcd = Process::start(&mut etcd, path("etcd.log"));
        eventually("etcd is healthy", || {
            etcd.still_runs();
            plain_status(etcd_port, "/health") == 200
        });
        let certs = path("certs");
        let cert = |name: &str| certs.join(name).display().to_string();
        let flags = [
            ("allow-privileged", "true".to_owned()),
            ("authorization-mode", "RBAC".to_owned()),
            ("bind-address", "127.0.0.1".to_owned()),
            ("cert-dir", certs.display().to_string()),
            ("client-ca-file", cert("client-cert-auth-ca.crt")),
            ("disable-admission-plugins", "ServiceAccount".to_owned()),
            ("etcd-servers", self.etcd.unwrap_or(etcd_url)),
            ("secure-port", port.to_string()),
            ("service-account-issuer", format!("https://127.0.0.1:{port}/")),
            ("service-account-key-file", cert("sa-signer.crt")),
            ("service-account-signing-key-file", cert("sa-signer.key")),
            ("service-cluster-ip-range", "10.0.0.0/24".to_owned()),
        ];
        let flags = flags.iter().filter(|(name, _)| !self.without.contains(name));
        let mut command = Command::new(assets().join("kube-apiserver"));
        command.args(flags.map(|(name, value)| format!("--{name}={value}")));
        command.args(&self.flags).envs(self.environment);
        let mut api_server = Process::start(&mut command, path("kube-apiserver.log"));
        eventually("kube-apiserver is healthy", || {
            api_server.still_runs();
            tls_status(port, "/healthz") == 200
        });
        Environment { api_server, etcd, port, etcd_port, authorities, folder }
    }
}

impl Environment {
    /// A kubeconfig of a user.
    pub(crate) fn kubeconfig(&self, user: &User) -> String {
        serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "envtest",
            "clusters": [{"name": "envtest", "cluster": {
                "server": format!("https://127.0.0.1:{}", self.port),
                "certificate-authority-data": STANDARD.encode(self.authorities.ca()),
            }}],
            "users": [{"name": "user", "user": {
                "client-certificate-data": STANDARD.encode(&user.certificate),
                "client-key-data": STANDARD.encode(&user.key),
            }}],
            "contexts": [{"name": "envtest", "context": {"cluster": "envtest", "user": "user"}}],
        })
        .to_string()
    }

    pub(crate) async fn client(&self, user: &User) -> kube_client::Client {
        client(&self.kubeconfig(user)).await
    }

    pub(crate) async fn admin(&self) -> kube_client::Client {
        self.client(&self.authorities.user("admin", &["system:masters"])).await
    }
}

pub(crate) async fn client(kubeconfig: &str) -> kube_client::Client {
    use kube_client::config::{KubeConfigOptions, Kubeconfig};
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = kube_client::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    kube_client::Client::try_from(config).unwrap()
}
