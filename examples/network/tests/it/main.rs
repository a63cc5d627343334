//! The network product, by what its user sees.

#[cfg(feature = "netns-tests")]
mod bridge;
