//! The behaviour of the crate, against scripted and modelled servers under paused time. Rule ids are those of the informer
//! specification.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up fails")]

mod client;
mod factory;
mod handlers;
mod model;
mod reflector;
mod reflector_stream;
mod resync;
mod shared;
mod simulation;
mod support;
mod threads;
