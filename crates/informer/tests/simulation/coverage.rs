//! Counts what happened in a run. A simulator that no longer injects a fault would find nothing,
//! and its tests would still pass.
use std::fmt::Write;

macro_rules! point {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Something that must happen within a range of seeds.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum CoverPoint { $($(#[$doc])* $name,)* }

        const NAMES: &[&str] = &[$(stringify!($name),)*];
    };
}

point! {
    // Answers to lists.
    ListExpired, ListTooLarge, ListTooMany, ListRetryAfter, ListInternal, ListForbidden, ListMissing, ListRefused, ListLost,
    ListCutBetweenParts, ListBrokenOff, TokenExpired, ListStale, ListOfPages, ListVersionEmpty, ListDuplicateKeys, ListPoisoned,
    ListNameless, ListHangs,
    // Outcomes of streamed lists.
    StreamWhole, StreamUnknown, StreamExpired, StreamTooLarge, StreamBusy, StreamRefused, StreamFailed, StreamCut,
    StreamVeryShort, StreamEndless, StreamHangs, StreamPoisoned,
    // Outcomes of the opening of a watch.
    OpenExpired, OpenTooMany, OpenRetryAfter, OpenInternal, OpenForbidden, OpenMissing, OpenRefused, OpenLost, OpenHangs,
    // Events of a watch.
    WatchExpired, WatchCompacted, WatchTooMany, WatchInternal, WatchOther, WatchCutBeforeFrame, WatchCutAfterFrame, WatchClosed,
    WatchVeryShort, WatchTimedOut, WatchSilent, WatchReplayed, FrameDuplicated, FrameDelayed, Bookmark, FrameNameless,
    FrameWrongType, FrameUnknownVerb, FramePoisoned, FrameUndecodable, WatchBroken,
    // Changes of the model server.
    Written, Recreated, Compacted, ClockJumped, Outage,
    // Actions of the reflector.
    RequestsAtZero, RequestsAtVersion, RequestsAtLatest, RequestsPage, RequestsWhole, RequestsStream, RequestsStreamAgain, FallsBackToPages, Watches,
    WatchesAgain, RoundAfterExpired, RelistExpired, PausesThenWatches, PausesThenStreams, WaitsForRetryAfter, BacksOff,
    BacksOffToTheCap, JitterLow, JitterHigh, TimeoutLow, TimeoutHigh, InternalErrorTolerated, ListAbandoned, NeverStreamsAgain,
    // Behavior and events of handlers.
    Slow, Blocked, Panics, Late, Removed, OwnResync, EventAdded, EventInitial, EventUpdated, EventSync, EventDeleted, EventMissed,
    EventNewUid, EventUnknownDeleted, QueueFull,
    // Status of the informer, and reads.
    Degraded, Recovered, SyncedWaited, WroteThenRead, SnapshotTaken, LateIndex, UndecodableUnindexed, ObjectSkipped,
    StoppedEarly, PolicyCompact, PolicyDecoded, PolicyCompressed, PolicyMetadata,
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Coverage([u64; NAMES.len()]);

impl Default for Coverage {
    fn default() -> Self {
        Self([0; NAMES.len()])
    }
}

impl Coverage {
    pub(crate) fn count(&mut self, point: CoverPoint) {
        self.0[point as usize] += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (sum, n) in self.0.iter_mut().zip(other.0) {
            *sum += n;
        }
    }

    /// The points that happened fewer than `n` times.
    pub(crate) fn rarer_than(&self, n: u64) -> Vec<String> {
        NAMES
            .iter()
            .zip(self.0)
            .filter(|(_, count)| *count < n)
            .map(|(name, count)| format!("{name}: {count}"))
            .collect()
    }

    /// All counts as text.
    pub(crate) fn table(&self) -> String {
        NAMES.iter().zip(self.0).fold(String::new(), |mut table, (name, count)| {
            let _ = write!(table, "{name} {count}, ");
            table
        })
    }
}
