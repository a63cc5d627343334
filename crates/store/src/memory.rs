//! The memory engine.
use crate::contract::*;
use bytes::Bytes;
use futures::future::BoxFuture;
/// Options of a memory store.
#[derive(Debug, Clone)]
pub struct MemoryOptions {
    /// How many revisions of history are kept at most (older ones are compacted away by themselves).
    pub history_revisions_max: usize,
}
impl Default for MemoryOptions {
    fn default() -> Self {
        Self { history_revisions_max: 100_000 }
    }
}
/// The memory engine: persistent ordered maps; a handle is cheap to clone and shares the store.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    _private: (),
}
impl MemoryStore {
    /// An empty store at revision 1 (as a fresh etcd).
    pub fn new(_options: MemoryOptions) -> Self {
        todo!()
    }
    /// An independent store with the same content and history, in O(1).
    pub fn fork(&self) -> Self {
        todo!()
    }
}
impl Store for MemoryStore {
    fn revision(&self) -> BoxFuture<'_, Result<Revision, StoreError>> {
        todo!()
    }
    fn get<'a>(
        &'a self,
        _key: &'a [u8],
        _at: At,
    ) -> BoxFuture<'a, Result<Snapshot<Option<KeyValue>>, StoreError>> {
        todo!()
    }
    fn range<'a>(
        &'a self,
        _request: RangeRequest,
    ) -> BoxFuture<'a, Result<Snapshot<Range>, StoreError>> {
        todo!()
    }
    fn commit(&self, _txn: Txn) -> BoxFuture<'_, Result<Committed, StoreError>> {
        todo!()
    }
    fn changes(
        &self,
        _prefix: Bytes,
        _after: Revision,
    ) -> BoxFuture<'_, Result<Box<dyn ChangeFeed>, StoreError>> {
        todo!()
    }
    fn compact(&self, _revision: Revision) -> BoxFuture<'_, Result<(), StoreError>> {
        todo!()
    }
}
