//! What the API server asks a node: logs, commands, connections.

use crate::guard::{CONTAINER_MARK, GroupGuard, kill_marked};
use crate::logs::Log;
use crate::probe::code;
use crate::shared::{CommandEnvironment, Input, Shared};
use crate::terminal::Terminal;
use bytes::{Bytes, BytesMut};
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::BoxStream;
use setpoint_apiserver::{
    ContainerRef, ContainerStreams, ExecOptions, LogOptions, NodeAgent, PodConnection, PodRef,
    TerminalSize,
};
use setpoint_object::ApiError;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;

/// The time for the rest of the output of a command that has ended.
const OUTPUT_TIME_MAX: Duration = Duration::from_secs(2);

/// Room for a piece of input of an attached client.
const INPUT_BYTES: usize = 4 << 10;
/// How long a port of a pod may take to accept a connection.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// Serves the pods of this process.
#[derive(Debug, Clone)]
pub(crate) struct Agent(pub(crate) Arc<Shared>);

impl Agent {
    fn surroundings(&self, of: &ContainerRef) -> Result<Arc<CommandEnvironment>, ApiError> {
        let pod = self.0.pod(&of.pod.uid);
        let found = pod.and_then(|pod| {
            pod.containers.lock().get(&of.container).and_then(|one| one.surroundings.clone())
        });
        found.ok_or_else(|| not_running(of))
    }

    fn log(&self, of: &ContainerRef, is_previous: bool) -> Option<Log> {
        let pod = self.0.pod(&of.pod.uid)?;
        let containers = pod.containers.lock();
        let visible = containers.get(&of.container)?;
        if is_previous { visible.previous.clone() } else { visible.log.clone() }
    }
}

fn not_running(of: &ContainerRef) -> ApiError {
    ApiError::internal(format!("container not found (\"{}\")", of.container))
}

impl NodeAgent for Agent {
    fn serves(&self, node: &str) -> bool {
        self.0.nodes.contains(node)
    }

    fn logs(
        &self,
        container: ContainerRef,
        options: LogOptions,
    ) -> BoxFuture<'static, Result<BoxStream<'static, Bytes>, ApiError>> {
        let log = self.log(&container, options.previous);
        async move {
            let Some(log) = log else {
                let ContainerRef { pod, container, .. } = container;
                let what =
                    if options.previous { "previous terminated container" } else { "container" };
                let message = format!("{what} \"{container}\" in pod \"{}\" not found", pod.name);
                return Err(ApiError::bad_request(message));
            };
            log.read(&options).await.map_err(ApiError::internal)
        }
        .boxed()
    }

    fn exec(
        &self,
        container: ContainerRef,
        options: ExecOptions,
        streams: ContainerStreams,
    ) -> BoxFuture<'static, Result<i32, ApiError>> {
        let surroundings = self.surroundings(&container);
        let n = self.0.n_commands.fetch_add(1, Ordering::Relaxed);
        async move {
            let mut surroundings = (*surroundings?).clone();
            // A mark of its own, so that its end ends all that it started.
            let mark = format!("{}.{}.exec.{n}", container.pod.uid, container.container);
            surroundings.env.retain(|(name, _)| name != CONTAINER_MARK);
            surroundings.env.push((CONTAINER_MARK.to_owned(), mark.clone()));
            let ended = match options.tty {
                true => in_terminal(&surroundings, &options.command, streams).await,
                false => with_pipes(&surroundings, &options.command, streams).await,
            };
            kill_marked(CONTAINER_MARK, mark).await;
            match ended {
                Ok(code) => Ok(code),
                // As a shell says it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let program = options.command.first().cloned().unwrap_or_default();
                    let message = format!("exec: {program:?}: executable file not found");
                    Err(ApiError::internal(message))
                }
                Err(error) => Err(ApiError::internal(error)),
            }
        }
        .boxed()
    }

    fn attach(
        &self,
        container: ContainerRef,
        streams: ContainerStreams,
    ) -> BoxFuture<'static, Result<(), ApiError>> {
        let pod = self.0.pod(&container.pod.uid);
        let found = pod.as_ref().and_then(|pod| {
            let containers = pod.containers.lock();
            let visible = containers.get(&container.container)?;
            let log = visible.log.clone().filter(|_| visible.surroundings.is_some())?;
            Some((log, visible.input.clone(), visible.terminal.clone()))
        });
        async move {
            let (log, input, terminal) = found.ok_or_else(|| not_running(&container))?;
            attach(log, input, terminal, streams).await;
            Ok(())
        }
        .boxed()
    }

    fn forward(
        &self,
        pod: PodRef,
        port: u16,
    ) -> BoxFuture<'static, Result<Box<dyn PodConnection>, ApiError>> {
        let found = self.0.pod(&pod.uid);
        async move {
            let found = found.ok_or_else(|| ApiError::internal("the pod does not run"))?;
            // A server that listens on its pod's address, or on loopback only.
            let connected = match connect(found.ip.into(), port).await {
                Ok(connected) => Ok(connected),
                Err(_) => connect(Ipv4Addr::LOCALHOST.into(), port).await,
            };
            match connected {
                Ok(connected) => Ok(Box::new(connected) as Box<dyn PodConnection>),
                Err(error) => {
                    let message = format!("failed to connect to {}:{port}: {error}", found.ip);
                    Err(ApiError::internal(message))
                }
            }
        }
        .boxed()
    }
}

