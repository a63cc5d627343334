//! The assembled control plane, in process and as a program.

#![expect(clippy::unwrap_used, reason = "a test fails where it panics")]

mod in_process;
mod runtime;
mod up;
