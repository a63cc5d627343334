//! The client side of list and watch: reflector, delta queue, indexer, shared informer.
//!
//! # Theory
//!
//! An informer keeps, in this process, a copy of what a server holds of one type, and tells
//! handlers how it changes. Data moves one way:
//!
//! | stage              | module        | takes                      | gives                                                  |
//! |--------------------|---------------|----------------------------|--------------------------------------------------------|
//! | source             | [`source`]    | requests                   | pages and frames of encoded objects                    |
//! | [`Reflector`]      | [`reflector`] | a source                   | deltas; decides when to list, watch, wait              |
//! | [`OrderedFifo`]    | [`delta`]     | deltas                     | the same, in order; a relist is one delta              |
//! | [`Indexer`]        | [`indexer`]   | objects                    | objects by key and by index, to any number of [`Lister`]s |
//! | [`SharedInformer`] | [`informer`]  | deltas                     | the cache's changes to every [`Handler`]               |
//! | [`InformerFactory`]| [`factory`]   | requests for informers     | one informer per resource and selection               |
//!
//! Those who wire a controller by hand join the stages with a [`Controller`], into a store of their
//! own: over either mode of the ordered queue or over [`DeltaFifo`]. Two more stores are for what
//! an informer's cache is not: [`ExpiringStore`] forgets, and [`MutationCache`] reads back what was
//! just written.
//!
//! What it guarantees:
//!
//! - Cache states of one key are a subsequence of the server's, and never go backwards.
//! - A handler sees for each key `Added (Updated)* Deleted`, repeated; a deletion that was missed
//!   is told as a [`Tombstone`].
//! - Half of a list is never visible, and no deletion is lost across a relist.
//! - Nothing a slow, stuck or panicking handler does delays the cache or another handler, nor takes
//!   memory without bound.
//! - It never gives up unless it is told when to: what keeps it from its server is said in
//!   [`SharedInformer::status`], and it recovers by itself. No server can keep it waiting without
//!   bound, nor take more than its turn.
//! - A read can wait for a write: [`Lister::at_least`].
//!
//! What it does not: show every state, order changes between keys for a handler, or show a write
//! before the watch brings it.
//!
//! Objects stay the bytes they came as until somebody asks for the typed value ([`CachePolicy`]).
//! So an informer has no type of its own: handles, listers and handlers of any Rust type that names
//! the resource read it, and each decodes what it declares ([`SharedInformer::view`]). What was
//! decoded for one read serves the next, within a bound of bytes ([`DECODED_BYTES`]). Constructors
//! do nothing; what runs is a worker that the caller owns. All time is tokio's, and all chance
//! comes from a seed: the operating system's entropy, unless a simulation gives one.
//!
//! This crate does not know who serves, and it knows nothing of work queues and reconcilers.

pub mod backoff;
#[cfg(not(feature = "broken-rules"))]
mod broken;
#[cfg(feature = "broken-rules")]
pub mod broken;
pub mod controller;
mod decode;
pub mod delta;
pub mod event;
pub mod expiring;
pub mod factory;
pub mod handler;
pub mod indexer;
pub mod informer;
mod intake;
mod key;
pub mod metrics;
pub mod mutation;
mod object;
mod policy;
mod pool;
mod record;
pub mod reflector;
mod resource_type;
pub mod retry_watcher;
pub mod source;
mod status;
#[cfg(test)]
mod testing;
pub mod transform;

pub use controller::Controller;
pub use delta::{Batch, Delta, DeltaFifo, DeltaQueue, Keyed, OrderedFifo};
pub use event::{Event, Tombstone};
pub use expiring::ExpiringStore;
pub use factory::{InformerFactory, InformerLease};
pub use handler::{FilteringHandler, Handler, HandlerOptions, HandlerRegistration};
pub use indexer::{AtLeastError, Indexer, Lister, NamespaceLister, ReadError, Snapshot, Write};
pub use informer::{Cacheable, InformerWorker, SharedInformer, SharedInformerBuilder};
pub use intake::{Intake, RecordIntake};
pub use key::{Key, KeyError};
pub use metrics::MetricsRegistry;
pub use mutation::MutationCache;
pub use object::{DecodeError, Object};
pub use policy::CachePolicy;
pub use pool::DECODED_BYTES;
pub use record::{Record, RecordError};
pub use reflector::{Reflector, ReflectorError};
pub use resource_type::ResourceType;
pub use retry_watcher::RetryWatcher;
pub use source::{ClientSource, ListWatch, SourceError};
pub use status::{Degraded, InformerStatus, Stopped};
