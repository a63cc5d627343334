//! Behavior that needs a socket: stalls, upgrades, idle connections.
//!
//! Time is paused where a peer stalls: when all tasks wait, it jumps to the server's timeout.

use crate::harness::{EPOCH, Protocol, Server, drive, request, start};
use hyper_util::rt::{TokioExecutor, TokioIo};
use setpoint_apiserver::listen::{LIMITS, Limits, Listener, Pki};
use setpoint_apiserver::{ApiServer, BODY_BYTES_MAX, Credentials};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const ANY_PORT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// A server behind a listener without TLS. It runs until it is dropped.
struct Plain {
    address: SocketAddr,
    api: ApiServer,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Plain {
    async fn start() -> Self {
        let (api, mut tasks, stop) = start(Credentials::none()).await;
        let listener = Listener::insecure(api.clone(), ANY_PORT).await.unwrap();
        let address = listener.address();
        tasks.spawn(listener.run(stop.clone()));
        Self { address, api, stop, tasks }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }
}

/// Everything up to the end of the connection; a reset counts as an end.
async fn rest(mut socket: TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    while let Ok(n @ 1..) = socket.read(&mut chunk).await {
        bytes.extend_from_slice(&chunk[..n]);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test(start_paused = true)]
async fn a_silent_peer_is_disconnected_before_its_handshake() {
    let pki = Pki::generate(EPOCH, &[]).unwrap();
    let (api, mut tasks, stop) = start(Credentials::none()).await;
    let listener = Listener::secure(api, ANY_PORT, &pki).await.unwrap();
    let socket = TcpStream::connect(listener.address()).await.unwrap();
    tasks.spawn(listener.run(stop));
    assert_eq!(rest(socket).await, "");
}

#[tokio::test(start_paused = true)]
async fn an_incomplete_head_times_out() {
    let server = Plain::start().await;
    let mut socket = server.connect().await;
    socket.write_all(b"GET /version HTTP/1.1\r\nHos").await.unwrap();
    assert!(!rest(socket).await.contains("200 OK"));
}

#[tokio::test(start_paused = true)]
async fn half_a_body_is_answered_at_the_deadline() {
    let server = Plain::start().await;
    let mut socket = server.connect().await;
    let head = "POST /api/v1/namespaces HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{\"kind\":";
    socket.write_all(head.as_bytes()).await.unwrap();
    let answer = rest(socket).await;
    assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
    assert!(answer.contains("Timeout: request did not complete within the allotted timeout"));
}

#[tokio::test]
async fn several_requests_go_over_one_connection() {
    let server = Plain::start().await;
    let mut socket = server.connect().await;
    let get = "GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let last = "GET /version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    socket.write_all(format!("{get}{get}{last}").as_bytes()).await.unwrap();
    assert_eq!(rest(socket).await.matches("HTTP/1.1 200 OK").count(), 3);
}

#[tokio::test]
async fn an_unread_body_does_not_close_the_connection() {
    let server = Plain::start().await;
    let mut socket = server.connect().await;
    let head = "POST /apis/nope.io/v1/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n";
    socket.write_all(head.as_bytes()).await.unwrap();
    // The answer comes before the body is sent.
    let mut answer = Vec::new();
    while !answer.ends_with(b"404 page not found\n") {
        answer.push(socket.read_u8().await.unwrap());
    }
    let next = "12345GET /version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    socket.write_all(next.as_bytes()).await.unwrap();
    assert!(rest(socket).await.starts_with("HTTP/1.1 200 OK"));
}

#[tokio::test(start_paused = true)]
async fn an_unread_body_that_does_not_arrive_closes_the_connection() {
    let server = Plain::start().await;
    let mut socket = server.connect().await;
    let head = "POST /apis/nope.io/v1/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n1";
    socket.write_all(head.as_bytes()).await.unwrap();
    assert!(rest(socket).await.ends_with("404 page not found\n"));
}

#[tokio::test]
async fn watch_over_a_websocket_ends_with_a_close_frame() {
    let mut server = Plain::start().await;
    let mut socket = server.connect().await;
    let head = "GET /api/v1/namespaces?watch=true&fieldSelector=metadata.name%3Ddefault HTTP/1.1\r\n\
                Host: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.windows(4).any(|end| end == b"\r\n\r\n") {
        answer.push(socket.read_u8().await.unwrap());
    }
    let answer = String::from_utf8(answer).unwrap().to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 101 "), "{answer}");
    assert!(answer.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="), "{answer}");
    // One text message: an event and its newline.
    assert_eq!(socket.read_u8().await.unwrap(), 0x81);
    assert_eq!(socket.read_u8().await.unwrap(), 126);
    let mut event = vec![0; usize::from(socket.read_u16().await.unwrap())];
    socket.read_exact(&mut event).await.unwrap();
    assert!(event.starts_with(br#"{"type":"ADDED","object":{"#) && event.ends_with(b"}\n"));
    server.api.drain();
    let mut end = Vec::new();
    socket.read_to_end(&mut end).await.unwrap();
    assert_eq!(end, [0x88, 2, 0x03, 0xe8]);
    server.stop.cancel();
    while let Some(ended) = server.tasks.join_next().await {
        ended.unwrap();
    }
}

/// The requests that a page of a foreign origin can make a browser send to a port of its own
/// machine.
#[tokio::test]
async fn requests_of_pages_of_other_origins_are_refused_without_authentication() {
    let server = Plain::start().await;
    let object = r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"evil"}}"#;
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    for (line, host, more, body) in [
        ("GET /api/v1/secrets", "evil.example", "", ""),
        ("GET /api/v1/secrets", "evil.example:8080", "", ""),
        ("GET http://evil.example/api/v1/secrets", "localhost", "", ""),
        ("POST /api/v1/namespaces", "localhost", "Origin: http://evil.example\r\n", object),
        ("POST /api/v1/namespaces", "localhost", "Origin: null\r\n", object),
        ("POST /api/v1/namespaces", "localhost", "Sec-Fetch-Site: cross-site\r\n", object),
        (
            "GET /api/v1/secrets?watch=true",
            "localhost",
            &format!("Origin: http://evil.example\r\n{upgrade}"),
            "",
        ),
    ] {
        let mut socket = server.connect().await;
        let n_bytes = body.len();
        let request = format!(
            "{line} HTTP/1.1\r\nHost: {host}\r\n{more}Content-Length: {n_bytes}\r\n\r\n{body}"
        );
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = vec![0; 1024];
        let n_bytes = socket.read(&mut answer).await.unwrap();
        let answer = String::from_utf8_lossy(&answer[..n_bytes]);
        assert!(answer.starts_with("HTTP/1.1 403 "), "{request}{answer}");
        assert!(answer.contains(r#""kind":"Status""#), "{answer}");
    }
    let mut socket = server.connect().await;
    let get = "GET /api/v1/namespaces/evil HTTP/1.1\r\nHost: [::1]:1\r\nConnection: close\r\n\r\n";
    socket.write_all(get.as_bytes()).await.unwrap();
    assert!(rest(socket).await.starts_with("HTTP/1.1 404 "), "it was never created");
}

/// The whole request is written before its answer is read, as Python's and many other clients do.
#[tokio::test]
async fn body_of_one_byte_too_many_is_answered_with_413_over_both_protocols() {
    let body = vec![b' '; BODY_BYTES_MAX + 1];
    let server = Plain::start().await;
    for framing in ["Transfer-Encoding: chunked", &format!("Content-Length: {}", body.len())] {
        let mut socket = server.connect().await;
        let head =
            format!("POST /api/v1/namespaces HTTP/1.1\r\nHost: localhost\r\n{framing}\r\n\r\n");
        socket.write_all(head.as_bytes()).await.unwrap();
        if framing.starts_with('T') {
            socket.write_all(format!("{:x}\r\n", body.len()).as_bytes()).await.unwrap();
        }
        socket.write_all(&body).await.expect("the server goes on reading");
        let answer = rest(socket).await;
        assert!(answer.starts_with("HTTP/1.1 413 "), "{framing}: {answer}");
        assert!(answer.contains(r#""reason":"RequestEntityTooLarge""#), "{answer}");
    }
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let server = Server::https(protocol).await;
        let text = String::from_utf8(body.clone()).unwrap();
        let answer = server.send(request("POST", "/api/v1/namespaces", &text)).await;
        assert_eq!(answer.code, 413, "{protocol:?}");
    }
}

/// Four unauthenticated connections are allowed, and many HTTP/2 peers complete the handshake,
/// answer pings and send no requests.
#[tokio::test]
async fn many_unauthenticated_http2_peers_do_not_lock_the_administrator_out() {
    let limits = Limits { connections_max: 8, unauthenticated_max: Some(4), ..LIMITS };
    let server = Server::https_with_limits(Protocol::Http2, limits).await;
    let mut watch = server.watch("/api/v1/namespaces?watch=true&allowWatchBookmarks=false").await;
    assert_eq!(watch.event().await.0, "ADDED");
    let crowd = futures::future::join_all((0..40).map(|_| server.idle_http2())).await;
    // The administrator's certificate, and then only a token.
    assert_eq!(server.get("/api/v1/namespaces/default").await.code, 200);
    let mut with_token = request("GET", "/api/v1/namespaces/default", "");
    let token = format!("Bearer {}", server.token().unwrap());
    with_token.headers_mut().insert("authorization", token.parse().unwrap());
    assert_eq!(server.open_as(with_token, false).await.code, 200);
    // Earlier connections are not closed.
    let made = r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"made"}}"#;
    assert_eq!(server.post("/api/v1/namespaces", made).await.code, 201);
    while watch.event().await.1 != "made" {}
    drop(crowd);
}

#[tokio::test]
async fn a_listener_without_authentication_needs_a_loopback_address() {
    let (api, _tasks, _stop) = start(Credentials::none()).await;
    let everywhere = SocketAddr::from(([0, 0, 0, 0], 0));
    let error = Listener::insecure(api, everywhere).await.unwrap_err();
    assert!(error.to_string().contains("not a loopback address"), "{error}");
}

/// What Go's server answers before kube-apiserver sees a request. None of it is audited.
#[tokio::test]
async fn heads_are_refused_before_they_are_requests() {
    let server = Plain::start().await;
    for (head, expected) in [
        ("GET /version HTTP/1.1\r\n", "400 Bad Request: missing required Host header"),
        ("GET /version HTTP/1.1\r\nHost: a b\r\n", "400 Bad Request: malformed Host header"),
        ("GET /version HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n", "400 Bad Request"),
        ("GET /%zz HTTP/1.1\r\nHost: localhost\r\n", "400 Bad Request"),
    ] {
        let mut socket = server.connect().await;
        let good = "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n";
        socket.write_all(format!("{good}{head}\r\n{good}").as_bytes()).await.unwrap();
        let answers = rest(socket).await;
        assert_eq!(answers.matches("HTTP/1.1 ").count(), 2, "{answers}");
        assert!(answers.starts_with("HTTP/1.1 200 OK\r\n"), "{answers}");
        assert!(answers.ends_with(&format!("\r\n\r\n{expected}")), "{answers}");
    }
}

/// Without TLS, a client may begin with the preface of HTTP/2.
#[tokio::test]
async fn http2_is_spoken_without_tls_with_the_same_checks() {
    let server = Plain::start().await;
    let io = TokioIo::new(server.connect().await);
    let shake = hyper::client::conn::http2::handshake(TokioExecutor::new(), io);
    let (mut sender, connection) = shake.await.unwrap();
    drive(connection);
    for (host, code) in [("localhost", 200), ("evil.example.com", 403)] {
        let asked = request("GET", &format!("http://{host}/version"), "");
        assert_eq!(sender.send_request(asked).await.unwrap().status(), code, "{host}");
    }
}
