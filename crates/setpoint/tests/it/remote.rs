//! Another server that reviews tokens and decides who may do what.

use crate::plane::with_person_of;
use crate::rbac::{bob, send};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use setpoint::ControlPlane;
use setpoint::apiserver::ApiServer;
use setpoint::egress::Dialer;
use setpoint::registry::AllowAuthenticated;
use setpoint::remote::{
    ANSWER_BYTES_MAX, AccessWebhook, AccessWebhookOptions, Remote, TokenWebhook,
};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;

const PODS: &str = "/api/v1/namespaces/default/pods";

/// A server over HTTP that keeps the reviews it gets, and the folder of its kubeconfig.
pub(crate) struct Reviewer {
    pub(crate) seen: Arc<Mutex<Vec<(String, Value)>>>,
    folder: tempfile::TempDir,
    /// Ends with the reviewer.
    _tasks: JoinSet<()>,
}

impl Reviewer {
    /// A server that answers a review with the status that `answer` makes of its spec.
    pub(crate) async fn start(answer: fn(&Value) -> (u16, Value)) -> Self {
        let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}/review/it")}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {"token": "of-the-server"}}],
        });
        std::fs::write(folder.path().join("config"), kubeconfig.to_string()).unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let kept = seen.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = socket.accept().await.unwrap();
                let kept = kept.clone();
                let service = service_fn(move |request: Request<Incoming>| {
                    let kept = kept.clone();
                    async move {
                        let path = request.uri().path().to_owned();
                        assert_eq!(request.headers()["authorization"], "Bearer of-the-server");
                        let body = request.into_body().collect().await.unwrap().to_bytes();
                        let mut review: Value = serde_json::from_slice(&body).unwrap();
                        kept.lock().unwrap().push((path, review.clone()));
                        let (code, status) = answer(&review["spec"]);
                        review["status"] = status;
                        let mut response =
                            Response::new(Full::new(Bytes::from(review.to_string())));
                        *response.status_mut() = StatusCode::from_u16(code).unwrap();
                        Ok::<_, hyper::Error>(response)
                    }
                });
                connections.spawn(
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        Self { seen, folder, _tasks: tasks }
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("config")
    }

    pub(crate) fn n_seen(&self) -> usize {
        self.seen.lock().unwrap().len()
    }
}

