//! The client side of list and watch: reflector, delta queue, indexer, shared informer.
//!
//! # Theory
//!
//! An informer keeps a copy of a server's objects of one type in this process, and notifies
//! handlers of changes. Data moves one way:
//!
//! | stage              | module        | input                      | output                                                 |
//! |--------------------|---------------|----------------------------|--------------------------------------------------------|
//! | source             | [`source`]    | requests                   | pages and frames of encoded objects                    |
//! | [`Reflector`](reflector::Reflector) | [`reflector`] | a source  | deltas; decides when to list, watch, wait              |
//! | [`OrderedFifo`](delta::OrderedFifo) | [`delta`]     | deltas    | the same, in order; a relist is one delta              |
//! | [`Indexer`](indexer::Indexer)       | [`indexer`]   | objects   | objects by key and by index, for any number of [`Lister`]s |
//! | [`SharedInformer`] | [`informer`]  | deltas                     | changes of the cache, for each [`Handler`]             |
//! | [`InformerFactory`]| [`factory`]   | requests for informers     | one informer per resource and selection                |
//!
//! To wire a controller by hand, join the stages with a [`Controller`](controller::Controller) and
//! a store of your own, over either mode of the ordered queue or over a
//! [`DeltaFifo`](delta::DeltaFifo). There are two more stores:
//! [`ExpiringStore`](expiring::ExpiringStore) forgets objects after a time, and
//! [`MutationCache`](mutation::MutationCache) returns objects that were just written.
//!
//! Guarantees:
//!
//! - The cache states of one key are a subsequence of the server's, and never go backwards.
//! - A handler sees for each key `Added (Updated)* Deleted`, repeated; a missed deletion is a
//!   [`Tombstone`].
//! - Half of a list is never visible, and no deletion is lost across a relist.
//! - A slow, stuck or panicking handler neither delays the cache or another handler, nor uses
//!   memory without bound.
//! - No task of an informer holds a thread for long. A poll handles at most
//!   [`OBJECTS_PER_POLL_MAX`](informer::OBJECTS_PER_POLL_MAX) objects of a list or a relist and a
//!   batch of [`BATCH_MAX`](delta::BATCH_MAX) events, whatever the size of the cache. Calls of user
//!   code come on top.
//! - An informer never gives up, unless configured to. [`SharedInformer::status`] shows its
//!   problems, and it recovers by itself. No server can block it for ever or keep a thread busy.
//! - A read can wait for a write: [`Lister::at_least`].
//!
//! Not guaranteed: that every state is shown, that a handler gets the changes of different keys in
//! order, and that a write is shown before the watch delivers it.
//!
//! Objects stay encoded until a reader asks for the typed value ([`CachePolicy`]). So an informer
//! has no type: handles, listers and handlers of any Rust type of the resource share it, and each
//! decodes the fields that it declares ([`SharedInformer::view`]). Decoded values are reused, up to
//! a number of bytes ([`DECODED_BYTES`]). Constructors do nothing; the caller owns and runs the
//! workers. All time is tokio's, and all randomness comes from a seed: the operating system's
//! entropy, unless a simulation sets one.
//!
//! This crate knows nothing about servers, work queues and reconcilers. Its modules import in one
//! direction, which `xtask/src/tidy.rs` lists and a test checks.

pub mod backoff;
pub mod controller;
mod decode;
pub mod delta;
pub mod event;
pub mod expiring;
pub mod factory;
mod failure;
pub mod handler;
pub mod indexer;
pub mod informer;
pub mod intake;
pub mod key;
pub mod metrics;
pub mod mutation;
mod object;
mod policy;
pub mod record;
pub mod reflector;
mod resource_type;
pub mod retry_watcher;
mod slices;
pub mod source;
mod status;
#[cfg(test)]
mod testing;
pub mod transform;

pub use decode::from_json;
pub use event::{Event, Tombstone};
pub use factory::{InformerFactory, InformerLease};
pub use failure::Stopped;
pub use handler::{Handler, HandlerOptions, HandlerRegistration};
pub use indexer::{AtLeastError, Lister, NamespaceLister, Snapshot};
pub use informer::{Cacheable, InformerWorker, SharedInformer, SharedInformerBuilder};
pub use key::Key;
pub use metrics::MetricsRegistry;
pub use object::{DECODED_BYTES, DecodeError, Object};
pub use policy::CachePolicy;
pub use record::Record;
pub use reflector::ReflectorError;
pub use resource_type::ResourceType;
pub use retry_watcher::RetryWatcher;
pub use source::{ClientSource, ListWatch, SourceError};
pub use status::{Degraded, InformerStatus};
