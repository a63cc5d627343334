//! `setpoint up` as a program.

use crate::ready_line;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

/// The header of scrapes with the start of the process.
const START: &str = "process-start-time-unix";

/// A running program, killed if a test ends early.
pub(crate) struct Program {
    child: Child,
    out: BufReader<ChildStdout>,
    url: String,
    insecure_url: Option<String>,
    pub(crate) kubeconfig: PathBuf,
    dir: tempfile::TempDir,
}

impl Program {
    fn start() -> Self {
        Self::start_with(&[])
    }

    pub(crate) fn start_with(options: &[&str]) -> Self {
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
    pub(crate) fn stop(&mut self) -> (Option<i32>, String) {
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
    let page = async |path: &str| {
        let request = http::Request::get(path).body(kube_client::client::Body::empty()).unwrap();
        let (parts, _) = client.send(request).await.unwrap().into_parts();
        let header = |name: &str| parts.headers[name].to_str().unwrap().to_owned();
        (parts.status.as_u16(), header("content-type"), parts.headers.contains_key(START))
    };
    let text = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores".to_owned();
    assert_eq!(page("/metrics/slis").await, (200, text, cfg!(target_os = "linux")));
    let text = "text/plain; charset=utf-8".to_owned();
    assert_eq!(page("/metrics/").await, (404, text, false));

    let stop = move || (program.stop(), program.log());
    let (ended, log) = tokio::task::spawn_blocking(stop).await.unwrap();
    assert_eq!(ended, (Some(0), String::new()), "exit code, further output");
    // Controllers end before their watches do.
    assert!(!log.contains("watch of"), "{log}");
    // Pending events arrive, then the watch ends without an error.
    while events.try_next().await.unwrap().is_some() {}
}

/// The program said that it was ready, and why no pod ran only when it was stopped.
#[test]
fn process_nodes_that_cannot_run_end_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let mut up = Command::new(env!("CARGO_BIN_EXE_setpoint"));
    up.args(["up", "--secure-port", "0", "--kubeconfig"]).arg(dir.path().join("kubeconfig"));
    up.args(["--process-nodes", "1", "--process-nodes-dir"]).arg(file.join("nodes"));
    let ended = up.output().unwrap();
    let log = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{log}");
    assert!(log.contains("run the process nodes"), "{log}");
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

#[tokio::test]
async fn node_ports_and_served_versions_are_those_of_the_flags() {
    let program = Program::start_with(&[
        "--insecure-port=0",
        "--service-node-port-range=31000+3",
        "--runtime-config=apps/v1=false,batch/v1/cronjobs=false,resource.k8s.io/v1beta1",
        "--controllers=namespace,serviceaccount-controller",
    ]);
    let url = program.insecure_url.clone().unwrap();
    let client = kube_client::Client::try_from(kube_client::Config::new(url.parse().unwrap()));
    let client = client.unwrap();
    let ask = async |method: &str, path: &str, body: serde_json::Value| {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header("content-type", "application/json").body(body.into());
        let answer = client.send(request.unwrap()).await.unwrap();
        let code = answer.status().as_u16();
        let body = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
        (code, String::from_utf8_lossy(&body).into_owned())
    };
    let service = async |name: &str, port: u16| {
        let service = serde_json::json!({
            "metadata": {"name": name},
            "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]},
        });
        ask("POST", "/api/v1/namespaces/default/services", service).await
    };
    let (code, refused) = service("low", 30_999).await;
    assert_eq!(code, 422);
    let why = "spec.ports[0].nodePort: Invalid value: 30999: provided port is not in the valid range. The range of valid ports is 31000-31003";
    assert!(refused.contains(why), "{refused}");
    assert_eq!(service("last", 31_003).await.0, 201);
    for name in ["a", "b", "c"] {
        let (code, made) = service(name, 0).await;
        let made: serde_json::Value = serde_json::from_str(&made).unwrap();
        let port = made["spec"]["ports"][0]["nodePort"].as_u64().unwrap();
        assert!(code == 201 && (31_000..31_003).contains(&port), "{made}");
    }
    let (code, full) = service("d", 0).await;
    assert!(code == 500 && full.contains("failed to allocate a nodePort: range is full"), "{full}");

    let nothing = serde_json::Value::Null;
    let (_, groups) = ask("GET", "/apis", nothing.clone()).await;
    assert!(!groups.contains("\"apps\"") && groups.contains("\"batch\""), "{groups}");
    assert_eq!(ask("GET", "/apis/apps/v1/deployments", nothing.clone()).await.0, 404);
    let (_, batch) = ask("GET", "/apis/batch/v1", nothing.clone()).await;
    assert!(!batch.contains("cronjobs") && batch.contains("\"jobs\""), "{batch}");
    assert_eq!(ask("GET", "/openapi/v3/apis/apps/v1", nothing.clone()).await.0, 404);
    assert_eq!(ask("GET", "/apis/batch/v1/jobs", nothing.clone()).await.0, 200);

    let (_, group) = ask("GET", "/apis/resource.k8s.io", nothing.clone()).await;
    let group: serde_json::Value = serde_json::from_str(&group).unwrap();
    assert_eq!(group["preferredVersion"]["version"], "v1");
    assert_eq!(
        (&group["versions"][1]["version"], &group["versions"][2]),
        (&"v1beta1".into(), &nothing)
    );
    assert_eq!(
        ask("GET", "/openapi/v3/apis/resource.k8s.io/v1beta1", nothing.clone()).await.0,
        200
    );
    let service = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.resource.k8s.io";
    assert_eq!(ask("GET", service, nothing).await.0, 200);
}

#[test]
fn unusable_ranges_and_versions_are_refused() {
    for (option, why) in [
        ("--service-node-port-range=9-8", "end port cannot be less than start port: 9-8"),
        ("--service-node-port-range=1-70000", "the port range cannot be greater than 65535"),
        ("--runtime-config=nope/v1=true", "unknown api groups nope/v1"),
        ("--runtime-config=apps/v9=true", "group version apps/v9 that has not been registered"),
        ("--runtime-config=v1=false", "group version v1 cannot be turned off"),
        ("--runtime-config=certificates.k8s.io/v1beta1", "has no kinds of that version"),
        ("--tls-min-version=TLS1", "unknown tls version \"TLS1\""),
        ("--tls-cipher-suites=TLS_X", "Cipher suite TLS_X not supported or doesn't exist"),
        ("--tls-sni-cert-key=a", "expected comma separated certificate and key file paths"),
        ("--tls-sni-cert-key=/none,/none", "failed to load SNI cert and key"),
        ("--kubelet-certificate-authority=/none", "use the certificates for kubelets"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_setpoint")).args(["up", option]).output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{option}: {said}");
    }
}

/// Sends a request without TLS and returns the answer.
fn get(url: &str, path: &str) -> String {
    let address = url.strip_prefix("http://").unwrap();
    let mut socket = std::net::TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn requests_are_served_for_the_delay_after_a_signal() {
    let options = ["--insecure-port=0", "--shutdown-delay-duration=1h"];
    let mut program = Program::start_with(&options);
    let url = program.insecure_url.clone().unwrap();
    let code = |path: &str| get(&url, path)[9..12].to_owned();
    assert_eq!(code("/readyz"), "200");
    let id = program.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    while code("/readyz") != "500" {}
    assert_eq!(code("/livez"), "200");
    assert_eq!(code("/api/v1/namespaces/default"), "200");
    // A second signal ends the delay.
    assert_eq!(program.stop().0, Some(1));
}

/// A file that takes no byte, as on a full disk.
fn full() -> std::fs::File {
    std::fs::File::options().write(true).open("/dev/full").unwrap()
}

#[test]
fn a_log_that_cannot_be_written_ends_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_setpoint"))
        .args(["up", "--secure-port", "0", "--kubeconfig"])
        .arg(dir.path().join("kubeconfig"))
        .stdout(Stdio::piped())
        .stderr(full())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("ready "), "{line:?}");
    // The signal is logged, too.
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn output_that_cannot_be_written_is_one_line_of_error() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data").display().to_string();
    assert_eq!(Program::start_with(&["--data", &data]).stop().0, Some(0));
    let assets = dir.path().join("assets").display().to_string();
    let (data, assets) = (data.as_str(), assets.as_str());
    for command in [
        ["version"].as_slice(),
        &["store", "stat", "--data", data],
        &["store", "check", "--data", data],
        &["envtest", "install", assets],
        &["demo", "--once"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_setpoint"))
            .args(command)
            .stdout(full())
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let why = "setpoint: write to standard output: No space left on device (os error 28)\n";
        assert_eq!((output.status.code(), &*said), (Some(1), why), "{command:?}");
    }
}

#[test]
fn a_kubeconfig_with_a_mistake_is_refused_without_a_word_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("webhook");
    std::fs::write(&file, "kind: Config\nusers:\n- name: a\n  user: {token: [hush]}\n").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_setpoint"))
        .args(["up", "--secure-port", "0", "--authentication-token-webhook-config-file"])
        .arg(&file)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("hush") && said.lines().count() == 1, "{said}");
    assert!(said.contains("is invalid at line 4, column "), "{said}");
}
