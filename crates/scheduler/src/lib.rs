//! A scheduler of pods, as an ordinary client of the API.
//!
//! # Theory
//!
//! ```text
//!   pods, nodes, … ──▶ State ──snapshot──▶ Cycle ──▶ assume ──▶ writer ──▶ binding, condition, event
//!                        ▲                  one at a time         sixteen at a time
//!                        └── changes that may help ──▶ refused pods, after their back-off
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | `pod`, `disk`, `node`, `view` | objects as the scheduler needs them; a snapshot of all of them takes no time |
//! | `crowd` | assigned pods that are alike, counted by node and zone |
//! | `plugins` | a table of filters and scores; `plugins::claims` allocates devices |
//! | `cycle`, `preemption` | the decision about one pod: a pure function, in steps of bounded work |
//! | `group`, `group_cycle` | PodGroups with their pods, and the decision about one group |
//! | `state` | assigned, assumed and refused pods; what each refused pod waits for |
//! | `scheduler`, `binder` | the controllers around it |
//!
//! A pod that a cycle has placed occupies its node at once, before its binding is written, and
//! until the server says otherwise; the devices of its claims are in use as long. So one scheduler
//! never overcommits a node or gives a device twice, however late its caches are. The rules, the
//! order of the plug-ins, their weights and the texts are those of kube-scheduler's default
//! profile; what is left out is listed in `docs/nodes.md`.
//!
//! The crate knows nothing of the API server.

mod amounts;
mod binder;
mod crowd;
mod cycle;
mod disk;
mod group;
mod group_cycle;
mod labels;
mod node;
mod placing;
mod plugins;
mod pod;
mod preemption;
mod scheduler;
mod state;
mod view;

pub use group::PodGroups;
pub use scheduler::{SCHEDULER_NAME, Scheduler, SchedulerError};
