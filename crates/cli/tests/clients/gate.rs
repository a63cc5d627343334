//! The servers that the built program asks, as processes of their own over HTTPS: issuers of
//! tokens and webhooks. They are slow, frozen, killed and wrong.
//!
//! Each process is this test binary, run with [`process::child`] as its only test.

mod hook;
mod issuer;
mod issuers;
mod process;
mod quotas;
mod webhooks;
mod writers;
