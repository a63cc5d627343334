//! The schemas of types: decoding, pruning, defaulting, validation, patches and apply.
//!
//! # Theory
//!
//! A type is a [`node::TypeSchema`]: a root in an arena of nodes. Built-in types share one arena
//! made from the facts tables ([`builtin`]); each version of a custom resource has its own, made
//! from its `openAPIV3Schema` ([`crd`]). Every operation is a function of a schema and a tree
//! (`serde_json::Value`), does no I/O and has no state, so the same input always gives the same
//! result.
//!
//! A write passes through in this order:
//!
//! ```text
//! bytes ─ decode::parse ─▶ tree ─┬─ built-in: decode::conform ─▶ default::declared ─▶ (the registry's kinds)
//!                                └─ custom:   prune::prune ─▶ decode::conform_metadata ─▶ default::apply ─▶ validate::validate ─▶ rules::check
//! a patch is made of the stored tree before that (patch), an apply of it and the managers' fields (apply)
//! ```
//!
//! The results of [`decode::conform`] and [`default`] are canonical: equal objects are equal
//! trees, so "nothing changed" is a comparison ([`diff`], or of bytes). The texts of errors are
//! those of the API server, because clients test for them.
//!
//! Objects are encoded with their members in Kubernetes' order ([`encode`]). Answers in protobuf
//! and CBOR are made of the JSON at rest ([`protobuf`], [`cbor`]).
//!
//! Every operation takes at most `n log n` of its inputs, and nothing a body says makes more of it
//! than a small multiple of the largest body. The remaining cost is time: some ten nanoseconds for
//! each byte, so that bodies above [`INLINE_BYTES_MAX`] belong on a thread that may block, and so
//! does the validation of a type that [`node::TypeSchema::has_costly_validation`].
//!
//! This crate knows nothing of HTTP and storage.

pub mod apply;
pub mod builtin;
pub mod cbor;
mod correlate;
pub mod crd;
pub mod decode;
pub mod default;
pub mod diff;
pub mod encode;
pub mod node;
pub mod patch;
pub mod pattern;
pub mod protobuf;
pub mod prune;
pub mod rules;
pub mod validate;

/// The most bytes, of a body and the stored object together, that a caller may work on without
/// yielding: 64 KiB. Decoding, patching, defaulting and validating so much stays below five
/// milliseconds.
pub const INLINE_BYTES_MAX: usize = 64 << 10;

pub use node::{Document, Node, NodeId, View};
