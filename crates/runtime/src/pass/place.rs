//! Where a pass read or wrote.

use std::sync::Arc;

use crate::cache::CacheId;

/// A resource of one cluster.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    /// The cache of the cluster.
    pub(crate) cache: CacheId,
    /// The resource, with its group.
    pub(crate) resource: &'a Arc<str>,
    /// The name of the cluster; `None` for the manager's own.
    pub(crate) cluster: Option<&'a Arc<str>>,
}
