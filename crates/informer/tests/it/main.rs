//! The behaviour of the crate, against scripted and modelled servers under paused time. Rule ids
//! are those of the informer specification.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up fails")]

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
