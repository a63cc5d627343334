//! What a store and its feeds have in common: the members, and how far the store has said to be.

use crate::{
    cluster::{Cluster, Failure, Repeat},
    failure::{Refusal, refusal},
    keys::{self, Namespace},
    lease::Leases,
    proto::{
        RangeAnswer, RangeCall, ResponseHeader, WatchAnswer, WatchAsk, WatchCall, WatchCreate, path,
    },
};
use bytes::Bytes;
use parking_lot::Mutex;
use setpoint_store::{Revision, StoreError};
use tokio::{sync::watch, time::timeout};

/// How far the store has said to be; feeds see to it that they reach it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Told {
    /// The newest revision in any answer.
    pub(crate) seen: u64,
    /// The newest one that [`setpoint_store::Store::revision`] told: somebody probably waits for
    /// the feeds to reach it.
    pub(crate) asked: u64,
}

pub(crate) struct Shared {
    pub(crate) cluster: Cluster,
    pub(crate) namespace: Namespace,
    pub(crate) leases: Leases,
    pub(crate) told: watch::Sender<Told>,
    /// The version of `compact_rev_key` after the last round this store knows of.
    pub(crate) compact_version: Mutex<Option<i64>>,
}

impl Shared {
    pub(crate) fn new(cluster: Cluster) -> Self {
        Self {
            namespace: Namespace(cluster.options.namespace.clone()),
            cluster,
            leases: Leases::new(),
            told: watch::Sender::new(Told::default()),
            compact_version: Mutex::new(None),
        }
    }

    /// Takes note of an answer's revision.
    pub(crate) fn note(&self, revision: Revision, asked: bool) {
        self.told.send_if_modified(|told| {
            let before = *told;
            told.seen = told.seen.max(revision.0);
            if asked {
                told.asked = told.asked.max(revision.0);
            }
            *told != before
        });
    }

    /// The revision of an answer.
    pub(crate) fn stands_at(header: Option<&ResponseHeader>) -> Option<Revision> {
        header.and_then(|header| keys::revision(header.revision))
    }

    /// Asks for a range and notes how far the store is.
    pub(crate) async fn range(
        &self,
        question: &RangeCall,
    ) -> Result<(Revision, RangeAnswer), Failure> {
        let answer: RangeAnswer = self.cluster.call(path::RANGE, question, Repeat::Freely).await?;
        let revision = Self::stands_at(answer.header.as_ref()).ok_or_else(|| malformed("range"))?;
        self.note(revision, false);
        Ok((revision, answer))
    }

    /// The newest revision, agreed on by a majority.
    pub(crate) async fn revision(&self) -> Result<Revision, Failure> {
        let (revision, _) = self.range(&self.cluster.probe()).await?;
        Ok(revision)
    }

    /// Whether history still reaches back to a revision; one ahead of the store counts as kept.
    pub(crate) async fn check_kept(&self, asked: Revision) -> Result<(), StoreError> {
        let question = RangeCall { revision: at_exactly(asked), ..self.cluster.probe() };
        match self.range(&question).await {
            Ok(_) => Ok(()),
            Err(Failure::Refused(error)) if refusal(&error) == Refusal::Future => Ok(()),
            Err(failure) => Err(self.read_failed(asked, failure).await),
        }
    }

    /// A failed read at a revision, as the contract says it.
    pub(crate) async fn read_failed(&self, asked: Revision, failure: Failure) -> StoreError {
        let Failure::Refused(error) = &failure else { return read_told(failure) };
        match refusal(error) {
            Refusal::Compacted => match self.oldest(asked).await {
                Ok(oldest) => StoreError::Compacted { asked, oldest },
                Err(failure) => read_told(failure),
            },
            Refusal::Future => match self.revision().await {
                // It may have happened meanwhile.
                Ok(current) if current >= asked => {
                    StoreError::Unavailable("the store moved meanwhile: read again".into())
                }
                Ok(current) => StoreError::Future { asked, current },
                Err(failure) => read_told(failure),
            },
            _ => read_told(failure),
        }
    }

    /// The oldest revision that is kept, told by a watch from a compacted one: no other answer of
    /// etcd names it. Where the watch says nothing it is the newest revision, which is surely kept.
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
        let question = WatchCall { request: Some(WatchAsk::Create(create)) };
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

/// Reads change nothing: whatever went wrong, nothing happened.
pub(crate) fn read_told(failure: Failure) -> StoreError {
    match failure {
        Failure::Unknown(why) => StoreError::Unavailable(why),
        failure => failure.told(),
    }
}

/// etcd's word for "exactly this one": its 0 is the newest, and its first state, which is empty,
/// is 1.
pub(crate) fn at_exactly(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX).max(1)
}

/// An answer that is not one.
pub(crate) fn malformed(what: &str) -> Failure {
    Failure::Unavailable(format!("the answer to a {what} is malformed"))
}
