//! A small etcd for tests: one member, everything in memory, gone when it ends.
//!
//! # Theory
//!
//! The `Keyspace` is a plain data structure: versions of keys by revision, a history of changes,
//! leases. It has no clock and no tasks. The server around it decodes calls, and wakes watches when
//! the revision has changed. A watch is a position in the history, so a slow one costs no memory.
//!
//! | service | calls |
//! |---|---|
//! | KV | `Range`, `Put`, `DeleteRange`, `Txn` (nested too), `Compact` |
//! | Watch | `Watch`: create, cancel, progress, filters, previous values |
//! | Lease | `LeaseGrant`, `LeaseRevoke`, `LeaseKeepAlive`, `LeaseTimeToLive`, `LeaseLeases` |
//! | Maintenance | `Status`, `Alarm` (never any), `Defragment` (nothing to do) |
//! | Cluster | `MemberList` |
//! | HTTP | `/health`, `/livez`, `/readyz`, `/version` |
//!
//! All other calls, such as those of users, snapshots and more members, are answered with
//! `Unimplemented`. There is no TLS.
//!
//! | bound | |
//! |---|---|
//! | all keys, values and their history | [`Options::quota_bytes`] |
//! | a request | [`Options::request_bytes_max`] |
//! | operations of a transaction | [`Options::txn_ops_max`] |
//! | watches of a stream | [`WATCHES_MAX`] |
//! | leases | [`LEASES_MAX`] |
//! | events that are sent at once | about [`EVENTS_BYTES`] |
//!
//! It is correct if the engine `setpoint-store-etcd` passes the store's conformance suite on it
//! (`tests/it`).

mod calls;
mod grpc;
mod keyspace;
mod lease;
mod proto;
mod server;
mod txn;
mod watch;

pub use lease::LEASES_MAX;
pub use server::{EtcdServer, MARK, Options, VERSION};
pub use watch::{EVENTS_BYTES, WATCHES_MAX};
