//! Encryption at rest over any store, in Kubernetes' format and with its configuration file.
//!
//! # Theory
//!
//! [`EncryptedStore`] is between the registry and an engine. It determines the resource of each
//! key, and the [`EncryptionConfig`] has the providers of that resource:
//!
//! ```text
//!            ┌────────────────── EncryptedStore ──────────────────┐
//! registry ──┤ commit: the first provider's first key encrypts    ├──▶ memory │ disk │ etcd
//!          ◀─┤ get, range, feed: the prefix selects the key       │◀──
//!            └────────────────────────────────────────────────────┘
//! ```
//!
//! Stored values are byte for byte those of Kubernetes' API server: `k8s:enc:aesgcm:v1:<key
//! name>:`, then nonce, ciphertext and tag, with the key as additional data, so that a value cannot
//! be moved to another place. Over one etcd with one configuration file, setpoint and Kubernetes
//! can read each other's values: the key is that in etcd, with its prefix
//! ([`Store::stored_key`](setpoint_store::Store::stored_key)).
//!
//! | provider | cipher | protects | renew the key |
//! |---|---|---|---|
//! | `aesgcm` | AES-GCM, 128/192/256 bits | content, changes, moves | before 2^32 writes ([`GCM_WRITES_MAX`]) |
//! | `secretbox` | XSalsa20-Poly1305 | content, changes | if it may be known |
//! | `aescbc` | AES-CBC, PKCS#7 | content, against attackers who only read | if it may be known |
//! | `kms` of version 2 | AES-GCM, a key for each value | content, changes, moves | the plugin does |
//! | `identity` | none | nothing |  |
//!
//! With `kms`, a *plugin*, another program behind a Unix socket, encrypts the keys ([`kms`]).
//!
//! # Threats
//!
//! Protects against an attacker who gets the data folder, a backup of it, the disk, or etcd's files
//! and traffic, but no key. The attacker sees which keys exist, when each changed, and how long
//! values are, but no values. An attacker who can also write there can restore an old value of the
//! same place, or remove one. With `aesgcm` and `secretbox` such an attacker cannot forge a value,
//! unless `identity` is among the providers: then unencrypted values are accepted. Remove it once
//! everything is encrypted.
//!
//! Does not protect against an attacker who can read the configuration file or the memory of this
//! process, or who can use the API. Protect the file, and do not store it on the disk that it
//! protects.
//!
//! Data from before encryption stays readable in the store's history until that is compacted
//! (minutes), and in freed pages of the file until they are overwritten. `setpoint store defrag`
//! rewrites the file; old backups stay as they are.
//!
//! # Rotation
//!
//! If every step is done on all servers before the next begins, nothing is written twice and no
//! server lacks a key:
//!
//! 1. Add the new key as the **second** of its provider, and restart (or let the file be reloaded):
//!    all servers can read it, none writes it.
//! 2. Make it the **first**: from here on it writes.
//! 3. Rewrite everything: `kubectl get secrets -A -o json | kubectl replace -f -`. An update
//!    without changes is still written if its stored form is stale
//!    ([`rewrite_due`](setpoint_store::Store::rewrite_due)).
//! 4. Remove the old key. History that it wrote becomes unreadable: older watches restart, as after
//!    a compaction.
//!
//! Changing from `identity` to a cipher or back works the same way: put the new provider first and
//! the other second, rewrite, remove.
//!
//! # Values that no key decrypts
//!
//! A lost or wrong key must not affect the rest of the server. In Kubernetes' API server, lists of
//! that resource fail and its watch cache never becomes ready, while other resources work. Here one
//! feed fills every resource's cache, so:
//!
//! | call | a value that no key decrypts |
//! |---|---|
//! | get | [`Unreadable`](setpoint_store::StoreError::Unreadable), a 500 with Kubernetes' text |
//! | commit | the same if it is compared; nothing happens |
//! | range, feed | returned sealed ([`is_sealed`](setpoint_store::is_sealed)); a request that needs it fails, with the same 500 |
//!
//! Nothing is lost: with the right configuration, after a restart or a reload, the value can be
//! read again. What the server itself needs to start (namespaces, Services, resource definitions)
//! must be readable; otherwise it does not start, and names the key.
//!
//! # Cost
//!
//! Each write encrypts and each read decrypts a value. The watch cache above holds decrypted
//! values, so lists and watches cost nothing. `cargo test -p setpoint-encryption --release --
//! --ignored --nocapture speed` prints figures.
//!
//! This crate knows nothing of objects or HTTP. Of resources it knows only their key prefixes.

mod cipher;
pub mod config;
mod environment;
pub mod kms;
mod metrics;
mod nonce;
mod poll;
mod provider;
pub mod reload;
mod resource;
mod store;
mod usage;

pub use cipher::{Kind, OpenError};
pub use config::{ConfigError, EncryptionConfig, FILE_BYTES_MAX};
pub use kms::{KmsError, UnhealthyPlugins};
pub use nonce::NonceSource;
pub use provider::{Prefix, ReadError};
pub use reload::Reloader;
pub use resource::GroupResource;
pub use store::EncryptedStore;
pub use usage::{GCM_WRITES_MAX, GCM_WRITES_WARNED};
