//! Webhooks as an API server calls them, through the public API.

#![allow(clippy::unwrap_used, reason = "a test whose setup fails must fail")]

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
