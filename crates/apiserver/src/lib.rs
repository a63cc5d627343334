//! A Kubernetes-compatible API server: HTTP in front of a
//! [`Registry`](setpoint_registry::Registry).
//!
//! # Theory
//!
//! [`ApiServer`] is a [`tower_service::Service`] from an HTTP request to a response whose body may
//! stream. A request goes through it once, top to bottom:
//!
//! ```text
//!  request
//!    │  pipeline  every stage, in order: readiness → Attributes → authenticate → audit → flow control → authorize
//!    │  route     path × catalog → what it names          verb      method → what it does
//!    │  negotiate Accept, Content-Type                    options   query and body options
//!    ▼
//!  registry       one call: no HTTP types below this line
//!    │  list, table, watch    answers cut and assembled from stored bytes
//!    ▼  respond   JSON, YAML or protobuf, indented, compressed, or a Status
//!  response
//! ```
//!
//! The same service answers in process (`ApiServer::client`, feature `client`: no socket, no TLS,
//! streams included) and behind a [`Listener`](listen::Listener). Nothing in it is global, nothing
//! reads a clock of its own, and every task belongs to the run future of a listener, so that a
//! whole server on a current-thread runtime with paused time does the same thing each time.
//!
//! Objects stay bytes: a GET hands out what the registry gave, a LIST joins items, a watch frame is
//! encoded once for everyone. Trees are built for YAML, protobuf and Tables only.
//!
//! It does not know the informer or the runtime, which are its clients.
//!
//! Left out, visibly: discovery documents and WebSocket messages in protobuf, CBOR, RBAC (unless it
//! is given an [`Authorizer`](setpoint_registry::Authorizer), whoever is authenticated may do
//! everything), impersonation, APIServices (a [`Backend`] is the door for them), fairness queues.
//! What [`Metrics`] count is up to their implementation.

mod backend;
mod body;
#[cfg(feature = "client")]
mod client;
mod discovery;
mod extra;
mod filter;
mod go;
mod health;
mod list;
pub mod listen;
mod negotiate;
mod observe;
pub mod openapi;
mod options;
mod pipeline;
mod proxy;
mod query;
mod resource;
mod respond;
mod root;
mod route;
mod scan;
mod server;
mod table;
mod verb;
mod version;
mod watch;
mod websocket;

pub use backend::{
    BACKENDS_MAX, Backend, BackendBuilder, BackendError, Backends, DOCUMENT_BYTES_MAX,
    DOCUMENTS_BYTES_MAX,
};
pub use body::{BODY_BYTES_MAX, Body, BodyError, RequestBody};
pub use extra::Handler;
pub use filter::authenticate::{Authentication, Authenticator, Credentials};
pub use observe::{AuditEvent, AuditQueue, AuditSink, Metrics, Stage};
pub use server::{ApiServer, ApiServerBuilder, Events};
pub use setpoint_registry::{Attributes, Identity, Requested, ResourcePath, Subresource, Verb};
pub use setpoint_serve::Conversation;
pub use version::GIT_VERSION;

/// Any error of a transport.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
