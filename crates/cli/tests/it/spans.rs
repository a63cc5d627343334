//! `setpoint up --tracing-config-file` as a program, with a collector.

use crate::up::Program;
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::{Client, Config};
use setpoint_otlp::testing::{Collector, ReceivedSpan};
use std::path::PathBuf;
use std::process::Command;
use tokio::net::TcpListener;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// A file with a configuration.
struct ConfigFile(tempfile::TempDir);

impl ConfigFile {
    fn new(members: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n";
        std::fs::write(folder.path().join("tracing.yaml"), format!("{head}{members}")).unwrap();
        Self(folder)
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("tracing.yaml")
    }

    /// The program with this configuration.
    async fn start(&self) -> Program {
        let path = self.path();
        let start = move || {
            Program::start_with(&["--tracing-config-file", path.to_str().expect("a path in text")])
        };
        tokio::task::spawn_blocking(start).await.unwrap()
    }
}

/// The administrator.
async fn client(program: &Program) -> Client {
    let kubeconfig = Kubeconfig::read_from(&program.kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    Client::try_from(config).unwrap()
}

/// A request of a client that has sampled its trace.
fn request(method: &str, path: &str, body: &str) -> http::Request<Vec<u8>> {
    http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .header("traceparent", format!("00-{TRACE}-{PARENT}-01"))
        .body(body.as_bytes().to_vec())
        .unwrap()
}

/// Stops the program, which sends the spans that are left.
async fn stop(mut program: Program) {
    let stopped = tokio::task::spawn_blocking(move || program.stop().0).await.unwrap();
    assert_eq!(stopped, Some(0), "exit code");
}

fn find<'a>(spans: &'a [ReceivedSpan], name: &str) -> &'a ReceivedSpan {
    spans.iter().find(|span| span.name == name).unwrap_or_else(|| {
        panic!("no {name:?} in {:?}", spans.iter().map(|span| &span.name).collect::<Vec<_>>())
    })
}

#[tokio::test]
async fn spans_of_a_sampled_trace_arrive_at_the_collector_and_no_others() {
    let collector = Collector::bind(&[]).await.unwrap();
    let config = ConfigFile::new(&format!("endpoint: {}\n", collector.endpoint()));
    let program = config.start().await;
    let client = client(&program).await;
    let map = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}"#;
    client.request_text(request("POST", MAPS, map)).await.unwrap();
    client.request_text(request("GET", MAPS, "")).await.unwrap();
    // The default rate is zero: this one is not recorded.
    let plain = http::Request::get("/version").body(Vec::new()).unwrap();
    client.request_text(plain).await.unwrap();
    drop(client);
    stop(program).await;

    let spans = collector.spans();
    assert!(spans.iter().all(|span| span.trace_id == TRACE), "{spans:#?}");
    let path = "/api/v1/namespaces/{:namespace}/configmaps";
    let (post, get) = (find(&spans, &format!("POST {path}")), find(&spans, &format!("GET {path}")));
    for root in [post, get] {
        assert_eq!((&*root.parent, root.kind, root.has_failed), (PARENT, 2, false));
        assert_eq!(root.resource["service.name"], "apiserver");
        assert!(root.resource["service.instance.id"].starts_with("apiserver-"));
        assert_eq!(root.attributes["http.target"], MAPS);
        assert!(!root.attributes["audit-id"].is_empty());
        assert!(!root.attributes["network.peer.address"].is_empty());
    }
    assert_eq!(post.attributes["http.response.status_code"], "201");
    let create = find(&spans, "Create");
    assert_eq!((&create.parent, &*create.attributes["client"]), (&post.span_id, "127.0.0.1"));
    let commit = find(&spans, "Commit");
    assert_eq!(commit.parent, create.span_id);
    assert!(commit.n_nanos <= create.n_nanos && create.n_nanos <= post.n_nanos);
    assert_eq!(find(&spans, "List").parent, get.span_id);
}

#[tokio::test]
async fn all_requests_are_traced_at_a_rate_of_a_million() {
    let mut collector = Collector::bind(&[]).await.unwrap();
    let endpoint = collector.endpoint();
    let members = format!("endpoint: {endpoint}\nsamplingRatePerMillion: 1000000\n");
    let program = ConfigFile::new(&members).start().await;
    let client = client(&program).await;
    let plain = http::Request::get(format!("{MAPS}/none")).body(Vec::new()).unwrap();
    client.request_text(plain).await.unwrap_err();
    // Sent while the program runs.
    let is_it = |span: &ReceivedSpan| {
        span.attributes.get("http.response.status_code").is_some_and(|code| code == "404")
            && span.attributes["http.target"].starts_with(MAPS)
    };
    let spans = collector.until(is_it).await;
    let found = spans.iter().find(|span| is_it(span)).unwrap();
    assert_eq!((&*found.parent, found.links.len()), ("", 0));
    drop(client);
    stop(program).await;
}

#[tokio::test]
async fn a_collector_that_never_answers_harms_nothing() {
    // Connections wait in its backlog.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = silent.local_addr().unwrap();
    let members = format!("endpoint: {endpoint}\nsamplingRatePerMillion: 1000000\n");
    let program = ConfigFile::new(&members).start().await;
    let client = client(&program).await;
    // More spans than the queue holds.
    for _ in 0..700 {
        client.request_text(request("GET", MAPS, "")).await.unwrap();
    }
    drop(client);
    stop(program).await;
}

#[test]
fn bad_files_are_refused_in_the_originals_words() {
    let refused = |path: PathBuf| {
        let output = Command::new(env!("CARGO_BIN_EXE_setpoint"))
            .args(["up", "--secure-port", "0", "--tracing-config-file"])
            .arg(path)
            .output()
            .unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let file = ConfigFile::new("samplingRatePerMillion: 1000001\n");
    let text = refused(file.path());
    let words = "failed to validate tracing configuration: samplingRatePerMillion: Invalid value: 1000001: sampling rate per million must be less than or equal to one million";
    assert!(text.contains(words), "{text}");
    let text = refused("/nowhere/tracing.yaml".into());
    assert!(text.contains("tracing-config-file /nowhere/tracing.yaml does not exist"), "{text}");
}
