//! The part of the program `setpoint` that its tests use: the story of `setpoint demo`.
//!
//! The program itself is `main.rs`: `up` serves a control plane, `demo` shows one at work, `store`
//! maintains a data folder, `envtest` replaces the binaries that envtest starts. No library depends
//! on this crate.

pub mod story;
