//! What a caller gets.

use crate::server::{Ca, Server, Services};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::FutureExt as _;
use serde_json::{Value, json};
use setpoint_dial::Dialer;
use setpoint_object::time::Clock;
use setpoint_webhook_client::{Address, CallError, Credential, Lane, Transport, Trust, Webhooks};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const PATIENCE: Duration = Duration::from_secs(20);

fn webhooks() -> (Webhooks, Arc<Services>) {
    let services = Arc::new(Services::default());
    (Webhooks::new(services.clone(), Clock::wall()), services)
}

fn config(server: &Server, ca: &Ca, path: &str) -> Value {
    let url = format!("https://127.0.0.1:{}{path}", server.address.port());
    json!({"url": url, "caBundle": STANDARD.encode(ca.pem())})
}

async fn call(webhooks: &Webhooks, config: &Value) -> Result<String, String> {
    let answer = webhooks.webhook(config).call("{}".into(), PATIENCE, None).await;
    let text = |bytes: bytes::Bytes| String::from_utf8_lossy(&bytes).into_owned();
    answer.map(text).map_err(|error| error.to_string())
}

#[tokio::test]
async fn requests_have_the_headers_of_an_api_server_and_reuse_a_connection() {
    for protocol in ["h2", "http/1.1"] {
        let (ca, (webhooks, _)) = (Ca::new(), webhooks());
        let server = Server::start(&ca, &["127.0.0.1"], protocol).await;
        for _ in 0..3 {
            let answer = call(&webhooks, &config(&server, &ca, "/echo")).await;
            assert_eq!(answer.unwrap(), "{}timeout=20s");
        }
        assert_eq!(
            *server.seen.headers.lock(),
            [
                "accept-encoding: gzip",
                "accept: application/json, */*",
                "content-type: application/json",
                "user-agent: kube-apiserver-admission",
            ]
        );
        assert_eq!((server.n_requests(), server.n_connections()), (3, 1));
        // The same certificates in another bundle: a new connection.
        let mut changed = config(&server, &ca, "/echo");
        changed["caBundle"] = STANDARD.encode(format!("# changed\n{}", ca.pem())).into();
        call(&webhooks, &changed).await.unwrap();
        assert_eq!(server.n_connections(), 2);
    }
}

#[tokio::test]
async fn a_call_in_a_trace_has_its_parent() {
    let (ca, (webhooks, _)) = (Ca::new(), webhooks());
    let server = Server::start(&ca, &["127.0.0.1"], "h2").await;
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let webhook = webhooks.webhook(&config(&server, &ca, "/echo"));
    webhook.call("{}".into(), PATIENCE, Some(parent)).await.unwrap();
    assert!(server.seen.headers.lock().contains(&format!("traceparent: {parent}")));
}

#[test]
fn addresses_are_those_of_urls() {
    for (url, expected) in [
        ("https://a.b/c", "a.b:443"),
        ("http://a", "a:80"),
        ("https://u@[::1]:8443/", "[::1]:8443"),
        ("https://[::1]", "[::1]:443"),
    ] {
        assert_eq!(Address::of(&url.parse().unwrap()).to_string(), expected);
    }
}

#[tokio::test]
async fn a_credential_has_connections_and_headers_of_its_own() {
    let (ca, (webhooks, _)) = (Ca::new(), webhooks());
    let server = Server::start(&ca, &["127.0.0.1"], "h2").await;
    let config = config(&server, &ca, "/echo");
    let shown = |text: &'static str| {
        Credential::new(None, move || {
            let value = http::HeaderValue::from_static(text);
            let headers = [(http::header::AUTHORIZATION, value)].into_iter().collect();
            async move { if text.is_empty() { Err("no token".to_owned()) } else { Ok(headers) } }
                .boxed()
        })
    };
    let own = shown("Bearer a");
    for (credential, n_connections) in [(None, 1), (Some(own.clone()), 2), (Some(own), 2)] {
        let expected = credential.clone();
        let webhook = webhooks.webhook_as(&config, |found| {
            assert_eq!(found, server.address.to_string());
            credential
        });
        webhook.call("{}".into(), PATIENCE, None).await.unwrap();
        let line = "authorization: Bearer a".to_owned();
        assert_eq!(server.seen.headers.lock().contains(&line), expected.is_some());
        assert_eq!(server.n_connections(), n_connections);
    }
    let webhook = webhooks.webhook_as(&config, |_| Some(shown("")));
    let error = webhook.call("{}".into(), PATIENCE, None).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("Post \"{}?timeout=20s\": no token", config["url"].as_str().unwrap())
    );
}

