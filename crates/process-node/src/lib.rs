//! Nodes whose pods' containers run as processes of this machine. Linux only.
//!
//! # Theory
//!
//! | part | does |
//! |---|---|
//! | [`ProcessNodes`] | registers nodes, keeps their Leases alive, and has a worker per pod |
//! | `workers` | starts the workers of pods, and those that panic again |
//! | `worker` | one pod: volumes, containers in order, restarts, its status, its end |
//! | `container` | one run of a container: a process, its probes, hooks and log |
//! | `logs` | lines in rotated files |
//! | `volumes`, `paths`, `env`, `env_file` | what a process finds: folders, paths and variables |
//! | `tokens` | tokens of service accounts, and when they are renewed |
//! | `terminal` | the terminals of containers and commands |
//! | `guard` | no process outlives its pod or its node |
//! | `agent` | `kubectl logs`, `exec`, `attach` and `port-forward` |
//!
//! There are no containers: images are not read, processes see the machine's files and network, and
//! have the rights of the program's user. So whoever may create pods may run any command as that
//! user. `docs/nodes.md` says what a pod may expect.
//!
//! The node is an ordinary client of the API.

mod address;
mod agent;
mod container;
mod env;
mod env_file;
mod guard;
mod logs;
mod node;
mod paths;
mod probe;
mod shared;
mod status;
mod terminal;
mod tokens;
mod volumes;
mod worker;
mod workers;

pub use address::PodNetwork;
pub use node::{NODE_LABEL, NODES_MAX, PODS_MAX, ProcessNodes, ProcessNodesError};
