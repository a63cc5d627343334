//! Audit logs: who did what, and when, by Kubernetes' policy and in Kubernetes' form
//! (`audit.k8s.io/v1`).
//!
//! # Theory
//!
//! ```text
//! request ─▶ Audit (an AuditSink) ── policy: level? stage? ── queue ─▶ AuditWorker ─▶ LogFile
//!                                                              │                  └─▶ webhook
//!                                                              └── full: dropped, and counted
//! ```
//!
//! - The [`Policy`] gives each request a level by its first matching rule. A request without a rule
//!   is not recorded, and costs one pass over the rules.
//! - Requests never wait for the log. An event is put in a queue of at most [`EVENTS_MAX`] events
//!   and [`QUEUE_BYTES_MAX`] bytes of bodies; events that find it full are dropped and counted
//!   ([`Audit::dropped`]).
//! - A webhook gets batches (`EventList`): full ones at once, others after a while, at most so many
//!   per second, and a few at the same time. A batch that it does not take is sent again a few
//!   times, ever later.
//! - The worker encodes events and writes them in batches, on a thread that may block. When it is
//!   stopped, it writes what is queued first.
//! - A [`LogFile`] is rotated by size and age; old files are removed by number and age, and may be
//!   compressed.
//!
//! # Differences from kube-apiserver
//!
//! | | kube-apiserver | here |
//! |---|---|---|
//! | lists over 1 MiB, other objects over [`OBJECT_BYTES_MAX`] | kept, unless truncating is switched on | left out; annotation `audit.k8s.io/truncated` |
//! | lists in protobuf or YAML | as they are sent | as JSON |
//! | pauses between attempts of a webhook's batch | differ a little | do not |
//! | modes `blocking` and `blocking-strict` | requests wait for the webhook | not there |
//! | a slow disk | requests wait (`blocking`), or events are dropped (`batch`) | events are dropped |
//! | `RequestReceived` at level `Request` | without the body | the same |
//!
//! Source: Kubernetes' documentation of auditing, and answers of kube-apiserver 1.36.
//!
//! This crate knows no command line and no listener.

mod event;
mod log_file;
mod policy;
mod sink;
mod webhook;

pub use event::{OBJECT_BYTES_MAX, Truncation};
pub use log_file::{LogFile, LogFileOptions};
pub use policy::{POLICY_BYTES_MAX, Policy, PolicyError, RULES_MAX, Verdict};
pub use sink::{Audit, AuditWorker, Destination, EVENTS_MAX, QUEUE_BYTES_MAX};
pub use webhook::{AuditWebhookOptions, ORDERLY_END_MAX, SENDING_MAX, Throttle};
