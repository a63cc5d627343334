//! Clusters of real etcd processes, for tests (feature `testing`).
//!
//! `SETPOINT_TEST_ETCD` is the path of the binary, and `cargo xtask test` sets it; [`available`]
//! returns whether it is set. A cluster listens on loopback, on free ports below those of outgoing
//! connections, so that a restarted member finds its port free. Its data is in a temporary folder.
//! Dropping the [`Cluster`] ends the processes first and then removes everything else.
//!
//! ```no_run
//! # async fn test() {
//! use setpoint_store_etcd::{EtcdOptions, EtcdStore, testing::Cluster};
//!
//! let mut cluster = Cluster::start(3).await;
//! let store = EtcdStore::connect(EtcdOptions::new(cluster.endpoints())).await.unwrap();
//! let leader = cluster.leader().await;
//! cluster.kill(leader); // SIGKILL
//! cluster.restart(leader);
//! cluster.wait_healthy().await;
//! # }
//! ```
#![allow(clippy::unwrap_used, reason = "a test's harness asserts by unwrapping")]

use crate::{EtcdOptions, status, store::EtcdStore};
use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, sleep, timeout},
};

/// Environment variable with the path of etcd.
pub const ETCD: &str = "SETPOINT_TEST_ETCD";
/// Environment variable with the path of etcdctl.
pub const ETCDCTL: &str = "SETPOINT_TEST_ETCDCTL";
/// etcd's flag not to sync its files.
const UNSYNCED: &str = "--unsafe-no-fsync";
/// Maximum time for a cluster to become healthy.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Maximum number of attempts with new ports, if another process took one.
const STARTS_MAX: u32 = 5;
/// The first port to try; outgoing connections begin at 32,768.
const PORT_MIN: u32 = 12_000;
/// Number of ports to try.
const PORTS: u32 = 20_000;

/// Whether etcd is available. If not, prints to standard error that the test is skipped.
pub fn available() -> bool {
    let is_there = std::env::var_os(ETCD).is_some();
    if !is_there {
        eprintln!("skipped: {ETCD} is not set (`cargo xtask test` sets it)");
    }
    is_there
}

/// Options of a cluster.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ClusterOptions {
    /// Number of members.
    pub members: usize,
    /// The members' certificate, its key, and the CA of both sides, as PEM files. Clients then need
    /// a certificate of that CA.
    pub tls: Option<(PathBuf, PathBuf, PathBuf)>,
    /// Whether members skip syncing, if etcd has the flag (since 3.5). For tests that write much
    /// and do not test the disk. Writes of a killed member are still there when it restarts; only a
    /// power cut loses them.
    pub unsynced: bool,
    /// More arguments for every member.
    pub args: Vec<String>,
    /// The binary; [`ETCD`] by default.
    pub binary: Option<PathBuf>,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self { members: 1, tls: None, unsynced: false, args: Vec::new(), binary: None }
    }
}

/// A running cluster.
#[derive(Debug)]
pub struct Cluster {
    // Dropped in this order, so that no process writes into a removed folder.
    members: Vec<Member>,
    options: ClusterOptions,
    folder: TempDir,
}

#[derive(Debug)]
struct Member {
    command: Vec<String>,
    log: PathBuf,
    client: String,
    /// The port of its health endpoint, without TLS.
    health: u16,
    process: Option<Child>,
    is_paused: bool,
}

impl Drop for Member {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Member {
    fn start(&mut self) {
        let log = fs::OpenOptions::new().create(true).append(true).open(&self.log).unwrap();
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).env("ETCD_UNSUPPORTED_ARCH", "arm64");
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.process = Some(command.spawn().unwrap_or_else(|error| {
            panic!("{} does not start: {error}", self.command[0]);
        }));
    }

    fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            // SIGKILL also ends a paused process.
            drop(process.kill());
            drop(process.wait());
        }
        self.is_paused = false;
    }

    fn signal(&self, signal: &str) {
        let process = self.process.as_ref().expect("the member runs");
        let sent = Command::new("kill").args(["-s", signal, &process.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "kill -s {signal}");
    }

    fn has_exited(&mut self) -> bool {
        self.process.as_mut().is_none_or(|process| process.try_wait().unwrap().is_some())
    }

    async fn is_healthy(&self) -> bool {
        let ask = async {
            let mut wire = TcpStream::connect(("127.0.0.1", self.health)).await.ok()?;
            let request = b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n";
            wire.write_all(request).await.ok()?;
            let mut answer = String::new();
            wire.read_to_string(&mut answer).await.ok()?;
            Some(answer.contains(r#""health":"true""#))
        };
        timeout(Duration::from_secs(3), ask).await.is_ok_and(|printed| printed == Some(true))
    }
}

impl Cluster {
    /// Starts `n` members and waits until all are healthy.
    ///
    /// # Panics
    ///
    /// If [`ETCD`] is not set, or they do not become healthy. Prints their logs.
    pub async fn start(n: usize) -> Self {
        Self::start_with(ClusterOptions { members: n, ..ClusterOptions::default() }).await
    }

    /// Starts a cluster and waits until all members are healthy.
    ///
    /// # Panics
    ///
    /// As [`Self::start`].
    pub async fn start_with(options: ClusterOptions) -> Self {
        let mut starts = 1;
        loop {
            let mut cluster = Self::spawn(options.clone());
            match cluster.become_healthy().await {
                Ok(()) => return cluster,
                Err(log) if starts < STARTS_MAX && log.contains("address already in use") => {
                    starts += 1;
                }
                Err(log) => panic!("etcd does not become healthy:\n{log}"),
            }
        }
    }

    fn spawn(options: ClusterOptions) -> Self {
        let binary = options.binary.clone().or_else(|| std::env::var_os(ETCD).map(PathBuf::from));
        let binary =
            binary.unwrap_or_else(|| panic!("{ETCD} is not set: `cargo xtask test` sets it"));
        let folder = tempfile::Builder::new().prefix("setpoint-etcd-").tempdir().unwrap();
        let ports = free_ports(options.members * 3);
        let peers: Vec<String> =
            ports.chunks(3).map(|ports| format!("http://127.0.0.1:{}", ports[1])).collect();
        let all: Vec<String> =
            peers.iter().enumerate().map(|(i, peer)| format!("m{i}={peer}")).collect();
        let scheme = if options.tls.is_some() { "https" } else { "http" };
        let members = ports.chunks(3).enumerate().map(|(i, ports)| {
            let client = format!("{scheme}://127.0.0.1:{}", ports[0]);
            let mut command = vec![binary.display().to_string()];
            let data = folder.path().join(format!("m{i}"));
            for (name, value) in [
                ("name", format!("m{i}")),
                ("data-dir", data.display().to_string()),
                ("listen-client-urls", client.clone()),
                ("advertise-client-urls", client.clone()),
                ("listen-peer-urls", peers[i].clone()),
                ("initial-advertise-peer-urls", peers[i].clone()),
                ("listen-metrics-urls", format!("http://127.0.0.1:{}", ports[2])),
                ("initial-cluster", all.join(",")),
                ("initial-cluster-token", "setpoint-test".into()),
                // Elections take half a second instead of seconds.
                ("heartbeat-interval", "50".into()),
                ("election-timeout", "500".into()),
                ("logger", "zap".into()),
                ("log-level", "warn".into()),
            ] {
                command.extend([format!("--{name}"), value]);
            }
            if let Some((certificate, key, ca)) = &options.tls {
                for (name, path) in
                    [("cert-file", certificate), ("key-file", key), ("trusted-ca-file", ca)]
                {
                    command.extend([format!("--{name}"), path.display().to_string()]);
                }
                command.push("--client-cert-auth".into());
            }
            if options.unsynced && knows_unsynced(&binary) {
                command.push(UNSYNCED.into());
            }
            command.extend(options.args.iter().cloned());
            let log = folder.path().join(format!("m{i}.log"));
            let mut member =
                Member { command, log, client, health: ports[2], process: None, is_paused: false };
            member.start();
            member
        });
        Self { members: members.collect(), options, folder }
    }

    async fn become_healthy(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        for i in 0..self.members.len() {
            if self.members[i].is_paused {
                continue;
            }
            while !self.members[i].is_healthy().await {
                if self.members[i].process.is_none() {
                    break;
                }
                if self.members[i].has_exited() || Instant::now() > deadline {
                    return Err(self.log(i));
                }
                sleep(Duration::from_millis(20)).await;
            }
        }
        Ok(())
    }

    /// Waits until every member that runs and is not paused is healthy: it knows a leader, and a
    /// majority responds.
    ///
    /// # Panics
    ///
    /// If that takes longer than [`PATIENCE`], or a member has exited. Prints its log.
    pub async fn wait_healthy(&mut self) {
        if let Err(log) = self.become_healthy().await {
            panic!("etcd does not become healthy:\n{log}");
        }
    }

    /// Number of members, running or not.
    #[allow(clippy::len_without_is_empty, reason = "there is no cluster without members")]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// The client addresses of all members: `http://127.0.0.1:port`, or `https` with TLS.
    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(|member| member.client.clone()).collect()
    }

    /// The endpoints in the form of a flag's value.
    pub fn endpoints_flag(&self) -> String {
        self.endpoints().join(",")
    }

    /// A store over all members, without TLS and user. It has long timeouts, because test machines
    /// are busy.
    ///
    /// # Panics
    ///
    /// If it cannot connect.
    pub async fn store(&self) -> EtcdStore {
        let mut options = EtcdOptions::new(self.endpoints());
        options.request_timeout = PATIENCE;
        EtcdStore::connect(options).await.unwrap()
    }

    /// The folder of data and logs, which the test may use for other files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Whether clients need TLS.
    pub fn is_tls(&self) -> bool {
        self.options.tls.is_some()
    }

    /// Kills a member with SIGKILL. No effect if it does not run.
    pub fn kill(&mut self, i: usize) {
        self.members[i].kill();
    }

    /// Stops a member with SIGTERM, as an upgrade does: a leader hands over first. Waits until it
    /// has exited.
    ///
    /// # Panics
    ///
    /// If it does not run, or does not exit within [`PATIENCE`].
    pub async fn stop(&mut self, i: usize) {
        self.members[i].signal("TERM");
        let deadline = Instant::now() + PATIENCE;
        while !self.members[i].has_exited() {
            assert!(Instant::now() < deadline, "member {i} does not end:\n{}", self.log(i));
            sleep(Duration::from_millis(10)).await;
        }
        self.members[i].kill();
    }

    /// Restarts a killed member with its data. Does not wait for it: see [`Self::wait_healthy`].
    pub fn restart(&mut self, i: usize) {
        self.members[i].kill();
        self.members[i].start();
    }

    /// Pauses a member with SIGSTOP: its connections stay open, but it does not respond.
    pub fn pause(&mut self, i: usize) {
        self.members[i].signal("STOP");
        self.members[i].is_paused = true;
    }

    /// Resumes a paused member.
    pub fn resume(&mut self, i: usize) {
        self.members[i].signal("CONT");
        self.members[i].is_paused = false;
    }

    /// The current leader. Waits until a member reports itself as one. Works without TLS and user
    /// only.
    ///
    /// # Panics
    ///
    /// If there is no leader for longer than [`PATIENCE`].
    pub async fn leader(&self) -> usize {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut options = EtcdOptions::new(self.endpoints());
            options.attempt_timeout = Duration::from_secs(1);
            let cluster = crate::cluster::Cluster::new(options).unwrap();
            let status = status::status(&cluster).await;
            let is_leader = |member: &status::EtcdMember| {
                member.state.as_ref().is_ok_and(|state| state.is_leader)
            };
            if let Some(leader) = status.members.iter().position(is_leader) {
                return leader;
            }
            assert!(Instant::now() < deadline, "no leader: {status:?}");
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// The log of a member.
    pub fn log(&self, i: usize) -> String {
        fs::read_to_string(&self.members[i].log).unwrap_or_default()
    }

    /// An etcdctl command (of [`ETCDCTL`]) with the endpoints set; `None` if it is not available.
    pub fn etcdctl(&self) -> Option<Command> {
        let mut command = Command::new(std::env::var_os(ETCDCTL)?);
        command.env("ETCDCTL_API", "3").arg(format!("--endpoints={}", self.endpoints_flag()));
        Some(command)
    }
}

/// Whether this etcd has the flag not to sync.
fn knows_unsynced(binary: &Path) -> bool {
    let help = Command::new(binary).arg("--help").env("ETCD_UNSUPPORTED_ARCH", "arm64").output();
    // Some versions write it to standard error.
    help.is_ok_and(|printed| {
        [printed.stdout, printed.stderr]
            .iter()
            .any(|text| String::from_utf8_lossy(text).contains(UNSYNCED))
    })
}

/// Ports on which no process listens now; different ones at each call of this process. None of them
/// is one of those that the system gives to outgoing connections, so none is taken by one before
/// the program that it is meant for listens.
///
/// # Panics
///
/// If there are not so many.
pub fn free_ports(n: usize) -> Vec<u16> {
    /// Where the next search of this process starts.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(7919);
    let mut ports = Vec::new();
    let mut held = Vec::new();
    while ports.len() < n {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(step < 10 * PORTS, "no free port");
        let port = u16::try_from(PORT_MIN + first.wrapping_add(step) % PORTS).unwrap();
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            held.push(listener);
            ports.push(port);
        }
    }
    ports
}
