//! What happens to an object between HTTP and the store.

mod admission;
mod allocate;
mod bootstrap;
mod cache;
pub mod catalog;
mod convert;
mod crd;
mod read;
pub mod registry;
pub mod request;
mod strategy;
pub mod table;
#[cfg(test)]
mod testing;
pub mod watch;
mod write;

pub use catalog::{Catalog, Resource, Subresource};
pub use registry::{Registry, RegistryBuilder, RegistryWorker};
pub use request::*;
pub use watch::{Event, EventKind, WatchStream};
