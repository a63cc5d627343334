//! Why a watch was not added.

use std::sync::Arc;

/// An index that a watch declares or needs and that cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("index {index:?} of {resource}: {reason}")]
#[non_exhaustive]
pub struct IndexRefused {
    /// The resource, with its group.
    pub resource: String,
    /// The index.
    pub index: Arc<str>,
    /// Why.
    pub reason: String,
}

/// A watch that a controller does not take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// An index that the watch declares or needs cannot be had.
    #[error(transparent)]
    Index(#[from] IndexRefused),
    /// The controller has ended, or ends.
    #[error("the controller has stopped")]
    Stopped,
    /// The given informer has ended.
    #[error("the informer has stopped")]
    InformerStopped,
    /// The watch leads to keys of another type than the controller's.
    #[error("the controller's keys are of another type")]
    Keys,
    /// There are as many sources as a controller may have.
    #[error("the controller has {} sources already", super::set::SOURCES_MAX)]
    TooMany,
}
