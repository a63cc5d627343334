//! The server on loopback, over real TLS.

use crate::figures::Figures;
use crate::review::admission;
use crate::wire::{Ca, Connection, Signed, post, raw, shown};
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};
use setpoint_object::time::Clock;
use setpoint_serve::LEFTOVER_WAIT_MAX;
use setpoint_webhook::certificate::{Certificate, CertificateFiles, CertificateWatcher};
use setpoint_webhook::server::{
    HEAD_BYTES_MAX, HEAD_MAX, IDLE_MAX, Listen, REQUEST_MAX, ServerError, WebhookServerBuilder,
};
use setpoint_webhook::{AdmissionResponse, BODY_BYTES_MAX, Call, Metrics, WebhookServer, Webhooks};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

fn certificate(signed: &Signed) -> Certificate {
    Certificate::from_pem(signed.certificate_pem.as_bytes(), signed.key_pem.as_bytes()).unwrap()
}

fn loopback() -> Listen {
    Listen::Address(SocketAddr::from(([127, 0, 0, 1], 0)))
}

fn builder(webhooks: Webhooks, signed: &Signed) -> WebhookServerBuilder {
    WebhookServer::builder(webhooks, Clock::wall())
        .listen(loopback())
        .certificate(certificate(signed))
}

fn allowing() -> Webhooks {
    let allow = async |_: Call| AdmissionResponse::allowed();
    Webhooks::builder().admission("/allow", allow).build().unwrap()
}

/// A server that runs, until it is dropped or ended.
struct Running {
    address: SocketAddr,
    stop: CancellationToken,
    task: JoinSet<Result<(), ServerError>>,
}

impl Running {
    fn start(server: WebhookServer) -> Self {
        let (address, stop) = (server.address().unwrap(), CancellationToken::new());
        let mut task = JoinSet::new();
        task.spawn(server.run(stop.clone()));
        Self { address, stop, task }
    }

    async fn end(mut self) -> Result<(), ServerError> {
        self.stop.cancel();
        self.task.join_next().await.unwrap().unwrap()
    }
}

fn review() -> String {
    admission("CREATE", &json!({"a": 1}), &Value::Null).to_string()
}

#[tokio::test]
async fn review_is_answered_over_both_protocols() {
    let (ca, figures) = (Ca::new(), Figures::default());
    let allow = async |call: Call| AdmissionResponse::allowed().with_warning(&*call.request().uid);
    let webhooks =
        Webhooks::builder().metrics(Arc::new(figures.clone())).admission("/allow", allow);
    let server = builder(webhooks.build().unwrap(), &ca.sign()).bind().await.unwrap();
    let check = server.started_check();
    let running = Running::start(server);
    check.check().await.unwrap();
    for protocol in ["h2", "http/1.1"] {
        let client = ca.client(None, protocol);
        let mut connection = Connection::open(&client, running.address).await.unwrap();
        // The connection lasts.
        for path in ["/allow?timeout=10s", "/allow"] {
            let response = connection.send(post(path, review())).await.unwrap();
            assert_eq!(
                (response.status().as_u16(), &response.headers()["content-type"]),
                (200, &"application/json".parse().unwrap())
            );
            let answer: Value = serde_json::from_slice(response.body()).unwrap();
            assert_eq!(answer["response"], json!({"uid": "u", "allowed": true, "warnings": ["u"]}));
        }
        let get = Request::get("https://localhost/allow").header("host", "localhost");
        let get = get.body(Full::new(Bytes::new())).unwrap();
        assert_eq!(connection.send(get).await.unwrap().status(), 405);
        assert_eq!(connection.send(post("/nowhere", review())).await.unwrap().status(), 404);
    }
    running.end().await.unwrap();
    let wanted = [("answered /allow 200", 4), ("in flight /allow", 0), ("registered /allow", 1)];
    assert_eq!(figures.all(), wanted.map(|(name, n)| (name.to_owned(), n)).into());
}

