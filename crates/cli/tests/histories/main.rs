//! Histories of concurrent requests through the API, on every engine. Each must be linearizable.
//!
//! # Theory
//!
//! ```text
//!   16 clients ──▶ server a ──▶ wire, faults ──▶┐
//!      │      └──▶ server b ──▶ wire, faults ──▶┴─▶ engine
//!      │              │                               │
//!      │           watchers                           │ its own account of every change
//!      ▼              ▼                               ▼
//!   Record: what was asked and told, when ──▶ judged: linearizable? each watch gapless? each old state one that was?
//! ```
//!
//! Meanwhile, servers are stopped or killed, and restarted. A request that is cut off, or whose
//! response is lost, may have happened or not. [`checker`] searches for an order, [`model`] defines
//! the promises of a server, [`log`] compares the rest with the engine's log, [`broken`] breaks
//! promises on purpose.
//!
//! On engines of this process a history is a function of its seed: one thread, simulated time. A
//! failure prints how to replay it.

#![allow(clippy::unwrap_used, reason = "a test asserts by unwrapping")]

mod at_once;
mod broken;
#[cfg(feature = "real-clients")]
mod cast;
mod checker;
mod client;
mod disk;
mod distant;
mod engines;
#[cfg(feature = "real-clients")]
mod etcd;
#[path = "../shared/inline.rs"]
mod inline;
#[cfg(feature = "real-clients")]
mod killed;
mod log;
mod memory;
mod model;
mod mutations;
mod play;
#[cfg(feature = "real-clients")]
mod program;
#[cfg(feature = "real-clients")]
#[path = "../shared/ready_line.rs"]
mod ready_line;
mod record;
mod replay;
mod servers;
mod watcher;
