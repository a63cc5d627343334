//! `setpoint up` as a program.

use crate::ready_line;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

/// A running program, killed if a test ends early.
struct Program {
    child: Child,
    out: BufReader<ChildStdout>,
    url: String,
    insecure_url: Option<String>,
    kubeconfig: PathBuf,
    dir: tempfile::TempDir,
}

impl Program {
    fn start() -> Self {
        Self::start_with(&[])
    }

    fn start_with(options: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let kubeconfig = dir.path().join("kubeconfig");
        let log = std::fs::File::create(dir.path().join("log")).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_setpoint"))
            .args(["up", "--secure-port", "0", "--kubeconfig"])
            .arg(&kubeconfig)
            .args(options)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert!(line.ends_with(&format!(" kubeconfig={}\n", kubeconfig.display())), "{line:?}");
        let (url, insecure_url) =
            ready_line::urls(&line).unwrap_or_else(|| panic!("not a ready line: {line:?}"));
        Self { child, out, url, insecure_url, kubeconfig, dir }
    }

    /// Number of worker threads of the runtime, found by their name.
    fn n_workers(&self) -> usize {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let names = tasks
            .flatten()
            .filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        names.filter(|name| name.starts_with("tokio-r")).count()
    }

    /// Its log.
    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    /// Sends SIGTERM and waits; returns the exit code and the remaining output.
    fn stop(&mut self) -> (Option<i32>, String) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        let code = self.child.wait().unwrap().code();
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        (code, rest)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Already ended if the test succeeded.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn program_serves_what_its_kubeconfig_says_and_ends_politely() {
    use futures::{StreamExt, TryStreamExt};
    use k8s_openapi::api::core::v1::Namespace;
    use kube_client::Api;
    use kube_client::api::WatchParams;
    use kube_client::config::{KubeConfigOptions, Kubeconfig};

    let mut program = Program::start();
    assert!(program.url.starts_with("https://127.0.0.1:"), "{}", program.url);
    let mode = program.kubeconfig.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let kubeconfig = Kubeconfig::read_from(&program.kubeconfig).unwrap();
    let config =
        kube_client::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .unwrap();
    let client = kube_client::Client::try_from(config).unwrap();
    let namespaces = Api::<Namespace>::all(client.clone());
    assert_eq!(namespaces.get("default").await.unwrap().metadata.name.as_deref(), Some("default"));
    let mut events = namespaces.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    events.try_next().await.unwrap().expect("an event for a namespace");

    let scrape = http::Request::get("/metrics").body(Vec::new()).unwrap();
    let metrics = client.request_text(scrape).await.unwrap();
    assert!(metrics.contains("apiserver_request_total{"), "{metrics}");

    let stop = move || (program.stop(), program.log());
    let (ended, log) = tokio::task::spawn_blocking(stop).await.unwrap();
    assert_eq!(ended, (Some(0), String::new()), "exit code, further output");
    // Controllers end before their watches do.
    assert!(!log.contains("watch of"), "{log}");
    // Pending events arrive, then the watch ends without an error.
    while events.try_next().await.unwrap().is_some() {}
}

#[test]
fn workers_are_as_many_as_cores_unless_it_is_said_how_many() {
    let cores = std::thread::available_parallelism().unwrap().get();
    assert!(Program::start().n_workers() >= cores);
    assert!(Program::start_with(&["--worker-threads", "7"]).n_workers() >= 7);
    assert!(Program::start_with(&["--worker-threads", "1"]).n_workers() < 7);
}

#[test]
fn logs_in_a_file_have_no_colors() {
    let mut program = Program::start_with(&["--insecure-port", "0"]);
    program.stop();
    let log = program.log();
    let url = program.insecure_url.as_ref().expect("the line names it");
    assert!(url.starts_with("http://127.0.0.1:") && log.contains(url), "{url}: {log}");
    assert!(log.contains("serving without authentication") && log.contains("stopping"), "{log}");
    assert!(!log.contains('\u{1b}'), "{log}");
}

#[test]
fn bad_options_are_refused() {
    let output = Command::new(env!("CARGO_BIN_EXE_setpoint"))
        .args(["up", "--store", "paper"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(output.stdout.is_empty());
}