#[tokio::test]
async fn body_has_a_limit_whk_3() {
    let ca = Ca::new();
    let running = Running::start(builder(allowing(), &ca.sign()).bind().await.unwrap());
    for protocol in ["h2", "http/1.1"] {
        let client = ca.client(None, protocol);
        let mut connection = Connection::open(&client, running.address).await.unwrap();
        let mut whole = review().into_bytes();
        whole.resize(BODY_BYTES_MAX, b' ');
        let response = connection.send(post("/allow", whole.clone())).await.unwrap();
        assert_eq!(response.status(), 200, "{protocol}");
        whole.push(b' ');
        let response = connection.send(post("/allow", whole)).await.unwrap();
        assert_eq!(response.status(), 413, "{protocol}");
    }
    running.end().await.unwrap();
}

#[tokio::test]
async fn next_handshake_uses_the_newest_certificate() {
    let (ca, folder) = (Ca::new(), TempDir::new().unwrap());
    let (first, second) = (ca.sign(), ca.sign());
    let files = CertificateFiles::in_folder(folder.path());
    let write = |pair: &Signed| {
        std::fs::write(&files.certificate, &pair.certificate_pem).unwrap();
        std::fs::write(&files.key, &pair.key_pem).unwrap();
    };
    write(&first);
    let mut watcher = CertificateWatcher::open(files.clone(), Arc::new(())).await.unwrap();
    let server =
        builder(allowing(), &first).certificate_of(watcher.current()).bind().await.unwrap();
    let check = server.started_check();
    let running = Running::start(server);
    let client = ca.client(None, "h2");
    let mut connection = Connection::open(&client, running.address).await.unwrap();
    assert_eq!(shown(&client, running.address).await, first.certificate);
    write(&second);
    assert!(watcher.poll().await.unwrap());
    assert_eq!(shown(&client, running.address).await, second.certificate);
    check.check().await.unwrap();
    // What was connected stays so.
    assert_eq!(connection.send(post("/allow", review())).await.unwrap().status(), 200);
    running.end().await.unwrap();
}

#[tokio::test]
async fn files_are_read_when_the_server_is_bound() {
    let (ca, folder, figures) = (Ca::new(), TempDir::new().unwrap(), Figures::default());
    let allow = async |_: Call| AdmissionResponse::allowed();
    let webhooks =
        Webhooks::builder().metrics(Arc::new(figures.clone())).admission("/allow", allow);
    let webhooks = webhooks.build().unwrap();
    let files = CertificateFiles::in_folder(folder.path());
    let bind = async || {
        let server = WebhookServer::builder(webhooks.clone(), Clock::wall()).listen(loopback());
        server.certificate_files(files.clone()).on_certificate_change(|_| {}).bind().await
    };
    assert!(matches!(bind().await, Err(ServerError::Certificate(_))));
    let signed = ca.sign();
    std::fs::write(&files.certificate, &signed.certificate_pem).unwrap();
    std::fs::write(&files.key, &signed.key_pem).unwrap();
    let running = Running::start(bind().await.unwrap());
    assert_eq!(shown(&ca.client(None, "h2"), running.address).await, signed.certificate);
    assert_eq!((figures.get("certificate reads"), figures.get("certificate read errors")), (2, 1));
    running.end().await.unwrap();
}

#[tokio::test]
async fn client_ca_makes_client_certificates_mandatory_whk_1() {
    let (ca, clients) = (Ca::new(), Ca::new());
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("ca.crt");
    std::fs::write(&file, clients.pem()).unwrap();
    let build = || builder(allowing(), &ca.sign());
    for server in [build().client_ca(clients.pem()), build().client_ca_file(&file)] {
        let server = server.bind().await.unwrap();
        let check = server.started_check();
        let running = Running::start(server);
        let ask = async |own: Option<&Signed>| {
            let mut connection =
                Connection::open(&ca.client(own, "http/1.1"), running.address).await?;
            connection.send(post("/allow", review())).await.map_err(std::io::Error::other)
        };
        assert_eq!(ask(Some(&clients.sign())).await.unwrap().status(), 200);
        assert!(ask(None).await.is_err());
        assert!(ask(Some(&ca.sign())).await.is_err(), "another CA's");
        check.check().await.unwrap();
        running.end().await.unwrap();
    }
    assert!(matches!(build().client_ca("").bind().await, Err(ServerError::ClientCa(_))));
}

