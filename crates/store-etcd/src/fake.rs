//! A gRPC server that replies by a test's script.

use crate::{EtcdOptions, proto::ResponseHeader};
use bytes::{Bytes, BytesMut};
use h2::server::SendResponse;
use parking_lot::Mutex;
use prost::Message;
use std::{sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

/// The reply to a request.
pub(crate) enum Reply {
    /// These bytes in one frame, and status OK.
    Bytes(Vec<u8>),
    /// These bytes without frames, and status OK.
    Raw(Vec<u8>),
    /// These messages, each in a frame. The stream stays open.
    Stream(Vec<Vec<u8>>),
    /// A status only.
    Status(u32, &'static str),
    /// Another HTTP status.
    Http(u16),
    /// A message and the end of the stream, without a status.
    NoStatus(Vec<u8>),
    /// No reply.
    Silence,
    /// The stream is reset, with `REFUSED_STREAM` or with `INTERNAL_ERROR`.
    Reset { refused: bool },
    /// Closes the connection.
    HangUp,
}

impl Reply {
    pub(crate) fn message(message: &impl Message) -> Self {
        Self::Bytes(message.encode_to_vec())
    }
}

/// A response header with a revision.
pub(crate) fn at(revision: i64) -> Option<ResponseHeader> {
    Some(ResponseHeader { revision, member_id: 1, ..ResponseHeader::default() })
}

type Script = dyn Fn(&str, &[u8]) -> Reply + Send + Sync;

pub(crate) struct Fake {
    pub(crate) endpoint: String,
    seen: Arc<Mutex<Vec<(String, Bytes)>>>,
    open: watch::Receiver<usize>,
    _tasks: JoinSet<()>,
}

impl Fake {
    /// Serves on loopback until dropped. The script gets the path and the first message of each
    /// call.
    pub(crate) async fn start(
        script: impl Fn(&str, &[u8]) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (script, received): (Arc<Script>, _) = (Arc::new(script), seen.clone());
        let mut tasks = JoinSet::new();
        let (count, open) = watch::channel(0);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    Ok((tcp, _)) = listener.accept() => {
                        connections.spawn(serve(tcp, script.clone(), received.clone()));
                    }
                    Some(_) = connections.join_next() => {}
                }
                count.send_replace(connections.len());
            }
        });
        Self { endpoint, seen, open, _tasks: tasks }
    }

    /// Waits until there are `n` connections.
    pub(crate) async fn has_connections(&self, n: usize) {
        let mut open = self.open.clone();
        let wait = open.wait_for(|open| *open == n);
        let reached = tokio::time::timeout(Duration::from_secs(10), wait).await;
        assert!(reached.is_ok(), "{} connections, not {n}", *self.open.borrow());
    }

    /// The messages that were sent to a path.
    pub(crate) fn seen(&self, path: &str) -> Vec<Bytes> {
        let seen = self.seen.lock();
        seen.iter().filter(|(p, _)| p == path).map(|(_, message)| message.clone()).collect()
    }
}

/// Options with short timeouts.
pub(crate) fn options(fakes: &[&Fake]) -> EtcdOptions {
    let mut options = EtcdOptions::new(fakes.iter().map(|fake| fake.endpoint.clone()));
    options.request_timeout = Duration::from_secs(1);
    options.attempt_timeout = Duration::from_millis(200);
    options.connect_timeout = Duration::from_millis(200);
    options
}

async fn serve(tcp: TcpStream, script: Arc<Script>, seen: Arc<Mutex<Vec<(String, Bytes)>>>) {
    let Ok(mut connection) = h2::server::handshake(tcp).await else { return };
    let mut calls = JoinSet::new();
    loop {
        let (request, respond) = tokio::select! {
            accepted = connection.accept() => match accepted {
                Some(Ok(accepted)) => accepted,
                _ => return,
            },
            Some(ended) = calls.join_next() => match ended {
                Ok(true) => return,
                _ => continue,
            },
        };
        calls.spawn(call(request, respond, script.clone(), seen.clone()));
    }
}

/// Replies to one call. Returns `true` to close the connection.
async fn call(
    request: http::Request<h2::RecvStream>,
    mut respond: SendResponse<Bytes>,
    script: Arc<Script>,
    seen: Arc<Mutex<Vec<(String, Bytes)>>>,
) -> bool {
    let path = request.uri().path().to_owned();
    let (mut body, mut message) = (request.into_body(), BytesMut::new());
    let is_whole = |message: &BytesMut| {
        message.len() >= 5
            && message.len() - 5 >= u32::from_be_bytes(message[1..5].try_into().unwrap()) as usize
    };
    while !is_whole(&message) {
        let Some(Ok(chunk)) = body.data().await else { return false };
        let _ = body.flow_control().release_capacity(chunk.len());
        message.extend_from_slice(&chunk);
    }
    let message = message.freeze().slice(5..);
    seen.lock().push((path.clone(), message.clone()));
    let head = |status: u16| http::Response::builder().status(status);
    let framed = |bytes: &[u8]| -> Bytes {
        [&[0][..], &u32::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat().into()
    };
    let good =
        || http::HeaderMap::from_iter([("grpc-status".parse().unwrap(), "0".parse().unwrap())]);
    match script(&path, &message) {
        Reply::Bytes(bytes) => {
            let mut stream = respond.send_response(head(200).body(()).unwrap(), false).unwrap();
            let _ = stream.send_data(framed(&bytes), false);
            let _ = stream.send_trailers(good());
        }
        Reply::Raw(bytes) => {
            let mut stream = respond.send_response(head(200).body(()).unwrap(), false).unwrap();
            let _ = stream.send_data(bytes.into(), false);
            let _ = stream.send_trailers(good());
        }
        Reply::Stream(messages) => {
            let mut stream = respond.send_response(head(200).body(()).unwrap(), false).unwrap();
            for message in messages {
                let _ = stream.send_data(framed(&message), false);
            }
            std::future::pending::<()>().await;
        }
        Reply::Status(code, message) => {
            let head = head(200).header("grpc-status", code).header("grpc-message", message);
            let _ = respond.send_response(head.body(()).unwrap(), true);
        }
        Reply::Http(status) => {
            let _ = respond.send_response(head(status).body(()).unwrap(), true);
        }
        Reply::NoStatus(bytes) => {
            let mut stream = respond.send_response(head(200).body(()).unwrap(), false).unwrap();
            let _ = stream.send_data(framed(&bytes), true);
        }
        Reply::Silence => std::future::pending().await,
        Reply::Reset { refused } => respond.send_reset(if refused {
            h2::Reason::REFUSED_STREAM
        } else {
            h2::Reason::INTERNAL_ERROR
        }),
        Reply::HangUp => return true,
    }
    false
}
