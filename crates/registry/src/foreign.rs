//! Values that another program encoded, in a store that is shared with it.
//!
//! What this registry writes is one line of JSON. A kube-apiserver with `--storage-media-type=application/json` ends it with a line
//! break, which here would break up a stream of events: it is cut off as the value is read. What a kube-apiserver wrote in protobuf, its
//! default for built-in kinds, is not read: a get says so ([`StoreError::Unreadable`]), and ranges and feeds treat it as what cannot be
//! made out ([`setpoint_store::is_sealed`]). Other differences (the order of members) mean nothing to readers.
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use setpoint_store::{
    At, Batch, ChangeFeed, Committed, KeyValue, PROTOBUF_PREFIX, Range, RangeRequest, Revision,
    Snapshot, Store, StoreError, Txn,
};
use std::sync::Arc;

/// A store whose values are as this registry would have encoded them.
#[derive(Debug)]
pub(crate) struct ForeignStore {
    inner: Arc<dyn Store>,
}
impl ForeignStore {
    pub(crate) fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner }
    }
}

fn trim(value: &mut Bytes) {
    // In most values there is nothing to cut: the last byte tells.
    if value.last().is_some_and(u8::is_ascii_whitespace) && !value.starts_with(PROTOBUF_PREFIX) {
        value.truncate(value.trim_ascii_end().len());
    }
}
fn trimmed(mut entry: KeyValue) -> KeyValue {
    trim(&mut entry.value);
    entry
}
/// One that was asked for by itself.
fn read(entry: KeyValue) -> Result<KeyValue, StoreError> {
    if entry.value.starts_with(PROTOBUF_PREFIX) {
        return Err(StoreError::Unreadable {
            key: String::from_utf8_lossy(&entry.key).into_owned(),
            reason: "it is encoded in protobuf; this server reads what was written with --storage-media-type=application/json".to_owned(),
        });
    }
    Ok(trimmed(entry))
}

impl Store for ForeignStore {
    fn revision(&self) -> BoxFuture<'_, Result<Revision, StoreError>> {
        self.inner.revision()
    }
    fn get<'a>(
        &'a self,
        key: &'a [u8],
        at: At,
    ) -> BoxFuture<'a, Result<Snapshot<Option<KeyValue>>, StoreError>> {
        async move {
            let Snapshot { revision, value } = self.inner.get(key, at).await?;
            Ok(Snapshot { revision, value: value.map(read).transpose()? })
        }
        .boxed()
    }
    fn range<'a>(
        &'a self,
        request: RangeRequest,
    ) -> BoxFuture<'a, Result<Snapshot<Range>, StoreError>> {
        async move {
            let mut found = self.inner.range(request).await?;
            found.value.entries.iter_mut().for_each(|entry| trim(&mut entry.value));
            Ok(found)
        }
        .boxed()
    }
    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<Committed, StoreError>> {
        async move {
            Ok(match self.inner.commit(txn).await? {
                Committed::Refused { revision, found } => {
                    let found = found.into_iter().map(|found| found.map(read).transpose());
                    Committed::Refused { revision, found: found.collect::<Result<_, _>>()? }
                }
                done => done,
            })
        }
        .boxed()
    }
    fn changes(
        &self,
        prefix: Bytes,
        after: Revision,
    ) -> BoxFuture<'_, Result<Box<dyn ChangeFeed>, StoreError>> {
        async move {
            let inner = self.inner.changes(prefix, after).await?;
            Ok(Box::new(ForeignFeed { inner }) as Box<dyn ChangeFeed>)
        }
        .boxed()
    }
    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), StoreError>> {
        self.inner.compact(revision)
    }
    fn divide<'a>(
        &'a self,
        start: &'a [u8],
        end: &'a [u8],
        part_keys: usize,
    ) -> BoxFuture<'a, Result<Vec<Bytes>, StoreError>> {
        self.inner.divide(start, end, part_keys)
    }
    fn rewrite_due<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<bool, StoreError>> {
        self.inner.rewrite_due(key)
    }
}

struct ForeignFeed {
    inner: Box<dyn ChangeFeed>,
}
impl ChangeFeed for ForeignFeed {
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, StoreError>> {
        async move {
            // Cancel safe: nothing happens between the inner feed's answer and this one.
            let mut batch = self.inner.next().await?;
            for change in &mut batch.changes {
                change.value.iter_mut().for_each(trim);
                change.previous.iter_mut().for_each(|previous| trim(&mut previous.value));
            }
            Ok(batch)
        }
        .boxed()
    }
}
