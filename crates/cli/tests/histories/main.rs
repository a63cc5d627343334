//! Histories of concurrent requests, through the API, on every engine: each has an order that
//! explains it.
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
//! Servers are stopped, or gone from one moment to the next, and started again meanwhile; a request
//! that is cut off, or whose answer was lost, may have happened or not. [`checker`] searches the
//! order, [`model`] says what a server promises, [`log`] holds the rest to the engine's account,
//! [`broken`] breaks promises on purpose.
//!
//! On engines of this process a history is a function of its seed: one thread, simulated time. A
//! failure says how to replay it.

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
mod record;
mod replay;
mod servers;
mod watcher;