#[tokio::test]
async fn http_errors_and_redirects_are_errors() {
    let (ca, (webhooks, _)) = (Ca::new(), webhooks());
    let server = Server::start(&ca, &["127.0.0.1"], "h2").await;
    for (path, error) in [
        ("/fire", "an error on the server (\"on fire\") has prevented the request from succeeding"),
        ("/none", "the server could not find the requested resource"),
        (
            "/moved",
            "the server responded with the status code 302 but did not return more information",
        ),
    ] {
        assert_eq!(call(&webhooks, &config(&server, &ca, path)).await.unwrap_err(), error);
    }
    assert_eq!(server.n_requests(), 3);
}

#[tokio::test]
async fn a_server_may_ask_for_the_request_again() {
    let (ca, (webhooks, _)) = (Ca::new(), webhooks());
    let server = Server::start(&ca, &["127.0.0.1"], "h2").await;
    assert_eq!(call(&webhooks, &config(&server, &ca, "/busy")).await.unwrap(), "at last");
    assert_eq!(server.n_requests(), 3);
}

#[tokio::test]
async fn answers_are_decompressed_and_bounded() {
    let (ca, (webhooks, _)) = (Ca::new(), webhooks());
    let server = Server::start(&ca, &["127.0.0.1"], "http/1.1").await;
    let answer = call(&webhooks, &config(&server, &ca, "/gzip")).await.unwrap();
    assert_eq!((answer.len(), &answer[..3]), (100_000, "xxx"));
    for path in ["/large", "/bomb"] {
        let error = call(&webhooks, &config(&server, &ca, path)).await.unwrap_err();
        assert_eq!(error, "the response is larger than 16777216 bytes");
    }
    let webhook = webhooks.webhook(&config(&server, &ca, "/echo"));
    let error = webhook.call(vec![b' '; (16 << 20) + 1].into(), PATIENCE, None).await.unwrap_err();
    assert_eq!(error, CallError::RequestTooLarge(16 << 20));
}

#[tokio::test]
async fn a_silent_server_ends_with_the_timeout() {
    let (ca, (webhooks, _)) = (Ca::new(), webhooks());
    let server = Server::start(&ca, &["127.0.0.1"], "h2").await;
    let config = config(&server, &ca, "/slow");
    let webhook = webhooks.webhook(&config);
    let error = webhook.call("{}".into(), Duration::from_millis(200), None).await.unwrap_err();
    let url = config["url"].as_str().unwrap();
    assert_eq!(error.to_string(), format!("Post \"{url}?timeout=1s\": context deadline exceeded"));
}

/// A port where nothing listens, held so that no other program gets it.
fn silent() -> tokio::net::TcpSocket {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    socket
}

#[tokio::test]
async fn failed_connections_have_the_words_of_go() {
    let (ca, (webhooks, _)) = (Ca::new(), webhooks());
    let server = Server::start(&ca, &["localhost"], "h2").await;
    let port = server.address.port();
    let other = STANDARD.encode(Ca::new().pem());
    let own = STANDARD.encode(ca.pem());
    let silent = silent();
    let free = silent.local_addr().unwrap().port();
    let x509 = "tls: failed to verify certificate: x509:";
    for (url, bundle, cause) in [
        (
            format!("https://127.0.0.1:{free}/p"),
            &own,
            format!("dial tcp 127.0.0.1:{free}: connect: connection refused"),
        ),
        (
            format!("https://localhost:{port}/p"),
            &other,
            format!("{x509} certificate signed by unknown authority"),
        ),
        (
            format!("https://127.0.0.1:{port}/p"),
            &own,
            format!(
                "{x509} cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs"
            ),
        ),
    ] {
        let error = call(&webhooks, &json!({"url": url, "caBundle": bundle})).await.unwrap_err();
        assert_eq!(error, format!("Post \"{url}?timeout=20s\": {cause}"));
    }
    let authority = Server::start_self_signed(&["localhost"], "h2").await;
    let url = format!("https://localhost:{}/p", authority.address.port());
    let error = call(&webhooks, &json!({"url": url, "caBundle": other})).await.unwrap_err();
    let unknown = "certificate signed by unknown authority";
    assert_eq!(error, format!("Post \"{url}?timeout=20s\": {x509} {unknown}"));
    let bad = json!({"url": "https://localhost/", "caBundle": STANDARD.encode("no certificate")});
    assert_eq!(
        call(&webhooks, &bad).await.unwrap_err(),
        "unable to load root certificates: unable to parse bytes as PEM block"
    );
}