pub(crate) async fn status(server: &ApiServer, path: &str) -> (u16, String) {
    let (status, answer) = send(server, bob(), Method::GET, path, Value::Null).await;
    (status.as_u16(), answer["message"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn a_webhook_decides_and_its_decisions_are_kept() {
    let reviewer = Reviewer::start(|spec| {
        let status = match spec["resourceAttributes"]["resource"].as_str() {
            Some("pods") => json!({"allowed": true}),
            Some("secrets") => {
                json!({"allowed": false, "denied": true, "reason": "they are secret"})
            }
            _ => json!({"allowed": false, "reason": "nothing known"}),
        };
        (200, status)
    })
    .await;
    let options = AccessWebhookOptions::default();
    let webhook =
        AccessWebhook::open(reviewer.kubeconfig(), Dialer::default(), options).await.unwrap();
    let plane = ControlPlane::builder().simulated(0).authorizer(Arc::new(webhook)).build();
    let server = plane.server().clone();
    with_person_of(plane, async |_| {
        for _ in 0..3 {
            assert_eq!(status(&server, PODS).await.0, 200);
            let (code, message) = status(&server, "/api/v1/secrets?labelSelector=a%3Db,c").await;
            assert_eq!(code, 403);
            assert!(message.ends_with("at the cluster scope: they are secret"), "{message}");
        }
        let (code, message) = status(&server, "/version").await;
        assert_eq!(code, 403);
        assert!(message.ends_with(r#"cannot get path "/version": nothing known"#), "{message}");
        // An administrator is not asked about.
        let admin = setpoint::registry::Identity::admin();
        assert_eq!(send(&server, admin, Method::GET, "/version", Value::Null).await.0, 200);
    })
    .await;
    let seen = reviewer.seen.lock().unwrap();
    let [(path, pods), (_, secrets), (_, version)] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!(path, "/review/it");
    assert_eq!(
        *pods,
        json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "metadata": {},
            "spec": {
                "user": "bob", "groups": ["devs", "system:authenticated"],
                "resourceAttributes": {
                    "verb": "list", "namespace": "default", "version": "v1", "resource": "pods",
                },
            },
            "status": {"allowed": false},
        })
    );
    assert_eq!(
        secrets["spec"]["resourceAttributes"]["labelSelector"],
        json!({"requirements": [
            {"key": "a", "operator": "In", "values": ["b"]}, {"key": "c", "operator": "Exists"},
        ]})
    );
    assert_eq!(
        version["spec"]["nonResourceAttributes"],
        json!({"path": "/version", "verb": "get"})
    );
}

#[tokio::test]
async fn without_an_answer_nothing_is_allowed_by_it() {
    let reviewer = Reviewer::start(|_| (500, json!({"allowed": true}))).await;
    // Alone, and with an authorizer behind it that allows everything.
    for (fails_closed, allows_next, expected) in
        [(false, false, 500), (true, false, 500), (false, true, 200), (true, true, 500)]
    {
        let options = AccessWebhookOptions { fails_closed, ..AccessWebhookOptions::default() };
        let webhook =
            AccessWebhook::open(reviewer.kubeconfig(), Dialer::default(), options).await.unwrap();
        let mut plane = ControlPlane::builder().simulated(0).authorizer(Arc::new(webhook));
        if allows_next {
            plane = plane.authorizer(Arc::new(AllowAuthenticated));
        }
        let plane = plane.build();
        let server = plane.server().clone();
        let before = reviewer.n_seen();
        with_person_of(plane, async |_| {
            assert_eq!(status(&server, PODS).await.0, expected, "{fails_closed} {allows_next}");
        })
        .await;
        assert_eq!(reviewer.n_seen() - before, 5, "attempts");
    }
}

/// As kube-apiserver: a text, whose angle brackets a browser does not take for HTML.
#[tokio::test]
async fn a_request_that_nobody_can_decide_is_answered_with_a_text() {
    let reviewer = Reviewer::start(|_| (400, json!({"reason": "<no>"}))).await;
    let options = AccessWebhookOptions::default();
    let webhook =
        AccessWebhook::open(reviewer.kubeconfig(), Dialer::default(), options).await.unwrap();
    let plane = ControlPlane::builder().simulated(0).authorizer(Arc::new(webhook)).build();
    let server = plane.server().clone();
    with_person_of(plane, async |_| {
        let mut request = Request::get(PODS).body(Full::new(Bytes::new())).unwrap();
        request.extensions_mut().insert(bob());
        let response = server.serve(request).await;
        assert_eq!(response.status().as_u16(), 500);
        assert_eq!(response.headers()["content-type"], "text/plain; charset=utf-8");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body = String::from_utf8(body.to_vec()).unwrap();
        assert!(body.starts_with(&format!("Internal Server Error: {PODS:?}: ")), "{body}");
        assert!(!body.contains('<'), "{body}");
    })
    .await;
    // A refusal is not repeated.
    assert_eq!(reviewer.n_seen(), 1);
}

#[tokio::test]
async fn a_webhook_knows_tokens() {
    let reviewer = Reviewer::start(|spec| {
        let status = match spec["token"].as_str() {
            Some("jane-s") => json!({
                "authenticated": true,
                "user": {"username": "jane", "uid": "7", "groups": ["devs"], "extra": {"a.b/c": ["d"]}},
            }),
            Some("lying") => json!({"authenticated": false, "user": {"username": "root"}}),
            _ => json!({"user": {}}),
        };
        (201, status)
    })
    .await;
    let ttl = Duration::from_secs(60);
    let webhook = TokenWebhook::open(reviewer.kubeconfig(), Dialer::default(), ttl).await.unwrap();
    let plane = ControlPlane::builder().simulated(0).authenticator(Arc::new(webhook)).build();
    let server = plane.server().clone();
    with_person_of(plane, async |_| {
        let who = async |token: &str| {
            let review =
                json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
            let request = Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
                .header("authorization", format!("Bearer {token}"))
                .header("content-type", "application/json")
                .body(Full::new(Bytes::from(review.to_string())))
                .unwrap();
            let response = server.serve(request).await;
            let code = response.status().as_u16();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let answer: Value = serde_json::from_slice(&body).unwrap();
            (code, answer["status"]["userInfo"].clone())
        };
        let jane = json!({
            "username": "jane", "uid": "7", "groups": ["devs", "system:authenticated"],
            "extra": {"a.b/c": ["d"]},
        });
        for _ in 0..3 {
            assert_eq!(who("jane-s").await, (201, jane.clone()));
            assert_eq!(who("lying").await.0, 401);
            assert_eq!(who("unknown").await.0, 401);
        }
    })
    .await;
    assert_eq!(reviewer.n_seen(), 3);
}

/// A server that answers without an end: its answer was read until the memory was full.
#[tokio::test]
async fn an_endless_answer_of_a_review_is_read_no_further_than_its_limit() {
    let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config =
        kube::Config::new(format!("http://{}", socket.local_addr().unwrap()).parse().unwrap());
    let endless = async {
        let (mut stream, _) = socket.accept().await.unwrap();
        stream.read_exact(&mut [0; 4]).await.unwrap();
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
        let mut n_written = 0;
        // Ends when the client has had enough.
        while stream.write_all(chunk.as_bytes()).await.is_ok() {
            n_written += chunk.len();
        }
        n_written
    };
    let asked = async move {
        let remote = Remote::at(config, "/review").unwrap();
        remote.review(&json!({}), Duration::from_secs(60)).await.unwrap_err()
    };
    let (error, n_written) = tokio::join!(asked, endless);
    assert_eq!(error, format!("the answer is larger than {ANSWER_BYTES_MAX} bytes"));
    // What is in flight between the two is bounded by the buffers of their sockets.
    assert!(n_written < 64 << 20, "{n_written}");
}
