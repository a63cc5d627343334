//! What the API server asks a node: logs, commands, connections.

use crate::guard::{CONTAINER_MARK, GroupGuard, kill_marked};
use crate::logs::Log;
use crate::probe::code;
use crate::shared::{Shared, Surroundings};
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::BoxStream;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use setpoint_apiserver::{
    ContainerRef, ContainerStreams, ExecOptions, LogOptions, NodeAgent, PodConnection, PodRef,
    TerminalSize,
};
use setpoint_object::ApiError;
use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::broadcast::error::RecvError;

/// The time for the rest of the output of a command that has ended.
const OUTPUT_TIME_MAX: Duration = Duration::from_secs(2);

/// Serves the pods of this process.
#[derive(Debug, Clone)]
pub(crate) struct Agent(pub(crate) Arc<Shared>);

impl Agent {
    fn surroundings(&self, of: &ContainerRef) -> Result<Arc<Surroundings>, ApiError> {
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
        let taken = pod.as_ref().and_then(|pod| {
            let mut containers = pod.containers.lock();
            let visible = containers.get_mut(&container.container)?;
            let stdin = if streams.stdin.is_some() { visible.stdin.take() } else { None };
            Some((visible.log.clone()?, stdin))
        });
        async move {
            let (log, stdin) = taken.ok_or_else(|| not_running(&container))?;
            attach(log, stdin, streams).await;
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
            let connected = match TcpStream::connect((found.ip, port)).await {
                Ok(connected) => Ok(connected),
                Err(_) => TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await,
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

/// Copies until the end; that the other side is gone is no error.
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
    surroundings: &Surroundings,
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
    surroundings: &Surroundings,
    words: &[String],
    streams: ContainerStreams,
) -> io::Result<i32> {
    let own = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&own)?;
    unlockpt(&own)?;
    let name = ptsname(&own, Vec::new())?;
    let name = name.to_str().map_err(io::Error::other)?.to_owned();
    let terminal = File::options().read(true).write(true).open(name)?;
    // The program that makes the terminal that of the command's session.
    let words: Vec<String> = ["setsid", "--ctty", "--wait"]
        .map(str::to_owned)
        .into_iter()
        .chain(words.to_vec())
        .collect();
    let mut command = surroundings.command(&words);
    command.env("TERM", "xterm");
    command.stdin(terminal.try_clone()?).stdout(terminal.try_clone()?).stderr(terminal);
    let mut child = command.spawn()?;
    // The terminal ends when the command's side of it is closed everywhere.
    drop(command);
    let mut group = GroupGuard(child.id());
    let size_of: OwnedFd = own.try_clone()?;
    let mut from = tokio::fs::File::from_std(File::from(own.try_clone()?));
    let mut to = tokio::fs::File::from_std(File::from(own));
    let input = async {
        if let Some(mut stdin) = streams.stdin {
            _ = tokio::io::copy(&mut stdin, &mut to).await;
        }
        std::future::pending::<()>().await;
    };
    let sizes = async {
        if let Some(mut sizes) = streams.sizes {
            while let Some(TerminalSize { width, height }) = sizes.recv().await {
                let size = Winsize { ws_col: width, ws_row: height, ws_xpixel: 0, ws_ypixel: 0 };
                // The terminal may be closed.
                _ = tcsetwinsize(&size_of, size);
            }
        }
        std::future::pending::<()>().await;
    };
    let output = async {
        match streams.stdout {
            // Ends with an error when the terminal is closed.
            Some(mut stdout) => _ = tokio::io::copy(&mut from, &mut stdout).await,
            None => _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await,
        }
    };
    let mut output = std::pin::pin!(output);
    let (mut input, mut sizes) = (std::pin::pin!(input), std::pin::pin!(sizes));
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

/// Passes on output from now on, and input, until the container ends.
async fn attach(log: Log, stdin: Option<tokio::process::ChildStdin>, streams: ContainerStreams) {
    let ContainerStreams { stdin: from, stdout: mut out, stderr: mut err, .. } = streams;
    let mut lines = log.lines.subscribe();
    let input = async {
        if let (Some(mut from), Some(mut to)) = (from, stdin) {
            _ = tokio::io::copy(&mut from, &mut to).await;
        }
        std::future::pending::<()>().await;
    };
    let output = async {
        loop {
            let line = tokio::select! {
                biased;
                // Cancel safe: a line is taken whole.
                line = lines.recv() => line,
                () = log.closed_for_good() => return,
            };
            let line = match line {
                Ok(line) => line,
                // The client reads too slowly: lines are lost, as documented.
                Err(RecvError::Lagged(_)) => continue,
                Err(RecvError::Closed) => return,
            };
            let to = if line.is_error { &mut err } else { &mut out };
            let Some(to) = to else { continue };
            if to.write_all(&line.bytes()).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        // Cancel safe: the client is gone, or the container has ended.
        () = output => {}
        () = input => {}
    }
}
