//! When a container that has ended starts again, as kubelets decide it.

use std::time::Duration;

/// The first and the longest back-off of a container that ends again and again: 10 s and 5 min, as
/// a kubelet's.
const BACKOFF_MIN: Duration = Duration::from_secs(10);
const BACKOFF_MAX: Duration = Duration::from_secs(300);
/// A container that has run for longer starts over without a back-off: 10 min, as a kubelet's.
const RUN_LONG: Duration = Duration::from_secs(600);

/// The restart policy of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// After every end.
    Always,
    /// After an end with another code than zero.
    OnFailure,
    /// Never.
    Never,
}

impl Policy {
    /// The policy of a pod's main containers by its `restartPolicy`. Default: always.
    pub fn of_pod(policy: &str) -> Self {
        match policy {
            "OnFailure" => Self::OnFailure,
            "Never" => Self::Never,
            _ => Self::Always,
        }
    }

    /// The policy of an init container that is no sidecar: one that has succeeded is done.
    pub fn of_init(self) -> Self {
        match self {
            Self::Never => Self::Never,
            Self::Always | Self::OnFailure => Self::OnFailure,
        }
    }

    /// Whether a container that ended with this code starts again.
    pub fn restarts(self, code: i64) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => code != 0,
            Self::Never => false,
        }
    }
}

/// The delay before the restart after `n_restarts`: none at first, then 10 s, 20 s, … up to 5 min.
/// `ran`: how long the container ran.
pub fn backoff(n_restarts: i64, ran: Duration) -> Duration {
    if n_restarts == 0 || ran > RUN_LONG {
        return Duration::ZERO;
    }
    let doubled = u32::try_from(n_restarts - 1).unwrap_or_default().min(10);
    BACKOFF_MIN.saturating_mul(1 << doubled).min(BACKOFF_MAX)
}

/// `1m20s`, as kubelets write durations. Parts of a second are left out.
pub fn show(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_back_off_doubles_and_is_forgotten_after_a_long_run() {
        let short = Duration::from_secs(1);
        let delays: Vec<u64> = (0..8).map(|n| backoff(n, short).as_secs()).collect();
        assert_eq!(delays, [0, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(backoff(5, Duration::from_secs(601)), Duration::ZERO);
        assert_eq!(show(Duration::from_secs(80)), "1m20s");
    }
}
