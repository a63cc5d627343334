//! The limits of one connection, on paused time and without a socket.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use setpoint_serve::{Protocol, serve_connection};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream},
    task::JoinSet,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{
    EndpointError, HEAD_MAX, IDLE_MAX,
    serve::{Answerer, LIMITS, Routes},
};

fn routes() -> Routes {
    let mut routes = Routes::default();
    let slow = async |_: Request<Bytes>| {
        tokio::time::sleep(Duration::from_secs(600)).await;
        Response::new(Bytes::from_static(b"at last"))
    };
    routes.add("/slow".into(), slow).unwrap();
    let echo = async |request: Request<Bytes>| Response::new(request.into_body());
    routes.add("/echo".into(), echo).unwrap();
    let bad = |_: Request<Bytes>| -> std::future::Ready<Response<Bytes>> {
        std::panic::resume_unwind(Box::new("ouch"))
    };
    routes.add("/bad".into(), bad).unwrap();
    routes
}

fn connect(tasks: &mut JoinSet<()>, stop: &CancellationToken) -> DuplexStream {
    let (near, far) = tokio::io::duplex(1 << 20);
    let answerer = Arc::new(Answerer { routes: routes(), bearer: None });
    let (answer, stop) = (move |request| answerer.clone().answer(request), stop.clone());
    tasks.spawn(async move {
        _ = serve_connection(far, Protocol::Http1, &LIMITS, answer, stop).await;
    });
    near
}

/// The bytes that arrive until the connection is closed.
async fn rest(near: &mut DuplexStream) -> String {
    let mut bytes = Vec::new();
    _ = near.read_to_end(&mut bytes).await;
    String::from_utf8(bytes).unwrap()
}

#[tokio::test(start_paused = true)]
async fn mgr_23_a_head_takes_32_s_and_an_idle_connection_lasts_90_s() {
    let (mut tasks, stop) = (JoinSet::new(), CancellationToken::new());
    let began = Instant::now();
    let mut silent = connect(&mut tasks, &stop);
    assert_eq!(rest(&mut silent).await, "");
    assert_eq!(began.elapsed(), HEAD_MAX, "a connection without a request");

    let began = Instant::now();
    let mut idle = connect(&mut tasks, &stop);
    idle.write_all(b"GET /echo HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let answer = rest(&mut idle).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert_eq!(began.elapsed(), IDLE_MAX, "an idle connection after a request");

    let mut late = connect(&mut tasks, &stop);
    late.write_all(b"GET /echo HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    late.write_all(b"GET /echo HTTP/1.1\r\n").await.unwrap();
    let began = Instant::now();
    let answer = rest(&mut late).await;
    assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 1, "{answer}");
    assert_eq!(began.elapsed(), HEAD_MAX, "a connection whose second head is incomplete");
}

#[tokio::test(start_paused = true)]
async fn mgr_23_a_head_is_at_most_one_mebibyte() {
    let (mut tasks, stop) = (JoinSet::new(), CancellationToken::new());
    let mut near = connect(&mut tasks, &stop);
    let line = vec![b'a'; 2 << 20];
    let exchange = async {
        _ = near.write_all(b"GET /echo HTTP/1.1\r\nhost: a\r\nlong: ").await;
        _ = near.write_all(&line).await;
        rest(&mut near).await
    };
    let answer = exchange.await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_a_slow_handler() {
    let (mut tasks, stop) = (JoinSet::new(), CancellationToken::new());
    let mut near = connect(&mut tasks, &stop);
    near.write_all(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let began = Instant::now();
    stop.cancel();
    let answer = rest(&mut near).await;
    assert!(answer.ends_with("at last"), "{answer}");
    assert_eq!(began.elapsed().as_secs(), 599, "the connection is closed after the answer");
    tasks.join_next().await;

    let stop = CancellationToken::new();
    let mut idle = connect(&mut tasks, &stop);
    idle.write_all(b"GET /echo HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let began = Instant::now();
    stop.cancel();
    rest(&mut idle).await;
    assert_eq!(began.elapsed(), Duration::ZERO, "an idle connection is closed at once");
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_answered_with_500_and_a_large_body_with_413() {
    let (mut tasks, stop) = (JoinSet::new(), CancellationToken::new());
    let ask = async |request: String, tasks: &mut JoinSet<()>| {
        let mut near = connect(tasks, &stop);
        near.write_all(request.as_bytes()).await.unwrap();
        let answer = rest(&mut near).await;
        answer.lines().next().unwrap_or_default().to_owned()
    };
    let bad = "GET /bad HTTP/1.1\r\nhost: a\r\n\r\n".to_owned();
    assert_eq!(ask(bad, &mut tasks).await, "HTTP/1.1 500 Internal Server Error");
    let unknown = "GET /unknown HTTP/1.1\r\nhost: a\r\n\r\n".to_owned();
    assert_eq!(ask(unknown, &mut tasks).await, "HTTP/1.1 404 Not Found");
    let large = "POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 1048577\r\n\r\n";
    let large = format!("{large}{}", "a".repeat((1 << 20) - large.len()));
    assert_eq!(ask(large, &mut tasks).await, "HTTP/1.1 413 Request Entity Too Large");
    let stalled = "POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nabc".to_owned();
    assert_eq!(ask(stalled, &mut tasks).await, "HTTP/1.1 408 Request Timeout");
}

#[test]
fn spec_1_3_duplicate_and_reserved_paths_are_refused() {
    let mut routes = routes();
    let mut add = |path: &str| {
        let handler = async |_: Request<Bytes>| Response::new(Bytes::new());
        routes.add(path.into(), handler).err().map(|error| error.to_string())
    };
    assert!(
        matches!(EndpointError::Path { path: "a".into() }.to_string(), text if text.contains('a'))
    );
    assert_eq!(add("/debug").as_deref(), None);
    assert_eq!(add("/debug").as_deref(), Some("\"/debug\" already has a handler"));
    for own in ["/metrics", "/healthz", "/readyz", "/readyz/caches"] {
        let error = add(own).unwrap();
        assert_eq!(error, format!("{own:?} is reserved for the manager"));
    }
    assert_eq!(add("/metrics-of-mine").as_deref(), None);
    assert_eq!(add("debug").as_deref(), Some("\"debug\" is not a valid path of an endpoint"));
}
