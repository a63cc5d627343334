//! Rules broken on purpose, to see that the simulator notices.
//!
//! Without the feature `broken-rules`, which nothing but that test turns on, [`Broken`] is empty,
//! [`Broken::is`] is `false` at compile time, and of each hook nothing is left. With it, one
//! informer may be built with one rule broken (`SharedInformerBuilder::broken`); others in the
//! process keep it.

#![cfg_attr(
    not(feature = "broken-rules"),
    expect(unreachable_pub, reason = "the module is public with the feature")
)]

/// A rule to be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// A relist tells nobody of what is gone (FIFO-12, EVT-4).
    NoTombstonesOnRelist,
    /// Versions are recorded while a watch replays what exists, in any order (REF-12, REF-21).
    UnorderedVersions,
    /// A streamed list that ends too soon is taken for whole (REF-11 e).
    PartialStream,
    /// A deletion gets lost when it finds the delta queue occupied (FIFO-10).
    DropsDeletes,
    /// Something happens to an object between the look at the cache and the joining of a late
    /// handler (SHI-3).
    LateHandlerRaces,
    /// A handler's full queue keeps the older of two notifications of a key (SHI-5).
    MergeKeepsOlder,
    /// Continue requests carry the version (REF-2).
    PagesCarryVersion,
    /// A relist asks for any state (REF-1 b).
    RelistsAtZero,
    /// The informer says that it is synced when it starts (SHI-9).
    SyncedAtOnce,
    /// An index keeps an object's former values (IDX-7).
    IndexKeepsOld,
    /// Too many requests at the opening of a watch lead to a list (REF-30 b).
    BusyRelists,
    /// Every watch has the same timeout (2.1).
    ConstantTimeout,
    /// The version of what is skipped is recorded (REF-24).
    RecordsSkipped,
    /// Whether something is an addition is decided by the verb (EVT-2).
    VerbDecides,
}

/// Which rule is broken: none, in any build but that test's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Broken {
    #[cfg(feature = "broken-rules")]
    rule: Option<Rule>,
}

impl Broken {
    #[cfg(feature = "broken-rules")]
    pub(crate) fn of(rule: Rule) -> Self {
        Self { rule: Some(rule) }
    }

    #[inline(always)]
    pub(crate) fn is(self, rule: Rule) -> bool {
        #[cfg(feature = "broken-rules")]
        let is = self.rule == Some(rule);
        #[cfg(not(feature = "broken-rules"))]
        let is = {
            let _ = rule;
            false
        };
        is
    }
}
