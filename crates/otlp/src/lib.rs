//! Sends spans to an OpenTelemetry collector by OTLP over gRPC.
//!
//! # Theory
//!
//! [`TracingConfig`] is kube-apiserver's file of `--tracing-config-file`. It gives a
//! [`Tracer`](setpoint_spans::Tracer), which the API server fills, and an [`Exporter`], which its
//! owner runs. They share a bounded queue.
//!
//! ```text
//!   requests ──▶ SpanQueue ──▶ batch ──▶ one call at a time ──▶ collector
//!                (bounded)     512 spans, or what there is after 5 s
//! ```
//!
//! Nothing waits for the collector. While it is slow or absent, the queue fills, and spans that do
//! not fit are dropped and counted. A batch that fails for a while is sent again until
//! [`RETRY_MAX`] is over.
//!
//! | limit | of |
//! |---|---|
//! | [`QUEUE_SPANS_MAX`](setpoint_spans::QUEUE_SPANS_MAX), [`QUEUE_BYTES_MAX`](setpoint_spans::QUEUE_BYTES_MAX) | the queue |
//! | [`BATCH_SPANS_MAX`] | one call, and so its memory |
//! | [`EXPORT_MAX`] | time of one call, connecting included |
//! | [`RETRY_MAX`] | time for one batch |
//! | [`FLUSH_MAX`] | after `stop`: time for the batch that is being sent, and again for the rest |
//!
//! The protocol buffers are derived, so that no `protoc` is needed, and calls are those of
//! `setpoint_grpc`. The connection has no TLS, as kube-apiserver's.

mod collector;
mod config;
mod exporter;
mod proto;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use config::{DEFAULT_ENDPOINT, Endpoint, FILE_BYTES_MAX, TracingConfig, TracingConfigError};
pub use exporter::{
    BATCH_SPANS_MAX, BATCH_WAIT_MAX, EXPORT_MAX, Exporter, FLUSH_MAX, RETRY_INTERVAL, RETRY_MAX,
    Resource,
};
