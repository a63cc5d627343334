//! State that a store and its feeds share: the cluster, and the revisions that the store has
//! returned.

use crate::{
    cluster::{Cluster, Failure, Repeat},
    failure::{Refusal, refusal},
    keys::{self, Namespace},
    lease::Leases,
    proto::{
        RangeAnswer, RangeCall, ResponseHeader, WatchAnswer, WatchCall, WatchCreate,
        WatchRequestUnion, path,
    },
    status::DatabaseSize,
};
use bytes::Bytes;
use parking_lot::Mutex;
use setpoint_store::{Revision, StoreError};
use tokio::{sync::watch, time::timeout};

/// Revisions that the store has returned. Feeds must reach them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Progress {
    /// The newest revision in any response.
    pub(crate) seen: u64,
    /// The newest revision that [`setpoint_store::Store::revision`] returned. Its caller probably
    /// waits for a feed to reach it.
    pub(crate) asked: u64,
}

pub(crate) struct Shared {
    pub(crate) cluster: Cluster,
    pub(crate) namespace: Namespace,
    pub(crate) leases: Leases,
    pub(crate) progress: watch::Sender<Progress>,
    /// The version of `compact_rev_key` after the last known round.
    pub(crate) compact_version: Mutex<Option<i64>>,
    pub(crate) size: DatabaseSize,
}

impl Shared {
    pub(crate) fn new(cluster: Cluster) -> Self {
        Self {
            namespace: Namespace::of(&cluster.options),
            cluster,
            leases: Leases::new(),
            progress: watch::Sender::new(Progress::default()),
            compact_version: Mutex::new(None),
            size: DatabaseSize::default(),
        }
    }

    /// The error for a key that does not begin with the root, which the store cannot have.
    pub(crate) fn outside(&self, key: &[u8]) -> StoreError {
        let root = String::from_utf8_lossy(&self.namespace.root);
        let key = String::from_utf8_lossy(key);
        StoreError::Unwritable { reason: format!("the key {key:?} does not begin with {root}") }
    }

    /// Records the revision of a response.
    pub(crate) fn note(&self, revision: Revision, asked: bool) {
        self.progress.send_if_modified(|progress| {
            let before = *progress;
            progress.seen = progress.seen.max(revision.0);
            if asked {
                progress.asked = progress.asked.max(revision.0);
            }
            *progress != before
        });
    }

    /// The revision of a response.
    pub(crate) fn revision_of(header: Option<&ResponseHeader>) -> Option<Revision> {
        header.and_then(|header| keys::revision(header.revision))
    }

    /// Reads a range and records the store's revision.
    pub(crate) async fn range(
        &self,
        question: &RangeCall,
    ) -> Result<(Revision, RangeAnswer), Failure> {
        let answer: RangeAnswer = self.cluster.call(path::RANGE, question, Repeat::Freely).await?;
        let revision =
            Self::revision_of(answer.header.as_ref()).ok_or_else(|| malformed("range"))?;
        self.note(revision, false);
        Ok((revision, answer))
    }

    /// The newest revision, agreed on by a majority.
    pub(crate) async fn revision(&self) -> Result<Revision, Failure> {
        let (revision, _) = self.range(&self.cluster.probe()).await?;
        Ok(revision)
    }

    /// Returns an error if history before a revision is compacted past it. A future revision is not
    /// an error.
    pub(crate) async fn check_not_compacted(&self, asked: Revision) -> Result<(), StoreError> {
        let question = RangeCall { revision: at_exactly(asked), ..self.cluster.probe() };
        match self.range(&question).await {
            Ok(_) => Ok(()),
            Err(Failure::Refused(error)) if refusal(&error) == Refusal::Future => Ok(()),
            Err(failure) => Err(self.failed_read_at(asked, failure).await),
        }
    }

    /// Converts the failure of a read at a revision to the contract's error.
    pub(crate) async fn failed_read_at(&self, asked: Revision, failure: Failure) -> StoreError {
        let Failure::Refused(error) = &failure else { return read_error(failure) };
        match refusal(error) {
            Refusal::Compacted => match self.oldest(asked).await {
                Ok(oldest) => StoreError::Compacted { asked, oldest },
                Err(failure) => read_error(failure),
            },
            Refusal::Future => match self.revision().await {
                // The revision has been written in the meantime.
                Ok(current) if current >= asked => {
                    StoreError::Unavailable("the store has new revisions: read again".into())
                }
                Ok(current) => StoreError::Future { asked, current },
                Err(failure) => read_error(failure),
            },
            _ => read_error(failure),
        }
    }

    /// The oldest retained revision. Only a watch from a compacted revision returns it. If that
    /// fails, returns the newest revision, which is certainly retained.
    async fn oldest(&self, compacted: Revision) -> Result<Revision, Failure> {
        let patience = self.cluster.options.attempt_timeout;
        if let Ok(Some(oldest)) = timeout(patience, self.oldest_by_watch(compacted)).await {
            return Ok(oldest);
        }
        self.revision().await
    }

    async fn oldest_by_watch(&self, compacted: Revision) -> Option<Revision> {
        let create = WatchCreate {
            key: self.cluster.probe().key,
            range_end: Bytes::new(),
            start_revision: at_exactly(compacted),
            progress_notify: false,
            prev_kv: false,
            fragment: false,
        };
        let question = WatchCall { request: Some(WatchRequestUnion::Create(create)) };
        let mut stream = self.cluster.stream(path::WATCH).await.ok()?;
        stream.send(&question).ok()?;
        loop {
            let answer: WatchAnswer = stream.next().await.ok()??;
            if answer.canceled {
                return keys::revision(answer.compact_revision);
            }
        }
    }
}

/// The error of a failed read. Reads change nothing, so an unknown outcome is `Unavailable`.
pub(crate) fn read_error(failure: Failure) -> StoreError {
    match failure {
        Failure::Unknown(why) => StoreError::Unavailable(why),
        failure => failure.into_store_error(),
    }
}

/// A revision in etcd's encoding: 0 would be the newest, and the first state, which is empty, is 1.
pub(crate) fn at_exactly(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX).max(1)
}

/// The failure for an invalid response.
pub(crate) fn malformed(what: &str) -> Failure {
    Failure::Unavailable(format!("the answer to a {what} is malformed"))
}
