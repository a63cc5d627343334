//! Deliberately broken rules, to test that the simulation detects them.
//!
//! Without the feature `broken-rules`, which only that test enables, [`Broken`] is empty and
//! [`Broken::is`] is `false` at compile time, so the hooks compile to nothing. With it, a manager's
//! controllers may break one rule (`ControllerDefaults::broken`); other managers in the process do
//! not.

#![cfg_attr(
    not(feature = "broken-rules"),
    expect(unreachable_pub, reason = "the module is public with the feature")
)]

/// A rule to break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// A failed pass is not retried (RES-5).
    ForgetsFailures,
    /// A failed pass is retried without back-off (RES-5).
    RetriesAtOnce,
    /// A pass that panicked is not retried (RES-8).
    ForgetsPanics,
    /// A key whose pass succeeded is requeued without a reason (RES-1).
    ComesBackUnasked,
    /// A stopped controller does not wait for its passes (CTL-4).
    LeavesPasses,
    /// Workers start before this process leads (MGR-6).
    StartsUnelected,
}

/// The broken rule; none except in that test.
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
