//! A declarative control-plane kit.
//!
//! # Theory
//!
//! A control plane is a loop of data, and the whole loop fits in one process. [`ControlPlane`] assembles it: a store, the
//! registry over it, the API server over that. It is built without doing any work; its owner runs it and stops it; clients are
//! handles that wait until it has started.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use setpoint::ControlPlane;
//! use tokio_util::sync::CancellationToken;
//!
//! let plane = ControlPlane::builder().seed(7).build();
//! let client = plane.client();
//! let stop = CancellationToken::new();
//! let running = plane.run(stop.clone());
//! let asking = async {
//!     let version = client.apiserver_version().await?;
//!     stop.cancel();
//!     Ok::<_, kube_client::Error>(version)
//! };
//! let (ended, version) = tokio::join!(running, asking);
//! ended?;
//! assert_eq!(version?.major, "1");
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! Given the same seed and requests, a control plane on a current-thread runtime with paused time does the same thing each
//! time: its clock starts at a fixed moment unless it is given another, and everything random comes from the seed.

pub mod control_plane;
pub mod story;

pub use control_plane::{ControlPlane, ControlPlaneBuilder};

pub use setpoint_apiserver as apiserver;
pub use setpoint_informer as informer;
pub use setpoint_object as object;
pub use setpoint_runtime as runtime;
pub use setpoint_store as store;
pub use setpoint_workqueue as workqueue;

/// What most controllers start from: `use setpoint::prelude::*`.
pub mod prelude {
    pub use setpoint_informer::{
        ClientSource, Event, HandlerOptions, InformerFactory, Key, ListWatch, Lister,
        SharedInformer, Tombstone,
    };
    pub use setpoint_runtime::{
        Action, Clock, Context, Controller, Manager, Predicate, Reconciler, Request, Watch,
    };
    pub use setpoint_workqueue::WorkQueue;
    pub use tokio_util::sync::CancellationToken;
}
