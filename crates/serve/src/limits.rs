//! Limits per peer and per server.

use std::time::Duration;

/// Maximum time of a TLS handshake.
pub const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// Maximum size of a request's head: 1 MiB, as in Go's server and controller-runtime (MGR-23).
pub const HEAD_BYTES_MAX: u32 = 1024 * 1024;

/// Maximum number of headers of an HTTP/1 request. Go's server limits their bytes only; a proxy
/// sends one header for each group of a user, and some users are in a thousand. Room for all of
/// them is reserved for each request: 128 KiB.
pub const HEADERS_MAX: usize = 2048;

/// Default of [`Limits::streams_max`]: 250, which Go's server and client expect.
pub const STREAMS_MAX: u32 = 250;

/// Period of pings on an idle HTTP/2 connection.
pub const PING_INTERVAL: Duration = Duration::from_secs(30);

/// Maximum time to respond to a ping.
pub const PING_MAX: Duration = Duration::from_secs(15);

/// Maximum time for which a peer may read nothing of the data that is ready. It closes a watcher
/// that stopped reading, which can resume from its last resourceVersion.
pub const STALL_MAX: Duration = Duration::from_secs(30);

/// Maximum time for closing an idle connection gracefully.
pub const LAST_WORDS_MAX: Duration = Duration::from_secs(5);

/// Maximum time for a client to send the rest of an unread body.
pub const LEFTOVER_WAIT_MAX: Duration = Duration::from_secs(5);

/// Maximum bytes that are discarded after the sending side was closed, so that a client that writes
/// its whole request before it reads still gets the response. 64 MiB, twenty times the largest body
/// that Kubernetes' API accepts; beyond it the connection is closed.
pub const LINGER_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Maximum time for such a client in all, and between two of its bytes: 30 s and 5 s, as nginx's
/// `lingering_time` and `lingering_timeout`.
pub const LINGER_MAX: Duration = Duration::from_secs(30);
/// See [`LINGER_MAX`].
pub const LINGER_PAUSE_MAX: Duration = Duration::from_secs(5);

/// Limits that differ between servers. The other limits are constants of this crate.
///
/// ```
/// use setpoint_serve::Limits;
///
/// let limits = Limits { connections_max: 256, ..Limits::default() };
/// # assert_eq!(limits.connections_max, 256);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of connections; more wait to be accepted. Default: 1024.
    pub connections_max: usize,
    /// Maximum number of unauthenticated connections. When another peer connects, the oldest of
    /// them is closed, even in the middle of a request. A connection is authenticated by
    /// [`ConnectionSlot::authenticated`](crate::ConnectionSlot), which the function calls; a client
    /// certificate alone is not enough. Should be less than `connections_max`. Default: `None`, all
    /// connections are alike.
    pub unauthenticated_max: Option<usize>,
    /// Maximum time for the head of an HTTP/1 request, from its first byte, and for the first of a
    /// connection from the connection's start. Over HTTP/2, maximum time for the client's preface
    /// and its first request. Default: 32 s, as controller-runtime (MGR-23).
    pub head_max: Duration,
    /// Maximum time of an HTTP/1 connection without a request. A response that is still being sent
    /// counts as a request. Default: 90 s, as controller-runtime (MGR-23).
    pub idle_max: Duration,
    /// The same over HTTP/2, where bytes outside of requests, such as pings, do not extend it.
    /// `None`: no limit while the peer responds to pings. Default: 90 s.
    pub http2_idle_max: Option<Duration>,
    /// Maximum number of concurrent streams of an HTTP/2 connection, of which the peer is told.
    /// Default: [`STREAMS_MAX`].
    pub streams_max: u32,
    /// Maximum bytes that are read of a body that the function left unread, so that the connection
    /// can be reused. An HTTP/1 connection with more is closed, and lingers: [`LINGER_BYTES_MAX`].
    /// Default: 256 KiB, as Go's server.
    pub leftover_bytes_max: usize,
    /// Maximum time for connections to finish requests after `stop`. Default: 1 min, as
    /// controller-runtime (MGR-23).
    pub drain_max: Duration,
    /// How many times as fast as the peers' the server's time may pass: the timeouts of peers are
    /// that many times as long. For servers whose time is advanced. Default: 1.
    pub pace: u32,
}

impl Limits {
    /// A timeout of a peer, by the server's time.
    pub(crate) fn of_peer(&self, timeout: Duration) -> Duration {
        timeout.saturating_mul(self.pace)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 1024,
            unauthenticated_max: None,
            head_max: Duration::from_secs(32),
            idle_max: Duration::from_secs(90),
            http2_idle_max: Some(Duration::from_secs(90)),
            streams_max: STREAMS_MAX,
            leftover_bytes_max: 256 * 1024,
            drain_max: Duration::from_secs(60),
            pace: 1,
        }
    }
}
