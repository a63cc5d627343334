//! A control plane for tests: in process, in virtual time, with faults on request.
//!
//! # Theory
//!
//! A test of a controller needs three things that a cluster cannot offer: its own server that
//! starts immediately, a clock that jumps over waits, and faults on request.
//!
//! ```text
//!             #[setpoint::test]                       Scenario: the same world, many plans
//!                   │                                   │ plan: seed, crash at write n, faults
//!                   ▼                                   ▼
//!   test ──▶ TestEnv: client, managers ──▶ Wire ──▶ ControlPlane in this process ──▶ store
//!                   ▲                      faults                                      │
//!                   └── eventually, until ◀────────── Timeline ◀── every change ───────┘
//! ```
//!
//! [`TestEnv`] runs a whole control plane with its built-in controllers on the test's own runtime,
//! owns the managers that the test starts, and waits for expected states. Environments share
//! nothing, so tests run in parallel. When a test fails, the [`Timeline`] prints the changes of all
//! objects.
//!
//! Under [`#[setpoint::test]`](macro@test) time is virtual: the runtime has one thread, its clock
//! jumps to the next timer as soon as every task waits, and all randomness comes from a seed. A
//! back-off of ten minutes takes microseconds, and a failing seed fails again. Threads and sockets
//! do not follow virtual time; a test that needs them sets `real_time`.
//!
//! [`Scenario`] runs a user's own managers and reconcilers through crashes before and after each
//! write, lost responses, conflicts, and watches that are slow, break or expire. The final state of
//! every run must equal that of an undisturbed run. A failure prints the [`Plan`] that replays it.
//!
//! ```
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube_client::Api;
//! use kube_client::api::PostParams;
//! use setpoint_testenv::{TestEnv, exists};
//!
//! // With the crate `setpoint`: #[setpoint::test]
//! #[setpoint_testenv::test(crate = setpoint_testenv)]
//! async fn config_map_is_stored(env: &TestEnv) {
//!     let maps: Api<ConfigMap> = Api::default_namespaced(env.client());
//!     let map: ConfigMap = serde_json::from_value(serde_json::json!({
//!         "metadata": {"name": "a"}, "data": {"color": "red"},
//!     })).unwrap();
//!     maps.create(&PostParams::default(), &map).await.unwrap();
//!     let map = env.until(&maps, "a", exists()).await;
//!     assert_eq!(map.unwrap().data.unwrap()["color"], "red");
//! }
//! # fn main() {}
//! ```

mod env;
mod matcher;
pub mod scenario;
mod timeline;
mod wait;
pub mod wire;

pub use env::{EndError, StartError, TestEnv, TestEnvBuilder};
pub use matcher::{Matcher, all_of, exists, gone, has_condition, matches};
pub use scenario::{Life, Plan, Plans, Scenario};
pub use setpoint_macros::test;
pub use timeline::Timeline;
pub use wait::Changes;

mod harness;
#[doc(hidden)]
pub use harness::{Outcome, TestSettings, run_test};
