//! The end of a server, as clients see it.

use crate::harness::{Protocol, Server, request};
use std::time::Duration;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn server_that_is_about_to_end_is_not_ready_and_serves() {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let mut server = Server::https(protocol).await;
        assert_eq!(server.get("/readyz").await.code, 200);
        server.api.begin_shutdown();
        let answer = server.get("/readyz/shutdown").await;
        assert_eq!(
            (answer.code, &*answer.text()),
            (500, "internal server error: process is shutting down\n")
        );
        for (path, code) in [("/readyz", 500), ("/livez", 200), ("/healthz", 200), (MAPS, 200)] {
            assert_eq!(server.get(path).await.code, code, "{path}");
        }
        let mut watch = server.watch(&format!("{MAPS}?watch=true")).await;
        server.post(MAPS, crate::harness::config_map("a", "b")).await;
        assert_eq!(watch.event().await, ("ADDED".to_owned(), "a".to_owned()));
        server.stop().await;
    }
}

#[tokio::test]
async fn requests_are_refused_until_those_in_progress_are_done() {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let mut server = Server::https(protocol).await;
        server.api.refuse_requests();
        let refused = server.get(MAPS).await;
        assert_eq!(
            (refused.code, &*refused.text()),
            (429, "The apiserver is shutting down, please try again later.\n")
        );
        assert_eq!(refused.header("retry-after"), "5");
        assert!(!refused.header("audit-id").is_empty());
        assert_eq!(refused.header("content-type"), "text/plain; charset=utf-8");
        assert_eq!(refused.header("x-content-type-options"), "nosniff");
        // Over HTTP/2 the connection gets a GOAWAY.
        let closes = if protocol == Protocol::Http1 { "close" } else { "" };
        assert_eq!(refused.header("connection"), closes);
        for path in ["/readyz", "/livez?verbose", "/healthz/ping"] {
            assert_eq!(server.get(path).await.code, 200, "{path}");
        }
        let mut other = request("GET", MAPS, "");
        other.headers_mut().insert("user-agent", "kube-apiserver/v1.36".parse().unwrap());
        assert_eq!(server.send(other).await.code, 200);
        server.api.requests_ended().await;
        server.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_waits_for_requests_but_not_for_watches_and_not_for_ever() {
    let timeout = Duration::from_secs(20);
    let server = Server::built(|builder| builder.request_timeout(timeout)).await;
    let _watch = server.watch(&format!("{MAPS}?watch=true")).await;
    let started = tokio::time::Instant::now();
    server.api.requests_ended().await;
    assert_eq!(started.elapsed(), Duration::ZERO);
    // A body that never ends.
    let body = http_body_util::StreamBody::new(futures::stream::pending::<
        Result<http_body::Frame<bytes::Bytes>, std::io::Error>,
    >());
    let mut post = http::Request::post(MAPS).body(body).unwrap();
    post.extensions_mut().insert(setpoint_apiserver::Identity::admin());
    let ends = async {
        server.api.requests_ended().await;
        started.elapsed()
    };
    let (answer, waited) = tokio::join!(server.api.serve(post), ends);
    assert_eq!((answer.status().as_u16(), waited), (504, timeout));
}
