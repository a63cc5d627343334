//! A control plane for tests: in process, in virtual time, with faults on request.
//!
//! # Theory
//!
//! A test of a controller wants three things that a cluster cannot give: a server of its own that
//! starts in no time, a clock that waits for nobody, and failures when it asks for them.
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
//! owns the managers that the test starts, and waits for what must become true. Nothing is shared
//! between two of them, so tests run in parallel. When a test fails, the [`Timeline`] prints what
//! became of every object.
//!
//! Under [`#[setpoint::test]`](macro@test) time is virtual: the runtime has one thread, its clock
//! jumps to the next timer as soon as every task waits, and everything random comes from a seed. A
//! back-off of ten minutes takes microseconds, and a failing seed fails again. Two things do not
//! know virtual time: threads and sockets. A test that needs them asks for `real_time`.
//!
//! [`Scenario`] takes a user's own managers and reconcilers through crashes before and after each
//! write, lost answers, conflicts, and watches that are slow, break or expire, and compares where
//! every play ends with where the undisturbed one ends. A failure prints the [`Plan`] that replays
//! it.
//!
//! ```
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube_client::Api;
//! use kube_client::api::PostParams;
//! use setpoint_testenv::{TestEnv, exists};
//!
//! // With the crate `setpoint`: #[setpoint::test]
//! #[setpoint_testenv::test(crate = setpoint_testenv)]
//! async fn config_map_is_kept(env: &TestEnv) {
//!     let maps: Api<ConfigMap> = Api::default_namespaced(env.client());
//!     let map: ConfigMap = serde_json::from_value(serde_json::json!({
//!         "metadata": {"name": "a"}, "data": {"color": "red"},
//!     })).unwrap();
//!     maps.create(&PostParams::default(), &map).await.unwrap();
//!     let kept = env.until(&maps, "a", exists()).await;
//!     assert_eq!(kept.unwrap().data.unwrap()["color"], "red");
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

mod harness;
#[doc(hidden)]
pub use harness::{Outcome, TestSettings, run_test};
