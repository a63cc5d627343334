//! What a peer may cost.

use std::time::Duration;

/// How long a TLS handshake may take.
pub const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// Bytes of a request's head: 1 MiB, as Go's server and controller-runtime (MGR-23).
pub const HEAD_BYTES_MAX: u32 = 1024 * 1024;

/// Header lines of a request.
pub const HEADERS_MAX: usize = 200;

/// Streams of one HTTP/2 connection at once; 250 is what Go's server and client expect.
pub const STREAMS_MAX: u32 = 250;

/// How often an idle HTTP/2 connection is asked whether it lives.
pub const PING_INTERVAL: Duration = Duration::from_secs(30);

/// How long it may take to answer.
pub const PING_MAX: Duration = Duration::from_secs(15);

/// How long a peer may take in no byte of what is ready for it. A watcher that stopped reading ends
/// here; what it missed it finds by its last resourceVersion.
pub const STALL_MAX: Duration = Duration::from_secs(30);

/// How long a connection that idled for too long may take to end.
pub const LAST_WORDS_MAX: Duration = Duration::from_secs(5);

/// How long a client may take to send the rest of a body that nobody reads.
pub const LEFTOVER_WAIT_MAX: Duration = Duration::from_secs(5);

/// Bytes that are discarded after a connection was closed on its side that answers: a client that
/// writes all of its request before it reads finds the answer. 64 MiB, twenty times the largest
/// body that Kubernetes' API takes; more is cut off.
pub const LINGER_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// How long such a client may take for all of it, and between two of its bytes: 30 s and 5 s, as
/// nginx's `lingering_time` and `lingering_timeout`.
pub const LINGER_MAX: Duration = Duration::from_secs(30);
/// See [`LINGER_MAX`].
pub const LINGER_PAUSE_MAX: Duration = Duration::from_secs(5);

/// What servers differ in. The rest of what bounds them is in the constants of this crate.
///
/// ```
/// use setpoint_serve::Limits;
///
/// let limits = Limits { connections_max: 256, ..Limits::default() };
/// # assert_eq!(limits.connections_max, 256);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once; more wait to be accepted. Default: 1024.
    pub connections_max: usize,
    /// How many of them may be unauthenticated: of these the oldest ends when another peer
    /// connects, whatever it does. A verified client certificate authenticates a connection, and so
    /// does [`ConnectionPlace::authenticated`](crate::ConnectionPlace). Should be less than
    /// `connections_max`. Default: `None`, all connections are alike.
    pub unauthenticated_max: Option<usize>,
    /// How long the head of an HTTP/1 request may take, from its first byte; for the first of a
    /// connection, from the connection's begin. Over HTTP/2, how long the client's preface and its
    /// first request may take. Default: 32 s, as controller-runtime (MGR-23).
    pub head_max: Duration,
    /// How long an HTTP/1 connection may be without a request. What is still being taken in of an
    /// answer counts as one. Default: 90 s, as controller-runtime (MGR-23).
    pub idle_max: Duration,
    /// The same over HTTP/2, where bytes that make no request, as pings are, do not prolong it.
    /// `None`: it may stay for as long as it answers pings. Default: 90 s.
    pub http2_idle_max: Option<Duration>,
    /// How much is read of a body that the function left unread, so that the connection can go on.
    /// An HTTP/1 connection with more of it is closed, and lingers: [`LINGER_BYTES_MAX`]. Default:
    /// 256 KiB, as Go's server.
    pub leftover_bytes_max: usize,
    /// How long connections may finish what they are answering after `stop`. Default: 1 min, as
    /// controller-runtime (MGR-23).
    pub drain_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 1024,
            unauthenticated_max: None,
            head_max: Duration::from_secs(32),
            idle_max: Duration::from_secs(90),
            http2_idle_max: Some(Duration::from_secs(90)),
            leftover_bytes_max: 256 * 1024,
            drain_max: Duration::from_secs(60),
        }
    }
}
