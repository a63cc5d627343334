//! The start and the outcome of a pass.

use std::{fmt, time::Duration};

use tokio::time::Instant;

use super::Cause;

/// How much of an error's text is recorded, in bytes.
pub const ERROR_BYTES_MAX: usize = 512;

/// The id of one pass, displayed as a version 4 UUID. Derived from the manager's seed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReconcileId(pub(crate) u128);

impl ReconcileId {
    /// The id of the pass with this number. Two rounds of SplitMix64, so ids of different numbers
    /// differ.
    pub(crate) fn of(seed: u64, number: u64) -> Self {
        let high = split_mix(seed ^ split_mix(number));
        Self(u128::from(high) << 64 | u128::from(split_mix(high ^ number)))
    }
}

fn split_mix(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl fmt::Display for ReconcileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Version 4, variant 1 (RFC 9562 §5.4).
        let bits = self.0 & !(0xf << 76) & !(0b11 << 62) | (0x4 << 76) | (0b10 << 62);
        let hex = format!("{bits:032x}");
        write!(f, "{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }
}

impl fmt::Debug for ReconcileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// What a worker knows when a pass starts. Needs no allocation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Began {
    pub(crate) at: Instant,
    pub(crate) reconcile_id: ReconcileId,
    pub(crate) cause: Cause,
    pub(crate) n_events: u32,
    pub(crate) waited: Option<Duration>,
    pub(crate) priority: i32,
    pub(crate) attempt: u32,
}

#[cfg(test)]
impl Began {
    /// A pass that starts now, with defaults.
    pub(crate) fn now(cause: Cause) -> Self {
        Self {
            at: Instant::now(),
            reconcile_id: ReconcileId(0),
            cause,
            n_events: 1,
            waited: None,
            priority: 0,
            attempt: 0,
        }
    }
}

/// The outcome of a pass.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PassOutcome {
    /// It succeeded without a requeue.
    Success,
    /// It succeeded with a requeue after this time.
    RequeueAfter(Duration),
    /// It succeeded with a requeue with back-off.
    Requeue,
    /// It failed and is retried with back-off: the error with its causes, cut to
    /// [`ERROR_BYTES_MAX`].
    Error(Box<str>),
    /// It failed with a terminal error: the error, cut as above.
    Terminal(Box<str>),
    /// It panicked: the message, cut as above.
    Panic(Box<str>),
    /// It timed out and was dropped.
    Timeout,
    /// It was dropped before its end: its controller was stopped at once.
    Dropped,
}

impl PassOutcome {
    /// One word, for spans. The first three and `error` are the values of the `result` label of
    /// controller-runtime's metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::RequeueAfter(_) => "requeue_after",
            Self::Requeue => "requeue",
            Self::Error(_) => "error",
            Self::Terminal(_) => "terminal",
            Self::Panic(_) => "panic",
            Self::Timeout => "timeout",
            Self::Dropped => "dropped",
        }
    }

    /// Whether it failed.
    pub fn is_failure(&self) -> bool {
        !matches!(self, Self::Success | Self::RequeueAfter(_) | Self::Requeue)
    }

    /// The error's text, if any.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Error(text) | Self::Terminal(text) | Self::Panic(text) => Some(text),
            _ => None,
        }
    }
}

/// An error's text, cut to the recorded length.
pub(crate) fn cut(mut text: String) -> Box<str> {
    if text.len() > ERROR_BYTES_MAX {
        text.truncate(text.floor_char_boundary(ERROR_BYTES_MAX));
        text.push('…');
    }
    text.into()
}
