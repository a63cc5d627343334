//! The etcd v3 engine: [`setpoint_store::Store`] over a cluster, for several API servers at once.
//!
//! # Theory
//!
//! etcd's model is the contract's: one counter of revisions, transactions that compare and write,
//! watches from a revision. So each call is one call of etcd, and everything that is acknowledged
//! was agreed on by a majority of members:
//!
//! | [`Store`](setpoint_store::Store) | etcd |
//! |---|---|
//! | `revision` | `Range` of one key, counting only; linearizable |
//! | `get`, `range` | `Range`, linearizable; long ones in pages ([`FIRST_PAGE_KEYS_MAX`], then about [`PAGE_BYTES`] each), the later ones at the first one's revision |
//! | `commit` | one `Txn`: compares of modification revisions; puts and deletes; else ranges of the compared keys |
//! | a time to live | a lease, by `LeaseGrant`, shared by up to [`LEASE_KEYS_MAX`] keys |
//! | `changes` | `Range` at the revision (is it kept?), then a `Watch` on a connection of its own, with previous values, fragments and progress |
//! | `compact` | `Range` and `Txn` on `compact_rev_key`, as kube-apiserver, then `Compact` |
//!
//! A commit is sent once. When its answer is lost it is answered
//! [`StoreError::Unknown`](setpoint_store::StoreError::Unknown) and never repeated here; while it
//! surely did nothing (not sent, no leader, token refused) it goes to another member, until
//! [`EtcdOptions::request_timeout`], and is then answered `Unavailable`. Reads are repeated freely.
//!
//! | a member dies | then |
//! |---|---|
//! | before a call was sent | the call goes to the next member |
//! | during a read | the read goes to the next member |
//! | during a commit | `Unknown`: read to find out |
//! | during a watch | the feed goes on at the next member, where it was; no change is lost, none comes twice |
//! | being the leader | calls wait for the election, for as long as `request_timeout` |
//! | and with it the majority | calls fail with `Unavailable` (`Unknown` for what was sent); feeds wait |
//!
//! How feeds stay whole, and when progress may be believed, is told in `src/feed.rs`; whom calls go
//! to in `src/cluster.rs`.
//!
//! The client is written on HTTP/2 itself (`h2`) and not on a gRPC framework, for two reasons:
//! whether a request left decides between `Unknown` and `Unavailable`, and every task has an owner,
//! the store, and ends with it. Messages are `prost` derives, so that nobody needs `protoc`.
//!
//! A member that hangs is left by reads after [`EtcdOptions::attempt_timeout`], by feeds within
//! seconds ([`IDLE_PROGRESS_PERIOD`], [`PATIENCE_MIN`]); a commit that was sent to it waits for its
//! answer until `request_timeout` and is then `Unknown`. A new connection is used only when its
//! member has confirmed, by a linearizable read, that a majority follows its leader.
//!
//! Where etcd's own users are on, the user needs to read and write its namespace (Kubernetes:
//! `/registry/`) and `compact_rev_key`; before etcd 3.4.25 and 3.5.8 also to read all keys, for
//! feeds.
//!
//! Not guarded against: an etcd that is restored from a backup goes back in its revisions, as it
//! does for Kubernetes. Start the servers over it anew.
//!
//! Limits that are etcd's: a transaction has at most 128 compares and 128 operations
//! (`--max-txn-ops`), a time to live counts whole seconds and is at least about one election long,
//! and no key is empty.
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
mod grpc;
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
