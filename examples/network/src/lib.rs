//! A controller that gives Network objects real networks.
//!
//! A [`Network`](api::Network) declares an address range and a gateway. While the object exists so
//! does the network: an entry in an address registry ([`LocalBackend`](backend::LocalBackend)) or a
//! bridge in the kernel ([`LinuxBackend`](backend::LinuxBackend)). The [`controller`] makes one fit
//! the other.

pub mod api;
pub mod backend;
pub mod controller;
pub mod subnet;
