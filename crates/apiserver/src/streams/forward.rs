//! `portforward`: each connection of the client is a pair of streams, one for data and one for what
//! went wrong. They are SPDY streams, or the channels `2n` and `2n + 1` of a WebSocket for the
//! request's port number `n`.

use super::channels::{accept, converse, farewell, message, next, pump};
use super::limits::Slots;
use super::spdy::{self, Stream, Streams};
use crate::node_agent::{NodeAgent, PodRef};
use bytes::Bytes;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use futures::{SinkExt as _, StreamExt as _};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use setpoint_registry::Identity;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, WriteHalf,
};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;

/// Bytes that wait between a WebSocket and the SPDY connection inside.
const BUFFER_BYTES: usize = 64 << 10;
/// Bytes of a failure that wait for the client.
const ERROR_BYTES: usize = 4 << 10;
/// Maximum connections that wait for their second stream.
const PAIRS_MAX: usize = 64;

/// What connections go to.
pub(super) struct Target {
    pub(super) agent: Arc<dyn NodeAgent>,
    pub(super) pod: PodRef,
    /// Whose connections they are.
    pub(super) identity: Identity,
    pub(super) slots: Arc<Slots>,
}

/// Serves forwards inside a WebSocket: its messages are the bytes of a SPDY connection.
pub(super) async fn tunnel(io: TokioIo<Upgraded>, target: Target) -> io::Result<()> {
    let (inner, outer) = tokio::io::duplex(BUFFER_BYTES);
    let serve = spdy::run(inner, |streams| serve(streams, target));
    tokio::select! {
        // Cancel safe: the connection ends.
        ended = serve => ended,
        ended = carry(io, outer) => ended,
    }
}

/// Carries the bytes of a connection in the messages of a WebSocket, until either ends.
pub(super) async fn carry(
    io: TokioIo<Upgraded>,
    inner: impl AsyncRead + AsyncWrite,
) -> io::Result<()> {
    let (mut sink, mut messages) = accept(io).await.split();
    let (mut from_inner, mut to_inner) = tokio::io::split(inner);
    let read = async {
        while let Some(message) = messages.next().await {
            // A Close message is answered when the next one is asked for: there is none.
            if let Message::Binary(bytes) = message.map_err(io::Error::other)? {
                to_inner.write_all(&bytes).await?;
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
    tokio::select! {
        // Cancel safe: the connection ends.
        ended = read => ended,
        ended = write => ended,
    }
}

/// Serves one connection to each port over the channels of a WebSocket. The first message of a
/// channel is its port, in two bytes.
pub(super) async fn channels(
    io: impl AsyncRead + AsyncWrite + Unpin,
    target: Target,
    ports: Vec<u16>,
) -> io::Result<()> {
    let (sink, mut messages) = accept(io).await.split();
    let (to_client, outgoing) = mpsc::channel(4);
    let (mut inputs, mut connections) = (Vec::new(), Vec::new());
    for (channel, port) in (0..=u8::MAX).step_by(2).zip(ports) {
        let (data, from_data) = tokio::io::duplex(BUFFER_BYTES);
        let (errors, from_errors) = tokio::io::duplex(ERROR_BYTES);
        let (from_data, to_data) = tokio::io::split(from_data);
        inputs.push(to_data);
        let (target, to_client) = (&target, to_client.clone());
        connections.push(async move {
            for channel in [channel, channel + 1] {
                // Fails only if the client has disconnected.
                _ = to_client.send(message(channel, &port.to_le_bytes())).await;
            }
            let port = port.to_string();
            tokio::join!(
                connect(target, &port, data, errors),
                pump(from_data, channel, &to_client),
                pump(from_errors, channel + 1, &to_client),
            );
        });
    }
    drop(to_client);
    let work = async { _ = join_all(connections).await };
    let read = async move {
        while let Some(message) = next(&mut messages).await? {
            give(&mut inputs, &message).await;
        }
        Ok(())
    };
    converse(sink, outgoing, work, read, Duration::ZERO).await
}

/// Gives a client's message to the connection of its channel.
async fn give(inputs: &mut [WriteHalf<DuplexStream>], message: &[u8]) {
    let Some((channel, data)) = message.split_first() else { return };
    // Clients do not write to the odd channels.
    if channel % 2 == 0
        && let Some(input) = inputs.get_mut(usize::from(channel / 2))
    {
        // Fails if the connection has ended, which the client is told otherwise.
        _ = input.write_all(data).await;
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
                let port = data.header("port").to_owned();
                let target = &target;
                running.push(async move { connect(target, &port, data.io, errors.io).await });
            }
            Some(()) = running.next() => {}
        }
    }
}

/// Connects one pair of streams with a port.
async fn connect(target: &Target, port: &str, data: DuplexStream, mut errors: DuplexStream) {
    let Target { agent, pod, identity, slots } = target;
    let slot = slots.take(pod, identity);
    let outcome = match (&slot, port.parse()) {
        (Err(error), _) => Err(error.0.message.clone()),
        (Ok(_), Ok(number)) => {
            agent.forward(pod.clone(), number).await.map_err(|error| error.0.message)
        }
        (Ok(_), Err(_)) => Err(format!("{port:?} is no port")),
    };
    let failed = match outcome {
        Ok(connection) => {
            let (mut from_client, mut to_client) = tokio::io::split(data);
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
        _ = errors.write_all(text.as_bytes()).await;
    }
}
