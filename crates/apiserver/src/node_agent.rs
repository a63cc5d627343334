//! Node agents, which serve the streams of pods: `log`, `exec`, `attach`, `portforward`.

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use setpoint_object::ApiError;
use setpoint_object::time::Timestamp;
use std::fmt;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

/// What runs the containers of some nodes, as a kubelet does: it serves the streams of their pods.
///
/// The server has read the pod, authorized the request and run admission. It speaks the clients'
/// protocols (WebSocket with the channels of `v5` and `v4.channel.k8s.io`, and SPDY); an agent
/// sees plain streams of bytes. A future is dropped when the client goes away: then the agent ends
/// what the future began.
pub trait NodeAgent: Send + Sync {
    /// Whether it runs the pods of a node. The first agent that does is called.
    fn serves(&self, node: &str) -> bool;

    /// The log of a container: lines, each with its newline.
    ///
    /// # Errors
    ///
    /// The `Status` for the client, such as 400 for a container that has not started.
    fn logs(
        &self,
        container: ContainerRef,
        options: LogOptions,
    ) -> BoxFuture<'static, Result<BoxStream<'static, Bytes>, ApiError>>;

    /// Runs a command beside a container's process, and returns its exit code. All output is
    /// written when the future ends.
    ///
    /// # Errors
    ///
    /// The command could not be started.
    fn exec(
        &self,
        container: ContainerRef,
        options: ExecOptions,
        streams: ContainerStreams,
    ) -> BoxFuture<'static, Result<i32, ApiError>>;

    /// Connects to a container's own process until it ends.
    ///
    /// # Errors
    ///
    /// The container does not run.
    fn attach(
        &self,
        container: ContainerRef,
        streams: ContainerStreams,
    ) -> BoxFuture<'static, Result<(), ApiError>>;

    /// Connects to a port of a pod.
    ///
    /// # Errors
    ///
    /// Nothing listens there.
    fn forward(
        &self,
        pod: PodRef,
        port: u16,
    ) -> BoxFuture<'static, Result<Box<dyn PodConnection>, ApiError>>;
}

/// How many streams of pods are open at the same time: each log that is read, each command, each
/// `attach`, each client of `portforward` and each connection that it forwards counts as one.
/// Further ones are refused with 429. These, and proxied requests to pods, Services and nodes, are
/// also counted by user and in all; those of `system:masters` are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct StreamLimits {
    pub(crate) per_pod: usize,
    pub(crate) per_node: usize,
    pub(crate) per_user: usize,
    pub(crate) all: usize,
}

/// 64 of a pod, 512 of the pods of a node, 1024 of a user, and 8192 of all users.
impl Default for StreamLimits {
    fn default() -> Self {
        Self { per_pod: 64, per_node: 512, per_user: 1024, all: 8192 }
    }
}

impl StreamLimits {
    /// Maximum streams of one pod. Default: 64.
    pub fn per_pod(mut self, n: usize) -> Self {
        self.per_pod = n;
        self
    }

    /// Maximum streams of all pods of one node. Default: 512.
    pub fn per_node(mut self, n: usize) -> Self {
        self.per_node = n;
        self
    }

    /// Maximum streams and proxied requests of one user. Those of `system:masters` are not limited.
    /// Default: 1024.
    pub fn per_user(mut self, n: usize) -> Self {
        self.per_user = n;
        self
    }

    /// Maximum streams and proxied requests of all users together. Those of `system:masters` do not
    /// count. Default: 8192.
    pub fn all(mut self, n: usize) -> Self {
        self.all = n;
        self
    }
}

/// A pod on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PodRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// The node that it is bound to.
    pub node: String,
}

/// A container of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContainerRef {
    /// The pod.
    pub pod: PodRef,
    /// The name of the container, which is in the pod's spec.
    pub container: String,
}

/// Which lines of a log, as in `PodLogOptions`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogOptions {
    /// Continues with new lines until the container ends.
    pub follow: bool,
    /// The log of the run before the last restart.
    pub previous: bool,
    /// Lines written at this time or later.
    pub since: Option<Timestamp>,
    /// The last lines.
    pub tail: Option<u64>,
    /// The most bytes.
    pub limit_bytes: Option<u64>,
    /// Each line begins with its time.
    pub timestamps: bool,
    /// Lines of which output.
    pub stream: LogStream,
}

/// The output of a container that a log is of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogStream {
    /// Both.
    #[default]
    All,
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl LogStream {
    /// By the name in `PodLogOptions`.
    pub(crate) const NAMES: [(&str, Self); 3] =
        [("All", Self::All), ("Stderr", Self::Stderr), ("Stdout", Self::Stdout)];
}

/// How a command runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExecOptions {
    /// The program and its arguments; at least one word.
    pub command: Vec<String>,
    /// With a terminal. Its output comes on `stdout`.
    pub tty: bool,
}

/// The standard streams of a command.
#[derive(Default)]
#[non_exhaustive]
pub struct ContainerStreams {
    /// Input; `None`: empty.
    pub stdin: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// Output; `None`: nobody reads it.
    pub stdout: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// Errors; `None`: nobody reads them, or there is a terminal.
    pub stderr: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// Sizes of the client's terminal.
    pub sizes: Option<mpsc::Receiver<TerminalSize>>,
}

impl fmt::Debug for ContainerStreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContainerStreams")
            .field("stdin", &self.stdin.is_some())
            .field("stdout", &self.stdout.is_some())
            .field("stderr", &self.stderr.is_some())
            .field("sizes", &self.sizes.is_some())
            .finish()
    }
}

/// The size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct TerminalSize {
    /// Columns.
    pub width: u16,
    /// Rows.
    pub height: u16,
}

/// A connection to a port of a pod, such as a `tokio::net::TcpStream`.
pub trait PodConnection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> PodConnection for T {}

/// How far back lines are returned.
pub(crate) fn since(now: Timestamp, seconds: u64) -> Timestamp {
    Timestamp(now.0.saturating_sub(Duration::from_secs(seconds)))
}
