//! What a queue asks of the store behind it.
use crate::indexer::Lister;
use crate::key::Key;
use crate::object::Object;

/// What the store behind a queue holds; it must be what the queue's reader makes of the batches.
///
/// Asked under the queue's lock, so that nothing is taken out meanwhile: it must not call the
/// queue, and should be quick.
pub trait KnownObjects<T>: Send + Sync + 'static {
    /// The keys of everything that is held.
    fn keys(&self) -> Vec<Key>;
    /// One object, if it is held.
    fn get(&self, key: &Key) -> Option<T>;
}

impl<K: Send + Sync + 'static> KnownObjects<Object<K>> for Lister<K> {
    fn keys(&self) -> Vec<Key> {
        self.snapshot().iter().map(|object| object.key().clone()).collect()
    }

    fn get(&self, key: &Key) -> Option<Object<K>> {
        self.object(key)
    }
}
