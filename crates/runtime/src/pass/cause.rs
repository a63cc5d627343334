//! Why a key is in a queue.

use std::fmt;

use setpoint_informer::Event;
use setpoint_workqueue::Tag;

/// Why a key was added to a controller's queue. Of several additions that became one pass, the one
/// that decided when it runs: [`Tag`].
///
/// `source` counts the controller's watches in the order in which they were declared, from zero: at
/// most 65,535 are told apart. `resource_version` is the version of the object that the event was
/// about, and zero where the server's versions are no numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Cause {
    /// Somebody outside of the controller's watches added it: through
    /// [`Controller::queue`](crate::Controller::queue), or a channel.
    #[default]
    External,
    /// A watched object was created.
    Created {
        /// Which watch.
        source: u16,
        /// The object's version.
        resource_version: u64,
    },
    /// A watched object changed.
    Updated {
        /// Which watch.
        source: u16,
        /// The object's version after the change.
        resource_version: u64,
    },
    /// A watched object is gone.
    Deleted {
        /// Which watch.
        source: u16,
        /// The last version that was seen of it; zero if none was.
        resource_version: u64,
    },
    /// The cache was gone through again: nothing is new.
    Resync {
        /// Which watch.
        source: u16,
        /// The object's version, which was told before.
        resource_version: u64,
    },
    /// The object was there when the controller began to watch.
    InitialList {
        /// Which watch.
        source: u16,
        /// The object's version.
        resource_version: u64,
    },
    /// The pass before failed, or asked to be repeated with back-off.
    Retry,
    /// The pass before asked to come back after a time.
    Timer,
    /// The key has become this replica's.
    HandOver,
}

/// Where the source stands in a packed cause; below it the kind.
const SOURCE_SHIFT: u32 = 16;

impl Cause {
    /// The cause of the keys that an event of a watch leads to.
    pub(crate) fn of_event<K>(source: usize, event: &Event<K>) -> Self {
        let source = u16::try_from(source).unwrap_or(u16::MAX);
        let version = event.object().map_or("", |object| object.resource_version());
        // Versions are opaque where they are no numbers.
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

    /// The watch, where the cause is one's event.
    pub fn source(self) -> Option<u16> {
        self.seen().map(|(source, _)| source)
    }

    /// The version of the object that the event was about, where the cause is an event and the
    /// version is known.
    pub fn resource_version(self) -> Option<u64> {
        self.seen().map(|(_, version)| version).filter(|version| *version != 0)
    }

    /// In one word, as a field of logs and spans: `created`, `initial-list`, `retry` …
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

    /// The same in twelve bytes, as a queue carries it: the version; and the source above the kind.
    /// No tag is `External` too, which gives way to whatever comes later.
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

    /// What a tag says; one of somebody else's reads as `External`.
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
    fn every_cause_comes_out_of_a_tag_as_it_went_in() {
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
