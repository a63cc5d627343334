//! Options of the source over a client: shards, metadata only, gzip.
use crate::support::settle;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::StreamExt;
use http::{HeaderMap, Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::Client;
use kube_client::client::Body;
use parking_lot::Mutex;
use setpoint_informer::source::{ListPart, ListRequest, WatchRequest};
use setpoint_informer::{ClientSource, ListWatch, SourceError};
use std::convert::Infallible;
use std::io::Write;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A server of one answer, in chunks that are sent one by one.
#[derive(Clone)]
struct Server {
    encoding: &'static str,
    chunks: Arc<Mutex<Option<futures::channel::mpsc::UnboundedReceiver<Bytes>>>>,
    asked: Arc<Mutex<Vec<(String, HeaderMap)>>>,
}

type ServerBody = http_body_util::combinators::UnsyncBoxBody<Bytes, Infallible>;

impl tower_service::Service<Request<Body>> for Server {
    type Response = Response<ServerBody>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.asked.lock().push((request.uri().to_string(), request.headers().clone()));
        let chunks = self.chunks.lock().take().unwrap();
        let frames = chunks.map(|chunk| Ok::<_, Infallible>(http_body::Frame::data(chunk)));
        let body = ServerBody::new(http_body_util::StreamBody::new(frames));
        let mut response = Response::new(body);
        if !self.encoding.is_empty() {
            response.headers_mut().insert("content-encoding", self.encoding.parse().unwrap());
        }
        std::future::ready(Ok(response))
    }
}

type Chunks = futures::channel::mpsc::UnboundedSender<Bytes>;

fn server(encoding: &'static str) -> (ClientSource, Chunks, Server) {
    let (sender, chunks) = futures::channel::mpsc::unbounded();
    let chunks = Arc::new(Mutex::new(Some(chunks)));
    let server = Server { encoding, chunks, asked: Arc::default() };
    let client = Client::new(server.clone(), "default");
    (ClientSource::all::<ConfigMap>(client), sender, server)
}

fn text(item: &str) -> Bytes {
    Bytes::copy_from_slice(item.as_bytes())
}

#[tokio::test]
async fn items_are_passed_on_before_the_list_has_ended() {
    let (source, chunks, _) = server("");
    let mut parts = source.list_in_parts(ListRequest::default()).await.ok().unwrap();
    chunks.unbounded_send(text(r#"{"kind":"ConfigMapList","items":[{"a":1},{"b"#)).unwrap();
    let Some(Ok(ListPart::Items(items))) = parts.next().await else { panic!("no items") };
    assert_eq!(items.len(), 1);
    assert!(items[0].head.is_some());
    chunks.unbounded_send(text(r#"":2}],"metadata":{"resourceVersion":"7"}}"#)).unwrap();
    let Some(Ok(ListPart::Items(items))) = parts.next().await else { panic!("no items") };
    assert_eq!(items[0].bytes, r#"{"b":2}"#);
    drop(chunks);
    let Some(Ok(ListPart::End(head))) = parts.next().await else { panic!("no end") };
    assert_eq!(head.resource_version, "7");
    assert!(parts.next().await.is_none());
}

#[tokio::test]
async fn truncated_list_is_an_error_after_its_items() {
    let (source, chunks, _) = server("");
    let mut parts = source.list_in_parts(ListRequest::default()).await.ok().unwrap();
    chunks.unbounded_send(text(r#"{"items":[{"a":1},"#)).unwrap();
    drop(chunks);
    assert!(matches!(parts.next().await, Some(Ok(ListPart::Items(_)))));
    assert!(matches!(parts.next().await, Some(Err(SourceError::Protocol { .. }))));
    assert!(parts.next().await.is_none());
}

#[tokio::test]
async fn a_shard_that_is_not_honored_is_an_error() {
    let selector = "shardRange(object.metadata.uid, '0x0', '0x8')";
    for (echo, is_honored) in [
        (format!(r#","shardInfo":{{"selector":"{selector}"}}"#), true),
        (r#","shardInfo":{"selector":"other"}"#.to_owned(), false),
        (String::new(), false),
    ] {
        let (source, chunks, server) = server("");
        let source = source.shard(selector);
        assert!(!source.can_stream_list(), "a stream does not report the honored selector");
        let list = format!(r#"{{"metadata":{{"resourceVersion":"7"{echo}}},"items":[]}}"#);
        chunks.unbounded_send(text(&list)).unwrap();
        drop(chunks);
        let listed = source.list(ListRequest::default()).await;
        match listed {
            Ok(_) => assert!(is_honored),
            Err(SourceError::NotSharded { asked, .. }) => assert!(!is_honored && asked == selector),
            Err(error) => panic!("{error}"),
        }
        assert!(
            server.asked.lock()[0].0.contains("shardSelector=shardRange%28object.metadata.uid")
        );
    }
}

#[tokio::test]
async fn headers_request_metadata_and_gzip_and_only_lists_are_compressed() {
    for is_list in [true, false] {
        let (source, chunks, server) = server("");
        let source = source.metadata_only(true).gzip(true);
        drop(chunks);
        if is_list {
            drop(source.list_in_parts(ListRequest::default()).await);
        } else {
            drop(source.watch(WatchRequest::default()).await);
        }
        settle().await;
        let headers = server.asked.lock()[0].1.clone();
        let list = if is_list { "List" } else { "" };
        assert_eq!(
            headers["accept"],
            format!(
                "application/json;as=PartialObjectMetadata{list};g=meta.k8s.io;v=v1,application/json"
            )
        );
        assert_eq!(headers["accept-encoding"], if is_list { "gzip" } else { "identity" });
    }
}

#[tokio::test]
async fn a_compressed_list_is_read_and_another_encoding_is_refused() {
    let list = r#"{"items":[{"a":1}],"metadata":{"resourceVersion":"7"}}"#;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(list.as_bytes()).unwrap();
    let body = Bytes::from(encoder.finish().unwrap());
    let (source, chunks, _) = server("gzip");
    for at in 0..body.len() {
        chunks.unbounded_send(body.slice(at..=at)).unwrap();
    }
    drop(chunks);
    let page = source.gzip(true).list(ListRequest::default()).await.unwrap();
    assert_eq!((&*page.resource_version, &page.items[0][..]), ("7", &br#"{"a":1}"#[..]));

    let (source, chunks, _) = server("br");
    drop(chunks);
    let error = source.list(ListRequest::default()).await.unwrap_err();
    assert!(matches!(error, SourceError::Protocol { .. }), "{error}");
}
