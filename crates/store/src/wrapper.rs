//! Stores that wrap another one: the methods that they leave to it.

#[doc(hidden)]
pub use bytes::Bytes;
#[doc(hidden)]
pub use futures::future::BoxFuture;

/// Implements methods of [`Store`](crate::Store) by those of a field: for the `impl` of a store
/// that wraps another one, and writes the other methods itself. A wrapper has to name all methods
/// with a default, or it answers with the default.
///
/// ```
/// use futures::future::BoxFuture;
/// use setpoint_store::{Committed, MemoryStore, Store, StoreError, Txn, delegate};
///
/// /// A store that cannot be written.
/// #[derive(Debug)]
/// struct Frozen {
///     inner: MemoryStore,
/// }
///
/// impl Store for Frozen {
///     delegate!(inner: revision, get, range, changes, compact);
///     delegate!(inner: divide, size_bytes, keeps_history, rewrite_due, stored_key);
///
///     fn commit(&self, _: Txn) -> BoxFuture<'_, Result<Committed, StoreError>> {
///         Box::pin(async { Err(StoreError::Unavailable("frozen".into())) })
///     }
/// }
/// ```
#[macro_export]
macro_rules! delegate {
    ($field:ident: $($method:ident),+ $(,)?) => { $($crate::delegate!(@$method $field);)+ };
    (@revision $field:ident) => {
        fn revision(&self) -> $crate::wrapper::BoxFuture<'_, Result<$crate::Revision, $crate::StoreError>> {
            self.$field.revision()
        }
    };
    (@get $field:ident) => {
        fn get<'a>(
            &'a self,
            key: &'a [u8],
            at: $crate::At,
        ) -> $crate::wrapper::BoxFuture<
            'a,
            Result<$crate::Snapshot<Option<$crate::KeyValue>>, $crate::StoreError>,
        > {
            self.$field.get(key, at)
        }
    };
    (@range $field:ident) => {
        fn range<'a>(
            &'a self,
            request: $crate::RangeRequest,
        ) -> $crate::wrapper::BoxFuture<'a, Result<$crate::Snapshot<$crate::Range>, $crate::StoreError>>
        {
            self.$field.range(request)
        }
    };
    (@commit $field:ident) => {
        fn commit(
            &self,
            txn: $crate::Txn,
        ) -> $crate::wrapper::BoxFuture<'_, Result<$crate::Committed, $crate::StoreError>> {
            self.$field.commit(txn)
        }
    };
    (@commit_each $field:ident) => {
        fn commit_each(
            &self,
            txns: Vec<$crate::Txn>,
        ) -> $crate::wrapper::BoxFuture<'_, Vec<Result<$crate::Committed, $crate::StoreError>>> {
            self.$field.commit_each(txns)
        }
    };
    (@changes $field:ident) => {
        fn changes(
            &self,
            prefix: $crate::wrapper::Bytes,
            after: $crate::Revision,
        ) -> $crate::wrapper::BoxFuture<'_, Result<Box<dyn $crate::ChangeFeed>, $crate::StoreError>> {
            self.$field.changes(prefix, after)
        }
    };
    (@compact $field:ident) => {
        fn compact(
            &self,
            revision: $crate::Revision,
        ) -> $crate::wrapper::BoxFuture<'_, Result<(), $crate::StoreError>> {
            self.$field.compact(revision)
        }
    };
    (@divide $field:ident) => {
        fn divide<'a>(
            &'a self,
            start: &'a [u8],
            end: &'a [u8],
            part_keys: usize,
        ) -> $crate::wrapper::BoxFuture<'a, Result<Vec<$crate::wrapper::Bytes>, $crate::StoreError>> {
            self.$field.divide(start, end, part_keys)
        }
    };
    (@size_bytes $field:ident) => {
        fn size_bytes(&self) -> Option<u64> {
            self.$field.size_bytes()
        }
    };
    (@keeps_history $field:ident) => {
        fn keeps_history(&self) -> bool {
            self.$field.keeps_history()
        }
    };
    (@rewrite_due $field:ident) => {
        fn rewrite_due<'a>(
            &'a self,
            key: &'a [u8],
        ) -> $crate::wrapper::BoxFuture<'a, Result<bool, $crate::StoreError>> {
            self.$field.rewrite_due(key)
        }
    };
    (@stored_key $field:ident) => {
        fn stored_key<'a>(&self, key: &'a [u8]) -> ::std::borrow::Cow<'a, [u8]> {
            self.$field.stored_key(key)
        }
    };
}