/// Connects to a port of this machine. A server that accepts nothing has a full queue.
async fn connect(address: IpAddr, port: u16) -> io::Result<TcpStream> {
    let connected = tokio::time::timeout(CONNECT_MAX, TcpStream::connect((address, port))).await;
    connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Copies until the end; a disconnect of the other side is not an error.
async fn copy(
    from: Option<impl AsyncRead + Unpin>,
    to: Option<Box<dyn AsyncWrite + Send + Unpin>>,
) {
    let Some(mut from) = from else { return };
    match to {
        Some(mut to) => {
            _ = tokio::io::copy(&mut from, &mut to).await;
            _ = to.shutdown().await;
        }
        None => _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await,
    }
}

async fn with_pipes(
    surroundings: &CommandEnvironment,
    words: &[String],
    streams: ContainerStreams,
) -> io::Result<i32> {
    let mut command = surroundings.command(words);
    let has_stdin = streams.stdin.is_some();
    command.stdin(if has_stdin { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let mut group = GroupGuard(child.id());
    let (to_stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let input = async {
        if let (Some(mut from), Some(mut to)) = (streams.stdin, to_stdin) {
            // A command need not read all of it.
            _ = tokio::io::copy(&mut from, &mut to).await;
        }
        std::future::pending::<()>().await;
    };
    let output = async {
        tokio::join!(copy(stdout, streams.stdout), copy(stderr, streams.stderr));
    };
    let mut output = std::pin::pin!(output);
    let mut has_output = true;
    let mut input = std::pin::pin!(input);
    let status = loop {
        tokio::select! {
            // Cancel safe: the futures live across iterations.
            ended = child.wait() => break ended?,
            () = &mut output, if has_output => has_output = false,
            () = &mut input => {}
        }
    };
    group.finish();
    if has_output {
        _ = tokio::time::timeout(OUTPUT_TIME_MAX, output).await;
    }
    Ok(code(status))
}

/// Runs a command in a terminal of its own.
async fn in_terminal(
    surroundings: &CommandEnvironment,
    words: &[String],
    streams: ContainerStreams,
) -> io::Result<i32> {
    let (mut terminal, side) = Terminal::open()?;
    let mut command = surroundings.terminal_command(words, side)?;
    let mut child = command.spawn()?;
    // The terminal ends when the command's side of it is closed everywhere.
    drop(command);
    let mut group = GroupGuard(child.id());
    let (mut to, size_of) = (terminal.clone(), terminal.clone());
    let input = async {
        if let Some(mut stdin) = streams.stdin {
            _ = tokio::io::copy(&mut stdin, &mut to).await;
        }
        std::future::pending::<()>().await;
    };
    let output = async {
        match streams.stdout {
            Some(mut stdout) => _ = tokio::io::copy(&mut terminal, &mut stdout).await,
            None => _ = tokio::io::copy(&mut terminal, &mut tokio::io::sink()).await,
        }
    };
    let mut output = std::pin::pin!(output);
    let mut input = std::pin::pin!(input);
    let mut sizes = std::pin::pin!(resize(Some(size_of), streams.sizes));
    let mut has_output = true;
    let status = loop {
        tokio::select! {
            // Cancel safe: the futures live across iterations.
            ended = child.wait() => break ended?,
            () = &mut output, if has_output => has_output = false,
            () = &mut input => {}
            () = &mut sizes => {}
        }
    };
    group.finish();
    if has_output {
        _ = tokio::time::timeout(OUTPUT_TIME_MAX, output).await;
    }
    Ok(code(status))
}

/// Gives a terminal the sizes of a client's; never returns.
async fn resize(terminal: Option<Terminal>, sizes: Option<mpsc::Receiver<TerminalSize>>) {
    if let (Some(terminal), Some(mut sizes)) = (terminal, sizes) {
        while let Some(size) = sizes.recv().await {
            terminal.resize(size);
        }
    }
    std::future::pending::<()>().await;
}

/// Passes on output from now on, and input, until the container ends.
async fn attach(
    log: Log,
    input: Option<Input>,
    terminal: Option<Terminal>,
    streams: ContainerStreams,
) {
    let ContainerStreams { stdin: from, stdout: mut out, stderr: mut err, sizes, .. } = streams;
    let mut pieces = log.output.subscribe();
    let input = async {
        if let (Some(mut from), Some(input)) = (from, input) {
            // Also when the client is gone.
            let _end = input.is_once.then(|| input.end.clone().drop_guard());
            let mut buffer = BytesMut::with_capacity(INPUT_BYTES);
            while let Ok(1..) = from.read_buf(&mut buffer).await {
                if input.bytes.send(buffer.split().freeze()).await.is_err() {
                    break;
                }
            }
        }
        std::future::pending::<()>().await;
    };
    let output = async {
        loop {
            let piece = tokio::select! {
                biased;
                // Cancel safe: a piece is taken whole.
                piece = pieces.recv() => piece,
                () = log.closed_for_good() => return,
            };
            let piece = match piece {
                Ok(piece) => piece,
                // The client reads too slowly: output is lost, as documented.
                Err(RecvError::Lagged(_)) => continue,
                Err(RecvError::Closed) => return,
            };
            let to = if piece.is_error { &mut err } else { &mut out };
            let Some(to) = to else { continue };
            if to.write_all(&piece.bytes).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        // Cancel safe: the client is gone, or the container has ended.
        () = output => {}
        () = input => {}
        () = resize(terminal, sizes) => {}
    }
}
