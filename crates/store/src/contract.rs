//! What a store guarantees and what its callers may rely on.
//!
//! # Theory
//!
//! One counter, the [`Revision`], orders everything. A [`Txn`] that changes something takes the
//! next revision as a whole. A transaction whose compares fail, or that changes nothing, takes
//! none. A read names a revision, or reads the newest acknowledged one. A [`ChangeFeed`] delivers
//! the same history forwards: every change after a revision, once, in order. History is retained
//! back to some oldest revision. Older history is *compacted*, and a request for it is an error.
//!
//! | call | meaning of success | when its future is dropped |
//! |---|---|---|
//! | [`Store::commit`] | durable, and visible to every read that starts later | the outcome is unknown: read to find out |
//! | every read | the result is a state the store had | no effect |
//! | [`ChangeFeed::next`] | this feed will not return the batch again | no batch is lost: the next call returns it |
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, StreamExt};
use std::borrow::Cow;

/// The store's counter. Every commit that changes something gets the next revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(pub u64);
impl std::fmt::Display for Revision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The revision that a read sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// The newest acknowledged revision.
    Latest,
    /// Exactly this revision.
    Exactly(Revision),
}

/// A key, its value and its revisions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValue {
    /// Key.
    pub key: Bytes,
    /// Value.
    pub value: Bytes,
    /// Revision of the last change.
    pub modified: Revision,
    /// Revision that created the key, after its last deletion if it had any.
    pub created: Revision,
}

/// The result of a read, with the store's revision at the time of the read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot<T> {
    /// The store's newest revision, also for `At::Exactly` reads.
    pub revision: Revision,
    /// The result.
    pub value: T,
}

/// A read of the keys in `[start, end)`, in bytewise order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeRequest {
    /// First key.
    pub start: Bytes,
    /// First key after the range; empty means no upper bound.
    pub end: Bytes,
    /// The revision to read.
    pub at: At,
    /// Maximum number of entries (0: no limit).
    pub limit: usize,
}
impl RangeRequest {
    /// Everything under a prefix at the newest revision, without a limit.
    pub fn prefix(prefix: impl Into<Bytes>) -> Self {
        let start = prefix.into();
        let end = prefix_end(&start);
        Self { start, end, at: At::Latest, limit: 0 }
    }
}
/// The first key after every key with this prefix. Empty if no such key exists.
pub fn prefix_end(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    while let Some(last) = end.last_mut() {
        if *last < 0xff {
            *last += 1;
            return end.into();
        }
        end.pop();
    }
    Bytes::new()
}

/// The result of a range read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Range {
    /// Entries in key order.
    pub entries: Vec<KeyValue>,
    /// Number of keys in the whole range, regardless of the limit.
    pub count: usize,
}

/// A condition of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compare {
    /// The key has no value.
    Absent(Bytes),
    /// The key's value was last changed at this revision.
    Modified(Bytes, Revision),
}
/// One write of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Writes a value.
    Put(Bytes, Bytes),
    /// Removes a key (no effect when absent).
    Delete(Bytes),
}
impl Compare {
    /// The compared key.
    pub fn key(&self) -> &Bytes {
        let (Self::Absent(key) | Self::Modified(key, _)) = self;
        key
    }
}

impl Op {
    /// The written key.
    pub fn key(&self) -> &Bytes {
        let (Self::Put(key, _) | Self::Delete(key)) = self;
        key
    }

    /// The written value; `None` for a deletion.
    pub fn value(&self) -> Option<&Bytes> {
        match self {
            Self::Put(_, value) => Some(value),
            Self::Delete(_) => None,
        }
    }
}

/// A transaction: either all compares hold and all operations happen at one revision, or nothing
/// happens. It may write each key only once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Txn {
    /// Conditions, all of which must hold.
    pub compares: Vec<Compare>,
    /// Writes, all at one revision.
    pub ops: Vec<Op>,
    /// Time to live of the values written. For Events. Engines measure it in tokio time.
    pub ttl: Option<std::time::Duration>,
}
/// The outcome of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Committed {
    /// Durable at this revision. If nothing changed, the newest revision, which stays the same.
    Done(Revision),
    /// A compare failed.
    Refused {
        /// The store's revision.
        revision: Revision,
        /// Current state of each compared key, in the order of the compares.
        found: Vec<Option<KeyValue>>,
    },
}

