//! Discovery: the served groups, versions and resources.
//!
//! It has two forms of the same catalog. Legacy documents are small and made per request.
//! Aggregated documents contain everything, so they are made once per catalog and form, and have an
//! ETag; `/api` has the core group, `/apis` all others.

mod aggregated;
mod legacy;
mod order;

pub(crate) use aggregated::{Aggregated, wants_aggregated};
pub(crate) use legacy::{api_group, api_groups, api_resources, api_versions};
pub(crate) use order::to_bytes;
