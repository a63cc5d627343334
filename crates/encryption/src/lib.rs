//! Encryption at rest over any store, in Kubernetes' format and with its configuration file.
//!
//! # Theory
//!
//! [`EncryptedStore`] stands between the registry and an engine. It looks at each key, and what the
//! [`EncryptionConfig`] says of the resource it belongs to decides:
//!
//! ```text
//!            ┌────────────────── EncryptedStore ──────────────────┐
//! registry ──┤ commit: the first provider's first key encrypts    ├──▶ memory │ disk │ etcd
//!          ◀─┤ get, range, feed: the prefix says which key opens  │◀──
//!            └────────────────────────────────────────────────────┘
//! ```
//!
//! Stored values are byte for byte those of Kubernetes' API server: `k8s:enc:aesgcm:v1:<key
//! name>:`, then nonce, ciphertext and tag, with the key in the store as additional data, so that a
//! value cannot be moved to another place. Over one etcd, with one configuration file, either reads
//! what the other wrote. (The place is the key that the store below is given: an engine that puts a
//! prefix of its own before every key makes it another place to others.)
//!
//! | provider    | cipher                    | protects                                   | renew the key                       |
//! |-------------|---------------------------|--------------------------------------------|-------------------------------------|
//! | `aesgcm`    | AES-GCM, 128/192/256 bits | content, changes, moves                    | before 2^32 writes ([`GCM_WRITES_MAX`]) |
//! | `secretbox` | XSalsa20-Poly1305         | content, changes                           | when it may be known                |
//! | `aescbc`    | AES-CBC, PKCS#7           | content, against whoever only reads        | when it may be known                |
//! | `identity`  | none                      | nothing                                    |                                     |
//!
//! `kms` is refused: the keys of such values are with another program.
//!
//! # Threats
//!
//! Against: whoever gets the data folder, a backup of it, the disk, or etcd's files and traffic,
//! and has no key. They see which keys exist, when each changed, and how long values are; they do
//! not see values. Whoever may also write there can bring an old value of the same place back, or
//! remove one; with `aesgcm` and `secretbox` they cannot make one up. Where `identity` is among the
//! providers, they can: what is not encrypted is then taken as it is. Leave it out once everything
//! is encrypted.
//!
//! Not against: whoever reads the configuration file, or the memory of this process, or asks the
//! API. Keep the file from others and off the disk that it protects.
//!
//! What was written before encryption was chosen stays readable in the store's history until that
//! is compacted (minutes), and in freed pages of the file until they are written over: `setpoint
//! store defrag` writes the file anew, and old backups stay what they are.
//!
//! # Rotation
//!
//! Nothing is written twice and no server misses a key, when every step is taken on all servers
//! before the next begins:
//!
//! 1. Add the new key as the **second** of its provider, and restart (or let the file be reloaded):
//!    all can read it, none writes it.
//! 2. Make it the **first**: from here on it writes.
//! 3. Write everything anew: `kubectl get secrets -A -o json | kubectl replace -f -`. An update
//!    that changes nothing is written all the same when its stored form is stale
//!    ([`rewrite_due`](setpoint_store::Store::rewrite_due)).
//! 4. Remove the old key. History that it wrote is no longer read: watches from before begin anew,
//!    as after a compaction.
//!
//! The same way leads from `identity` to a cipher and back: the wanted one first, the other behind
//! it, rewrite, remove.
//!
//! # Values that no key opens
//!
//! A lost or wrong key must not take the rest of the server with it. Kubernetes' API server fails
//! lists of that resource, and its watch cache of it never becomes ready, while others go on. Here
//! one feed fills every resource's cache, so:
//!
//! | call             | a value that no key opens                                                                        |
//! |------------------|--------------------------------------------------------------------------------------------------|
//! | get              | [`Unreadable`](setpoint_store::StoreError::Unreadable), a 500 with Kubernetes' words             |
//! | commit           | the same, when it is found in the way: nothing happened                                          |
//! | range, feed      | is given sealed ([`is_sealed`](setpoint_store::is_sealed)); whoever would show it fails, with the same 500 |
//!
//! Nothing is lost: with the right configuration, at a restart or a reload, it is read again. What
//! the server itself needs to start (namespaces, Services, resource definitions) must be readable:
//! otherwise it does not start, and names the key.
//!
//! # What it costs
//!
//! Encryption and decryption of a value in the call that writes or reads it; the watch cache above
//! holds values decrypted, so lists and watches pay nothing. `cargo test -p setpoint-encryption
//! --release -- --ignored --nocapture speed` prints the figures.
//!
//! This crate knows nothing of objects or HTTP, and of resources only where they lie.

mod cipher;
pub mod config;
mod nonce;
mod provider;
pub mod reload;
mod resource;
mod store;
mod usage;

pub use cipher::{Kind, OpenError};
pub use config::{ConfigError, EncryptionConfig};
pub use nonce::NonceSource;
pub use provider::{Prefix, ReadError};
pub use reload::Reloader;
pub use resource::GroupResource;
pub use store::EncryptedStore;
pub use usage::{GCM_WRITES_MAX, GCM_WRITES_WARNED};
