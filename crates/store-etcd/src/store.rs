//! The store: each call of the contract as calls of etcd.

use crate::{
    cluster::{Cluster, Failure, Repeat},
    compaction,
    error::EtcdError,
    failure::{Refusal, refusal},
    feed::{self, EtcdFeed},
    keys::Namespace,
    options::EtcdOptions,
    proto::{
        CompareTo, DeleteCall, OpCall, PutCall, RangeCall, RequestOp, TxnAnswer, TxnCall,
        WireCompare, path,
    },
    shared::{Shared, at_exactly, malformed},
    status::{self, EtcdStatus},
};
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use prost::Message;
use setpoint_store::*;
use std::{borrow::Cow, fmt, sync::Arc};

/// Maximum number of keys in one response to a range. Longer ranges are read in pages at one
/// revision.
pub const PAGE_KEYS_MAX: usize = 10_000;
/// Maximum number of keys in the first page, while their size is unknown: 750 MiB of values of the
/// maximum size.
pub const FIRST_PAGE_KEYS_MAX: usize = 500;
/// Approximate bytes of each further page, estimated from the pages before.
pub const PAGE_BYTES: usize = 16 << 20;
/// Maximum attempts of a long range whose revision is compacted during the read.
const RANGE_ATTEMPTS_MAX: u32 = 3;

/// The etcd engine. A handle is cheap to clone. When the last handle and the last feed are dropped,
/// the connections close.
#[derive(Clone)]
pub struct EtcdStore {
    owner: Arc<Owner>,
}

/// Ends the tasks when the last handle is dropped.
pub(crate) struct Owner {
    pub(crate) shared: Arc<Shared>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.cluster.tasks.abort();
    }
}

impl fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = &self.owner.shared;
        f.debug_struct("EtcdStore")
            .field("options", &shared.cluster.options)
            .field("seen", &shared.progress.borrow().seen)
            .finish_non_exhaustive()
    }
}

impl EtcdStore {
    /// Connects to the first member that can serve. Needs a tokio runtime, on which the store's
    /// tasks run until it is closed or dropped: one for each connection, one for each feed.
    ///
    /// # Errors
    ///
    /// The options are invalid. No member can serve within [`EtcdOptions::request_timeout`]. The
    /// user is refused. A member is older than [`VERSION_MIN`](crate::VERSION_MIN).
    pub async fn connect(options: EtcdOptions) -> Result<Self, EtcdError> {
        let shared = Arc::new(Shared::new(Cluster::new(options)?));
        let store = Self { owner: Arc::new(Owner { shared }) };
        let cluster = &store.owner.shared.cluster;
        if let Some(tls) = &cluster.options.tls {
            // Reports invalid files as such, instead of as an unreachable member.
            crate::tls::config(tls).await?;
        }
        if let Some(state) = status::check_version(cluster).await? {
            store.owner.shared.size.set(state.db_size);
        }
        match store.owner.shared.revision().await {
            Ok(_) => Ok(store),
            Err(Failure::Refused(error)) => Err(EtcdError::Refused { problem: error.to_string() }),
            Err(failure) => Err(EtcdError::Unreachable {
                endpoints: cluster.options.endpoints.clone(),
                problem: failure.into_store_error().to_string(),
            }),
        }
    }

    /// The state of every member. A member that does not respond within
    /// [`EtcdOptions::attempt_timeout`] is reported as an error. For readiness checks and logs.
    pub async fn status(&self) -> EtcdStatus {
        status::status(&self.owner.shared.cluster).await
    }

    /// Ends every feed and connection, and waits for that. Every later call on any handle fails
    /// with [`StoreError::Closed`]; a commit in flight fails with [`StoreError::Unknown`].
    pub async fn close(&self) {
        self.owner.shared.cluster.tasks.close().await;
    }

    async fn read_page(&self, request: &RangeRequest) -> Result<Snapshot<Range>, StoreError> {
        let shared = &self.owner.shared;
        let Some((key, range_end)) = shared.namespace.range(&request.start, &request.end) else {
            // Still calls etcd, to check the revision and to get the store's revision.
            let snapshot = self.read_key(&[], request.at).await?;
            return Ok(Snapshot { revision: snapshot.revision, value: Range::default() });
        };
        let question = RangeCall {
            key,
            range_end,
            limit: i64::try_from(request.limit).unwrap_or(i64::MAX),
            revision: at(request.at),
            count_only: false,
        };
        let (revision, answer) = match shared.range(&question).await {
            Ok(answer) => answer,
            Err(failure) => return Err(self.failed_read_at(request.at, failure).await),
        };
        let entry = |wire| shared.namespace.entry(wire);
        let entries: Option<Vec<_>> = answer.kvs.into_iter().map(entry).collect();
        let (Some(entries), Ok(count)) = (entries, usize::try_from(answer.count)) else {
            return Err(malformed("range").into_store_error());
        };
        Ok(Snapshot { revision, value: Range { entries, count } })
    }

