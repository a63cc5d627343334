//! Properties that must hold for any bytes.
//!
//! Each module has a `check` function, which panics if a property does not hold. The programs in
//! `libfuzzer/` call it with bytes that reach more and more code: `cargo xtask fuzz`. Useful inputs
//! are committed in `corpus/`, in one folder per module, and every test run checks them again.
//!
//! `libfuzzer/` is a separate workspace, because it needs other flags, and its entry point violates
//! the lints of this one.
#![allow(clippy::unwrap_used, reason = "a failure is a finding")]

pub mod admission;
pub mod apply;
pub mod audit_policy;
pub mod authentication_config;
pub mod authorization_config;
pub mod body;
pub mod cbor;
pub mod cel;
pub mod certificate;
pub mod certificate_request;
pub mod crd_schema;
pub mod cron;
pub mod egress_config;
pub mod encryption;
pub mod field_selector;
pub mod field_set;
pub mod frames;
pub mod grpc_frames;
pub mod json_path;
pub mod jwks;
pub mod label_selector;
pub mod list;
pub mod patch;
pub mod pattern;
mod plane;
pub mod policy;
pub mod protobuf;
pub mod quantity;
pub mod request_header;
pub mod resource_version;
pub mod review;
pub mod saved;
pub mod shard_selector;
pub mod skim;
pub mod token;
pub mod traceparent;
pub mod tracing_config;
mod types;
pub mod webhook_answer;

use bytes::Bytes;

/// Cuts an input into pieces of 1 to 64 bytes, some of them empty, chosen by its first two bytes.
/// Returns the pieces and their concatenation.
fn pieces(input: &[u8]) -> (Vec<Bytes>, Bytes) {
    let Some((seed, text)) = input.split_first_chunk::<2>() else {
        return (Vec::new(), Bytes::new());
    };
    let whole = Bytes::copy_from_slice(text);
    let mut state = u32::from(u16::from_le_bytes(*seed));
    let (mut rest, mut pieces) = (whole.clone(), Vec::new());
    while !rest.is_empty() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // Small pieces are more frequent than large ones.
        let n_bytes = ((state >> 16) as usize & 63) >> (state >> 24 & 7);
        pieces.push(rest.split_to(n_bytes.min(rest.len())));
    }
    (pieces, whole)
}
