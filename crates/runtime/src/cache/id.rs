//! The identity of a cache, and its end.

use setpoint_informer::{Cacheable, SharedInformer};
use tokio_util::sync::CancellationToken;

use super::{Cache, Informers};
use crate::pass::CacheId;

impl Cache {
    pub(crate) fn id(&self) -> CacheId {
        self.id
    }

    /// Cancelled when the cluster of this cache was removed from the manager.
    pub(crate) fn closed(&self) -> &CancellationToken {
        &self.closed
    }

    /// Ends it: no type is cached any more.
    pub(crate) fn close(&self) {
        self.closed.cancel();
        let informers = {
            let mut informers = self.informers.lock();
            let last_number = informers.last_number;
            std::mem::replace(&mut *informers, Informers { last_number, ..Informers::default() })
        };
        // Drop without the lock, because destructors may request informers.
        drop(informers);
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
