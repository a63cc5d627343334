//! What objects use of resource quotas: the admission plugin charges it, and the quota controller
//! adds it up.
//!
//! Must not know: requests, the store, HTTP.
//!
//! # Theory
//!
//! | a quota limits | of | amount |
//! |---|---|---|
//! | `count/<resource>.<group>` | every namespaced resource | one per object |
//! | `pods`, `services`, `secrets`, … | the resources of [`ALIASES`] | one per object; pods only until they have ended |
//! | `requests.cpu`, `limits.memory`, `requests.example.com/gpu`, … | pods | sums as the scheduler counts them |
//! | `services.nodeports`, `services.loadbalancers` | services | ports, balancers |
//! | `requests.storage`, `<class>.storageclass.storage.k8s.io/…` | claims | requested storage |
//!
//! An object uses a quota if the quota limits a resource that objects of its kind can use, and the
//! object is in every scope of the quota.

pub mod pod;
pub mod qos;
mod scope;
mod usage;

pub use scope::{Scopes, Term};
pub use usage::{
    ALIASES, Usage, add, counted, is_extended, is_relevant, matching, subtract, usage,
};
