//! `exec` and `attach`: the streams of a command over one connection.
//!
//! Over a WebSocket each binary message begins with its channel: 0 input, 1 output, 2 errors, 3 the
//! outcome as a `Status`, 4 sizes of the terminal. In the fifth version `255 0` ends the input;
//! before it, a client ends the input with a Close message, and does not learn the outcome. Over
//! SPDY each of them is a stream.

use super::options::StreamOptions;
use super::spdy::{self, Stream, Streams};
use crate::node_agent::{ContainerRef, ContainerStreams, ExecOptions, NodeAgent, TerminalSize};
use bytes::Bytes;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt as _, StreamExt as _};
use serde_json::json;
use setpoint_object::ApiError;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::{mpsc, oneshot};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};

/// Maximum length of a client's message: 1 MiB. Clients send at most 32 KiB.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Bytes that wait between a command and its connection, in each direction.
const BUFFER_BYTES: usize = 64 << 10;
/// Maximum bytes of output in one message.
const CHUNK_BYTES: usize = 32 << 10;
/// Maximum bytes of an outcome that are read from a kubelet.
const OUTCOME_BYTES_MAX: u64 = 64 << 10;
/// The time for a client to open its streams: 30 s, as a kubelet gives.
const OPEN_TIME_MAX: Duration = Duration::from_secs(30);

/// The time for a client to close its side after the end, and for what is attached to a container
/// to read its input after the client has closed.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(5);
/// The time for a command to end after its client has closed: it has read its input then. A kubelet
/// has no limit.
const COMMAND_TIME_MAX: Duration = Duration::from_secs(300);

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const OUTCOME: u8 = 3;
const RESIZE: u8 = 4;
const CLOSE: u8 = 255;

/// A request for `exec` or `attach`.
pub(super) struct Call {
    pub(super) agent: Arc<dyn NodeAgent>,
    pub(super) container: ContainerRef,
    pub(super) wanted: StreamOptions,
    pub(super) is_attach: bool,
}

impl Call {
    /// Runs the command; returns its outcome as the client reads it.
    pub(super) async fn outcome(self, streams: ContainerStreams) -> Vec<u8> {
        let Self { agent, container, wanted, is_attach } = self;
        let ended = match is_attach {
            true => agent.attach(container, streams).await.map(|()| 0),
            false => {
                let options = ExecOptions { command: wanted.command, tty: wanted.tty };
                agent.exec(container, options, streams).await
            }
        };
        status(ended).to_string().into_bytes()
    }
}

/// Runs a command of a kubelet over the streams of a SPDY connection to it. Returns the outcome as
/// the kubelet writes it.
pub(super) async fn at_kubelet<I>(
    io: I,
    wanted: StreamOptions,
    streams: ContainerStreams,
) -> Vec<u8>
where
    I: AsyncRead + AsyncWrite + Send + 'static,
{
    let kinds = [
        ("stdin", wanted.stdin),
        ("stdout", wanted.stdout),
        ("stderr", wanted.stderr),
        ("resize", wanted.tty),
    ];
    let mut names = vec!["error"];
    names.extend(kinds.iter().filter(|(_, is_wanted)| *is_wanted).map(|(kind, _)| *kind));
    let mut outcome = Vec::new();
    let ran = spdy::run_client(io, &names, |opened| {
        let mut opened: Vec<_> = names.iter().copied().zip(opened).collect();
        let mut take = |kind: &str| {
            let idx = opened.iter().position(|(known, _)| *known == kind)?;
            Some(opened.swap_remove(idx).1)
        };
        let (errors, stdin, resize) = (take("error"), take("stdin"), take("resize"));
        let outputs = [(take("stdout"), streams.stdout), (take("stderr"), streams.stderr)];
        let (outcome, input, sizes) = (&mut outcome, streams.stdin, streams.sizes);
        async move {
            let read_outcome = async {
                if let Some(errors) = errors {
                    _ = errors.take(OUTCOME_BYTES_MAX).read_to_end(outcome).await;
                }
            };
            let outputs = outputs.map(|(from, to)| async move {
                if let (Some(mut from), Some(mut to)) = (from, to) {
                    // The end of either is the end of both.
                    _ = tokio::io::copy(&mut from, &mut to).await;
                }
            });
            let write_input = async {
                if let (Some(mut input), Some(mut stdin)) = (input, stdin) {
                    _ = tokio::io::copy(&mut input, &mut stdin).await;
                    _ = stdin.shutdown().await;
                }
                std::future::pending::<()>().await;
            };
            let write_sizes = async {
                if let (Some(mut sizes), Some(mut resize)) = (sizes, resize) {
                    while let Some(TerminalSize { width, height }) = sizes.recv().await {
                        let size = json!({"Width": width, "Height": height});
                        _ = resize.write_all(format!("{size}\n").as_bytes()).await;
                    }
                }
                std::future::pending::<()>().await;
            };
            tokio::select! {
                // Cancel safe: the other two only send what the client sends beside the command.
                _ = futures::future::join(read_outcome, futures::future::join_all(outputs)) => {}
                () = write_input => {}
                () = write_sizes => {}
            }
        }
    });
    match ran.await {
        _ if !outcome.is_empty() => outcome,
        Ok(()) => status(Ok(0)).to_string().into_bytes(),
        Err(error) => failure(ApiError::internal(error)),
    }
}

