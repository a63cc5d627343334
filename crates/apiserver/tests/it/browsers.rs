//! What answers say about connections: to pages of other origins, and to clients behind a load
//! balancer.

use crate::harness::{Protocol, Server, finish, request};
use setpoint_apiserver::listen::LIMITS;
use setpoint_apiserver::{ApiServerBuilder, Cors, GoAwayChance, Hsts};

#[tokio::test]
async fn pages_of_allowed_origins_get_their_headers_and_an_answer_before_authentication() {
    let cors = Cors::new([r"^https?://ok\.example(:|$)"]).unwrap();
    let server = Server::built(|builder| builder.cors(cors)).await;
    server.api.registry().wait_ready().await;
    let ask = async |method: &str, path: &str, origin: &str| {
        let mut asked = request(method, path, "");
        asked.headers_mut().insert("origin", origin.parse().unwrap());
        finish(server.open_as(asked, false).await).await
    };
    let methods = "POST, GET, OPTIONS, PUT, DELETE, PATCH";
    for (method, path, code) in
        [("GET", "/healthz", 200), ("GET", "/api/v1/pods", 401), ("OPTIONS", "/api/v1/pods", 204)]
    {
        let allowed = ask(method, path, "http://ok.example:8080").await;
        assert_eq!(allowed.code, code, "{method} {path}");
        for (name, value) in [
            ("access-control-allow-origin", "http://ok.example:8080"),
            ("access-control-allow-methods", methods),
            ("access-control-allow-credentials", "true"),
            ("access-control-expose-headers", "Date"),
        ] {
            assert_eq!(allowed.header(name), value, "{method} {path}");
        }
        let headers = allowed.header("access-control-allow-headers");
        assert!(headers.starts_with("Content-Type, ") && headers.contains("Authorization"));
        let other = ask(method, path, "http://ok.example.evil").await;
        assert!(!other.headers.contains_key("access-control-allow-origin"), "{method} {path}");
        assert_ne!(other.code, 204);
    }
    // A malformed time-out is refused before.
    let early = ask("GET", "/api/v1/pods?timeout=x", "http://ok.example").await;
    assert_eq!((early.code, early.header("access-control-allow-origin")), (400, ""));
}

#[tokio::test]
async fn every_answer_has_the_directives_of_strict_transport_security() {
    let hsts = Hsts::new(["max-age=31536000", "includeSubDomains"]).unwrap();
    let server = Server::built(|builder| builder.hsts(hsts)).await;
    for path in ["/healthz", "/api/v1/namespaces", "/nothing", "/api/v1/pods?timeout=x"] {
        let answer = server.get(path).await;
        let header = answer.header("strict-transport-security");
        assert_eq!(header, "max-age=31536000; includeSubDomains", "{path}");
    }
    let plain = Server::in_process().await;
    assert_eq!(plain.get("/healthz").await.header("strict-transport-security"), "");
}

/// The server draws from its seed, so that the number of connections is always the same.
#[tokio::test]
async fn connections_over_http_2_end_by_chance_without_a_lost_answer() {
    let chance = GoAwayChance::new(GoAwayChance::MAX).unwrap();
    let change = |builder: ApiServerBuilder| builder.go_away_chance(chance);
    let server = Server::https_built(Protocol::Http2, LIMITS, change).await;
    server.api.registry().wait_ready().await;
    let (mut client, mut n_connections) = (None, 0);
    for _ in 0..300 {
        let mut sender = match client.take() {
            Some(sender) => sender,
            None => {
                n_connections += 1;
                server.idle_http2().await.unwrap()
            }
        };
        let asked = request("GET", "https://localhost/healthz", "");
        assert_eq!(sender.send_request(asked).await.unwrap().status(), 200);
        // Fails once the server has said that there will be no more.
        if sender.ready().await.is_ok() {
            client = Some(sender);
        }
    }
    assert!((2..30).contains(&n_connections), "{n_connections}");
}
