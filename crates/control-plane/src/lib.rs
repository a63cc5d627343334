//! A control plane in the process: a store, the registry over it, the API server over that, and the
//! built-in controllers.
//!
//! # Theory
//!
//! [`ControlPlane`] assembles the server half. It is built without doing any work; its owner runs
//! it and stops it; clients are handles that wait until it has started.
//!
//! | part | where it comes from |
//! |---|---|
//! | objects | [`ControlPlaneBuilder::store`]: any engine |
//! | time and chance | the wall clock and the operating system, or [`ControlPlaneBuilder::simulated`] |
//! | who may do what, what may be stored, what else is served | [`ControlPlaneBuilder`]'s extension points |
//! | built-in controllers | one set each, over the watch cache of this process; with several servers on one store, on the one that leads |
//! | sockets, certificates, kubeconfig | [`serve`], when [`ControlPlane::serve`] is asked |
//!
//! Clients in process are [`ControlPlane::client`], over the same stages as HTTP, and
//! [`ControlPlane::source`], without HTTP in between.

mod built_in;
pub mod control_plane;
mod extensions;
mod request_metrics;
pub mod serve;
pub mod source;

pub use control_plane::{ControlPlane, ControlPlaneBuilder};
pub use request_metrics::{REQUEST_SECONDS, RequestMetrics};
pub use serve::{ServeError, ServeOptions, Serving};
pub use source::InProcessSource;
