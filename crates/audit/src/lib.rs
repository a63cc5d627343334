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
//! - An event is put in a queue of at most [`EVENTS_MAX`] events and [`QUEUE_BYTES_MAX`] bytes;
//!   events that find it full are dropped and counted ([`Audit::dropped`]).
//! - By default requests do not wait for the log. In the mode [`AuditMode::Blocking`] a request
//!   waits until its event is stored. The events of requests that wait at the same time are stored
//!   together, so that a hundred requests cost one write. With [`AuditMode::BlockingStrict`],
//!   nothing is done that is not on record: a request whose arrival cannot be stored is refused.
//! - The worker takes batches from the queue: full ones at once, others after a while, at most so
//!   many per second. It encodes and writes on a thread that may block. When it is stopped, it
//!   writes what is queued first.
//! - A webhook gets `EventList`s, a few at the same time. A list that it does not take is sent
//!   again a few times, ever later, whatever its answer was.
//! - A [`LogFile`] is rotated by size; old files are removed by number and age, and may be
//!   compressed, beside the writing of lines. No fault of that loses lines: a file that cannot be
//!   rotated grows.
//!
//! # Differences from kube-apiserver
//!
//! | | kube-apiserver | here |
//! |---|---|---|
//! | lists over 1 MiB, other objects over [`OBJECT_BYTES_MAX`] | kept, unless truncating is switched on | left out; annotation `audit.k8s.io/truncated` |
//! | lists in protobuf, CBOR or YAML | as they are sent | as JSON |
//! | pauses between attempts of a webhook's batch | differ a little | do not |
//! | the default mode of a log file | `blocking` | `batch` |
//! | mode `blocking` | one write or list for each event | one for all that wait |
//! | the last event of a watch, of a stream or of a request that was cut off | also blocks | does not |
//! | an apply whose body is YAML, at level `Request` | not recorded | recorded |
//! | unknown members of options of a deletion | left out | as they were sent |
//! | `requestObject` of a new CustomResourceDefinition | with `status.storedVersions` | without |
//! | documents of discovery at level `RequestResponse` | recorded | left out |
//! | unknown fields of a policy | a warning | refused: a rule with a misspelt condition would match more |
//! | `apiserver.latency.k8s.io/*` annotations of slow requests | also of decoding, encoding and sending | `total`, and those of authentication, impersonation, the wait for a seat, authorization, webhooks and commits |
//! | `RequestReceived` at level `Request` | without the body | the same |
//!
//! Source: Kubernetes' documentation of auditing, and answers of kube-apiserver 1.36.
//!
//! This crate knows no command line and no listener.

mod batch;
mod event;
mod log_file;
mod metrics;
mod old_files;
mod policy;
mod sink;
mod webhook;

pub use batch::{AuditMode, BatchOptions, Throttle};
pub use event::{OBJECT_BYTES_MAX, Truncation};
pub use log_file::{LogFile, LogFileOptions};
pub use metrics::AuditMetrics;
pub use policy::{POLICY_BYTES_MAX, Policy, PolicyError, RULES_MAX, Verdict};
pub use sink::{
    Audit, AuditLogOptions, AuditStats, AuditWorker, BLOCKING_MAX, Destination, EVENTS_MAX,
    LogFormat, QUEUE_BYTES_MAX,
};
pub use webhook::{AuditWebhookOptions, ORDERLY_END_MAX, SENDING_MAX};
