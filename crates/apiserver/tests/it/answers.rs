//! The encoding of answers, whatever their contents.

use crate::harness::{Server, config_map, request};

crate::cases! {
    audit_id_is_echoed_or_made
    answers_are_not_cached
    json_is_indented_on_request_and_for_terminals
    long_answers_are_compressed
    malformed_time_out_is_refused
}

async fn audit_id_is_echoed_or_made(server: Server) {
    let mut get = request("GET", "/version", "");
    get.headers_mut().insert("audit-id", "whatever form".parse().unwrap());
    assert_eq!(server.send(get).await.header("audit-id"), "whatever form");
    assert_eq!(server.get("/version").await.header("audit-id").len(), 36);
}

async fn answers_are_not_cached(server: Server) {
    assert_eq!(server.get("/api/v1/nodes").await.header("cache-control"), "no-cache, private");
}

async fn json_is_indented_on_request_and_for_terminals(server: Server) {
    assert!(
        server
            .get("/api/v1/nodes?pretty=true")
            .await
            .text()
            .starts_with("{\n  \"kind\": \"NodeList\",\n")
    );
    let mut get = request("GET", "/api/v1/nodes", "");
    get.headers_mut().insert("user-agent", "curl/8.5.0".parse().unwrap());
    assert!(server.send(get).await.text().contains("\n  \"items\": []\n"));
}

async fn long_answers_are_compressed(server: Server) {
    let path = "/api/v1/namespaces/default/configmaps";
    assert_eq!(server.post(path, config_map("a", &"x".repeat(200 * 1024))).await.code, 201);
    let mut get = request("GET", path, "");
    get.headers_mut().insert("accept-encoding", "gzip".parse().unwrap());
    let answer = server.send(get).await;
    assert_eq!(answer.header("content-encoding"), "gzip");
    assert_eq!(answer.header("vary"), "Accept-Encoding");
    assert!(answer.body.len() < 20 * 1024, "{}", answer.body.len());
    assert_eq!(server.get(path).await.header("content-encoding"), "");
}

async fn malformed_time_out_is_refused(server: Server) {
    server.get("/api/v1/nodes?timeout=foo").await.check_status(
        400,
        "BadRequest",
        r#"invalid timeout specified in the request URL - time: invalid duration "foo""#,
    );
}
