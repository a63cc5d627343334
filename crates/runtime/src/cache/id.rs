//! The identity of a cache.

use setpoint_informer::{Cacheable, SharedInformer};

use super::Cache;
use crate::pass::CacheId;

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
