//! The real Neutron, on loopback: without Keystone, over SQLite. Skipped, with a message, if
//! `SETPOINT_TEST_NEUTRON` is not set; `cargo xtask test` sets it to a Python that imports Neutron.

use super::cloud::{Cloud, Wire};
use super::{controller, stories};
use network::backend::neutron::Dial;
use setpoint::kube_client::{Client, Config};
use setpoint::testenv::TestEnv;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// The longest start: it imports some thousand modules.
const START_MAX: Duration = Duration::from_secs(180);

/// A Neutron that ends with this value.
struct Server {
    process: Child,
    port: u16,
}

impl Server {
    /// Starts it in a folder; port 0: any.
    async fn start(python: &Path, folder: &Path, port: u16) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/neutron/serve.py");
        let log = std::fs::File::create(folder.join("log")).unwrap();
        let mut process = Command::new(python)
            .arg(script)
            .arg(folder)
            .arg(port.to_string())
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
                        panic!("Neutron did not start: {log}");
                    }
                }
            }
        };
        let ready = tokio::time::timeout(START_MAX, ready).await.expect("Neutron starts in time");
        Self { process, port: ready["ready ".len()..].parse().unwrap() }
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
