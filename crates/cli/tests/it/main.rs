//! Tests of the program, and of the demo in simulated time and with faults.

#![allow(clippy::unwrap_used, reason = "a test asserts by unwrapping")]

mod endless_files;
#[path = "../shared/inline.rs"]
mod inline;
mod model;
mod networks;
#[path = "../../../setpoint/tests/it/plane.rs"]
#[allow(dead_code, reason = "it is that of the library's tests")]
mod plane;
#[path = "../shared/ready_line.rs"]
mod ready_line;
#[path = "../../../setpoint/tests/it/replay.rs"]
#[allow(dead_code, reason = "it is that of the library's tests")]
mod replay;
mod simulation;
mod spans;
mod up;
mod world;
