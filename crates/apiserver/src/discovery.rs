//! Discovery: which groups, versions and resources there are.
//!
//! Two forms of the same catalog. The legacy documents are small and made per request. The
//! aggregated ones hold everything at once, so they are made once per catalog and form and answered
//! by ETag afterwards; `/api` has the core group only, `/apis` all others.

mod aggregated;
mod legacy;

pub(crate) use aggregated::{Aggregated, wants_aggregated};
pub(crate) use legacy::{api_group, api_groups, api_resources, api_versions};
