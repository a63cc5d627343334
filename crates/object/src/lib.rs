//! The Kubernetes object model on encoded bytes.

pub mod encode;
pub mod field;
pub mod field_selector;
pub mod gvk;
#[cfg(test)]
mod json_strategy;
pub mod jsonpath;
pub mod label;
pub mod meta;
pub mod name;
pub mod quantity;
mod scan;
pub mod skim;
pub mod status;
pub mod time;

pub use gvk::{GroupKind, GroupResource, GroupVersion, GroupVersionKind, GroupVersionResource};
pub use skim::Skim;
pub use status::{ApiError, Reason, Status};
