//! The built-in controllers of a control plane.
//!
//! # Theory
//!
//! Each is an ordinary client of the API: it lists and watches, queues what changed, and writes
//! with preconditions. None has a way into the server that a user's controller lacks, and all of
//! them may run against any Kubernetes-compatible server.
//!
//! | controller | watches | does |
//! |---|---|---|
//! | [`NamespaceController`] | namespaces | empties one that is being deleted, then lets it go |
//! | [`GarbageCollector`] | metadata of everything that can be deleted, or a feed of the server in the same process | deletes what lost its owners; foreground and orphan deletion |
//! | [`ProtectionController`] | metadata of claims, volumes and pods | lets a deleted claim or volume go once nothing uses it |
//!
//! They write as `kube-controller-manager`, the name that tools expect in `managedFields`.
//! Constructors do nothing; what runs is a future that the caller owns. They know nothing of the
//! API server's inside.

mod api;
pub mod gc;
pub mod namespace;
pub mod protection;

pub use api::RequestError;
pub use gc::GarbageCollector;
pub use namespace::NamespaceController;
pub use protection::ProtectionController;
