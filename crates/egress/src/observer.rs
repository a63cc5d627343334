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

/// Is told of dials through proxies. Must not block.
pub trait DialObserver: fmt::Debug + Send + Sync {
    /// A dial has begun.
    fn started(&self, protocol: Protocol, transport: Transport);
    /// A dial has failed.
    fn failed(&self, protocol: Protocol, transport: Transport, stage: Stage);
    /// A dial took this long, and there is a connection.
    fn dialed(&self, protocol: Protocol, transport: Transport, took: Duration);
}

/// Tells nobody.
impl DialObserver for () {
    fn started(&self, _: Protocol, _: Transport) {}
    fn failed(&self, _: Protocol, _: Transport, _: Stage) {}
    fn dialed(&self, _: Protocol, _: Transport, _: Duration) {}
}
