//! OpenTelemetry traces of passes: with the feature `otel`, if a tracer is given.
//!
//! A pass is one span of kind *internal*, made from the same record as
//! [`explain`](crate::ControllerHandle::explain). While the reconciler runs, it is the active
//! context, so the reconciler's own spans are its children. Reads and writes are events of the
//! span. There is no global provider; the program passes one.
//!
//! | attribute                         | value                                                             |
//! |-----------------------------------|-------------------------------------------------------------------|
//! | `k8s.namespace.name`              | the key's namespace, if keys are names of objects and it has one  |
//! | `error.type`                      | of a failed pass: `error`, `terminal`, `panic`, `timeout` …       |
//! | `setpoint.controller.name`        | the controller                                                    |
//! | `setpoint.request`                | the key's `Display` text                                          |
//! | `setpoint.reconcile.id`           | the id of the pass                                                |
//! | `setpoint.reconcile.cause`        | the cause in one word: [`Cause::as_str`](crate::explain::Cause::as_str)    |
//! | `setpoint.reconcile.source`       | the number of the watch of the event                              |
//! | `setpoint.reconcile.resource_version` | the version of the event's object                             |
//! | `setpoint.reconcile.events`       | how many additions were merged into the pass                      |
//! | `setpoint.reconcile.waited`       | seconds in the queue                                              |
//! | `setpoint.reconcile.priority`, `setpoint.reconcile.attempt` | as in the queue                         |
//! | `setpoint.reconcile.outcome`      | [`PassOutcome::as_str`](crate::explain::PassOutcome::as_str)               |
//!
//! The first two are OpenTelemetry's names; it has none for controllers yet. An event of the span
//! is `k8s.read` or `k8s.write`, with `setpoint.resource`, `setpoint.object`, `setpoint.from` or
//! `setpoint.verb`, `setpoint.resource_version`, and for a refused write
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
