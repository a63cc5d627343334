//! What happened in a life, counted: a simulator that no longer brings a fault about would find
//! nothing, and look well.
use std::fmt::Write;

macro_rules! seen {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Something that a range of seeds must bring about.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Seen { $($(#[$doc])* $name,)* }

        const NAMES: &[&str] = &[$(stringify!($name),)*];
    };
}

seen! {
    // What a list is answered with.
    ListExpired, ListTooLarge, ListTooMany, ListRetryAfter, ListInternal, ListForbidden, ListMissing, ListRefused, ListLost,
    ListCutBetweenParts, ListBrokenOff, TokenExpired, ListStale, ListOfPages, ListVersionEmpty, ListDuplicateKeys, ListPoisoned,
    ListNameless, ListHangs,
    // How a streamed list goes.
    StreamWhole, StreamUnknown, StreamExpired, StreamTooLarge, StreamBusy, StreamRefused, StreamFailed, StreamCut,
    StreamVeryShort, StreamEndless, StreamHangs, StreamPoisoned,
    // How the opening of a watch goes.
    OpenExpired, OpenTooMany, OpenRetryAfter, OpenInternal, OpenForbidden, OpenMissing, OpenRefused, OpenLost, OpenHangs,
    // How a watch goes.
    WatchExpired, WatchCompacted, WatchTooMany, WatchInternal, WatchOther, WatchCutBeforeFrame, WatchCutAfterFrame, WatchClosed,
    WatchVeryShort, WatchTimedOut, WatchSilent, WatchReplayed, FrameDuplicated, FrameDelayed, Bookmark, FrameNameless,
    FrameWrongType, FrameUnknownVerb, FramePoisoned, FrameMisfit, WatchBroken,
    // What the world does.
    Written, Recreated, Compacted, ClockJumped, DownForLong,
    // What the reflector does.
    AsksAtZero, AsksAtVersion, AsksAtLatest, AsksPage, AsksWhole, AsksStream, AsksStreamAgain, FallsBackToPages, Watches,
    WatchesAgain, RoundAfterExpired, RelistExpired, PausesThenWatches, PausesThenStreams, WaitsLongerAsAsked, BacksOff,
    BacksOffToTheCap, JitterLow, JitterHigh, TimeoutLow, TimeoutHigh, InternalErrorBorne, ListGivenUp, NeverStreamsAgain,
    // What handlers do and are told.
    Slow, Blocked, Panics, Late, Removed, OwnResync, ToldAdded, ToldInitial, ToldUpdated, ToldSync, ToldFinal, ToldMissed,
    ToldNewUid, ToldUnknownDeleted, QueueFull,
    // What the informer says, and what is read.
    Degraded, Recovered, SyncedWaited, WroteThenRead, SnapshotKept, LateIndex, MisfitRejected, ObjectSkipped,
    StoppedEarly, CompactKept, DecodedKept, CompressedKept, MetadataKept,
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Coverage([u64; NAMES.len()]);

impl Default for Coverage {
    fn default() -> Self {
        Self([0; NAMES.len()])
    }
}

impl Coverage {
    pub(crate) fn note(&mut self, seen: Seen) {
        self.0[seen as usize] += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (sum, n) in self.0.iter_mut().zip(other.0) {
            *sum += n;
        }
    }

    /// What happened fewer than `n` times.
    pub(crate) fn rarer_than(&self, n: u64) -> Vec<String> {
        NAMES
            .iter()
            .zip(self.0)
            .filter(|(_, count)| *count < n)
            .map(|(name, count)| format!("{name}: {count}"))
            .collect()
    }

    /// Everything, for a reader.
    pub(crate) fn table(&self) -> String {
        NAMES.iter().zip(self.0).fold(String::new(), |mut table, (name, count)| {
            let _ = write!(table, "{name} {count}, ");
            table
        })
    }
}
