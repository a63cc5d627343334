//! A control plane in one process: a store, the registry, the API server and the built-in
//! controllers.
//!
//! # Theory
//!
//! [`ControlPlane`] assembles the server half. Building it does no work; its owner runs and stops
//! it; clients are handles that wait until it has started.
//!
//! | part | source |
//! |---|---|
//! | objects | [`ControlPlaneBuilder::store`]: any engine |
//! | time and randomness | the wall clock and the operating system, or [`ControlPlaneBuilder::simulated`] |
//! | authorization, admission, further routes | [`ControlPlaneBuilder`]'s extension points |
//! | built-in controllers | one set per control plane, over its watch cache; if several servers share a store, only on the leader |
//! | nodes without containers, and a scheduler | [`ControlPlaneBuilder::nodes`] |
//! | calls to webhooks | `setpoint_webhook_client`; services are looked up among the objects, or by [`ControlPlaneBuilder::service_resolver`] |
//! | group versions of other servers | APIService objects; services are found as those of webhooks |
//! | other servers that know users | [`remote`] |
//! | being an extension server of another API server | [`delegation`] |
//! | proxies of pods, Services and nodes, and kubelets | the network, through [`ControlPlaneBuilder::kubelets`] |
//! | tokens of OpenID Connect issuers | [`oidc`], through [`ControlPlaneBuilder::issuers`] |
//! | sockets, certificates, kubeconfig | [`serve`], through [`ControlPlane::serve`] |
//!
//! In-process clients are [`ControlPlane::client`], which passes the same stages as HTTP, and
//! [`ControlPlane::source`], which skips HTTP.

pub mod abac;
pub mod admission_config;
mod aggregation;
pub mod authorization_config;
mod built_in;
mod config_metrics;
pub mod control_plane;
pub mod delegation;
mod egress_metrics;
mod extensions;
mod families;
mod flow_metrics;
mod identity;
mod issuer_metrics;
mod issuers;
mod metrics_page;
mod nodes;
mod peers;
mod process_metrics;
mod proxy;
mod registry_metrics;
mod reload;
pub mod remote;
mod request_metrics;
pub mod serve;
mod server_metrics;
mod shared_parts;
pub mod source;
mod webhooks;
mod while_needed;

pub use admission_config::{AdmissionConfigError, AdmissionConfiguration, ManifestsWorker};
pub use authorization_config::{AuthorizationConfig, ConfiguredAuthorizers};
pub use config_metrics::{ConfigMetrics, server_hash};
pub use control_plane::{ControlPlane, ControlPlaneBuilder};
pub use egress_metrics::EgressMetrics;
pub use issuer_metrics::IssuerMetrics;
pub use issuers::IssuerTokens;
pub use metrics_page::MetricsPageOptions;
pub use nodes::SimulatedNodes;
pub use peers::{DISCOVERY_BYTES_MAX, FORGOTTEN_AFTER, PEERS_MAX, PeerOptions};
pub use proxy::kubelets::{KubeletFilesError, KubeletOptions};
pub use request_metrics::{REQUEST_SECONDS, RequestMetrics};
pub use serve::{ServeError, ServeOptions, Serving};
pub use setpoint_controllers::Selection;
pub use setpoint_egress as egress;
pub use setpoint_nodes::{NODE_LABEL, STAGES_BYTES_MAX, StageError, Stages};
pub use setpoint_oidc as oidc;
pub use setpoint_webhook_client as webhook_client;
pub use shared_parts::SharedParts;
pub use source::InProcessSource;
pub use webhooks::WebhookCredentials;