#[tokio::test]
async fn stop_lets_requests_in_progress_finish() {
    let ca = Ca::new();
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (tell, wait) = (begun.clone(), go.clone());
    let slow = move |_: Call| {
        let (tell, wait) = (tell.clone(), wait.clone());
        async move {
            tell.notify_one();
            wait.notified().await;
            AdmissionResponse::allowed()
        }
    };
    let webhooks = Webhooks::builder().admission("/slow", slow).build().unwrap();
    let running = Running::start(builder(webhooks, &ca.sign()).bind().await.unwrap());
    let address = running.address;
    let client = ca.client(None, "h2");
    let mut connection = Connection::open(&client, address).await.unwrap();
    let ask = connection.send(post("/slow", review()));
    let end = async {
        begun.notified().await;
        running.stop.cancel();
        // No more connections: the port is free again.
        while tokio::net::TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
        go.notify_one();
        running.end().await
    };
    let (answer, ended) = tokio::join!(ask, end);
    assert_eq!(answer.unwrap().status(), 200);
    ended.unwrap();
}

#[tokio::test]
async fn panic_that_is_not_recovered_ends_the_server_whk_4() {
    let ca = Ca::new();
    let burn = async |_: Call| -> AdmissionResponse { panic!("on fire") };
    let webhooks = Webhooks::builder().recover_panics(false).admission("/burn", burn);
    let server = builder(webhooks.build().unwrap(), &ca.sign()).bind().await.unwrap();
    let mut running = Running::start(server);
    let mut connection = Connection::open(&ca.client(None, "h2"), running.address).await.unwrap();
    _ = connection.send(post("/burn", review())).await;
    let ended = running.task.join_next().await.unwrap().unwrap();
    assert!(matches!(ended, Err(ServerError::Panicked { message }) if message == "on fire"));
}

#[tokio::test]
async fn panic_of_the_metrics_ends_a_request_and_not_the_server_whk_4() {
    struct Burning;
    impl Metrics for Burning {
        fn begun(&self, _webhook: &str) {
            panic!("cannot count");
        }
    }
    let ca = Ca::new();
    let allow = async |_: Call| AdmissionResponse::allowed();
    let webhooks = Webhooks::builder().metrics(Arc::new(Burning)).admission("/allow", allow);
    let running =
        Running::start(builder(webhooks.build().unwrap(), &ca.sign()).bind().await.unwrap());
    for protocol in ["h2", "http/1.1"] {
        let client = ca.client(None, protocol);
        let mut connection = Connection::open(&client, running.address).await.unwrap();
        for _ in 0..2 {
            let response = connection.send(post("/allow", review())).await.unwrap();
            assert_eq!(response.status(), 500, "{protocol}");
        }
    }
    running.end().await.unwrap();
}

#[tokio::test]
async fn bound_server_has_not_started_and_a_disabled_one_has() {
    let ca = Ca::new();
    let server = builder(allowing(), &ca.sign()).bind().await.unwrap();
    let (check, address) = (server.started_check(), server.address().unwrap());
    let taken = builder(allowing(), &ca.sign()).listen(address).bind().await;
    assert!(matches!(taken, Err(ServerError::Bind { address: at, .. }) if at == address));
    drop(server);
    assert!(check.check().await.is_err());

    let disabled = builder(allowing(), &ca.sign()).listen(Listen::Disabled).bind().await.unwrap();
    disabled.started_check().check().await.unwrap();
    assert_eq!(disabled.address(), None);
    let stop = CancellationToken::new();
    stop.cancel();
    disabled.run(stop).await.unwrap();
}

