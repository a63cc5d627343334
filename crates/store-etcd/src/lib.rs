//! The etcd v3 engine: [`setpoint_store::Store`] over a cluster, which several API servers can
//! share.
//!
//! # Theory
//!
//! etcd has the contract's model: one counter of revisions, transactions that compare and write,
//! watches from a revision. So each call is one call of etcd, and every acknowledged call has the
//! agreement of a majority of members:
//!
//! | [`Store`](setpoint_store::Store) | etcd |
//! |---|---|
//! | `revision` | `Range` of one key, counting only; linearizable |
//! | `get`, `range` | `Range`, linearizable; long ones in pages ([`FIRST_PAGE_KEYS_MAX`], then about [`PAGE_BYTES`] each), the later ones at the first one's revision |
//! | `commit` | one `Txn`: compares of modification revisions; puts and deletes; else ranges of the compared keys |
//! | a time to live | a lease, by `LeaseGrant`, shared by up to [`LEASE_KEYS_MAX`] keys |
//! | `changes` | `Range` at the revision (to check that it is not compacted), then a `Watch` on a connection of its own, with previous values, fragments and progress |
//! | `compact` | `Range` and `Txn` on `compact_rev_key`, as kube-apiserver, then `Compact` |
//!
//! A commit is sent once. If its response is lost, it fails with
//! [`StoreError::Unknown`](setpoint_store::StoreError::Unknown) and is not repeated. If it
//! certainly did nothing (not sent, no leader, token refused), it goes to another member until
//! [`EtcdOptions::request_timeout`], and then fails with `Unavailable`. Reads are repeated freely.
//!
//! | a member dies | effect |
//! |---|---|
//! | before a call was sent | the call goes to the next member |
//! | during a read | the read goes to the next member |
//! | during a commit | `Unknown`: read to find out |
//! | during a watch | the feed continues on the next member from its position; no change is lost or repeated |
//! | as the leader | calls wait for the election, up to `request_timeout` |
//! | and the majority is lost | calls fail with `Unavailable` (`Unknown` for commits that were sent); feeds wait |
//!
//! `src/feed.rs` explains how feeds stay complete and when progress is reliable; `src/cluster.rs`
//! explains which member a call goes to.
//!
//! The client uses HTTP/2 (`h2`) and the small crate `setpoint_grpc`, no framework, for two
//! reasons. Whether a request was sent decides between `Unknown` and `Unavailable`. And every task
//! is owned by the store and ends with it. Messages are `prost` derives, so that `protoc` is not
//! needed.
//!
//! Reads leave a member that hangs after [`EtcdOptions::attempt_timeout`], feeds within seconds
//! ([`IDLE_PROGRESS_PERIOD`], [`PATIENCE_MIN`]). A commit that was sent to it waits for its
//! response until `request_timeout` and is then `Unknown`. A new connection is used only after its
//! member has confirmed, by a linearizable read, that a majority follows its leader.
//!
//! With etcd's own authentication, the user needs to read and write its namespace (Kubernetes:
//! `/registry/`) and `compact_rev_key`. Before etcd 3.4.25 and 3.5.8, feeds also need permission to
//! read all keys.
//!
//! Not handled: an etcd that is restored from a backup goes back in its revisions, as for
//! Kubernetes. Restart the servers that use it.
//!
//! Limits of etcd: a transaction has at most 128 compares and 128 operations (`--max-txn-ops`), a
//! time to live is in whole seconds and at least about one election long, and no key is empty.
//!
//! This crate knows nothing of objects or HTTP APIs: keys and values are bytes.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use setpoint_store::{At, Store};
//! use setpoint_store_etcd::{EtcdOptions, EtcdStore};
//!
//! let store = EtcdStore::connect(EtcdOptions::new(["http://127.0.0.1:2379"])).await?;
//! let found = store.get(b"/registry/configmaps/default/a", At::Latest).await?;
//! println!("{:?} at revision {}", found.value, found.revision);
//! store.close().await;
//! # Ok(()) }
//! ```

mod auth;
mod cluster;
mod compaction;
mod connection;
mod endpoint;
mod error;
mod failure;
#[cfg(test)]
mod fake;
mod feed;
mod keys;
mod lease;
mod options;
mod proto;
mod shared;
mod status;
mod store;
mod tasks;
#[cfg(feature = "testing")]
pub mod testing;
mod tls;

pub use cluster::CALLS_MAX;
pub use error::EtcdError;
pub use feed::{BATCHES_MAX, IDLE_PROGRESS_PERIOD, PATIENCE_MAX, PATIENCE_MIN, PROGRESS_PERIOD};
pub use lease::{LEASE_KEYS_MAX, LEASE_REUSE_MAX};
pub use options::{EtcdOptions, EtcdTls, Pem};
pub use status::{EtcdMember, EtcdMemberState, EtcdStatus, VERSION_MIN};
pub use store::{EtcdStore, FIRST_PAGE_KEYS_MAX, PAGE_BYTES, PAGE_KEYS_MAX};
pub use tls::PEM_BYTES_MAX;
