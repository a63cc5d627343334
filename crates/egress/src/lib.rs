//! Connections through proxies, by the kind of traffic.
//!
//! # Theory
//!
//! An API server whose nodes are in another network reaches them through a proxy. Kubernetes'
//! `EgressSelectorConfiguration` says which, for each [kind of traffic](EgressType):
//!
//! ```text
//! file ─ EgressConfig ─ selector() ─▶ EgressSelector ─ dialer(EgressType) ─▶ Dialer
//!        checked                                                              │ dial(host, port)
//!                                    ┌────────────────────────────────────────┤
//!                                    │ Direct: TCP                            │
//!                                    │ HTTPConnect: TCP with TLS, or a Unix socket; `CONNECT host:port`
//!                                    └ GRPC: a Unix socket; a tunnel of konnectivity
//! ```
//!
//! The proxy gets the name of a host, and looks it up.
//!
//! A **tunnel** is one gRPC stream on a connection of its own: `DIAL_REQ` is answered by
//! `DIAL_RSP`, bytes travel in `DATA`, and `CLOSE_REQ` is answered by `CLOSE_RSP`. Flow control is
//! that of HTTP/2: who reads slowly slows the sender. A tunnel has no half-closed state, so that
//! shutting the writing half down closes it; what is on its way back still arrives. Its tasks end
//! with it.
//!
//! | limit | of |
//! |---|---|
//! | [`FILE_BYTES_MAX`] | the configuration |
//! | [`HEAD_BYTES_MAX`] | the head of a proxy's answer |
//! | [`PACKET_BYTES_MAX`] | a packet that a tunnel receives |
//! | [`WAITING_BYTES_MAX`] | bytes that a tunnel holds in each direction, beside one packet |
//! | [`CLOSE_MAX`] | time that the answer to a close may take |
//!
//! The time of a dial is bounded by who dials.
//!
//! Sources: Kubernetes' `apiserver/pkg/server/egressselector`, and
//! `apiserver-network-proxy/konnectivity-client`.

mod config;
mod http_connect;
mod observer;
mod packets;
mod proxy;
mod tunnel;

pub use config::{EgressConfig, EgressConfigError, FILE_BYTES_MAX};
pub use http_connect::HEAD_BYTES_MAX;
pub use observer::{DialFailure, DialObserver, Protocol, Segment, Stage, Transport, TunnelStatus};
pub use proxy::EgressError;
pub use setpoint_dial::{
    ADDRESSES_MAX, Dial, DialError, Dialer, EgressSelector, EgressType, Socket, Wire,
};
pub use tunnel::{CLOSE_MAX, PACKET_BYTES_MAX, WAITING_BYTES_MAX};