    /// Reads page by page: the first at the requested revision, the others at the first one's.
    async fn read_pages(&self, request: &RangeRequest) -> Result<Snapshot<Range>, StoreError> {
        let limit = if request.limit == 0 { usize::MAX } else { request.limit };
        let first = RangeRequest { limit: limit.min(FIRST_PAGE_KEYS_MAX), ..request.clone() };
        let mut whole = self.read_page(&first).await?;
        let at = match request.at {
            At::Latest => At::Exactly(whole.revision),
            at => at,
        };
        let wanted = whole.value.count.min(limit);
        let size = |entry: &KeyValue| entry.key.len() + entry.value.len();
        let mut n_bytes: usize = whole.value.entries.iter().map(size).sum();
        while whole.value.entries.len() < wanted {
            let n_keys = whole.value.entries.len();
            let Some(last) = whole.value.entries.last() else { break };
            let start = [&*last.key, b"\0"].concat().into();
            let fits = (PAGE_BYTES / (n_bytes / n_keys).max(1)).clamp(1, PAGE_KEYS_MAX);
            let limit = (wanted - n_keys).min(fits);
            let page =
                self.read_page(&RangeRequest { start, limit, at, ..request.clone() }).await?;
            if page.value.entries.is_empty() {
                break;
            }
            n_bytes += page.value.entries.iter().map(size).sum::<usize>();
            whole.value.entries.extend(page.value.entries);
        }
        if whole.value.entries.len() != wanted {
            return Err(malformed("range").into_store_error());
        }
        Ok(whole)
    }

    async fn read_key(
        &self,
        key: &[u8],
        at_revision: At,
    ) -> Result<Snapshot<Option<KeyValue>>, StoreError> {
        let shared = &self.owner.shared;
        // etcd has no empty key, so only the revision is read.
        let (full, exists) = match shared.namespace.full(key).filter(|full| !full.is_empty()) {
            Some(full) => (full, true),
            None => (Namespace::everything().0, false),
        };
        let question = RangeCall { key: full, revision: at(at_revision), ..RangeCall::default() };
        let (revision, mut answer) = match shared.range(&question).await {
            Ok(answer) => answer,
            Err(failure) => return Err(self.failed_read_at(at_revision, failure).await),
        };
        let value = match answer.kvs.pop().filter(|_| exists) {
            None => None,
            Some(wire) => Some(
                shared.namespace.entry(wire).ok_or_else(|| malformed("read").into_store_error())?,
            ),
        };
        Ok(Snapshot { revision, value })
    }

    async fn failed_read_at(&self, at: At, failure: Failure) -> StoreError {
        let asked = match at {
            At::Exactly(revision) => revision,
            At::Latest => Revision(0),
        };
        self.owner.shared.failed_read_at(asked, failure).await
    }

    async fn write(&self, txn: &Txn) -> Result<Committed, StoreError> {
        let shared = &self.owner.shared;
        // A lease may be gone too early: etcd was restored from a backup, or a clock jumped.
        for is_last in [false, true] {
            let n_keys = txn.ops.iter().filter(|op| op.value().is_some()).count();
            let lease = match txn.ttl {
                Some(ttl) if n_keys > 0 => {
                    let keys = u32::try_from(n_keys).unwrap_or(u32::MAX);
                    let lease = shared.leases.lease(&shared.cluster, ttl, keys).await;
                    // Nothing of the transaction was sent.
                    lease.map_err(crate::shared::read_error)?
                }
                _ => 0,
            };
            let question = self.question(txn, lease)?;
            let answer: Result<TxnAnswer, _> =
                shared.cluster.call(path::TXN, &question, Repeat::Never).await;
            match answer {
                Ok(answer) => return self.committed(txn, answer),
                Err(Failure::Refused(error)) => match refusal(&error) {
                    Refusal::LeaseGone if lease != 0 && !is_last => shared.leases.forget(lease),
                    Refusal::TooLarge => {
                        let size = question.encoded_len();
                        return Err(StoreError::TooLarge { size, max: VALUE_BYTES_MAX });
                    }
                    _ => return Err(Failure::Refused(error).into_store_error()),
                },
                Err(failure) => return Err(failure.into_store_error()),
            }
        }
        Err(StoreError::Unavailable("a new lease was gone at once".into()))
    }

