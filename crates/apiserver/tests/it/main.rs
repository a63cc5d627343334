//! The API as clients see it. Every case runs over each transport: in process, and over HTTPS with
//! HTTP/1.1 and HTTP/2.

#![expect(clippy::unwrap_used, reason = "a test fails where it panics")]

mod answers;
mod authentication;
mod browsers;
mod cbor;
mod custom;
mod discovery;
mod edges;
mod endings;
mod features;
mod forward;
mod handshakes;
mod harness;
mod holds;
mod large;
mod openapi;
mod protobuf;
mod shards;
mod sockets;
mod transforms;
mod verbs;
mod watches;

/// Makes one test per case and transport. Time is not paused over a socket: a paused clock would
/// jump over the network.
macro_rules! cases {
    ($($case:ident)*) => {
        mod in_process {
            $(#[tokio::test(start_paused = true)]
            async fn $case() {
                super::$case(crate::harness::Server::in_process().await).await;
            })*
        }
        mod https_1 {
            $(#[tokio::test]
            async fn $case() {
                super::$case(crate::harness::Server::https(crate::harness::Protocol::Http1).await).await;
            })*
        }
        mod https_2 {
            $(#[tokio::test]
            async fn $case() {
                super::$case(crate::harness::Server::https(crate::harness::Protocol::Http2).await).await;
            })*
        }
    };
}
pub(crate) use cases;
