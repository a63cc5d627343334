//! What a store promises and what its callers may rely on.
//!
//! # Theory
//!
//! One counter, the [`Revision`], orders everything. A [`Txn`] that changes something takes the
//! next revision as a whole; one whose compares fail, or that changes nothing, takes none. A read
//! names the revision it looks at, or takes the newest acknowledged one. A [`ChangeFeed`] is the
//! same history told forwards: every change after a revision, once, in order. History is kept back
//! to some oldest revision; what lies before it is *compacted*, and asking for it says so.
//!
//! | call | acknowledged means | when its future is dropped |
//! |---|---|---|
//! | [`Store::commit`] | durable, and visible to every read that starts later | the outcome is unknown: read to find out |
//! | every read | the answer is a state the store had | nothing happened |
//! | [`ChangeFeed::next`] | the batch will not come again from this feed | nothing was taken: the next call gives it |
use bytes::Bytes;
use futures::future::BoxFuture;

/// The store's counter; every commit that changes something gets the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(pub u64);
impl std::fmt::Display for Revision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// At which revision a read looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// The newest acknowledged one.
    Latest,
    /// Exactly this one.
    Exactly(Revision),
}

/// A key, its value and where it stands in history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValue {
    /// Key.
    pub key: Bytes,
    /// Value.
    pub value: Bytes,
    /// Revision of the last change.
    pub modified: Revision,
    /// Revision that created this incarnation.
    pub created: Revision,
}

/// An answer with the revision the store stood at when it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot<T> {
    /// The store's revision (for `At::Exactly` reads too: the newest).
    pub revision: Revision,
    /// The answer.
    pub value: T,
}

/// Keys in `[start, end)`, bytewise order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeRequest {
    /// First key.
    pub start: Bytes,
    /// First key beyond; empty means no upper bound.
    pub end: Bytes,
    /// Where to look.
    pub at: At,
    /// At most this many (0: all).
    pub limit: usize,
}
impl RangeRequest {
    /// Everything under a prefix, newest, no limit.
    pub fn prefix(prefix: impl Into<Bytes>) -> Self {
        let start = prefix.into();
        let end = prefix_end(&start);
        Self { start, end, at: At::Latest, limit: 0 }
    }
}
/// The first key after every key with this prefix; empty when there is none.
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

/// What a range holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Range {
    /// In key order.
    pub entries: Vec<KeyValue>,
    /// How many keys the whole range has, the limit aside.
    pub count: usize,
}

/// What must hold for a commit to happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compare {
    /// The key has no value.
    Absent(Bytes),
    /// The key's value was last changed at this revision.
    Modified(Bytes, Revision),
}
/// What a commit does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Writes a value.
    Put(Bytes, Bytes),
    /// Removes a key (no effect when absent).
    Delete(Bytes),
}
impl Compare {
    /// The key it looks at.
    pub fn key(&self) -> &Bytes {
        let (Self::Absent(key) | Self::Modified(key, _)) = self;
        key
    }
}

impl Op {
    /// The key it writes.
    pub fn key(&self) -> &Bytes {
        let (Self::Put(key, _) | Self::Delete(key)) = self;
        key
    }

    /// The value it writes.
    pub fn value(&self) -> Option<&Bytes> {
        match self {
            Self::Put(_, value) => Some(value),
            Self::Delete(_) => None,
        }
    }
}

/// All compares hold and all operations happen at one revision, or nothing does. No key twice.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Txn {
    /// All must hold.
    pub compares: Vec<Compare>,
    /// Done in one revision.
    pub ops: Vec<Op>,
    /// Puts expire after this time to live (Events); checked by the engine against tokio time.
    pub ttl: Option<std::time::Duration>,
}
/// How a commit ended, when the store answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Committed {
    /// Durable at this revision (the newest one, unchanged, when nothing changed).
    Done(Revision),
    /// A compare failed: the present state of every compared key, in order.
    Refused {
        /// The store's revision.
        revision: Revision,
        /// Present state of each compared key.
        found: Vec<Option<KeyValue>>,
    },
}

/// One change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// When.
    pub revision: Revision,
    /// Key.
    pub key: Bytes,
    /// The new value, `None` when deleted.
    pub value: Option<Bytes>,
    /// The value before, `None` when created.
    pub previous: Option<KeyValue>,
}

/// Changes after a revision, each exactly once, in order.
pub trait ChangeFeed: Send {
    /// The next batch: every change up to and including `Batch::revision`, which never decreases.
    /// May be empty of changes (progress only: emitted when the store moved by writes outside the
    /// prefix). Pends while nothing new. Cancel safe: a dropped call loses nothing.
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, StoreError>>;
}
/// Some changes and how far they reach.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Batch {
    /// In order; all changes of one revision come in one batch.
    pub changes: Vec<Change>,
    /// Everything up to here has been delivered.
    pub revision: Revision,
}

