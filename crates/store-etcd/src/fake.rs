//! A gRPC server that replies by a test's script.

use crate::{EtcdOptions, proto::ResponseHeader};
use bytes::Bytes;
use parking_lot::Mutex;
use setpoint_grpc::{
    Code, Status,
    testing::{Reply, Script, framed},
};
use std::{sync::Arc, time::Duration};
use tokio::{net::TcpListener, sync::watch, task::JoinSet};

/// These bytes without frames, and status OK.
pub(crate) fn raw(bytes: &[u8]) -> Reply {
    Reply::Body(Bytes::copy_from_slice(bytes), Status::ok())
}

/// These messages, each in a frame. The stream stays open.
pub(crate) fn stream(messages: &[Vec<u8>]) -> Reply {
    Reply::Open(messages.iter().flat_map(|message| framed(message)).collect())
}

/// A status only.
pub(crate) fn refused(code: u32, text: &str) -> Reply {
    Reply::Status(Status::new(Code(code), text))
}

/// A response header with a revision.
pub(crate) fn at(revision: i64) -> Option<ResponseHeader> {
    Some(ResponseHeader { revision, member_id: 1, ..ResponseHeader::default() })
}

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
        let received = seen.clone();
        let script = Script::new(move |path, message| {
            received.lock().push((path.to_owned(), message.clone()));
            script(path, &message)
        });
        let mut tasks = JoinSet::new();
        let (count, open) = watch::channel(0);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    Ok((tcp, _)) = listener.accept() => {
                        connections.spawn(script.clone().serve(tcp));
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
