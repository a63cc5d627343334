//! Test environments as their users see them.

#![allow(clippy::unwrap_used, reason = "a test asserts by unwrapping")]

mod built_in;
mod copier;
mod env;
mod scenario;
