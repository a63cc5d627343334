//! The behavior of the crate, against scripted and model servers under paused time. Rule ids are
//! those of the informer specification.

#![expect(clippy::unwrap_used, reason = "a test whose setup fails must fail")]

mod client;
mod client_options;
mod controller;
mod factory;
mod freshness;
mod handlers;
mod metrics;
mod policies;
mod reflector;
mod reflector_bounds;
mod reflector_stream;
mod reflector_time;
mod relist;
mod resync;
mod retry_watcher;
mod shared;
mod status;
mod support;
mod threads;
mod views;