/// The `Status` of an exit code.
fn status(ended: Result<i32, ApiError>) -> serde_json::Value {
    match ended {
        Ok(0) => json!({"metadata": {}, "status": "Success"}),
        Ok(code) => json!({
            "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
            "message": format!("command terminated with non-zero exit code: exit status {code}"),
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
        }),
        Err(error) => {
            let mut status: serde_json::Value =
                serde_json::from_slice(&error.to_json()).unwrap_or_default();
            // As the others, without its type.
            if let Some(status) = status.as_object_mut() {
                status.retain(|member, _| !matches!(&**member, "kind" | "apiVersion"));
            }
            status
        }
    }
}

/// The outcome of a command that could not be run, as the client reads it.
pub(super) fn failure(error: ApiError) -> Vec<u8> {
    status(Err(error)).to_string().into_bytes()
}

/// A connection that is a WebSocket, as a server.
pub(super) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(io: S) -> WebSocketStream<S> {
    let config = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX));
    WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await
}

/// Runs a command over a WebSocket. `run` gets the streams, and returns the outcome as the client
/// reads it.
pub(super) async fn websocket<Fut>(
    io: impl AsyncRead + AsyncWrite + Unpin,
    wanted: StreamOptions,
    is_attach: bool,
    run: impl FnOnce(ContainerStreams) -> Fut,
) -> io::Result<()>
where
    Fut: Future<Output = Vec<u8>>,
{
    let (sink, mut messages) = accept(io).await.split();
    let (to_client, outgoing) = mpsc::channel(4);
    let (to_stdin, stdin) = tokio::io::duplex(BUFFER_BYTES);
    let (stdout, from_stdout) = tokio::io::duplex(BUFFER_BYTES);
    let (stderr, from_stderr) = tokio::io::duplex(BUFFER_BYTES);
    let (to_sizes, sizes) = mpsc::channel(4);
    let (has_stdout, has_stderr) = (wanted.stdout, wanted.stderr);
    let mut to_stdin = wanted.stdin.then_some(to_stdin);
    let streams = ContainerStreams {
        stdin: wanted.stdin.then(|| Box::new(stdin) as _),
        stdout: has_stdout.then(|| Box::new(stdout) as _),
        stderr: has_stderr.then(|| Box::new(stderr) as _),
        sizes: wanted.tty.then_some(sizes),
    };
    let work = async move {
        // The first message says that the connection is there.
        let first = if has_stdout {
            STDOUT
        } else if has_stderr {
            STDERR
        } else {
            OUTCOME
        };
        _ = to_client.send(message(first, b"")).await;
        let pump = async |is_wanted: bool, channel: u8, from| {
            if is_wanted {
                pump(from, channel, &to_client).await;
            }
        };
        let (outcome, (), ()) = tokio::join!(
            run(streams),
            pump(has_stdout, STDOUT, from_stdout),
            pump(has_stderr, STDERR, from_stderr),
        );
        // Fails only if the client has disconnected.
        _ = to_client.send(message(OUTCOME, &outcome)).await;
    };
    let read = async move {
        while let Some(message) = next(&mut messages).await? {
            match message.split_first() {
                Some((&STDIN, input)) => {
                    // A command that does not read its input to the end is no error.
                    if let Some(stdin) = &mut to_stdin
                        && stdin.write_all(input).await.is_err()
                    {
                        to_stdin = None;
                    }
                }
                Some((&CLOSE, [STDIN])) => to_stdin = None,
                Some((&RESIZE, size)) => {
                    if let Ok(size) = serde_json::from_slice::<TerminalSize>(size) {
                        // A size that finds no room is followed by newer ones.
                        _ = to_sizes.try_send(size);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    };
    let linger = if is_attach { CLOSE_TIME_MAX } else { COMMAND_TIME_MAX };
    converse(sink, outgoing, work, read, linger).await
}

/// The next message of a channel; `None` if the client has ended the conversation, and has an
/// answer to its Close message.
pub(super) async fn next<S: AsyncRead + AsyncWrite + Unpin>(
    messages: &mut SplitStream<WebSocketStream<S>>,
) -> io::Result<Option<Bytes>> {
    while let Some(message) = messages.next().await {
        match message.map_err(io::Error::other)? {
            Message::Binary(bytes) => return Ok(Some(bytes)),
            Message::Text(text) => return Ok(Some(text.into())),
            // A Close message is answered when the next one is asked for: there is none.
            _ => {}
        }
    }
    Ok(None)
}

/// Talks with the client of a WebSocket: sends it what comes out of `outgoing`. Ends after `work`
/// and what it has sent. After a client that closes, `work` has the time `linger`, and nobody reads
/// what it sends; with the end of a client that does not, it ends. `read` owns its half of the
/// connection.
pub(super) async fn converse<S: AsyncRead + AsyncWrite + Unpin>(
    mut sink: SplitSink<WebSocketStream<S>, Message>,
    mut outgoing: mpsc::Receiver<Bytes>,
    work: impl Future<Output = ()>,
    read: impl Future<Output = io::Result<()>>,
    linger: Duration,
) -> io::Result<()> {
    let (has_closed, mut closed) = oneshot::channel::<()>();
    let write = async {
        let send = async {
            while let Some(message) = outgoing.recv().await {
                sink.send(Message::Binary(message)).await?;
            }
            sink.send(farewell()).await
        };
        let sent = tokio::select! {
            // A client that has closed may be sent nothing more, however ready the message is.
            biased;
            _ = &mut closed => Ok(()),
            sent = send => sent,
        };
        drop(sink);
        // Work that writes on is not to wait for a reader, also after a failure.
        while outgoing.recv().await.is_some() {}
        sent.map_err(io::Error::other)
    };
    let answer = async {
        let ((), written) = tokio::join!(work, write);
        written
    };
    let (mut answer, mut read) = (std::pin::pin!(answer), std::pin::pin!(read));
    tokio::select! {
        // Cancel safe: both are polled on, or dropped with the connection.
        answered = &mut answer => answered?,
        read = &mut read => {
            read?;
            // The connection is closed, too: nobody holds its halves.
            drop(has_closed);
            _ = tokio::time::timeout(linger, answer).await;
            return Ok(());
        }
    }
    // The client reads what is left, and closes its side.
    tokio::time::timeout(CLOSE_TIME_MAX, read).await.unwrap_or(Ok(()))
}

/// The message that ends a conversation.
pub(super) fn farewell() -> Message {
    Message::Close(Some(CloseFrame { code: CloseCode::Normal, reason: "".into() }))
}

/// A message of a channel.
pub(super) fn message(channel: u8, payload: &[u8]) -> Bytes {
    let mut message = Vec::with_capacity(payload.len() + 1);
    message.push(channel);
    message.extend_from_slice(payload);
    message.into()
}

/// Sends output as messages of a channel.
pub(super) async fn pump(mut from: impl AsyncRead + Unpin, channel: u8, to: &mpsc::Sender<Bytes>) {
    let mut buffer = vec![0; CHUNK_BYTES];
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        if to.send(message(channel, &buffer[..n])).await.is_err() {
            return;
        }
    }
}

/// Runs a command over the streams of a SPDY connection.
pub(super) async fn over_spdy(mut incoming: Streams, call: Call) {
    let wanted = &call.wanted;
    let kinds = [
        ("error", true),
        ("stdin", wanted.stdin),
        ("stdout", wanted.stdout),
        ("stderr", wanted.stderr),
        ("resize", wanted.tty),
    ];
    let mut open: Vec<(&str, Stream)> = Vec::new();
    let opened = tokio::time::timeout(OPEN_TIME_MAX, async {
        while kinds
            .iter()
            .any(|(kind, is_wanted)| *is_wanted && open.iter().all(|(known, _)| known != kind))
        {
            let stream = incoming.recv().await?;
            let kind = stream.header("streamtype");
            if let Some((kind, _)) = kinds.iter().find(|(known, _)| *known == kind) {
                open.push((*kind, stream));
            }
        }
        Some(())
    });
    if !matches!(opened.await, Ok(Some(()))) {
        return;
    }
    let mut take = |kind: &str| {
        let idx = open.iter().position(|(known, _)| *known == kind)?;
        Some(open.swap_remove(idx).1.io)
    };
    let (to_sizes, sizes) = mpsc::channel(4);
    let resize = take("resize");
    let errors = take("error");
    let streams = ContainerStreams {
        stdin: take("stdin").map(|io| Box::new(io) as _),
        stdout: take("stdout").map(|io| Box::new(io) as _),
        stderr: take("stderr").map(|io| Box::new(io) as _),
        sizes: resize.is_some().then_some(sizes),
    };
    let read_sizes = async {
        let Some(resize) = resize else { return std::future::pending().await };
        let mut resize = BufReader::new(resize);
        let mut text = Vec::new();
        // One JSON object after the other, each in braces.
        while let Ok(byte) = resize.read_u8().await {
            text.push(byte);
            if byte == b'}' {
                if let Ok(size) = serde_json::from_slice(&text) {
                    _ = to_sizes.try_send(size);
                }
                text.clear();
            }
            if text.len() > 1024 {
                break;
            }
        }
        std::future::pending().await
    };
    // Further streams of the client are ignored.
    let refuse = async {
        while incoming.recv().await.is_some() {}
        std::future::pending::<()>().await;
    };
    let outcome = tokio::select! {
        // Cancel safe: the others only read what the client sends beside the command.
        outcome = call.outcome(streams) => outcome,
        () = read_sizes => return,
        () = refuse => return,
    };
    if let Some(mut errors) = errors {
        _ = errors.write_all(&outcome).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use tokio::io::DuplexStream;
    use tokio::time::Instant;

    type Client = WebSocketStream<DuplexStream>;

    async fn pair() -> (Client, DuplexStream) {
        let (client, server) = tokio::io::duplex(1 << 10);
        (WebSocketStream::from_raw_socket(client, Role::Client, None).await, server)
    }

    fn wanted() -> StreamOptions {
        StreamOptions { stdin: true, stdout: true, ..StreamOptions::default() }
    }

    /// Reads all input, writes it, and ends two seconds later.
    async fn cat(mut streams: ContainerStreams) -> Vec<u8> {
        let mut read = Vec::new();
        streams.stdin.take().unwrap().read_to_end(&mut read).await.unwrap();
        streams.stdout.take().unwrap().write_all(&read).await.unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
        read
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_closes_has_ended_the_input_and_the_command_goes_on() {
        let (mut client, server) = pair().await;
        let (start, read) = (Instant::now(), Cell::new(Vec::new()));
        let run = async |streams| {
            read.set(cat(streams).await);
            Vec::new()
        };
        let talk = async {
            for _ in 0..100 {
                client.send(Message::Binary(message(STDIN, &[7; 3000]))).await.unwrap();
            }
            client.send(farewell()).await.unwrap();
            let mut answers = Vec::new();
            while let Some(Ok(answer)) = client.next().await {
                answers.push(answer);
            }
            (answers, start.elapsed())
        };
        let (served, (answers, closed)) =
            tokio::join!(websocket(server, wanted(), false, run), talk);
        served.unwrap();
        assert_eq!(read.into_inner(), [7; 300_000], "nothing is lost");
        assert_eq!(answers.first(), Some(&Message::Binary(message(STDOUT, b""))));
        assert!(answers.last().is_some_and(Message::is_close), "{answers:?}");
        assert_eq!(closed, Duration::ZERO, "the connection does not wait for the command");
        assert_eq!(start.elapsed(), Duration::from_secs(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_without_a_client_ends_in_time() {
        for (is_attach, limit) in [(false, COMMAND_TIME_MAX), (true, CLOSE_TIME_MAX)] {
            let (mut client, server) = pair().await;
            let start = Instant::now();
            let run = |_streams| std::future::pending();
            let (served, sent) =
                tokio::join!(websocket(server, wanted(), is_attach, run), client.close(None));
            served.unwrap();
            sent.unwrap();
            assert_eq!(start.elapsed(), limit);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_ends_with_a_client_that_disconnects() {
        let (client, server) = pair().await;
        let (start, has_ended) = (Instant::now(), Cell::new(false));
        let run = async |streams| {
            cat(streams).await;
            has_ended.set(true);
            Vec::new()
        };
        drop(client);
        assert!(websocket(server, wanted(), false, run).await.is_err());
        assert_eq!((start.elapsed(), has_ended.into_inner()), (Duration::ZERO, false));
    }
}
