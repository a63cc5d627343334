//! The Kubernetes object model on encoded bytes.
//!
//! An object at rest and in flight is JSON text. What the control plane asks of most objects most
//! of the time, who they are and how they are labelled, is read from that text in one pass
//! ([`Skim`], [`skim::scalar`]; [`Head`] where only the identity counts); the one thing added to
//! stored objects, their resourceVersion, is spliced into it ([`encode`]). A tree
//! (`serde_json::Value`, [`meta`]) exists only where an object is changed.
//!
//! # What holds
//!
//! - Equal trees encode to equal bytes ([`encode::to_bytes`]), and a splice of an encoding is the
//!   encoding of the changed tree: so a comparison of bytes tells whether a write changes anything.
//! - A skim agrees with `serde_json` on everything it reads.
//! - No input makes anything here panic, recurse without bound, or take more than time linear in
//!   its length.
//! - Every text that a client sees is made here or from here: [`status`], [`field`], [`name`], the
//!   messages of [`label`] and [`field_selector`].
//! - Nobody asks the machine for the time or for randomness: [`time::Clock`] and a seed
//!   ([`seed::from_entropy`]) are handed down from the program's edge.
//!
//! This crate knows nothing about HTTP and nothing about storage, but for the names that objects
//! have there ([`keys`]).
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

pub mod encode;
pub mod field;
pub mod field_selector;
pub mod gvk;
pub mod head;
pub mod jsonpath;
pub mod keys;
pub mod label;
pub mod meta;
pub mod name;
pub mod origin;
pub mod prune;
pub mod quantity;
pub mod resource_version;
pub mod seed;
pub mod skim;
pub mod status;
pub mod time;

#[cfg(test)]
mod json_strategy;
mod scan;

pub use gvk::{GroupKind, GroupResource, GroupVersion, GroupVersionKind, GroupVersionResource};
pub use head::Head;
pub use keys::Scope;
pub use origin::Origin;
pub use prune::Prune;
pub use scan::{ValueEnd, array_lengths};
pub use skim::Skim;
pub use status::{ApiError, Reason, Status};
