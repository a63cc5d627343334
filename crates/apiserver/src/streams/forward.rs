//! `portforward`: each connection of the client is a pair of SPDY streams, one for data and one for
//! what went wrong.

use super::channels::{accept, farewell};
use super::limits::Slots;
use super::spdy::{self, Stream, Streams};
use crate::node_agent::{NodeAgent, PodRef};
use bytes::Bytes;
use futures::stream::FuturesUnordered;
use futures::{SinkExt as _, StreamExt as _};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_tungstenite::tungstenite::Message;

/// Bytes that wait between a WebSocket and the SPDY connection inside.
const BUFFER_BYTES: usize = 64 << 10;
/// Maximum connections that wait for their second stream.
const PAIRS_MAX: usize = 64;

/// What connections go to.
pub(super) struct Target {
    pub(super) agent: Arc<dyn NodeAgent>,
    pub(super) pod: PodRef,
    pub(super) slots: Arc<Slots>,
}

/// Serves forwards inside a WebSocket: its messages are the bytes of a SPDY connection.
pub(super) async fn tunnel(io: TokioIo<Upgraded>, target: Target) -> io::Result<()> {
    let (mut sink, mut messages) = accept(io).await.split();
    let (inner, outer) = tokio::io::duplex(BUFFER_BYTES);
    let (mut from_inner, mut to_inner) = tokio::io::split(outer);
    let read = async {
        while let Some(message) = messages.next().await {
            match message.map_err(io::Error::other)? {
                Message::Binary(bytes) => to_inner.write_all(&bytes).await?,
                Message::Close(_) => break,
                _ => {}
            }
        }
        io::Result::Ok(())
    };
    let write = async {
        let mut buffer = vec![0; BUFFER_BYTES / 2];
        loop {
            match from_inner.read(&mut buffer).await? {
                0 => return sink.send(farewell()).await.map_err(io::Error::other),
                n => {
                    let message = Message::Binary(Bytes::copy_from_slice(&buffer[..n]));
                    sink.send(message).await.map_err(io::Error::other)?;
                }
            }
        }
    };
    let serve = spdy::run(inner, |streams| serve(streams, target));
    tokio::select! {
        // Cancel safe: the connection ends.
        ended = serve => ended,
        ended = read => ended,
        ended = write => ended,
    }
}

/// Serves the connections of one client.
pub(super) async fn serve(mut incoming: Streams, target: Target) {
    let mut waiting: BTreeMap<String, Stream> = BTreeMap::new();
    let mut running = FuturesUnordered::new();
    loop {
        tokio::select! {
            // Cancel safe: a stream is taken whole or not at all.
            stream = incoming.recv() => {
                let Some(stream) = stream else { return };
                let id = stream.header("requestid").to_owned();
                let Some(other) = waiting.remove(&id) else {
                    if waiting.len() < PAIRS_MAX {
                        waiting.insert(id, stream);
                    }
                    continue;
                };
                let (data, errors) = match stream.header("streamtype") {
                    "data" => (stream, other),
                    _ => (other, stream),
                };
                running.push(connect(&target, data, errors));
            }
            Some(()) = running.next() => {}
        }
    }
}

/// Connects one pair of streams with a port.
async fn connect(target: &Target, mut data: Stream, mut errors: Stream) {
    let Target { agent, pod, slots } = target;
    let port = data.header("port").to_owned();
    let slot = slots.take(pod);
    let outcome = match (&slot, port.parse()) {
        (Err(error), _) => Err(error.0.message.clone()),
        (Ok(_), Ok(number)) => {
            agent.forward(pod.clone(), number).await.map_err(|error| error.0.message)
        }
        (Ok(_), Err(_)) => Err(format!("{port:?} is no port")),
    };
    let failed = match outcome {
        Ok(connection) => {
            let (mut from_client, mut to_client) = tokio::io::split(&mut data.io);
            let (mut from_pod, mut to_pod) = tokio::io::split(connection);
            // The end of the client's data leaves the pod's open; that of the pod's ends both.
            let input = async {
                let copied = tokio::io::copy(&mut from_client, &mut to_pod).await;
                if copied.is_ok() {
                    _ = to_pod.shutdown().await;
                }
                std::future::pending::<()>().await;
            };
            let copied = tokio::select! {
                // Cancel safe: the connection ends.
                copied = tokio::io::copy(&mut from_pod, &mut to_client) => copied,
                () = input => Ok(0),
            };
            let failed = copied.err();
            failed
                .filter(|error| error.kind() != io::ErrorKind::BrokenPipe)
                .map(|error| error.to_string())
        }
        Err(message) => Some(message),
    };
    if let Some(why) = failed {
        let text = format!("error forwarding port {port} to pod {}: {why}", pod.name);
        // The client may have disconnected.
        _ = errors.io.write_all(text.as_bytes()).await;
    }
}
