//! Why a watch was not added.

/// A watch that a controller does not take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
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
