//! Temporary leases of cached types.

use std::{fmt, ops::Deref, sync::Arc};

use parking_lot::Mutex;

use super::{CacheInformer, Id, Informers};

/// A lease of the informers of a type. Dropping the last lease stops them, unless the type is
/// cached permanently.
pub(crate) struct CacheLease<K> {
    pub(super) informer: CacheInformer<K>,
    pub(super) informers: Arc<Mutex<Informers>>,
    pub(super) id: Id,
    /// Distinguishes the leased informers from those of a new request after a removal.
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
        let cached = informers.by_id.get_mut(&self.id);
        let Some(cached) = cached.filter(|cached| cached.number == self.number) else { return };
        cached.n_leases -= 1;
        if cached.n_leases == 0 && !cached.is_pinned {
            let removed = informers.by_id.remove(&self.id);
            informers.found.clear();
            drop(informers);
            drop(removed);
        }
    }
}

impl<K> fmt::Debug for CacheLease<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CacheLease").field(&self.informer).finish()
    }
}
