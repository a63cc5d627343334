//! Controllers over a server that is a map: what the crate promises, seen from outside.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod controller;
mod events;
mod finalizer;
mod manager;
mod metadata;
mod patch;
mod server;
mod simulation;
mod world;
mod writes;
