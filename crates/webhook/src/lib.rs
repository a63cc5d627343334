//! Admission, conversion and token review webhooks from Rust functions.
//!
//! # Background
//!
//! An API server calls webhooks before it stores an object: *mutating* webhooks may change it,
//! *validating* webhooks may refuse it. It calls *conversion* webhooks for an object in another
//! version of its kind, and *token review* webhooks for the user of a token. Each request is a JSON
//! *review* with a UID, posted over HTTPS; the answer is the same review with a response and the
//! same UID. A webhook that does not answer, or answers with something else, blocks writes to the
//! types it is registered for.
//!
//! # Theory
//!
//! How [`Webhooks::handle`] processes a body:
//!
//! 1. The path is looked up in an immutable table. Paths and conversions are unique:
//!    [`RegisterError`].
//! 2. The review's envelope is read: its version and its UID. From here on every answer is a review
//!    in that version with that UID, also for a wrong content type, a request that cannot be
//!    decoded, and a handler that panics. Before that there is no UID to repeat, so the answer is a
//!    `Status` with an HTTP error, whose message API servers show.
//! 3. The request is read. Objects stay slices of the body until a handler decodes them.
//! 4. The handler is called. [`Mutating`] and [`Validating`] decode objects into any type that
//!    serde supports; a function of a [`Call`] receives the raw request; a [`Chain`] calls several
//!    handlers in order.
//! 5. The changes become a patch against the *bytes of the request*. It contains the mutator's
//!    changes only, and no difference caused by fields that the type does not know.
//!
//! | event | HTTP | answer |
//! |---|---|---|
//! | unknown path; method other than POST; body over [`BODY_BYTES_MAX`], of a conversion over [`CONVERSION_BYTES_MAX`] | 404; 405; 413 | `Status` |
//! | empty body, not JSON, another kind of review, no request | 400 | `Status` |
//! | wrong content type, undecodable request or object, unknown operation | 200 | denied, code 400 |
//! | handler returns an error | 200 | denied, code 403 or the error's own status |
//! | handler panics | 200 | denied, code 500, counted |
//! | a conversion fails or panics | 200 | result `Failure`, no objects |
//!
//! [`WebhookServer`] serves this over TLS. Its certificate files are read again within a second
//! after a change, and every [`POLL_INTERVAL`](certificate::POLL_INTERVAL); a pair that cannot be
//! read or does not match is counted and logged, and the previous one remains in use. Webhooks do
//! not need leadership: every replica answers.
//!
//! This crate knows nothing of the API server or the runtime. The feature `server` (default) adds
//! the HTTPS server; without it the crate depends on neither HTTP nor TLS.
//!
//! # Example
//!
//! ```
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use setpoint_webhook::{Call, Change, Refusal, Webhooks, path};
//!
//! async fn set_defaults(mut map: ConfigMap, _call: Call) -> Result<ConfigMap, Refusal> {
//!     map.data.get_or_insert_default().entry("color".into()).or_insert("blue".into());
//!     Ok(map)
//! }
//!
//! async fn validate(change: Change<ConfigMap>, call: Call) -> Result<(), Refusal> {
//!     if change.before().is_some_and(|old| old.immutable == Some(true)) {
//!         return Err(Refusal::denied("it is not to be touched"));
//!     }
//!     if change.after().is_some_and(|new| new.data.is_none()) {
//!         call.warn("a map without data is of little use");
//!     }
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let webhooks = Webhooks::builder().mutate(set_defaults).validate(validate).build()?;
//! assert_eq!(webhooks.paths(), ["/mutate--v1-configmap", "/validate--v1-configmap"]);
//!
//! let review = r#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
//!     "uid": "705ab4f5", "operation": "CREATE", "object": {"metadata": {"name": "a"}, "later": 1}}}"#;
//! let reply = webhooks.handle("/mutate--v1-configmap?timeout=10s", review).await;
//! let answer: serde_json::Value = serde_json::from_slice(&reply.body)?;
//! assert_eq!(answer["response"]["uid"], "705ab4f5");
//! // [{"op":"add","path":"/data","value":{"color":"blue"}}]
//! assert_eq!(answer["response"]["patch"], "W3sib3AiOiJhZGQiLCJwYXRoIjoiL2RhdGEiLCJ2YWx1ZSI6eyJjb2xvciI6ImJsdWUifX1d");
//! # Ok(())
//! # }
//! ```
//!
//! To serve them (with the certificate in `<tmp>/k8s-webhook-server/serving-certs`, on port 9443,
//! until `stop` is cancelled):
//!
//! ```no_run
//! # async fn serve(webhooks: setpoint_webhook::Webhooks) -> Result<(), Box<dyn std::error::Error>> {
//! use setpoint_object::time::Clock;
//! use setpoint_webhook::WebhookServer;
//! use tokio_util::sync::CancellationToken;
//!
//! let stop = CancellationToken::new();
//! let server = WebhookServer::builder(webhooks, Clock::wall()).bind().await?;
//! server.run(stop).await?;
//! # Ok(())
//! # }
//! ```
//!
//! In a manager of the runtime the server belongs to the webhooks' group, which starts before the
//! caches and stops after them: `Runnable::webhooks(|stop| async { Ok(server.run(stop).await?) })`.
//! With the crate `setpoint` that is one call, `manager.webhooks(Webhooks::builder()…)`, with
//! metrics and readiness.

pub mod admission;
pub mod authentication;
#[cfg(feature = "server")]
pub mod certificate;
pub mod conversion;
pub mod metrics;
pub mod path;
#[cfg(feature = "server")]
pub mod server;
pub mod webhooks;

mod panic;
mod patch;
mod review;

pub use admission::{
    AdmissionHandler, AdmissionRequest, AdmissionResponse, Call, Chain, Change, Mutating, Mutator,
    Operation, Refusal, UserInfo, Validating, Validator,
};
pub use authentication::{Authenticated, Authenticator, TokenRequest};
pub use conversion::{KindConversion, Spoke};
pub use metrics::Metrics;
#[cfg(feature = "server")]
pub use server::WebhookServer;
pub use webhooks::{BODY_BYTES_MAX, CONVERSION_BYTES_MAX, RegisterError, Reply, Webhooks};
