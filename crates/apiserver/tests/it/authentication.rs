//! Authentication and authorization.

use crate::harness::{Server, finish, request};

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