    fn question(&self, txn: &Txn, lease: i64) -> Result<TxnCall, StoreError> {
        let shared = &self.owner.shared;
        let full = |key: &[u8]| shared.namespace.full(key).ok_or_else(|| shared.outside(key));
        let compare = |(compare, key): (&Compare, &Bytes)| WireCompare {
            target: WireCompare::MOD,
            key: key.clone(),
            to: Some(CompareTo::ModRevision(match compare {
                // etcd's modification revision of an absent key is 0.
                Compare::Absent(_) => 0,
                // So revision 0 is sent as -1, which matches no key.
                Compare::Modified(_, Revision(0)) => -1,
                Compare::Modified(_, revision) => i64::try_from(revision.0).unwrap_or(-1),
            })),
        };
        let op = |op: &Op| {
            let key = full(op.key())?;
            let request = match op {
                Op::Put(_, value) => OpCall::Put(PutCall { key, value: value.clone(), lease }),
                Op::Delete(_) => OpCall::Delete(DeleteCall { key }),
            };
            Ok(RequestOp { request: Some(request) })
        };
        let look = |key: &Bytes| {
            let range = RangeCall { key: key.clone(), limit: 1, ..RangeCall::default() };
            RequestOp { request: Some(OpCall::Range(range)) }
        };
        let compared = txn.compares.iter().map(|compare| full(compare.key()));
        let compared = compared.collect::<Result<Vec<_>, _>>()?;
        Ok(TxnCall {
            compare: txn.compares.iter().zip(&compared).map(compare).collect(),
            success: txn.ops.iter().map(op).collect::<Result<_, StoreError>>()?,
            failure: compared.iter().map(look).collect(),
        })
    }

    /// Reads the response to a transaction. If it is unreadable, the outcome is unknown.
    fn committed(&self, txn: &Txn, answer: TxnAnswer) -> Result<Committed, StoreError> {
        let shared = &self.owner.shared;
        let unreadable = || StoreError::Unknown("the answer to a transaction is malformed".into());
        let revision = Shared::revision_of(answer.header.as_ref()).ok_or_else(unreadable)?;
        shared.note(revision, false);
        if answer.succeeded {
            return Ok(Committed::Done(revision));
        }
        // A refused transaction did nothing, but the state of each compared key must be readable.
        let unreadable = || malformed("transaction").into_store_error();
        if answer.responses.len() != txn.compares.len() {
            return Err(unreadable());
        }
        let found = answer.responses.into_iter().map(|response| {
            let range = response.range.ok_or_else(unreadable)?;
            let entry = |wire| shared.namespace.entry(wire).ok_or_else(unreadable);
            range.kvs.into_iter().next().map(entry).transpose()
        });
        Ok(Committed::Refused { revision, found: found.collect::<Result<_, _>>()? })
    }
}

fn at(at: At) -> i64 {
    match at {
        At::Latest => 0,
        At::Exactly(revision) => at_exactly(revision),
    }
}

impl Store for EtcdStore {
    fn revision(&self) -> BoxFuture<'_, Result<Revision, StoreError>> {
        async move {
            let shared = &self.owner.shared;
            let revision = shared.revision().await.map_err(crate::shared::read_error)?;
            shared.note(revision, true);
            Ok(revision)
        }
        .boxed()
    }

    fn get<'a>(
        &'a self,
        key: &'a [u8],
        at: At,
    ) -> BoxFuture<'a, Result<Snapshot<Option<KeyValue>>, StoreError>> {
        self.read_key(key, at).boxed()
    }

    fn range<'a>(
        &'a self,
        request: RangeRequest,
    ) -> BoxFuture<'a, Result<Snapshot<Range>, StoreError>> {
        async move {
            let mut attempts = 1;
            loop {
                match self.read_pages(&request).await {
                    // The newest revision was compacted during the read: there is a newer one.
                    Err(StoreError::Compacted { .. })
                        if request.at == At::Latest && attempts < RANGE_ATTEMPTS_MAX =>
                    {
                        attempts += 1;
                    }
                    Err(error @ StoreError::Compacted { .. }) if request.at == At::Latest => {
                        return Err(StoreError::Unavailable(format!("read a range: {error}")));
                    }
                    read => return read,
                }
            }
        }
        .boxed()
    }

    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<Committed, StoreError>> {
        async move {
            shape::check(&txn)?;
            self.write(&txn).await
        }
        .boxed()
    }

    fn changes(
        &self,
        prefix: Bytes,
        after: Revision,
    ) -> BoxFuture<'_, Result<Box<dyn ChangeFeed>, StoreError>> {
        async move {
            self.owner.shared.check_not_compacted(after).await?;
            let feed: EtcdFeed = feed::open(&self.owner, &prefix, after)?;
            Ok(Box::new(feed) as Box<dyn ChangeFeed>)
        }
        .boxed()
    }

    /// As a member reported it after the previous call, or at the start. Each call has a task ask
    /// for the next one. `None` if members refuse to tell it to the user.
    fn size_bytes(&self) -> Option<u64> {
        let shared = self.owner.shared.clone();
        let size = shared.size.bytes();
        // Metrics may be read on a thread without a runtime.
        if tokio::runtime::Handle::try_current().is_ok() {
            self.owner.shared.cluster.tasks.spawn(async move {
                shared.size.ask(&shared.cluster).await;
            });
        }
        size
    }

    fn keeps_history(&self) -> bool {
        true
    }

    fn stored_key<'a>(&self, key: &'a [u8]) -> Cow<'a, [u8]> {
        let full = self.owner.shared.namespace.full(key);
        full.filter(|full| full != key).map_or(Cow::Borrowed(key), |full| Cow::Owned(full.to_vec()))
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), StoreError>> {
        compaction::compact(&self.owner.shared, revision).boxed()
    }
}

#[cfg(test)]
mod tests;
