//! How a pass began, and what came of it.

use std::{fmt, time::Duration};

use tokio::time::Instant;

use super::Cause;

/// How much of an error's text is remembered, in bytes.
pub const ERROR_BYTES_MAX: usize = 512;

/// The id of one pass, written as a version 4 UUID. Drawn from the manager's seed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReconcileId(pub(crate) u128);

impl ReconcileId {
    /// The id of the pass of this number. Two rounds of SplitMix64, whose outputs are distinct for
    /// distinct inputs.
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

/// How a pass began: what its worker knows of it, and nothing that takes an allocation.
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
    /// A pass that begins now, and of which nothing else is known.
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

/// What came of a pass.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PassOutcome {
    /// It succeeded, and waits for a change.
    Success,
    /// It succeeded, and comes back after this time.
    RequeueAfter(Duration),
    /// It succeeded, and comes back with back-off.
    Requeue,
    /// It failed, and comes back with back-off: the error with its causes, cut after
    /// [`ERROR_BYTES_MAX`].
    Error(Box<str>),
    /// It failed for good: the error likewise.
    Terminal(Box<str>),
    /// It panicked: what the panic said, likewise.
    Panic(Box<str>),
    /// It took too long, and was dropped.
    Timeout,
    /// It was dropped before it had ended: its controller was stopped without patience.
    Dropped,
}

impl PassOutcome {
    /// In one word, as a field of spans; the first three and `error` as the `result` label of
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

    /// The error's text, where there is one.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Error(text) | Self::Terminal(text) | Self::Panic(text) => Some(text),
            _ => None,
        }
    }
}

/// As much of an error's text as is remembered.
pub(crate) fn cut(mut text: String) -> Box<str> {
    if text.len() > ERROR_BYTES_MAX {
        text.truncate(text.floor_char_boundary(ERROR_BYTES_MAX));
        text.push('…');
    }
    text.into()
}
