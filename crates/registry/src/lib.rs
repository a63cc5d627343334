//! The path of an object between HTTP and the store: one write path and one read path for every
//! resource.
//!
//! This crate knows no HTTP. A request arrives as [`Attributes`] and options. The answer is bytes
//! or an `ApiError`, which is a Kubernetes `Status`. Transports and routes belong to the API
//! server.
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
//!   made once per process and shared. A change of a CustomResourceDefinition makes a new catalog.
//!   A request uses the row that it was routed with until it ends.
//! - **The store is the source of truth.** All other state can be rebuilt from it: the watch cache,
//!   the addresses in use, the catalog's custom rows. An acknowledged write is committed.
//! - **A write is one compare-and-commit of one object.** It is refused, changes nothing, or moves
//!   the object to a new revision. Of two concurrent writers, one sees the other's result. The
//!   order of the steps is in `write`.
//! - **Readers see a prefix of history** per resource, in order, each change once. A watcher that
//!   falls behind the window gets an error and must list again.
//! - **Time and randomness are inputs** ([`Registry::builder`]): a clock, and a seed that comes
//!   from the operating system by default. Two registries with the same seed, clock, store and
//!   requests write the same bytes.
//! - **Tasks have an owner**: [`RegistryBuilder::build`] returns the [`RegistryWorker`] and starts
//!   nothing.

mod admission;
mod allocate;
pub mod attributes;
mod authorize;
mod bootstrap;
mod cache;
pub mod catalog;
mod connect;
pub mod conversion;
mod convert;
mod crd;
mod features;
mod fifo_watch;
pub mod figures;
mod foreign;
mod identity;
pub mod kind;
mod latency;
mod node_authorizer;
mod origins;
mod published;
mod rbac;
mod read;
pub mod registry;
pub mod request;
mod routed;
mod runtime_config;
mod scale;
mod service_account;
mod shard_selector;
mod shared;
mod shared_objects;
mod stored;
mod subresource;
pub mod table;
#[cfg(test)]
mod testing;
mod threads;
mod token_review;
mod turns;
mod type_check;
mod uid;
mod unreadable;
mod verb;
pub mod watch;
mod webhook;
mod write;

pub use admission::{
    Admission, AdmissionOptions, AdmissionOptionsError, AdmissionPlugins, ManifestError,
    ManifestFile, Manifests, OBJECTS_MAX, Objects, Operation, Review,
};
pub use allocate::{NodePorts, NodePortsError, ServiceNetworkError, ServiceNetworks};
pub use attributes::{AUDIT_ANNOTATIONS_MAX, Decoded, Notes, ResourcePath, WARNINGS_MAX};
pub use authorize::{AllowAuthenticated, AlwaysDeny, Authorizer, Decision, forbidden, is_health};
pub use cache::{
    ChangeSignal, MAILBOX_BYTES_MAX, MAILBOX_CHANGES_MAX, ObjectChange, ObjectChanges,
    StoredObject, VIEW_BYTES_MAX,
};
pub use catalog::{Catalog, Resource, Routes, SchemaLanguage, SubresourceRow};
pub use connect::{ProxyName, is_reachable};
pub use conversion::{Conversion, ConversionError, ConversionProvider, ConversionRequest};
pub use crd::compare_versions;
pub use features::{Emulation, EmulationError, Feature, FeatureGateError, FeatureGates, Release};
pub use foreign::{StorageMediaType, StorageMediaTypeError};
pub use identity::{Identity, Impersonator};
pub use latency::Layer;
pub use node_authorizer::NodeAuthorizer;
pub use rbac::Rbac;
pub use read::{List, Listed};
pub use registry::{
    EVENT_TTL, HISTORY_PERIOD, REPLAYED_REVISIONS, Registry, RegistryBuilder, RegistryWorker,
    WATCH_TIMEOUT_MIN, WeakRegistry,
};
pub use request::*;
pub use routed::{Attributes, Requested, Target};
pub use runtime_config::{RuntimeConfig, RuntimeConfigError};
pub use service_account::{
    DEFAULT_ISSUER, LEGACY_ISSUER, ServiceAccountTokens, TokenSigner, TokenSignerError,
};
pub use setpoint_jwt as jwt;
pub use setpoint_object::users::MASTERS;
pub use setpoint_rbac::{MissingRole, Rule};
pub use shard_selector::{ShardField, ShardSelector};
pub use shared_objects::SharedObjects;
pub use subresource::Subresource;
pub use token_review::{TokenReviewer, TokenVerdict};
pub use verb::Verb;
pub use watch::{Event, EventKind, WatchStream};
pub use webhook::{WebhookCaller, WebhookClient, WebhookClients, WebhookError};
