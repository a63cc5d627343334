//! Requests to the writer, and its responses.

use bytes::Bytes;
use tokio::{sync::oneshot, time::Instant};

use super::reserve::UPDATE_BYTES_MAX;
use crate::contract::*;

/// A request to the writer.
pub(super) enum Command {
    Commit {
        txn: Txn,
        expires: Option<(Instant, u64)>,
        answer: Answer<Committed>,
    },
    /// Deletes those of these expired keys that were not written again.
    Expire {
        keys: Vec<(Bytes, Revision)>,
        answer: Answer<()>,
    },
    Compact {
        revision: Revision,
        answer: Answer<()>,
    },
    /// Opens the file again if the engine has failed.
    Reopen {
        answer: Answer<()>,
    },
    /// Moves the commits of the journal into the file.
    File {
        answer: Answer<()>,
    },
}

/// What the writer waits for.
pub(super) enum Queued {
    /// A command and its time. The writer's thread is outside the runtime and has no clock.
    Command(Instant, Command),
    /// A lap of the journal was filed, or that failed.
    Wake,
}

pub(super) type Answer<T> = oneshot::Sender<Result<T, StoreError>>;

/// A response to send once the batch is durable.
pub(super) enum Pending {
    /// Has the transaction if it only deletes, to repeat it after the disk was full.
    Commit(Answer<Committed>, Committed, Option<Txn>),
    /// The command that failed the batch.
    Broken(Answer<Committed>, Option<Txn>),
    Unit(Answer<()>, Result<(), StoreError>),
}

impl Pending {
    pub(super) fn send(self, failure: Option<StoreError>) {
        // A send fails if the caller no longer waits.
        match self {
            Self::Commit(answer, committed, _) => {
                drop(answer.send(failure.map_or(Ok(committed), Err)))
            }
            Self::Broken(answer, _) => {
                let unknown = || StoreError::Unknown("the batch ended in between".into());
                drop(answer.send(Err(failure.unwrap_or_else(unknown))));
            }
            Self::Unit(answer, result) => drop(answer.send(failure.map_or(result, Err))),
        }
    }
}

impl Pending {
    /// The command to repeat once there is some room, if it only deletes.
    pub(super) fn again(self) -> Result<Command, Self> {
        match self {
            Self::Commit(answer, _, Some(txn)) | Self::Broken(answer, Some(txn)) => {
                Ok(Command::Commit { txn, expires: None, answer })
            }
            other => Err(other),
        }
    }
}

impl Command {
    /// Whether the command frees space, now or later.
    pub(super) fn makes_room(&self) -> bool {
        match self {
            Self::Commit { txn, .. } => makes_room(txn),
            Self::Expire { .. }
            | Self::Compact { .. }
            | Self::Reopen { .. }
            | Self::File { .. } => true,
        }
    }

    /// Whether the command is a small update of existing keys.
    pub(super) fn is_small_update(&self) -> bool {
        let Self::Commit { txn, .. } = self else { return false };
        let is_there = |key: &Bytes| {
            let mut compares = txn.compares.iter();
            compares.any(|compare| matches!(compare, Compare::Modified(at, _) if at == key))
        };
        self.size() <= UPDATE_BYTES_MAX
            && txn.ops.iter().all(|op| op.value().is_none() || is_there(op.key()))
    }

    /// Whether the journal takes it.
    pub(super) fn is_journaled(&self) -> bool {
        matches!(self, Self::Commit { .. } | Self::Expire { .. })
    }

    /// Maximum number of records that it writes.
    pub(super) fn n_records_max(&self) -> usize {
        match self {
            Self::Commit { txn, .. } => txn.ops.len(),
            Self::Expire { keys, .. } => keys.len(),
            Self::Compact { .. } | Self::Reopen { .. } | Self::File { .. } => 0,
        }
    }

    /// Bytes of its keys and values.
    pub(super) fn size(&self) -> usize {
        let Self::Commit { txn, .. } = self else { return 0 };
        txn.ops.iter().map(|op| op.key().len() + op.value().map_or(0, Bytes::len)).sum()
    }

    pub(super) fn refuse(self, error: StoreError) {
        match self {
            Self::Commit { answer, .. } => drop(answer.send(Err(error))),
            Self::Expire { answer, .. }
            | Self::Compact { answer, .. }
            | Self::Reopen { answer }
            | Self::File { answer } => {
                drop(answer.send(Err(error)));
            }
        }
    }
}

pub(super) fn makes_room(txn: &Txn) -> bool {
    !txn.ops.is_empty() && txn.ops.iter().all(|op| op.value().is_none())
}