#[tokio::test]
async fn other_server_on_the_port_fails_the_check() {
    let ca = Ca::new();
    let server = builder(allowing(), &ca.sign()).bind().await.unwrap();
    let (check, address) = (server.started_check(), server.address().unwrap());
    drop(server);
    let other = builder(allowing(), &ca.sign()).listen(address).bind().await.unwrap();
    let running = Running::start(other);
    assert!(check.check().await.is_err());
    running.end().await.unwrap();
}

/// A server on paused time from here on, and a connection to it on which one request has been
/// answered.
async fn paused(webhooks: Webhooks) -> (Running, TlsStream<TcpStream>) {
    let ca = Ca::new();
    let running = Running::start(builder(webhooks, &ca.sign()).bind().await.unwrap());
    let mut stream = raw(&ca.client(None, "http/1.1"), running.address).await;
    let empty = b"POST /allow HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n";
    stream.write_all(empty).await.unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, *b"HTTP/1.1 400");
    tokio::time::pause();
    (running, stream)
}

/// Everything that still comes, and how long it took.
async fn rest(stream: &mut TlsStream<TcpStream>) -> (String, Duration) {
    let (begun, mut rest) = (Instant::now(), Vec::new());
    // A connection that is cut has no proper end.
    _ = stream.read_to_end(&mut rest).await;
    (String::from_utf8(rest).unwrap(), begun.elapsed())
}

#[tokio::test]
async fn idle_connection_is_closed_mgr_23() {
    let (_running, mut stream) = paused(allowing()).await;
    let (_, elapsed) = rest(&mut stream).await;
    assert_eq!(elapsed.as_secs(), IDLE_MAX.as_secs());
}

#[tokio::test]
async fn connection_with_a_slow_head_is_cut_mgr_23() {
    let (_running, mut stream) = paused(allowing()).await;
    tokio::time::sleep(IDLE_MAX / 2).await;
    stream.write_all(b"POST /allow HTTP/1.1\r\nhost: ").await.unwrap();
    let (_, elapsed) = rest(&mut stream).await;
    assert_eq!(elapsed.as_secs(), HEAD_MAX.as_secs());
}

#[tokio::test]
async fn large_head_is_refused_mgr_23() {
    let (_running, mut stream) = paused(allowing()).await;
    let line = format!("x: {}\r\n", "x".repeat(64 * 1024));
    stream.write_all(b"POST /allow HTTP/1.1\r\n").await.unwrap();
    for _ in 0..=HEAD_BYTES_MAX as usize / line.len() {
        // The connection may be closed before everything is written.
        _ = stream.write_all(line.as_bytes()).await;
    }
    let (answer, elapsed) = rest(&mut stream).await;
    assert!(!answer.contains("200 OK") && elapsed < HEAD_MAX, "{elapsed:?} {answer}");
}

#[tokio::test]
async fn slow_handler_or_body_is_abandoned() {
    let hang = async |_: Call| std::future::pending::<AdmissionResponse>().await;
    let allow = async |_: Call| AdmissionResponse::allowed();
    let webhooks = Webhooks::builder().admission("/hang", hang).admission("/allow", allow);
    let webhooks = webhooks.build().unwrap();
    let review = review();
    let whole = format!("content-length: {}\r\n\r\n{review}", review.len());
    let half = format!("content-length: {}\r\n\r\n{review}", review.len() + 1);
    for (path, rest_of_request) in [("/hang", whole), ("/allow", half)] {
        let (_running, mut stream) = paused(webhooks.clone()).await;
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: application/json\r\n"
        );
        stream.write_all((head + &rest_of_request).as_bytes()).await.unwrap();
        let (begun, mut answer) = (Instant::now(), Vec::new());
        while !answer.ends_with(b"HTTP/1.1 504") {
            answer.push(stream.read_u8().await.unwrap());
        }
        assert_eq!(begun.elapsed().as_secs(), REQUEST_MAX.as_secs());
        // What is missing of the body may still come, so that its sender sees the answer.
        let (_, elapsed) = rest(&mut stream).await;
        assert!(elapsed.as_secs() <= LEFTOVER_WAIT_MAX.as_secs(), "{path}: {elapsed:?}");
        tokio::time::resume();
    }
}
