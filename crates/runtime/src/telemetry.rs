//! Passes as spans of OpenTelemetry: with the feature `otel`, where a tracer is given.
//!
//! A pass is one span of kind *internal*, made of the same record that
//! [`explain`](crate::ControllerHandle::explain) tells of. While the reconciler runs it is the
//! active context, so that spans of its own are children. Reads and writes are events of the span.
//! No provider is looked up globally: one is given, by handle.
//!
//! | attribute                         | value                                                             |
//! |-----------------------------------|-------------------------------------------------------------------|
//! | `k8s.namespace.name`              | the key's namespace, where keys are names of objects and it has one |
//! | `error.type`                      | of a pass that failed: `error`, `terminal`, `panic`, `timeout` …  |
//! | `setpoint.controller.name`        | the controller                                                    |
//! | `setpoint.request`                | the key, as it displays                                           |
//! | `setpoint.reconcile.id`           | the pass                                                          |
//! | `setpoint.reconcile.cause`        | why, in a word: [`Cause::as_str`](crate::explain::Cause::as_str)           |
//! | `setpoint.reconcile.source`       | the number of the watch whose event it was                        |
//! | `setpoint.reconcile.resource_version` | the version that the event was about                          |
//! | `setpoint.reconcile.events`       | how many additions became the pass                                |
//! | `setpoint.reconcile.waited`       | seconds in the queue                                              |
//! | `setpoint.reconcile.priority`, `setpoint.reconcile.attempt` | as the queue counts them                |
//! | `setpoint.reconcile.outcome`      | [`PassOutcome::as_str`](crate::explain::PassOutcome::as_str)               |
//!
//! The first two are OpenTelemetry's own names; there are none for controllers yet. An event is
//! `k8s.read` or `k8s.write`, with `setpoint.resource`, `setpoint.object`, `setpoint.from` or
//! `setpoint.verb`, `setpoint.resource_version`, and of a refused write
//! `http.response.status_code`.

#[cfg(not(feature = "otel"))]
mod off;
#[cfg(feature = "otel")]
mod otel;

#[cfg(not(feature = "otel"))]
pub(crate) use self::off::{Trace, Traces, within};
#[cfg(feature = "otel")]
pub use self::otel::Traces;
#[cfg(feature = "otel")]
pub(crate) use self::otel::{Trace, within};
