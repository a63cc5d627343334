//! Nodes without containers, so that everything that needs nodes moves: pods start, become ready,
//! crash, finish, and are removed.
//!
//! # Theory
//!
//! | part | does |
//! |---|---|
//! | [`Nodes`] | registers nodes, and keeps their Leases alive |
//! | [`Stages`] | data: which objects match, after which delay what becomes of them |
//! | `engine` | moves objects from stage to stage |
//! | `kubelet` | what a kubelet would make of a pod: a pure function of the pod and the time |
//! | [`restart`] | when a container that has ended starts again |
//! | `world` | addresses of nodes and pods, host ports in use |
//!
//! The controllers are ordinary clients of the API. What they need to know is in the objects, so
//! they continue where an earlier process stopped. Time comes from the manager's clock and delays
//! from a seed. No container runs: the end of a command is known if it is plain to see, such as
//! `sleep 5` or `exit 3`, and every other command runs until it is stopped.
//!
//! `docs/nodes.md` describes the format of stages. The crate knows nothing of the API server.

mod engine;
mod kubelet;
mod nodes;
pub mod restart;
mod stage;
mod volumes;
mod world;

pub use nodes::{Nodes, NodesError};
pub use stage::{STAGES_BYTES_MAX, StageError, Stages};
pub use world::{NODE_LABEL, NODES_MAX};
