//! What happens to an object between HTTP and the store: one write path, one read path, every
//! resource.
//!
//! It must not know HTTP. A request comes as [`Attributes`] and options; it leaves as bytes or as
//! an `ApiError`, which is a Kubernetes `Status`. Who serves what over which transport is the API
//! server's.
//!
//! # Theory
//!
//! ```text
//!  Attributes + Body                           Attributes + ListOptions
//!        │ write                                      │ read
//!        ▼                                            ▼
//!  decode → default → own → admission          watch cache (bytes by key, a window of events)
//!        → prepare → validate → encode                ▲
//!        │ compare and commit                         │ change feed
//!        └──────────────▶ Store ──────────────────────┘
//! ```
//!
//! - **A served resource is a row** ([`Resource`]) in an immutable [`Catalog`]. Built-in rows are
//!   made once per process and shared; a change of a CustomResourceDefinition makes a new catalog.
//!   A request keeps the row it was routed with.
//! - **The store is the truth.** Everything else here can be rebuilt from it: the watch cache, the
//!   addresses in use, the catalog's custom rows. Acknowledged means committed.
//! - **A write is one compare-and-commit of one object.** It is refused, changes nothing, or moves
//!   the object to a new revision; of two writers one sees the other's result. See `write` for the
//!   order of the steps.
//! - **Readers see a prefix of history** per resource, in order, each change once; who is too slow
//!   is told so.
//! - **Time and chance are given** ([`Registry::builder`]): a clock, and a seed that is the
//!   operating system's unless it is set. Two registries with the same seed, clock, store and
//!   requests write the same bytes.
//! - **Tasks have an owner**: [`RegistryBuilder::build`] returns the [`RegistryWorker`] and starts
//!   nothing.

mod admission;
mod allocate;
mod attributes;
mod authorize;
mod bootstrap;
mod cache;
pub mod catalog;
mod connect;
pub mod conversion;
mod convert;
mod crd;
mod followed;
mod foreign;
pub mod kind;
mod origins;
mod read;
pub mod registry;
pub mod request;
mod scale;
mod shared;
mod stored;
mod subresource;
pub mod table;
#[cfg(test)]
mod testing;
mod threads;

mod verb;
pub mod watch;
mod write;

pub use admission::{Admission, OBJECTS_MAX, Objects, Operation, Review};
pub use attributes::{
    AUDIT_ANNOTATIONS_MAX, Attributes, Identity, MASTERS, Notes, Requested, ResourcePath, Target,
    WARNINGS_MAX,
};
pub use authorize::{AllowAuthenticated, Authorizer, Decision};
pub use cache::{
    MAILBOX_BYTES_MAX, MAILBOX_CHANGES_MAX, ObjectChange, ObjectChanges, StoredObject,
    VIEW_BYTES_MAX,
};
pub use catalog::{Catalog, Resource, SubresourceRow};
pub use conversion::{Conversion, ConversionError, ConversionProvider, ConversionRequest};
pub use crd::compare_versions;
pub use read::{List, Listed};
pub use registry::{
    EVENT_TTL, HISTORY_PERIOD, REPLAYED_REVISIONS, Registry, RegistryBuilder, RegistryWorker,
};
pub use request::*;
pub use subresource::Subresource;
pub use verb::Verb;
pub use watch::{Event, EventKind, WatchStream};
