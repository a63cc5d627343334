//! The real Neutron, on loopback, over SQLite: without Keystone, and with a real one. Skipped, with
//! a message, if `SETPOINT_TEST_NEUTRON` is not set; `cargo xtask test` sets it to a Python that
//! imports both.

use super::cloud::{Cloud, Wire, desired, owner};
use super::{controller, stories};
use network::backend::neutron::{Access, Credential, Dial, Secret};
use network::backend::{Backend, NeutronBackend};
use setpoint::kube_client::{Client, Config};
use setpoint::prelude::Clock;
use setpoint::testenv::TestEnv;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// The longest start: it imports some thousand modules.
const START_MAX: Duration = Duration::from_secs(180);

/// A server that ends with this value.
struct Server {
    process: Child,
    port: u16,
    /// What follows the port on the line that says it is ready.
    more: String,
}

impl Server {
    /// Starts Neutron in a folder; port 0: any.
    async fn start(python: &Path, folder: &Path, port: u16) -> Self {
        Self::run(python, "serve.py", folder, &[&port.to_string()]).await
    }

    /// Runs a launcher with its folder and further arguments.
    async fn run(python: &Path, script: &str, folder: &Path, arguments: &[&str]) -> Self {
        let log = std::fs::File::create(folder.join("log")).unwrap();
        let mut process = Command::new(python)
            .arg(std::path::absolute(Path::new("neutron").join(script)).unwrap())
            .arg(folder)
            .args(arguments)
            .arg("--with-parent")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let ready = async {
            loop {
                match lines.next_line().await.unwrap() {
                    Some(line) if line.starts_with("ready ") => return line,
                    Some(_) => {}
                    None => {
                        let log = std::fs::read_to_string(folder.join("log")).unwrap();
                        panic!("{script} did not start: {log}");
                    }
                }
            }
        };
        let ready = tokio::time::timeout(START_MAX, ready).await.expect("it starts in time");
        let mut words = ready.split(' ').skip(1);
        let port = words.next().unwrap().parse().unwrap();
        Self { process, port, more: words.next().unwrap_or_default().to_owned() }
    }

    fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    async fn stop(mut self) {
        self.process.kill().await.unwrap();
    }
}

#[tokio::test]
async fn real_neutron_has_the_networks_through_crashes_drift_and_restarts() {
    let Some(python) = std::env::var_os("SETPOINT_TEST_NEUTRON").map(PathBuf::from) else {
        eprintln!("skipped: SETPOINT_TEST_NEUTRON is not set");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&python, folder.path(), 0).await;
    let (endpoint, port) = (server.endpoint(), server.port);
    let mut config = Config::new(endpoint.parse().unwrap());
    config.default_retry = false;
    let plain = Client::try_from(config).unwrap();
    let n_projects = AtomicU32::new(0);
    let project = |name: &str| Cloud {
        plain: plain.clone(),
        wire: Wire::default(),
        endpoint: endpoint.clone(),
        project: format!("{name}-{}", n_projects.fetch_add(1, Ordering::Relaxed)),
    };
    // A network without its tag, and one whose subnet has none. The Neutron in memory has the
    // other crashes: here, each request takes up to a tenth of a second.
    stories::tell_all(project, &[1, 3]).await;

    let cloud = project("controller");
    let env = TestEnv::start().await.unwrap();
    let backend = cloud.backend_over(Dial::tcp(None));
    controller::start(&env, backend.check_every(Duration::from_secs(1))).await;
    controller::tell(&env, &cloud).await;

    // The server is away when a network is declared, and has kept the others.
    controller::declare(&env, "kept", "10.1.0.0/24", "10.1.0.1").await;
    controller::judged(&env, "kept", "True", "Synced").await;
    let before = cloud.only("networks").await["id"].clone();
    server.stop().await;
    controller::declare(&env, "late", "10.2.0.0/24", "10.2.0.1").await;
    controller::judged(&env, "late", "False", "BackendFailed").await;
    let server = Server::start(&python, folder.path(), port).await;
    controller::judged(&env, "late", "True", "Synced").await;
    controller::judged(&env, "kept", "True", "Synced").await;
    let networks = cloud.all("networks").await;
    assert_eq!(networks.len(), 2);
    assert!(networks.iter().any(|network| network["id"] == before));
    env.stop().await.unwrap();
    server.stop().await;
}

/// Tokens, the catalogue and Neutron's own check of both, with a password and with an application
/// credential.
#[tokio::test]
async fn real_keystone_lets_the_controller_in() {
    let Some(python) = std::env::var_os("SETPOINT_TEST_NEUTRON").map(PathBuf::from) else {
        eprintln!("skipped: SETPOINT_TEST_NEUTRON is not set");
        return;
    };
    let (for_keystone, for_neutron) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // Each of the two must know where the other one is.
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port().to_string();
    drop(free);
    let catalogued = format!("http://127.0.0.1:{port}");
    let keystone =
        Server::run(&python, "serve_keystone.py", for_keystone.path(), &[&catalogued]).await;
    let url = keystone.endpoint();
    let arguments = [&port[..], "--keystone", &url];
    let neutron = Server::run(&python, "serve.py", for_neutron.path(), &arguments).await;

    let backend = |credential| {
        let access = Access::Keystone {
            url: url.clone(),
            credential,
            region: Some("one".into()),
            interface: "public".into(),
            endpoint: None,
        };
        NeutronBackend::new(access, Dial::tcp(None), Clock::wall(), 1).unwrap()
    };
    let password = |password: &str| Credential::Password {
        user: "me".into(),
        user_domain: "Default".into(),
        password: Secret::Text(password.into()),
        project: "demo".into(),
        project_domain: "Default".into(),
    };
    let refused = backend(password("guess"));
    let wanted = || desired("10.9.0.0/24", "10.9.0.1");
    let error = refused.ensure(&owner("a"), wanted()).await.unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("/v3/auth/tokens: 401 Unauthorized"), "{source}");

    let by_password = backend(password("secret"));
    let made = by_password.ensure(&owner("a"), wanted()).await.unwrap();
    assert!(made.changed);
    // The same project, seen with the application credential.
    let secret = for_keystone.path().join("secret");
    std::fs::write(&secret, "secret\n").unwrap();
    let credential = || Credential::Application {
        id: keystone.more.clone(),
        secret: Secret::File(secret.clone()),
    };
    let by_credential = backend(credential());
    let same = by_credential.ensure(&owner("a"), wanted()).await.unwrap();
    assert_eq!((same.changed, same.device), (false, made.device));

    let env = TestEnv::start().await.unwrap();
    controller::start(&env, backend(credential()).check_every(Duration::from_secs(1))).await;
    controller::declare(&env, "office", "10.0.0.0/24", "10.0.0.1").await;
    controller::judged(&env, "office", "True", "Synced").await;
    env.stop().await.unwrap();
    neutron.stop().await;
    keystone.stop().await;
}
