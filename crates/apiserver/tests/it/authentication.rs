//! Authentication and authorization.

use crate::harness::{EPOCH, Server, finish, request};
use setpoint_apiserver::{ApiServer, AuditQueue, Identity, Stage};
use setpoint_object::time::Clock;
use setpoint_registry::Registry;
use setpoint_store::MemoryStore;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

crate::cases! {
    unknown_users_get_401
    health_endpoints_need_no_credentials
    the_administrators_token_is_accepted
}

async fn unknown_users_get_401(server: Server) {
    let mut wrong = request("GET", "/api/v1/nodes", "");
    wrong.headers_mut().insert("authorization", "Bearer wrong".parse().unwrap());
    for stranger in [request("GET", "/api/v1/nodes", ""), request("GET", "/nope", ""), wrong] {
        let answer = finish(server.open_as(stranger, false).await).await;
        let status = answer.check_status(401, "Unauthorized", "Unauthorized");
        assert!(status.get("details").is_none());
        assert_eq!(answer.header("www-authenticate"), "");
    }
}

async fn health_endpoints_need_no_credentials(server: Server) {
    server.get("/api").await;
    let answer = finish(server.open_as(request("GET", "/readyz", ""), false).await).await;
    assert_eq!(answer.code, 200);
    // A single check needs a right.
    let answer = finish(server.open_as(request("GET", "/readyz/ping", ""), false).await).await;
    let why = r#"forbidden: User "system:anonymous" cannot get path "/readyz/ping""#;
    answer.check_status(403, "Forbidden", why);
    assert_eq!(answer.header("x-content-type-options"), "nosniff");
    let mut wrong = request("GET", "/readyz", "");
    wrong.headers_mut().insert("authorization", "Bearer wrong".parse().unwrap());
    assert_eq!(finish(server.open_as(wrong, false).await).await.code, 401, "but not with a lie");
}

async fn the_administrators_token_is_accepted(server: Server) {
    let Some(token) = server.token() else { return };
    let mut get = request("GET", "/api/v1/nodes", "");
    get.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    assert_eq!(finish(server.open_as(get, false).await).await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn of_a_request_without_a_user_only_the_refusal_is_audited() {
    let store = Arc::new(MemoryStore::default());
    let (registry, worker) = Registry::builder(store, Clock::starting_at(EPOCH)).seed(1).build();
    let audit = AuditQueue::new(8);
    let api = ApiServer::builder(registry).audit(audit.clone()).seed(2).build();
    let stop = CancellationToken::new();
    let act = async {
        assert_eq!(api.serve(request("GET", "/api/v1/nodes", "")).await.status(), 401);
        // It is refused before anybody asks for its user.
        let mut malformed = request("GET", "/api/v1/nodes?timeout=abc", "");
        malformed.extensions_mut().insert(Identity::admin());
        assert_eq!(api.serve(malformed).await.status(), 400);
        // Of a watch, the head is recorded whatever it says.
        let mut bad = request("GET", "/api/v1/nodes?watch=1&labelSelector=!!", "");
        bad.extensions_mut().insert(Identity::admin());
        assert_eq!(api.serve(bad).await.status(), 400);
        stop.cancel();
    };
    tokio::join!(worker.run(stop.clone()), act).0.unwrap();
    let mut stages = Vec::new();
    for _ in 0..5 {
        let event = audit.next().await;
        stages.push((event.stage, event.code));
    }
    let expected = [
        (Stage::ResponseStarted, Some(401)),
        (Stage::ResponseStarted, Some(400)),
        (Stage::RequestReceived, None),
        (Stage::ResponseStarted, Some(400)),
        (Stage::ResponseComplete, Some(400)),
    ];
    assert_eq!(stages, expected);
}
