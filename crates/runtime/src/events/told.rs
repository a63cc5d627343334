//! What a recorder is told.

use std::{str::FromStr, sync::Arc};

use setpoint_object::time::Timestamp;

use super::reference::ObjectReference;

/// Whether an event is news or trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EventType {
    /// Things go as they should.
    Normal,
    /// Something needs attention.
    Warning,
}

/// A word that is no type of an event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no type of an event: Normal and Warning are")]
pub struct UnknownEventType(pub String);

impl EventType {
    /// As the API spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

impl FromStr for EventType {
    type Err = UnknownEventType;

    fn from_str(text: &str) -> Result<Self, UnknownEventType> {
        match text {
            "Normal" => Ok(Self::Normal),
            "Warning" => Ok(Self::Warning),
            other => Err(UnknownEventType(other.to_owned())),
        }
    }
}

/// Something that was told.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    pub(super) regarding: ObjectReference,
    pub(super) related: Option<ObjectReference>,
    pub(super) event_type: EventType,
    pub(super) reason: String,
    pub(super) action: String,
    pub(super) note: String,
    pub(super) component: Arc<str>,
    pub(super) at: Timestamp,
}
