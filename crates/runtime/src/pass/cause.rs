//! Causes of passes.

use std::fmt;

use setpoint_informer::Event;
use setpoint_workqueue::Tag;

/// Why a key was added to a controller's queue. If several additions were merged into one pass, the
/// one that set the time: [`Tag`].
///
/// `source` numbers the controller's watches from zero, in the order of their declaration; numbers
/// above 65,535 are not distinct. `resource_version` is the version of the event's object; zero if
/// the server's versions are not numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Cause {
    /// Added from outside of the controller's watches: through
    /// [`Controller::queue`](crate::Controller::queue), or a channel.
    #[default]
    External,
    /// A watched object was created.
    Created {
        /// The number of the watch.
        source: u16,
        /// The object's version.
        resource_version: u64,
    },
    /// A watched object changed.
    Updated {
        /// The number of the watch.
        source: u16,
        /// The object's version after the change.
        resource_version: u64,
    },
    /// A watched object was deleted.
    Deleted {
        /// The number of the watch.
        source: u16,
        /// The last version that was seen; zero if none was.
        resource_version: u64,
    },
    /// A resync: nothing has changed.
    Resync {
        /// The number of the watch.
        source: u16,
        /// The object's version, which was delivered before.
        resource_version: u64,
    },
    /// The object existed when the controller started to watch.
    InitialList {
        /// The number of the watch.
        source: u16,
        /// The object's version.
        resource_version: u64,
    },
    /// The previous pass failed, or asked for a requeue with back-off.
    Retry,
    /// The previous pass asked for a requeue after a delay.
    Timer,
    /// The key was handed over to this replica.
    HandOver,
}

/// The position of the source in a packed cause; the kind is below it.
const SOURCE_SHIFT: u32 = 16;

impl Cause {
    /// The cause of keys that an event of a watch adds.
    pub(crate) fn of_event<K>(source: usize, event: &Event<K>) -> Self {
        let source = u16::try_from(source).unwrap_or(u16::MAX);
        let version = event.object().map_or("", |object| object.resource_version());
        // Versions may be opaque text.
        let resource_version = version.parse().unwrap_or(0);
        match event {
            Event::Added { in_initial_list: true, .. } => {
                Self::InitialList { source, resource_version }
            }
            Event::Added { .. } => Self::Created { source, resource_version },
            Event::Updated { .. } if event.is_sync() => Self::Resync { source, resource_version },
            Event::Deleted { .. } => Self::Deleted { source, resource_version },
            _ => Self::Updated { source, resource_version },
        }
    }

    /// The number of the watch, if the cause is an event.
    pub fn source(self) -> Option<u16> {
        self.seen().map(|(source, _)| source)
    }

    /// The version of the event's object, if the cause is an event and the version is known.
    pub fn resource_version(self) -> Option<u64> {
        self.seen().map(|(_, version)| version).filter(|version| *version != 0)
    }

    /// One word, for logs and spans: `created`, `initial-list`, `retry` …
    pub fn as_str(self) -> &'static str {
        match self {
            Self::External => "external",
            Self::Created { .. } => "created",
            Self::Updated { .. } => "updated",
            Self::Deleted { .. } => "deleted",
            Self::Resync { .. } => "resync",
            Self::InitialList { .. } => "initial-list",
            Self::Retry => "retry",
            Self::Timer => "timer",
            Self::HandOver => "hand-over",
        }
    }

    fn seen(self) -> Option<(u16, u64)> {
        match self {
            Self::Created { source, resource_version }
            | Self::Updated { source, resource_version }
            | Self::Deleted { source, resource_version }
            | Self::Resync { source, resource_version }
            | Self::InitialList { source, resource_version } => Some((source, resource_version)),
            Self::External | Self::Retry | Self::Timer | Self::HandOver => None,
        }
    }

    /// The cause packed into twelve bytes for the queue: the version, and the source above the
    /// kind. `External` has no tag, so any other cause replaces it.
    pub(crate) fn tag(self) -> Tag {
        let kind = match self {
            Self::External => 9,
            Self::Created { .. } => 1,
            Self::Updated { .. } => 2,
            Self::Deleted { .. } => 3,
            Self::Resync { .. } => 4,
            Self::InitialList { .. } => 5,
            Self::Retry => 6,
            Self::Timer => 7,
            Self::HandOver => 8,
        };
        let (source, version) = self.seen().unwrap_or_default();
        Tag(version, u32::from(source) << SOURCE_SHIFT | kind)
    }

    /// The cause in a tag; a tag from elsewhere reads as `External`.
    pub(crate) fn of_tag(Tag(resource_version, bits): Tag) -> Self {
        let source = (bits >> SOURCE_SHIFT) as u16;
        match bits & 0xff {
            1 => Self::Created { source, resource_version },
            2 => Self::Updated { source, resource_version },
            3 => Self::Deleted { source, resource_version },
            4 => Self::Resync { source, resource_version },
            5 => Self::InitialList { source, resource_version },
            6 => Self::Retry,
            7 => Self::Timer,
            8 => Self::HandOver,
            _ => Self::External,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_survives_packing_into_a_tag() {
        let (source, resource_version) = (u16::MAX, u64::MAX);
        let all = [
            Cause::External,
            Cause::Created { source, resource_version },
            Cause::Updated { source: 0, resource_version: 0 },
            Cause::Deleted { source: 1, resource_version },
            Cause::Resync { source, resource_version: 7 },
            Cause::InitialList { source, resource_version },
            Cause::Retry,
            Cause::Timer,
            Cause::HandOver,
        ];
        for cause in all {
            assert_eq!(Cause::of_tag(cause.tag()), cause);
        }
        assert_eq!(Cause::of_tag(Tag::NONE), Cause::External);
        assert_eq!(Cause::of_tag(Tag(3, 0xff)), Cause::External);
    }
}
