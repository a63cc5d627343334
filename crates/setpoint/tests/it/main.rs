//! The assembled control plane, in process and as a program.

#![allow(clippy::unwrap_used, reason = "a test asserts by unwrapping")]

mod bounds;
mod garbage;
mod in_process;
mod model;
mod networks;
mod plane;
mod runtime;
mod simulation;
mod sources;
mod storms;
mod up;
mod wire;
mod world;
