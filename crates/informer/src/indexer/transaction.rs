//! Several writes in one step.
use super::Indexer;
use super::index::{IndexError, IndexResult, values_of};
use crate::key::Key;
use crate::object::{Object, Raw, Untyped};
use std::sync::Arc;

/// One write of a transaction.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Write<K> {
    /// Inserts an object.
    Upsert(Object<K>),
    /// Removes the object with the key of this one, which is its last state. Its resourceVersion
    /// becomes the cache's (IDX-10).
    Delete(Object<K>),
    /// Removes the object with this key. The cache's resourceVersion stays.
    Remove(Key),
}

impl<K> Write<K> {
    fn into_raw(self) -> Write<Untyped> {
        match self {
            Self::Upsert(object) => Write::Upsert(object.into_type()),
            Self::Delete(object) => Write::Delete(object.into_type()),
            Self::Remove(key) => Write::Remove(key),
        }
    }
}

impl<K> Indexer<K> {
    /// Makes several writes in one step: a reader sees none of them or all (IDX-11). Returns for
    /// each, in their order, the object that was there before, or why the write was rejected. A
    /// rejected write leaves its key as it was and does not affect others.
    pub fn transaction(
        &mut self,
        writes: Vec<Write<K>>,
    ) -> Vec<Result<Option<Object<K>>, IndexError>> {
        let functions = self.functions.clone();
        let index = |object: &Raw| values_of(&*functions, object);
        let writes = writes.into_iter().map(Write::into_raw);
        let written = self.transaction_indexed(writes, index).into_iter();
        written.map(|old| old.map(|old| old.map(Object::into_type))).collect()
    }

    /// [`transaction`](Self::transaction); `index` returns the index values of each inserted
    /// object, in the order of the writes.
    pub(crate) fn transaction_indexed(
        &mut self,
        writes: impl IntoIterator<Item = Write<Untyped>>,
        mut index: impl FnMut(&Raw) -> IndexResult,
    ) -> Vec<Result<Option<Raw>, IndexError>> {
        // The functions are the user's: they are called before the lock is taken.
        let indexed: Vec<_> = writes
            .into_iter()
            .map(|write| {
                let values = match &write {
                    Write::Upsert(object) => index(object)?,
                    Write::Delete(_) | Write::Remove(_) => Vec::new(),
                };
                Ok((write, values))
            })
            .collect();
        for (write, _) in indexed.iter().flatten() {
            if let Write::Upsert(object) = write {
                self.pack_held(object);
            }
        }
        // Readers see the state after all writes, so only the last version matters.
        let versions = indexed.iter().rev().flatten().map(|(write, _)| match write {
            Write::Upsert(object) if !self.is_replaying => object.resource_version(),
            Write::Delete(last) => last.resource_version(),
            Write::Upsert(_) | Write::Remove(_) => "",
        });
        let reached: Option<Arc<str>> =
            versions.filter(|version| !version.is_empty()).map(Arc::from).next();
        let mut guard = self.state.write();
        let state = Arc::make_mut(&mut guard);
        let write = |indexed: Result<_, IndexError>| {
            Ok(match indexed? {
                (Write::Upsert(object), values) => state.put(object, values),
                (Write::Delete(last), _) => state.take(last.key()),
                (Write::Remove(key), _) => state.take(&key),
            })
        };
        let written: Vec<_> = indexed.into_iter().map(write).collect();
        if let Some(reached) = reached {
            state.resource_version = reached;
        }
        drop(guard);
        written.iter().flatten().flatten().for_each(Object::on_removed);
        written
    }
}
