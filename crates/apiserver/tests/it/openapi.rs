//! OpenAPI over HTTP.

use crate::harness::{Server, request};

crate::cases! {
    index_leads_to_documents
    old_hashes_are_redirected
    v2_is_cached_by_etag
    conditions_and_ranges_choose_what_is_sent
    unknown_forms_and_documents_have_empty_answers
}

async fn index_leads_to_documents(server: Server) {
    let index = server.get("/openapi/v3").await;
    assert_eq!(index.header("content-type"), "text/plain; charset=utf-8");
    let url =
        index.json()["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    assert!(url.starts_with("/openapi/v3/apis/apps/v1?hash="), "{url}");
    let document = server.get(&url).await;
    assert_eq!(document.code, 200);
    assert_eq!(document.header("cache-control"), "public, immutable");
    assert!(document.header("expires").ends_with(" GMT"));
    assert!(document.json()["components"]["schemas"]["io.k8s.api.apps.v1.Deployment"].is_object());
    for key in [".well-known/openid-configuration", "openid/v1/jwks", "version"] {
        let url = index.json()["paths"][key]["serverRelativeURL"].as_str().unwrap().to_owned();
        let path = format!("/{key}/");
        assert!(server.get(&url).await.json()["paths"][path]["get"].is_object(), "{url}");
    }
    let binary = setpoint_apiserver::openapi::V3_PROTOBUF_OLD_TYPE;
    let binary = server.accept("/openapi/v3/apis/apps/v1", binary).await;
    assert_eq!(binary.header("content-type"), setpoint_apiserver::openapi::V3_PROTOBUF_TYPE);
    let plain = server.get("/openapi/v3/apis/apps/v1").await;
    assert_eq!(binary.header("etag"), plain.header("etag"));
    assert_eq!(plain.header("etag"), document.header("etag"));
    assert_eq!(plain.header("cache-control"), "no-cache, private");
}

async fn old_hashes_are_redirected(server: Server) {
    let answer = server.get("/openapi/v3/apis/batch/v1?hash=OLD").await;
    assert_eq!((answer.code, answer.body.len()), (301, 0));
    assert_eq!(server.get(answer.header("location")).await.code, 200);
}

async fn v2_is_cached_by_etag(server: Server) {
    let mut get = request("GET", "/openapi/v2", "");
    get.headers_mut()
        .insert("accept", setpoint_apiserver::openapi::V2_PROTOBUF_OLD_TYPE.parse().unwrap());
    let answer = server.send(get).await;
    assert_eq!(answer.code, 200);
    assert_eq!(answer.header("content-type"), setpoint_apiserver::openapi::V2_PROTOBUF_TYPE);
    let mut again = request("GET", "/openapi/v2", "");
    again.headers_mut().insert("if-none-match", answer.header("etag").parse().unwrap());
    let again = server.send(again).await;
    assert_eq!((again.code, again.body.len()), (304, 0));
}

async fn conditions_and_ranges_choose_what_is_sent(server: Server) {
    let send = async |path: &str, name: &'static str, value: &str| {
        let mut get = request("GET", path, "");
        get.headers_mut().insert(name, value.parse().unwrap());
        server.send(get).await
    };
    for path in ["/openapi/v2", "/openapi/v3", "/openapi/v3/apis/apps/v1"] {
        let whole = server.get(path).await;
        assert_eq!(whole.header("accept-ranges"), "bytes", "{path}");
        assert_eq!(send(path, "if-none-match", "*").await.code, 304, "{path}");
        assert_eq!(send(path, "if-match", "\"other\"").await.code, 412, "{path}");
        let part = send(path, "range", "bytes=2-5").await;
        assert_eq!((part.code, &part.body[..]), (206, &whole.body[2..6]), "{path}");
        let range = format!("bytes 2-5/{}", whole.body.len());
        assert_eq!(part.header("content-range"), range, "{path}");
        let outside = send(path, "range", "bytes=99999999-").await;
        assert_eq!((outside.code, outside.header("etag")), (416, ""), "{path}");
        assert_eq!(outside.text(), "invalid range: failed to overlap\n");
    }
    let refused = server.accept("/openapi/v2", "text/html").await;
    let varies: Vec<_> = refused.headers.get_all("vary").iter().collect();
    assert_eq!(
        (refused.code, varies.as_slice()),
        (406, &["Accept-Encoding", "Accept"].map(|v| v.parse().unwrap()).each_ref()[..])
    );
}

async fn unknown_forms_and_documents_have_empty_answers(server: Server) {
    for (path, accept, code) in [
        ("/openapi/v2", "application/yaml", 406),
        ("/openapi/v3/api/v1", "application/yaml", 406),
        ("/openapi/v3/apis/nope/v1", "application/json", 404),
    ] {
        let answer = server.accept(path, accept).await;
        assert_eq!((answer.code, answer.body.len()), (code, 0), "{path}");
    }
}
