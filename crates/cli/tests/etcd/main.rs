//! Several API servers over one etcd: the built program and real etcd processes.
//!
//! `cargo xtask test` installs etcd and passes its path.
#![allow(clippy::unwrap_used, reason = "a test asserts by unwrapping")]
#![allow(clippy::disallowed_methods, reason = "tests drive other programs in real time")]

mod clients;
mod egress;
mod failures;
mod keys;
mod load;
mod peers;
mod protobuf;
#[path = "../clients/raw.rs"]
#[allow(dead_code, reason = "it is that of the other tests with real clients")]
mod raw;
#[path = "../shared/ready_line.rs"]
mod ready_line;
#[path = "../clients/server.rs"]
#[allow(dead_code, reason = "it is that of the other tests with real clients")]
mod server;
mod start;
mod two;
mod writers;
