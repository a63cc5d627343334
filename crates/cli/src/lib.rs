//! What the program `setpoint` shares with its tests: the story that `setpoint demo` tells.
//!
//! The program itself is `main.rs`: `up` serves a control plane, `demo` shows one at work, `store`
//! looks after a data folder. Libraries know nothing about this crate.

pub mod story;
