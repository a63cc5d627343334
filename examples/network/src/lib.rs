//! A controller that gives Network objects real networks.

pub mod api;
pub mod backend;
pub mod subnet;
