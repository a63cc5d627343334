//! An informer that stops when it is no longer needed.
use super::InformerFactory;
use crate::informer::SharedInformer;
use std::fmt;
use std::ops::Deref;

/// A lease of an informer: when its last lease is dropped and it is not pinned, it is stopped and
/// forgotten. A later request makes a new one with an empty cache, which must be started.
///
/// Derefs to the informer. A clone of the informer keeps its cache readable, but not running.
pub struct InformerLease<K> {
    informer: SharedInformer<K>,
    factory: InformerFactory,
    number: u64,
}

impl<K> InformerLease<K> {
    pub(super) fn new(informer: SharedInformer<K>, factory: InformerFactory, number: u64) -> Self {
        Self { informer, factory, number }
    }
}

impl<K> Deref for InformerLease<K> {
    type Target = SharedInformer<K>;

    fn deref(&self) -> &SharedInformer<K> {
        &self.informer
    }
}

impl<K> fmt::Debug for InformerLease<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InformerLease").field(&self.informer).finish()
    }
}

impl<K> Drop for InformerLease<K> {
    fn drop(&mut self) {
        self.factory.release(self.number);
    }
}
