//! The Kubernetes object model on encoded bytes.
//!
//! Objects are stored and transferred as JSON text. The frequent queries, an object's identity and
//! labels, read that text in one pass ([`Skim`], [`skim::scalar`]; [`Head`] for the identity
//! alone). The only addition to stored objects, their resourceVersion, is spliced into the text
//! ([`encode`]). A tree (`serde_json::Value`, [`meta`]) is built only to change an object.
//!
//! # Invariants
//!
//! - Equal trees encode to equal bytes ([`encode::to_bytes`]), and a spliced encoding equals the
//!   encoding of the changed tree. So a comparison of bytes shows whether a write changes anything.
//! - A skim agrees with `serde_json` on everything it reads.
//! - No input causes a panic, unbounded recursion, or more than linear time.
//! - Every text that a client sees is made in this crate or with it: [`status`], [`field`],
//!   [`name`], the messages of [`label`], [`field_selector`] and [`cron`].
//! - No code reads the machine's time or randomness: the program's edge creates a [`time::Clock`]
//!   and a seed ([`seed::from_entropy`]) and passes them down.
//!
//! This crate knows nothing about HTTP, and about storage only the keys of objects ([`keys`]).
//!
//! ```
//! use setpoint_object::{Skim, encode};
//!
//! let stored = encode::to_bytes(&serde_json::json!({
//!     "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"app": "x"}},
//! }));
//! let served = encode::with_resource_version(&stored, 7);
//! let skim = Skim::of(&served)?;
//! assert_eq!((&*skim.name, &*skim.resource_version, skim.label("app")), ("a", "7", Some("x")));
//! # Ok::<(), setpoint_object::skim::SkimError>(())
//! ```

pub mod boolean;
pub mod bounded;
pub mod cidr;
pub mod cron;
pub mod duration;
pub mod encode;
pub mod error;
pub mod field;
pub mod field_selector;
pub mod gvk;
pub mod head;
pub mod image;
pub mod jsonpath;
pub mod keys;
pub mod label;
pub mod members;
pub mod meta;
pub mod name;
pub mod origin;
pub mod panic;
pub mod partial;
pub mod pod_phase;
pub mod prune;
pub mod quantity;
pub mod resource_version;
pub mod seed;
pub mod skim;
pub mod status;
pub mod taint;
pub mod time;
pub mod url;
pub mod users;

#[cfg(test)]
mod json_strategy;
mod scan;

pub use gvk::{
    GroupKind, GroupResource, GroupVersion, GroupVersionKind, GroupVersionResource,
    UNVERSIONED_KINDS,
};
pub use head::Head;
pub use keys::Scope;
pub use origin::Origin;
pub use partial::Partial;
pub use prune::Prune;
pub use scan::{ValueEnd, array_lengths};
pub use skim::Skim;
pub use status::{ApiError, Reason, Status};