/// Why the store did not do as asked.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// History before `oldest` is gone: read the present and go on from there.
    #[error("revision {asked} is compacted, the oldest kept is {oldest}")]
    Compacted {
        /// Asked for.
        asked: Revision,
        /// Oldest kept.
        oldest: Revision,
    },
    /// The revision has not happened yet.
    #[error("revision {asked} is in the future, the store is at {current}")]
    Future {
        /// Asked for.
        asked: Revision,
        /// Newest.
        current: Revision,
    },
    /// The value is over the engine's limit ([`VALUE_BYTES_MAX`]).
    #[error("the request is too large: {size} bytes, at most {max}")]
    TooLarge {
        /// Its size.
        size: usize,
        /// The limit.
        max: usize,
    },
    /// A transaction names one key in two operations.
    #[error("a transaction writes the key {key:?} twice")]
    DuplicateKey {
        /// The key.
        key: Bytes,
    },
    /// Whether the commit happened is not known (connection lost, time out): read to find out.
    #[error("the outcome is unknown: {0}")]
    Unknown(String),
    /// The engine cannot serve; nothing happened. Try again later.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// There is no room for the write, on the disk or in a quota; nothing happened. Reads and feeds
    /// go on, and writes do again once there is room.
    #[error("the store has no room: {0}")]
    Full(String),
    /// What is stored is not what was written: restore a backup. Nothing else is touched by it.
    #[error("the store is damaged: {0}")]
    Damaged(String),
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// The value of a key is there and cannot be made out (no key of the configuration decrypts
    /// it). Nothing is lost: with the right configuration it is read again.
    #[error("unable to transform key {key:?}: {reason}")]
    Unreadable {
        /// The key, as text.
        key: String,
        /// Why, for whoever looks after the store.
        reason: String,
    },
}
/// How a value begins that a layer of the store could not make out: encrypted, as Kubernetes marks
/// it. No object begins so.
///
/// A get of it, and a commit that finds it, are [`StoreError::Unreadable`]. Ranges and feeds cover
/// many resources, so they give it as it is and go on: who reads them asks [`is_sealed`], and gets
/// the key to learn why.
pub const SEALED_PREFIX: &[u8] = b"k8s:enc:";
/// Whether a value of a range or a feed is one that could not be made out ([`SEALED_PREFIX`]).
pub fn is_sealed(value: &[u8]) -> bool {
    value.starts_with(SEALED_PREFIX)
}
/// The largest transaction: 1.5 MiB, as etcd's request limit.
pub const VALUE_BYTES_MAX: usize = 1_572_864;

/// A revisioned key-value store. `commit` is acknowledged when durable. Every method is cancel safe
/// except `commit`, whose outcome is unknown when its future is dropped.
///
/// Methods with a body are what only some engines have something to say about; a wrapper passes
/// them on.
pub trait Store: Send + Sync + std::fmt::Debug + 'static {
    /// The newest revision. Every feed reaches what was answered here, by a batch without changes
    /// if it must.
    fn revision(&self) -> BoxFuture<'_, Result<Revision, StoreError>>;
    /// One key.
    fn get<'a>(
        &'a self,
        key: &'a [u8],
        at: At,
    ) -> BoxFuture<'a, Result<Snapshot<Option<KeyValue>>, StoreError>>;
    /// Keys in order.
    fn range<'a>(
        &'a self,
        request: RangeRequest,
    ) -> BoxFuture<'a, Result<Snapshot<Range>, StoreError>>;
    /// Compare and write.
    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<Committed, StoreError>>;
    /// Every change of keys under `prefix` after `after`.
    fn changes(
        &self,
        prefix: Bytes,
        after: Revision,
    ) -> BoxFuture<'_, Result<Box<dyn ChangeFeed>, StoreError>>;
    /// Forgets history before `revision`, which stays readable. A revision that is the oldest kept
    /// already is no error; an older one is [`StoreError::Compacted`].
    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), StoreError>>;
    /// Keys that divide `[start, end)` (`end` empty: no upper bound) into parts of about
    /// `part_keys` keys, in order, none of them outside: who reads much reads the parts at the same
    /// time. A hint, made of the present or of something near it; the default, and what an engine
    /// without a cheap answer says, is one part: no key.
    fn divide<'a>(
        &'a self,
        _start: &'a [u8],
        _end: &'a [u8],
        _part_keys: usize,
    ) -> BoxFuture<'a, Result<Vec<Bytes>, StoreError>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
    /// Whether its history outlives the process: who starts on it again may take up watches that
    /// began before. An engine whose history ends with the process says no, which is the default.
    fn keeps_history(&self) -> bool {
        false
    }
    /// Whether a key's value is stored in a form that should be written anew, although the value
    /// stays the same: encrypted with a key that was retired, for example. An engine that has one
    /// form only says no, which is the default.
    fn rewrite_due<'a>(&'a self, _key: &'a [u8]) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(std::future::ready(Ok(false)))
    }
}
