//! A revisioned key-value store: the contract, its conformance suite, and two engines.
//!
//! The contract is [`Store`]; [`contract`] has its theory. [`MemoryStore`] keeps everything in
//! persistent ordered maps and forks in constant time. `DiskStore` (crate feature `disk`, on by
//! default) is durable in one folder. The etcd engine is a crate of its own. An engine is correct
//! if [`conformance::check`] passes on it. [`fault::FaultStore`] wraps any engine and injects
//! faults on a schedule derived from a seed, to test callers.
//!
//! This crate knows nothing of objects or HTTP: keys and values are bytes.
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use setpoint_store::{At, Committed, Compare, MemoryStore, Op, Store, Txn};
//!
//! let store = MemoryStore::default();
//! let create = Txn {
//!     compares: vec![Compare::Absent("/a".into())],
//!     ops: vec![Op::Put("/a".into(), "1".into())],
//!     ttl: None,
//! };
//! let Committed::Done(revision) = store.commit(create.clone()).await? else { panic!("nothing was there") };
//! assert!(matches!(store.commit(create).await?, Committed::Refused { .. }));
//! assert_eq!(store.get(b"/a", At::Exactly(revision)).await?.value.unwrap().value, "1");
//! # Ok::<(), setpoint_store::StoreError>(()) }).unwrap();
//! ```

pub mod conformance;
pub mod contract;
#[cfg(feature = "disk")]
pub mod disk;
pub mod fault;
pub mod memory;
pub mod shape;
pub mod wrapper;

pub use contract::*;
#[cfg(feature = "disk")]
pub use disk::{Damage, DiskError, DiskOptions, DiskStat, DiskStore, OnDamage};
pub use memory::{MemoryOptions, MemoryStore};
