//! What a type means: pruning, defaulting, validation, patches and apply.

pub mod apply;
pub mod builtin;
pub mod crd;
pub mod decode;
pub mod default;
pub mod diff;
pub mod node;
pub mod patch;
pub mod prune;
pub mod validate;

pub use node::{Document, Node, NodeId, View};