/// controller-runtime's envtest passes the leaf of its webhooks, and not the CA that signed it.
#[tokio::test]
async fn a_certificate_that_is_itself_in_the_bundle_is_accepted_for_its_names() {
    let (webhooks, _) = webhooks();
    let signed = Server::start(&Ca::new(), &["localhost"], "h2").await;
    let own = Server::start_self_signed(&["localhost"], "h2").await;
    let config = |server: &Server, host: &str, bundle: &str| {
        let url = format!("https://{host}:{}/echo", server.address.port());
        json!({"url": url, "caBundle": STANDARD.encode(bundle)})
    };
    for (server, other) in [(&signed, &own), (&own, &signed)] {
        let accepted = config(server, "localhost", &server.certificate);
        assert_eq!(call(&webhooks, &accepted).await.unwrap(), "{}timeout=20s");
        let elsewhere = config(server, "127.0.0.1", &server.certificate);
        let error = call(&webhooks, &elsewhere).await.unwrap_err();
        assert!(error.contains("cannot validate certificate for 127.0.0.1"), "{error}");
        let stranger = config(server, "localhost", &other.certificate);
        let error = call(&webhooks, &stranger).await.unwrap_err();
        assert!(error.contains("failed to verify certificate"), "{error}");
    }
}

#[tokio::test]
async fn services_are_resolved_and_verified_by_their_name() {
    let (ca, (webhooks, services)) = (Ca::new(), webhooks());
    let server = Server::start(&ca, &["hook.shop.svc"], "h2").await;
    let service = json!({"name": "hook", "namespace": "shop", "port": 8443, "path": "/echo"});
    let config = json!({"service": service, "caBundle": STANDARD.encode(ca.pem())});
    assert_eq!(
        call(&webhooks, &config).await.unwrap_err(),
        "Post \"https://hook.shop.svc:8443/echo?timeout=20s\": service \"hook\" not found"
    );
    // Of several addresses, those where nothing listens are passed over.
    let silent = silent();
    let found = vec![silent.local_addr().unwrap(), server.address];
    services.0.lock().insert("hook.shop.svc:8443".to_owned(), found);
    for _ in 0..3 {
        assert_eq!(call(&webhooks, &config).await.unwrap(), "{}timeout=20s");
    }
    assert_eq!(server.n_connections(), 1);
}

/// They kept a thread busy for seconds, again and again, until the client went.
#[tokio::test]
async fn a_server_that_only_sends_interim_answers_has_none() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let interim = b"HTTP/1.1 100 Continue\r\n\r\n".repeat(1000);
    let flood = async {
        let (mut tcp, _) = listener.accept().await.unwrap();
        tcp.read_exact(&mut [0; 4]).await.unwrap();
        while tcp.write_all(&interim).await.is_ok() {}
    };
    let transport = Transport::new(&Trust::Anyone, None, None, &Clock::wall(), Dialer::default())
        .await
        .unwrap();
    let request = http::Request::builder().uri("http://localhost/");
    let request = request.body(http_body_util::Empty::<bytes::Bytes>::new()).unwrap();
    let address = Address { host: "127.0.0.1".to_owned(), port };
    let asked = async move {
        let answer = transport.send(&address, request, Lane::Own).await;
        answer.map(drop).unwrap_err().to_string()
    };
    let (why, ()) = tokio::join!(asked, flood);
    assert_eq!(why, "net/http: too many 1xx informational responses");
}
