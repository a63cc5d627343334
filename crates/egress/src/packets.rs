//! The packets of konnectivity: `ProxyService.Proxy` streams them in both directions.
//!
//! Source: `apiserver-network-proxy/konnectivity-client/proto/client/client.proto`.

use bytes::Bytes;
use prost::{Enumeration, Message, Oneof};

/// The method.
pub(crate) const PROXY: &str = "/ProxyService/Proxy";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(crate) enum PacketType {
    DialReq = 0,
    DialRsp = 1,
    CloseReq = 2,
    CloseRsp = 3,
    Data = 4,
    DialCls = 5,
    Drain = 6,
}

impl PacketType {
    /// The name in metrics.
    fn name(self) -> &'static str {
        match self {
            Self::DialReq => "DIAL_REQ",
            Self::DialRsp => "DIAL_RSP",
            Self::CloseReq => "CLOSE_REQ",
            Self::CloseRsp => "CLOSE_RSP",
            Self::Data => "DATA",
            Self::DialCls => "DIAL_CLS",
            Self::Drain => "DRAIN",
        }
    }
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Packet {
    #[prost(enumeration = "PacketType", tag = "1")]
    pub(crate) r#type: i32,
    #[prost(oneof = "Payload", tags = "2, 3, 4, 5, 6, 7")]
    pub(crate) payload: Option<Payload>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Payload {
    #[prost(message, tag = "2")]
    DialRequest(DialRequest),
    #[prost(message, tag = "3")]
    DialResponse(DialResponse),
    #[prost(message, tag = "4")]
    Data(Data),
    #[prost(message, tag = "5")]
    CloseRequest(CloseRequest),
    #[prost(message, tag = "6")]
    CloseResponse(CloseResponse),
    #[prost(message, tag = "7")]
    CloseDial(CloseDial),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DialRequest {
    #[prost(string, tag = "1")]
    pub(crate) protocol: String,
    /// `host:port`.
    #[prost(string, tag = "2")]
    pub(crate) address: String,
    /// Tells dials apart, among those of all clients of the proxy.
    #[prost(int64, tag = "3")]
    pub(crate) random: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DialResponse {
    #[prost(string, tag = "1")]
    pub(crate) error: String,
    #[prost(int64, tag = "2")]
    pub(crate) connect_id: i64,
    #[prost(int64, tag = "3")]
    pub(crate) random: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CloseRequest {
    #[prost(int64, tag = "1")]
    pub(crate) connect_id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CloseResponse {
    #[prost(string, tag = "1")]
    pub(crate) error: String,
    #[prost(int64, tag = "2")]
    pub(crate) connect_id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CloseDial {
    #[prost(int64, tag = "1")]
    pub(crate) random: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Data {
    #[prost(int64, tag = "1")]
    pub(crate) connect_id: i64,
    #[prost(string, tag = "2")]
    pub(crate) error: String,
    #[prost(bytes = "bytes", tag = "3")]
    pub(crate) data: Bytes,
}

impl Packet {
    /// The name of its type in metrics.
    pub(crate) fn kind(&self) -> &'static str {
        PacketType::try_from(self.r#type).map_or("Unknown", PacketType::name)
    }
}

impl From<Payload> for Packet {
    fn from(payload: Payload) -> Self {
        let of = match &payload {
            Payload::DialRequest(_) => PacketType::DialReq,
            Payload::DialResponse(_) => PacketType::DialRsp,
            Payload::Data(_) => PacketType::Data,
            Payload::CloseRequest(_) => PacketType::CloseReq,
            Payload::CloseResponse(_) => PacketType::CloseRsp,
            Payload::CloseDial(_) => PacketType::DialCls,
        };
        Self { r#type: of.into(), payload: Some(payload) }
    }
}
