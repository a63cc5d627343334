//! What caches a type for a while.

use std::{fmt, ops::Deref, sync::Arc};

use parking_lot::Mutex;

use super::{CacheInformer, Id, Informers};

/// The informers of a type for a while.
pub(crate) struct CacheLease<K> {
    pub(super) informer: CacheInformer<K>,
    pub(super) informers: Arc<Mutex<Informers>>,
    pub(super) id: Id,
    /// Tells what is leased from what is requested anew after it was removed.
    pub(super) number: u64,
}

impl<K> Deref for CacheLease<K> {
    type Target = CacheInformer<K>;

    fn deref(&self) -> &CacheInformer<K> {
        &self.informer
    }
}

impl<K> Drop for CacheLease<K> {
    fn drop(&mut self) {
        let mut informers = self.informers.lock();
        let known = informers.by_id.get_mut(&self.id);
        let Some(known) = known.filter(|known| known.number == self.number) else { return };
        known.n_leases -= 1;
        if known.n_leases == 0 && !known.is_pinned {
            let forgotten = informers.by_id.remove(&self.id);
            informers.found.clear();
            drop(informers);
            drop(forgotten);
        }
    }
}

impl<K> fmt::Debug for CacheLease<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CacheLease").field(&self.informer).finish()
    }
}
