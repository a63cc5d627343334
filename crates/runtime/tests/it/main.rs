//! Tests of controllers over an in-memory API server, through the public API.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod catch_up;
mod clusters;
mod controller;
mod controller_options;
mod election;
#[cfg(feature = "endpoints")]
mod endpoints;
mod events;
mod explain;
mod fence;
mod finalizer;
mod indexes;
mod life;
mod link;
mod manager;
mod manager_cache;
mod manager_election;
mod metadata;
mod namespaces;
mod panics;
mod patch;
mod queue_metrics;
mod recordings;
mod results;
mod retries;
mod saved;
mod server;
mod shard;
mod simulation;
mod sources;
mod stall;
#[cfg(feature = "otel")]
mod telemetry;
mod world;
mod writes;