/// One change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Revision of the change.
    pub revision: Revision,
    /// Key.
    pub key: Bytes,
    /// The new value; `None` for a deletion.
    pub value: Option<Bytes>,
    /// The previous value; `None` for a creation.
    pub previous: Option<KeyValue>,
}

/// Delivers the changes after a revision, each exactly once, in order.
pub trait ChangeFeed: Send {
    /// Returns the next batch: every change up to and including `Batch::revision`, which never
    /// decreases.
    ///
    /// A batch may have no changes: it then reports progress, because keys outside the prefix were
    /// written. Waits while there is nothing new. Cancel safe: dropping the future loses nothing.
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, StoreError>>;
}
/// A batch of changes and the revision it reaches.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Batch {
    /// Changes in order. All changes of one revision are in one batch.
    pub changes: Vec<Change>,
    /// Every change up to this revision has been delivered.
    pub revision: Revision,
}

/// An error of a store.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// History before `oldest` was compacted. Read the current state and continue from there.
    #[error("revision {asked} is compacted, the oldest retained is {oldest}")]
    Compacted {
        /// The requested revision.
        asked: Revision,
        /// The oldest retained revision.
        oldest: Revision,
    },
    /// The revision does not exist yet.
    #[error("revision {asked} is in the future, the store is at {current}")]
    Future {
        /// The requested revision.
        asked: Revision,
        /// The newest revision.
        current: Revision,
    },
    /// The transaction exceeds the engine's limit ([`VALUE_BYTES_MAX`]).
    #[error("the request is too large: {size} bytes, at most {max}")]
    TooLarge {
        /// Its size in bytes.
        size: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// A transaction writes one key twice.
    #[error("a transaction writes the key {key:?} twice")]
    DuplicateKey {
        /// The key.
        key: Bytes,
    },
    /// It is unknown whether the commit happened (connection lost, timeout). Read to find out.
    #[error("the outcome is unknown: {0}")]
    Unknown(String),
    /// The engine cannot serve. Nothing happened; try again later.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// There is no room for the write, on the disk or in a quota. Nothing happened. Reads and feeds
    /// continue; writes work again once there is room.
    #[error("the store has no room: {0}")]
    Full(String),
    /// Stored data does not match what was written. Restore a backup. Other data is not affected.
    #[error("the store is damaged: {0}")]
    Damaged(String),
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// The key has a value that cannot be decoded, for example because no configured key decrypts
    /// it. Nothing is lost: with the right configuration it can be read again.
    #[error("unable to transform key {key:?}: {reason}")]
    Unreadable {
        /// The key, as text.
        key: String,
        /// What cannot be done with the value.
        fault: ReadFault,
        /// The reason, for the store's operator.
        reason: String,
    },
    /// A layer cannot encode a value, for example because the program that has the key does not
    /// answer. Nothing happened.
    #[error("{reason}")]
    Unwritable {
        /// The reason, for the store's operator.
        reason: String,
    },
}
/// What cannot be done with a value that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadFault {
    /// It cannot be decrypted, or the engine has lost it.
    Transform,
    /// It can, and what was encrypted is no object. The revision of its last change.
    Decode(Revision),
}

/// Prefix of a value that a layer of the store could not decode. It is the prefix that Kubernetes
/// gives encrypted values; no object starts with it.
///
/// A get of such a value, and a commit that compares its key, fail with [`StoreError::Unreadable`].
/// Ranges and feeds cover many resources, so they return the value as stored. Their callers check
/// [`is_sealed`], and get the key to learn the reason.
pub const SEALED_PREFIX: &[u8] = b"k8s:enc:";
/// Whether a value of a range or a feed could not be decoded ([`SEALED_PREFIX`]).
pub fn is_sealed(value: &[u8]) -> bool {
    value.starts_with(SEALED_PREFIX)
}
/// Maximum size of a transaction: 1.5 MiB, etcd's request limit.
pub const VALUE_BYTES_MAX: usize = 1_572_864;

