//! A controller that gives Network objects real networks.
//!
//! A [`Network`](api::Network) declares an address range and a gateway. The [`controller`] keeps a
//! network for each object: an entry in an address registry
//! ([`LocalBackend`](backend::LocalBackend)), a bridge in the kernel
//! ([`LinuxBackend`](backend::LinuxBackend)), or a network of an OpenStack cloud
//! ([`NeutronBackend`](backend::NeutronBackend)).

pub mod api;
pub mod backend;
pub mod controller;
pub mod subnet;
