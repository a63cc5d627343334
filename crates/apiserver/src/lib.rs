//! A Kubernetes-compatible API server: HTTP in front of a
//! [`Registry`](setpoint_registry::Registry).
//!
//! # Theory
//!
//! [`ApiServer`] is a [`tower_service::Service`] from an HTTP request to a response whose body may
//! stream. A request passes through it once, top to bottom:
//!
//! ```text
//!  request
//!    │  pipeline  every stage, in order: readiness → Attributes → authenticate → audit → impersonate → flow control → authorize
//!    │  route     path and catalog → resource             verb      method → verb
//!    │  negotiate Accept, Content-Type                    options   query and body options
//!    ▼
//!  registry       one call: no HTTP types below this line
//!    │  list, table, watch    answers cut and assembled from stored bytes
//!    ▼  respond   JSON, YAML, protobuf or CBOR, indented, compressed, or a Status
//!  response
//! ```
//!
//! The same service answers in process (`ApiServer::client`, feature `client`: no socket, no TLS,
//! streams included) and behind a [`Listener`](listen::Listener). There is no global state and no
//! own clock, and every task belongs to the run future of a listener. So a whole server on a
//! current-thread runtime with paused time behaves the same in every run.
//!
//! Objects stay bytes: a GET returns the registry's bytes, a LIST joins items, a watch frame is
//! encoded once for all watchers. Only YAML, protobuf and Tables need trees; CBOR needs none.
//!
//! It does not depend on the informer or the runtime, which are its clients.
//!
//! Without an [`Authorizer`](setpoint_registry::Authorizer), authenticated users may do everything.
//! `setpoint_registry::Rbac` is one. [`Metrics`] is a trait, and its implementation decides what it
//! counts. This crate does not follow APIServices: `setpoint-control-plane` makes a [`Backend`] of
//! each.
//!
//! CBOR is off without the feature `CBORServingAndStorage` of the registry.
//!
//! Not implemented: discovery documents and WebSocket messages in protobuf.
//! `docs/compatibility.md` lists what else differs from Kubernetes.

mod backend;
mod body;
#[cfg(feature = "client")]
mod client;
mod connect;
mod connector;
mod discovery;
mod extra;
mod figures;
mod filter;
mod health;
mod indent;
mod intercept;
mod list;
pub mod listen;
mod location;
mod negotiate;
mod node_agent;
mod observe;
pub mod openapi;
mod openid;
mod options;
mod peers;
mod pipeline;
mod proxied;
mod proxy;
mod query;
mod resource;
mod respond;
mod root;
mod route;
mod server;
mod streams;
mod table;
mod token_use;
mod trace;
mod verb;
mod version;
mod watch;
mod websocket;
mod zpages;

pub use backend::{
    BACKENDS_MAX, Backend, BackendBuilder, BackendError, Backends, DOCUMENT_BYTES_MAX,
    DOCUMENTS_BYTES_MAX, Registration,
};
pub use body::{BODY_BYTES_MAX, Body, BodyError, RequestBody};
pub use connector::{Connector, DIALING, Location, Peer, encoded_path};
pub use extra::Handler;
pub use figures::ServerFigures;
pub use filter::authenticate::{
    Anonymous, Authentication, Authenticator, AuthorityError, ClientAuthorities, Credentials,
    NotText, RequestHeader, RequestHeaderNames, TokenAudiences, bearer_token, certificate_user,
};
pub use filter::cors::{Cors, CorsError, PatternErrorText};
pub use filter::fairness::{
    FlowControl, FlowControlReader, FlowFigures, LevelFigures, UtilizationFigures,
};
pub use filter::goaway::{GoAwayChance, GoAwayChanceError};
pub use filter::hsts::{Hsts, HstsError};
pub use filter::in_flight::RequestLimits;
pub use filter::storage_versions::StorageVersionBarrier;
pub use health::HealthCheck;
pub use intercept::{ChangeAnswer, Intercepted, Interceptor};
pub use node_agent::{
    ContainerRef, ContainerStreams, ExecOptions, LogOptions, LogStream, NodeAgent, PodConnection,
    PodRef, StreamLimits, TerminalSize,
};
pub use observe::{
    ANSWER_BYTES_MAX, AuditBody, AuditEvent, AuditLevel, AuditQueue, AuditSink, AuditSource, Ended,
    EventLost, EventStored, Metrics, Stage, WatchMetrics,
};
pub use openapi::{OPEN_API_FILE_BYTES_MAX, OpenApiDescriptions, OpenApiFileError};
pub use peers::{PEER_PROXIED, PeerServer, Peers};
pub use server::{ApiServer, ApiServerBuilder, Events};
pub use setpoint_registry::{Attributes, Identity, Requested, ResourcePath, Subresource, Verb};
pub use setpoint_serve::Conversation;
pub use setpoint_serve::tls::PeerCertificate;
pub use version::{GIT_VERSION, build_info, go_arch};

/// Any error of a transport.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
