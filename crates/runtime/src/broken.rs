//! Rules broken on purpose, to see that the simulation notices.
//!
//! Without the feature `broken-rules`, which nothing but that test turns on, [`Broken`] is empty,
//! [`Broken::is`] is `false` at compile time, and of each hook nothing is left. With it, a
//! manager's controllers may break one rule (`ControllerDefaults::broken`); others in the process
//! keep it.

#![cfg_attr(
    not(feature = "broken-rules"),
    expect(unreachable_pub, reason = "the module is public with the feature")
)]

/// A rule to be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// A pass that failed is not repeated (RES-5).
    ForgetsFailures,
    /// A pass that failed is repeated without back-off (RES-5).
    RetriesAtOnce,
    /// A pass that panicked is not repeated (RES-8).
    ForgetsPanics,
    /// A key whose pass succeeded comes back although nothing changed (RES-1).
    ComesBackUnasked,
    /// A controller that is stopped leaves its passes to themselves (CTL-4).
    LeavesPasses,
    /// Workers start before this process leads (MGR-6).
    StartsUnelected,
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