/// How many commits [`Store::commit_each`] has in progress by default.
///
/// 32: enough to hide the delay of a network or of a disk.
pub const COMMITS_AT_ONCE: usize = 32;

/// A revisioned key-value store. `commit` succeeds once the transaction is durable. Every method is
/// cancel safe except `commit` and `commit_each`, whose outcome is unknown if their future is
/// dropped.
///
/// Methods with a default body concern only some engines. A wrapper must forward them.
pub trait Store: Send + Sync + std::fmt::Debug + 'static {
    /// Returns the newest revision. Every feed reaches it, with an empty batch if necessary.
    fn revision(&self) -> BoxFuture<'_, Result<Revision, StoreError>>;
    /// Reads one key.
    fn get<'a>(
        &'a self,
        key: &'a [u8],
        at: At,
    ) -> BoxFuture<'a, Result<Snapshot<Option<KeyValue>>, StoreError>>;
    /// Reads a range of keys in order.
    fn range<'a>(
        &'a self,
        request: RangeRequest,
    ) -> BoxFuture<'a, Result<Snapshot<Range>, StoreError>>;
    /// Checks the compares and writes.
    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<Committed, StoreError>>;
    /// Commits each transaction for itself, and returns the outcomes in the same order. One that
    /// fails or is refused does not affect the others. The default has at most
    /// [`COMMITS_AT_ONCE`] in progress, so that a remote engine answers many at once and a durable
    /// one syncs many at once; a wrapper may keep it. The memory engine commits all in one step.
    fn commit_each(&self, txns: Vec<Txn>) -> BoxFuture<'_, Vec<Result<Committed, StoreError>>> {
        let commits: Vec<_> = txns.into_iter().map(|txn| self.commit(txn)).collect();
        stream::iter(commits).buffered(COMMITS_AT_ONCE).collect().boxed()
    }
    /// Opens a feed of the changes under `prefix` after revision `after`.
    fn changes(
        &self,
        prefix: Bytes,
        after: Revision,
    ) -> BoxFuture<'_, Result<Box<dyn ChangeFeed>, StoreError>>;
    /// Compacts history before `revision`, which stays readable. Succeeds if `revision` is already
    /// the oldest. An older one is [`StoreError::Compacted`].
    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), StoreError>>;
    /// Returns keys that divide `[start, end)` (`end` empty: no upper bound) into parts of about
    /// `part_keys` keys, so that a caller can read the parts in parallel. The keys are in order and
    /// inside the range. A hint that may be slightly out of date. The default is no keys, which is
    /// one part, for engines that cannot answer cheaply.
    fn divide<'a>(
        &'a self,
        _start: &'a [u8],
        _end: &'a [u8],
        _part_keys: usize,
    ) -> BoxFuture<'a, Result<Vec<Bytes>, StoreError>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
    /// The size of the stored data in bytes, for metrics. May read the file's size. `None` by
    /// default, for engines that do not know it.
    fn size_bytes(&self) -> Option<u64> {
        None
    }
    /// Whether history survives a restart of the process. If so, watches that began before a
    /// restart can resume. `false` by default.
    fn keeps_history(&self) -> bool {
        false
    }
    /// Whether a key's value should be written again because of its stored form, for example
    /// encrypted with a retired key. `false` by default, for engines that have one form only.
    fn rewrite_due<'a>(&'a self, _key: &'a [u8]) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(std::future::ready(Ok(false)))
    }
    /// The name that a key has in the engine, to which a layer that encrypts binds the key's value:
    /// other programs know only that. The key itself by default.
    fn stored_key<'a>(&self, key: &'a [u8]) -> Cow<'a, [u8]> {
        Cow::Borrowed(key)
    }
}
