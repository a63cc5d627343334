//! Where a pass read or wrote.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Distinguishes the caches of a process, and with them the clusters of a manager: versions of
/// different clusters are not comparable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct CacheId(u64);

impl CacheId {
    #[cfg(test)]
    pub(crate) const OWN: Self = Self(0);

    pub(crate) fn next() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self(LAST.fetch_add(1, Ordering::Relaxed))
    }
}

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
