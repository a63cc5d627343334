//! Who is told of dials through proxies.

use std::fmt;
use std::time::Duration;

/// How a proxy is asked for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// `CONNECT`.
    HttpConnect,
    /// A tunnel of konnectivity.
    Grpc,
}

impl Protocol {
    /// The name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::HttpConnect => "http_connect",
            Self::Grpc => "grpc",
        }
    }
}

/// How a proxy is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// Over TCP.
    Tcp,
    /// Over a Unix socket.
    Uds,
}

impl Transport {
    /// The name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Uds => "uds",
        }
    }
}

/// Where a dial has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// On the way to the proxy.
    Connect,
    /// At the proxy, or behind it.
    Proxy,
}

impl Stage {
    /// The name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Proxy => "proxy",
        }
    }
}

/// The direction of a packet in a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Segment {
    /// To the proxy.
    FromClient,
    /// From the proxy.
    ToClient,
}

impl Segment {
    /// The name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::FromClient => "from_client",
            Self::ToClient => "to_client",
        }
    }
}

/// Where a tunnel is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TunnelStatus {
    /// The stream to the proxy is there.
    Created,
    /// The proxy has been asked for a connection.
    Dialing,
    /// There is a connection.
    Ok,
    /// A close has been sent.
    Closing,
}

impl TunnelStatus {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Created, Self::Dialing, Self::Ok, Self::Closing];

    /// The name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Dialing => "dialing",
            Self::Ok => "ok",
            Self::Closing => "closing",
        }
    }
}

/// Why a tunnel has no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DialFailure {
    /// Nobody waits any more: the time of who dials is over.
    Context,
    /// The proxy could not connect.
    Endpoint,
    /// The proxy has given up.
    DialClosed,
    /// The stream has ended.
    TunnelClosed,
    /// The stream takes no packets.
    Unknown,
}

impl DialFailure {
    /// The name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Context => "context",
            Self::Endpoint => "endpoint",
            Self::DialClosed => "dialclosed",
            Self::TunnelClosed => "tunnelclosed",
            Self::Unknown => "unknown",
        }
    }
}

/// Is told of dials through proxies, and of tunnels. Must not block.
pub trait DialObserver: fmt::Debug + Send + Sync {
    /// A dial has begun.
    fn started(&self, protocol: Protocol, transport: Transport);
    /// A dial has failed.
    fn failed(&self, protocol: Protocol, transport: Transport, stage: Stage);
    /// A dial took this long, and there is a connection.
    fn dialed(&self, protocol: Protocol, transport: Transport, took: Duration);
    /// A tunnel goes from one status to the next; `None`: before its begin and after its end.
    fn tunnel(&self, from: Option<TunnelStatus>, to: Option<TunnelStatus>);
    /// A tunnel has failed to get a connection.
    fn tunnel_failed(&self, why: DialFailure);
    /// A packet has been sent or received; `kind` is konnectivity's word for it, or `Unknown`.
    fn packet(&self, segment: Segment, kind: &'static str);
    /// The stream of a tunnel broke with a status instead of a packet; `code` is gRPC's word for
    /// it.
    fn stream_failed(&self, segment: Segment, code: &'static str);
}

/// Tells nobody.
impl DialObserver for () {
    fn started(&self, _: Protocol, _: Transport) {}
    fn failed(&self, _: Protocol, _: Transport, _: Stage) {}
    fn dialed(&self, _: Protocol, _: Transport, _: Duration) {}
    fn tunnel(&self, _: Option<TunnelStatus>, _: Option<TunnelStatus>) {}
    fn tunnel_failed(&self, _: DialFailure) {}
    fn packet(&self, _: Segment, _: &'static str) {}
    fn stream_failed(&self, _: Segment, _: &'static str) {}
}
