//! The program in the place of envtest's binaries: started with the flags, files and environment
//! that harnesses pass, polled and stopped as they do.
#![allow(clippy::unwrap_used, reason = "a test asserts by unwrapping")]
#![allow(clippy::disallowed_methods, reason = "tests drive other programs in real time")]

mod certificates;
#[cfg(feature = "real-clients")]
mod clients;
mod command_line;
mod harness;
mod leftovers;
mod lifecycle;
#[cfg(feature = "real-clients")]
mod packages;
mod powers;
