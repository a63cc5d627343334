//! What must hold for any bytes.
//!
//! Each module has one `check`, which panics when something does not hold. The programs in
//! `libfuzzer/` feed it with bytes that reach ever more of the code: `cargo xtask fuzz`. What they
//! found worth keeping is in `corpus/`, a folder for each, and every run of the tests feeds it
//! again.
//!
//! `libfuzzer/` is a workspace of its own: it is built with other flags, and its entry point needs
//! what the lints here forbid.
#![allow(clippy::unwrap_used, reason = "a failure is a finding")]

pub mod cel;
pub mod encryption;
pub mod frames;
pub mod list;
pub mod pattern;
pub mod resource_version;
pub mod review;
pub mod skim;

use bytes::Bytes;

/// Cuts an input into pieces of 1 to 64 bytes, now and then none, chosen by its first two bytes;
/// and what they make together.
fn pieces(input: &[u8]) -> (Vec<Bytes>, Bytes) {
    let Some((seed, text)) = input.split_first_chunk::<2>() else {
        return (Vec::new(), Bytes::new());
    };
    let whole = Bytes::copy_from_slice(text);
    let mut state = u32::from(u16::from_le_bytes(*seed));
    let (mut rest, mut pieces) = (whole.clone(), Vec::new());
    while !rest.is_empty() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // Small pieces more often than large ones.
        let n_bytes = ((state >> 16) as usize & 63) >> (state >> 24 & 7);
        pieces.push(rest.split_to(n_bytes.min(rest.len())));
    }
    (pieces, whole)
}
