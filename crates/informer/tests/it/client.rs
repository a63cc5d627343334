//! The source over a Kubernetes client: its requests, and how it parses the answers.
use bytes::Bytes;
use futures::StreamExt;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::Client;
use kube_client::client::Body;
use parking_lot::Mutex;
use setpoint_informer::source::{ListRequest, WatchFrame, WatchRequest};
use setpoint_informer::{ClientSource, ListWatch, SourceError};
use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// A server of one answer.
#[derive(Clone)]
struct Server {
    code: u16,
    body: &'static str,
    asked: Arc<Mutex<Vec<String>>>,
}

type ServerBody = http_body_util::combinators::BoxBody<Bytes, Infallible>;

impl tower_service::Service<Request<Body>> for Server {
    type Response = Response<ServerBody>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let encoding = request.headers()["accept-encoding"].to_str().unwrap();
        assert_eq!(encoding, "identity");
        self.asked.lock().push(request.uri().to_string());
        // In chunks of three bytes, as a network might.
        let chunks = self.body.as_bytes().chunks(3).map(Bytes::from_static);
        let frames = chunks.map(|chunk| Ok::<_, Infallible>(http_body::Frame::data(chunk)));
        let body = if self.code == 200 {
            BodyExt::boxed(StreamBody::new(futures::stream::iter(frames)))
        } else {
            BodyExt::boxed(Full::from(self.body))
        };
        let response = Response::builder().status(self.code).header("retry-after", "7");
        let response = response.body(body).unwrap();
        std::future::ready(Ok(response))
    }
}

fn server(code: u16, body: &'static str) -> (Client, Arc<Mutex<Vec<String>>>) {
    let server = Server { code, body, asked: Arc::default() };
    let asked = server.asked.clone();
    (Client::new(server, "default"), asked)
}

fn list_request(version: &str) -> ListRequest {
    let mut request = ListRequest::default();
    request.resource_version = version.to_owned();
    request
}

#[tokio::test]
async fn list_request_has_path_and_query_and_its_answer_is_split_into_items() {
    let (client, asked) = server(
        200,
        r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[{"a":1},{"b":2}]}"#,
    );
    let source = ClientSource::namespaced::<ConfigMap>(client, "ns")
        .labels("app in (a,b)")
        .fields("metadata.name=x");
    let mut request = list_request("0");
    request.limit = Some(500);
    let page = source.list(request).await.unwrap();
    assert_eq!(page.items, [&br#"{"a":1}"#[..], br#"{"b":2}"#]);
    assert_eq!(
        asked.lock()[0],
        "/api/v1/namespaces/ns/configmaps?labelSelector=app%20in%20%28a%2Cb%29&fieldSelector=metadata.name%3Dx&limit=500&resourceVersion=0"
    );
}

#[tokio::test]
async fn invariant_10_a_continue_request_carries_no_version() {
    let (client, asked) = server(200, "{}");
    let source = ClientSource::all::<Deployment>(client);
    let mut request = list_request("");
    request.continue_token = Some("tok=en".to_owned());
    source.list(request).await.unwrap();
    assert_eq!(asked.lock()[0], "/apis/apps/v1/deployments?continue=tok%3Den");
}

#[tokio::test]
async fn watch_request_allows_bookmarks_and_its_answer_is_split_into_frames() {
    let (client, asked) = server(
        200,
        "{\"type\":\"ADDED\",\"object\":{\"a\":1}}\n{\"type\":\"BOOKMARK\",\"object\":{\"b\":2}}\n",
    );
    let source = ClientSource::all::<ConfigMap>(client);
    let mut request = WatchRequest::default();
    request.resource_version = "5".to_owned();
    request.timeout = Duration::from_secs(300);
    let frames: Vec<_> = source.watch(request.clone()).await.unwrap().collect().await;
    let frames: Vec<WatchFrame> = frames.into_iter().map(Result::unwrap).collect();
    assert_eq!(
        frames,
        [
            WatchFrame::Added(Bytes::from_static(b"{\"a\":1}")),
            WatchFrame::Bookmark(Bytes::from_static(b"{\"b\":2}")),
        ]
    );
    request.send_initial_events = true;
    request.resource_version = String::new();
    drop(source.watch(request).await.unwrap());
    let common = "/api/v1/configmaps?watch=true&allowWatchBookmarks=true";
    assert_eq!(
        *asked.lock(),
        [
            format!("{common}&resourceVersion=5&timeoutSeconds=300"),
            format!(
                "{common}&timeoutSeconds=300&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
            ),
        ]
    );
}

#[tokio::test]
async fn failures_are_classified_by_status_or_code() {
    let gone =
        r#"{"kind":"Status","status":"Failure","message":"too old","reason":"Expired","code":410}"#;
    let (client, _) = server(410, gone);
    let error = ClientSource::all::<ConfigMap>(client).list(list_request("1")).await.unwrap_err();
    assert!(error.is_expired());
    assert_eq!(error.to_string(), "too old");

    let large = r#"{"kind":"Status","status":"Failure","message":"Timeout: Too large resource version: 9, current: 5","reason":"Timeout","code":504}"#;
    let (client, _) = server(504, large);
    let error = ClientSource::all::<ConfigMap>(client).list(list_request("9")).await.unwrap_err();
    assert!(error.is_too_large_resource_version());

    let (client, _) = server(404, "404 page not found\n");
    let source = ClientSource::all::<ConfigMap>(client);
    let Err(error) = source.watch(WatchRequest::default()).await else { panic!("it opened") };
    assert!(error.is_not_found());
    assert_eq!(error.to_string(), "the server could not find the requested resource");

    let (client, _) = server(429, "busy");
    let error = ClientSource::all::<ConfigMap>(client).list(list_request("")).await.unwrap_err();
    assert!(error.is_too_many_requests() && error.to_string() == "busy");
    assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
}

#[tokio::test]
async fn ref_6_connection_to_an_unused_port_is_refused() {
    // Bound, so that no other program gets the port, but not listening.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    let config = kube_client::Config::new(format!("http://{address}").parse().unwrap());
    let client = Client::try_from(config).unwrap();
    let error = ClientSource::all::<ConfigMap>(client).list(list_request("")).await.unwrap_err();
    assert!(matches!(error, SourceError::Refused(_)), "{error:?}");
}
