//! Webhooks as an API server meets them: what the crate promises, seen from outside.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod admission;
mod any_bytes;
mod conversion;
mod figures;
mod review;
mod tokens;

#[cfg(feature = "server")]
mod rotation;
#[cfg(feature = "server")]
mod server;
#[cfg(feature = "server")]
mod wire;
