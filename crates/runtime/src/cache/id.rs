//! The identity of a cache.

use std::sync::atomic::{AtomicU64, Ordering};

use setpoint_informer::{Cacheable, SharedInformer};

use super::Cache;

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

impl Cache {
    pub(crate) fn id(&self) -> CacheId {
        self.id
    }

    /// Whether it is one of this cache's informers.
    pub(crate) fn has_informer<K: Cacheable>(
        &self,
        dynamic_type: &K::DynamicType,
        informer: &SharedInformer<K>,
    ) -> bool {
        let known = self.known::<K>(dynamic_type);
        known.is_some_and(|known| known.informers().any(|(_, own)| own.shares_cache(informer)))
    }
}
