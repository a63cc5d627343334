//! Health checks and metrics over a real socket.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use rustls::pki_types::ServerName;
use setpoint_object::time::Timestamp;
use setpoint_runtime::{
    Action, BoxError, Clock, Controller, ControllerState, ManagerBuilder, Watch,
    cluster::Cluster,
    endpoint::{BearerAuth, Certificates, Check, Endpoint, EndpointError, HealthError},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    server::Server,
    world::{CONFIG_MAPS, EVENTS, Running, builder, config_map},
};

fn bind() -> (Endpoint, SocketAddr) {
    let endpoint = Endpoint::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = endpoint.address();
    (endpoint, address)
}

/// The code and the body of an answer.
async fn ask(address: SocketAddr, request: &str) -> (u16, String) {
    let stream = TcpStream::connect(address).await.unwrap();
    let (code, _, body) = exchange(stream, request).await;
    (code, body)
}

async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    ask(address, &format!("GET {path} HTTP/1.1")).await
}

async fn exchange(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    request: &str,
) -> (u16, String, String) {
    let request = format!("{request}\r\nhost: test\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    (code, head.to_owned(), body.to_owned())
}

/// Lets it start.
async fn start(builder: ManagerBuilder) -> Running {
    Running::start(builder.build())
}

async fn eventually(mut holds: impl AsyncFnMut() -> bool) {
    let patience = tokio::time::timeout(Duration::from_secs(20), async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    patience.await.expect("it comes to hold");
}

#[tokio::test]
async fn spec_1_3_an_address_in_use_is_an_error_at_construction() {
    let (_held, address) = bind();
    let error = Endpoint::bind(address).unwrap_err();
    assert!(matches!(error, EndpointError::Bind { address: of, .. } if of == address), "{error}");
}

#[tokio::test]
async fn spec_1_3_probes_name_failed_checks_and_withhold_reasons() {
    let server = Server::new(&[EVENTS]);
    let (endpoint, address) = bind();
    let manager = builder(&server).health(endpoint).build();
    let health = manager.health();
    health.healthz("ping", Check::ping()).unwrap();
    assert!(matches!(health.healthz("ping", Check::ping()), Err(HealthError::Duplicate { .. })));
    assert!(matches!(health.healthz("a/b", Check::ping()), Err(HealthError::Name { .. })));
    health.healthz("disk", Check::new(async || Err(BoxError::from("it is full")))).unwrap();
    health
        .healthz("bad", Check::new(async || std::panic::resume_unwind(Box::new("ouch"))))
        .unwrap();
    let running = Running::start(manager);
    let (code, body) = get(address, "/healthz").await;
    assert_eq!(code, 500);
    assert_eq!(
        body,
        "[-]bad failed: reason withheld\n[-]disk failed: reason withheld\n[+]ping ok\nhealthz check failed\n"
    );
    assert_eq!(get(address, "/healthz?exclude=disk&exclude=bad").await, (200, "ok".into()));
    let (code, body) = get(address, "/healthz?verbose&exclude=disk&exclude=bad&exclude=x").await;
    assert_eq!(code, 200);
    assert_eq!(
        body,
        "[+]bad excluded: ok\n[+]disk excluded: ok\n[+]ping ok\n\
         warn: some health checks cannot be excluded: no matches for \"x\"\nhealthz check passed\n"
    );
    assert_eq!(get(address, "/healthz/ping").await, (200, "ok".into()));
    assert_eq!(
        get(address, "/healthz/disk").await,
        (500, "internal server error: it is full\n".into())
    );
    assert_eq!(get(address, "/healthz/other").await.0, 404);
    assert_eq!(get(address, "/readyz").await, (200, "ok".into()), "nothing to fail");
    assert_eq!(get(address, "/readyz?verbose").await, (200, "readyz check passed\n".into()));
    assert_eq!(get(address, "/readyz/ping").await.0, 404);
    assert_eq!(get(address, "/metrics").await.0, 404, "not asked for");
    assert_eq!(ask(address, "POST /healthz HTTP/1.1").await.0, 405);
    assert!(matches!(health.readyz("late", Check::ping()), Err(HealthError::Started { .. })));
    running.stop().await.unwrap();
    assert!(TcpStream::connect(address).await.is_err(), "it is closed with the manager");
}

#[tokio::test]
async fn spec_13_readiness_names_the_cache_that_does_not_sync_and_why() {
    let server = Server::new(&[CONFIG_MAPS, EVENTS]);
    let (endpoint, address) = bind();
    let mut manager = builder(&server).serve(endpoint).build();
    manager.health().add_defaults().unwrap();
    let idle = async |_, _| Ok::<_, BoxError>(Action::await_change());
    for controller in [
        Controller::builder("config").for_(Watch::<ConfigMap>::new()).build(idle).unwrap(),
        Controller::builder("pod").for_(Watch::<Pod>::new()).build(idle).unwrap(),
    ] {
        manager.add(controller).unwrap();
    }
    let running = Running::start(manager);
    eventually(async || {
        get(address, "/readyz/caches").await.1.contains("the server could not find")
    })
    .await;
    let (code, body) = get(address, "/readyz").await;
    assert_eq!(code, 500);
    assert_eq!(body, "[-]caches failed: reason withheld\n[+]ping ok\nreadyz check failed\n");
    let (_, body) = get(address, "/readyz/caches").await;
    assert!(body.contains("pods has not synced: "), "{body}");
    assert!(!body.contains("configmaps"), "{body}");
    assert_eq!(get(address, "/healthz").await.0, 200, "it is alive");
    server.serve(crate::world::PODS);
    eventually(async || get(address, "/readyz").await == (200, "ok".into())).await;
    running.stop().await.unwrap();
}

#[tokio::test]
async fn cluster_that_cannot_be_reached_does_not_make_the_manager_unready() {
    let server = Server::new(&[CONFIG_MAPS, EVENTS]);
    // It serves no config maps.
    let east = Server::new(&[EVENTS]);
    let (endpoint, address) = bind();
    let mut manager = builder(&server).health(endpoint).build();
    manager.health().add_defaults().unwrap();
    let idle = async |_, _| Ok::<_, BoxError>(Action::await_change());
    let controller = Controller::builder("config").for_(Watch::<ConfigMap>::new());
    let controller = manager.add(controller.build(idle).unwrap()).unwrap();
    let handle = manager.handle();
    let running = Running::start(manager);
    eventually(async || controller.state() == ControllerState::Running).await;
    let cluster = handle.add_cluster("east", Cluster::builder(east.client())).unwrap();
    let watch = Watch::<ConfigMap>::new().cluster(&cluster);
    controller.watch(watch, |event| vec![event.key().clone()]).unwrap();
    eventually(async || cluster.cache().unsynced().join("").contains("could not find")).await;
    assert_eq!(get(address, "/readyz").await, (200, "ok".into()));
    assert_eq!(controller.state(), ControllerState::Running);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn spec_11_metrics_are_exported_in_both_formats_under_the_usual_names() {
    let server = Server::new(&[CONFIG_MAPS, EVENTS]);
    server.put("/api/v1/namespaces/default/configmaps", config_map("a"));
    let (endpoint, address) = bind();
    let hello = async |_: Request<Bytes>| Response::new(Bytes::from_static(b"hello"));
    let endpoint = endpoint.handle("/hello", hello).unwrap();
    let mut manager = builder(&server).server_host("test:6443").serve_metrics(endpoint).build();
    let idle = async |_, _| Ok::<_, BoxError>(Action::await_change());
    let controller =
        Controller::builder("config").for_(Watch::<ConfigMap>::new()).build(idle).unwrap();
    let handle = manager.add(controller).unwrap();
    let running = Running::start(manager);
    eventually(async || handle.stats().success == 1).await;
    let stream = TcpStream::connect(address).await.unwrap();
    let (code, head, body) = exchange(stream, "GET /metrics HTTP/1.1").await;
    assert_eq!(code, 200);
    assert!(head.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
    for expected in [
        "# TYPE controller_runtime_reconcile_total counter",
        "controller_runtime_reconcile_total{controller=\"config\",result=\"success\"} 1",
        "controller_runtime_reconcile_total{controller=\"config\",result=\"requeue_after\"} 0",
        "workqueue_adds_total{name=\"config\",controller=\"config\"} 1",
        "informer_store_objects{name=\"manager\",group=\"\",version=\"v1\",resource=\"configmaps\"} 1",
        "rest_client_requests_total{code=\"200\",method=\"GET\",host=\"test:6443\"}",
        "setpoint_events_lost_total{cause=\"queue_full\"} 0",
    ] {
        assert!(body.lines().any(|line| line.starts_with(expected)), "{expected} in {body}");
    }
    assert!(!body.contains("# EOF"));
    let stream = TcpStream::connect(address).await.unwrap();
    let accept = "GET /metrics HTTP/1.1\r\naccept: application/openmetrics-text;version=1.0.0,*/*";
    let (_, head, body) = exchange(stream, accept).await;
    assert!(head.contains("Content-Type: application/openmetrics-text; version=1.0.0"), "{head}");
    assert!(body.contains("# TYPE controller_runtime_reconcile counter\n"));
    assert!(body.ends_with("# EOF\n"));
    assert_eq!(get(address, "/hello").await, (200, "hello".into()));
    running.stop().await.unwrap();
}

#[tokio::test]
async fn spec_1_3_a_known_token_is_required_on_every_path() {
    let server = Server::new(&[EVENTS]);
    let (endpoint, address) = bind();
    let hello = async |_: Request<Bytes>| Response::new(Bytes::from_static(b"hello"));
    let endpoint = endpoint.bearer(BearerAuth::token("secret")).handle("/hello", hello).unwrap();
    let running = start(builder(&server).serve_metrics(endpoint)).await;
    for path in ["/metrics", "/hello", "/none"] {
        for bad in ["", "\r\nauthorization: Bearer wrong", "\r\nauthorization: Basic secret"] {
            let (code, _) = ask(address, &format!("GET {path} HTTP/1.1{bad}")).await;
            assert_eq!(code, 401, "{path} {bad}");
        }
    }
    let good = "\r\nauthorization: bearer secret";
    assert_eq!(ask(address, &format!("GET /hello HTTP/1.1{good}")).await.0, 200);
    assert_eq!(ask(address, &format!("GET /none HTTP/1.1{good}")).await.0, 404);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn spec_1_3_tls_uses_a_self_signed_certificate_and_offers_http_2() {
    let server = Server::new(&[EVENTS]);
    // The client's TLS has no injectable clock.
    let certificates = Certificates::self_signed(Clock::wall()).unwrap();
    let (endpoint, address) = bind();
    let running = start(builder(&server).serve_metrics(endpoint.tls(certificates.clone()))).await;
    for (alpn, negotiated) in [("h2", Some(b"h2".as_slice())), ("http/1.1", Some(b"http/1.1"))] {
        let mut stream = tls(address, &certificates, alpn).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), negotiated);
        if alpn == "http/1.1" {
            assert_eq!(exchange(&mut stream, "GET /metrics HTTP/1.1").await.0, 200);
            continue;
        }
        let io = hyper_util::rt::TokioIo::new(stream);
        let executor = hyper_util::rt::TokioExecutor::new();
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(executor, io).await.unwrap();
        let request = Request::get("https://localhost/metrics")
            .body(http_body_util::Empty::<Bytes>::new())
            .unwrap();
        tokio::select! {
            answer = sender.send_request(request) => assert_eq!(answer.unwrap().status(), 200),
            ended = connection => panic!("{ended:?}"),
        }
    }
    let other = Certificates::self_signed(Clock::wall()).unwrap();
    assert!(tls(address, &other, "h2").await.is_err(), "another's certificate is not this one's");
    running.stop().await.unwrap();
}

async fn tls(
    address: SocketAddr,
    trusted: &Certificates,
    alpn: &str,
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(trusted.certificate()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let stream = TcpStream::connect(address).await?;
    connector.connect(ServerName::try_from("localhost").unwrap(), stream).await
}

/// A pair of files, as a mounted Secret.
fn write_pair(directory: &std::path::Path, name: &str) {
    let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
    std::fs::write(directory.join("tls.crt"), made.cert.pem()).unwrap();
    std::fs::write(directory.join("tls.key"), made.signing_key.serialize_pem()).unwrap();
}

#[tokio::test(start_paused = true)]
async fn spec_7_certificates_are_read_again_and_a_bad_pair_is_ignored() {
    let clock = || Clock::starting_at(Timestamp(Duration::from_secs(1_767_225_600)));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let own = Certificates::directory(path, clock()).unwrap();
    assert_eq!(own.stats().reads, 0, "there is nothing to be read: it is made");

    write_pair(path, "first");
    std::fs::write(path.join("tls.key"), "no key").unwrap();
    assert!(Certificates::directory(path, clock()).is_err(), "the first pair must be good");
    write_pair(path, "first");
    let certificates = Certificates::directory(path, clock()).unwrap();
    let first = certificates.certificate();
    let (endpoint, _) = bind();
    let server = Server::new(&[EVENTS]);
    let manager = builder(&server).serve_metrics(endpoint.tls(certificates.clone())).build();
    let metrics = manager.metrics();
    let running = Running::start(manager);
    // The files are looked at every second.
    let pass = || tokio::time::sleep(Duration::from_secs(1));

    tokio::time::sleep(Duration::from_millis(500)).await;
    pass().await;
    assert_eq!((certificates.stats().reads, certificates.stats().errors), (2, 0));
    std::fs::write(path.join("tls.crt"), "no certificate").unwrap();
    pass().await;
    write_pair(path, "second");
    let key = std::fs::read(path.join("tls.key")).unwrap();
    write_pair(path, "third");
    std::fs::write(path.join("tls.key"), key).unwrap();
    pass().await;
    assert_eq!(certificates.stats().errors, 2, "unreadable, and a key of another");
    assert_eq!(certificates.certificate(), first);
    write_pair(path, "fourth");
    pass().await;
    assert_ne!(certificates.certificate(), first);
    let text = metrics.prometheus();
    assert!(text.contains("\ncertwatcher_read_certificate_total 5\n"), "{text}");
    assert!(text.contains("\ncertwatcher_read_certificate_errors_total 2\n"), "{text}");
    running.stop().await.unwrap();
}
